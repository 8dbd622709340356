//! Settings of the process as conditions of a graph (U-15, U-16). They are everybody's, so this is a program of its own, with one test.

mod common;

use common::*;
use firebrand_compile::compile_with;
use firebrand_core::{DType, Tensor, set_default_dtype, set_num_threads};

/// U-15: the default dtype is part of the key. U-16: the number of threads is not.
#[test]
fn settings_of_the_process() {
    let c = counter();
    let f = compile_with(|(): &()| Tensor::zeros([3], firebrand_core::TensorOptions::default()), with(&c));
    let mut found = Vec::new();
    for dtype in [DType::F32, DType::F64, DType::F32] {
        set_default_dtype(dtype);
        let z = f.call(&());
        assert_eq!((z.dtype(), z.to_vec::<f32>()), (dtype, vec![0.0; 3]));
        found.push(c.frames());
    }
    assert_eq!(found, [1, 2, 2], "U-15");

    let c = counter();
    let f = compile_with(|x: &Tensor| x + 1.0, with(&c));
    let threads = firebrand_core::num_threads();
    for n in [2, 1, 2] {
        set_num_threads(n);
        f.call(&ones(3));
        assert_eq!(c.frames(), 1, "U-16");
    }
    set_num_threads(threads);
}
