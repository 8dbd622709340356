//! Saved-tensor hooks that are active at the call see what the compiled node keeps.

use super::*;
use firebrand_core::autograd::saved_tensors_hooks;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// U-71: `sin(x) * exp(x)` keeps two tensors; each is packed and unpacked once.
#[test]
fn packs_what_is_kept() {
    static PACKED: AtomicUsize = AtomicUsize::new(0);
    static UNPACKED: AtomicUsize = AtomicUsize::new(0);
    let f: F = |x| Ok(vec![&x[0].try_sin()? * &x[0].try_exp()?]);
    let x = leaf(&[1.0]);
    let inputs = std::slice::from_ref(&x);
    let executable = compile(&aot_eager(), &capture(f, inputs), inputs);
    for (run, expected) in [(0, 4), (1, 2)] {
        PACKED.store(0, SeqCst);
        UNPACKED.store(0, SeqCst);
        let out = {
            let _hooks = saved_tensors_hooks(
                |t: &Tensor| {
                    PACKED.fetch_add(1, SeqCst);
                    Ok(t.clone())
                },
                |t: &Tensor| {
                    UNPACKED.fetch_add(1, SeqCst);
                    Ok(t.clone())
                },
            )
            .unwrap();
            if run == 0 { f(inputs).unwrap() } else { call(&executable, inputs) }
        };
        let g = grads(&out, inputs)[0].clone().unwrap();
        assert!((g.item::<f32>() - 3.756_049).abs() < 1e-6);
        assert_eq!((PACKED.load(SeqCst), UNPACKED.load(SeqCst)), (expected, expected));
    }
}

/// U-73: shapes that are packed for `relu(x@w)@w`.
#[test]
fn packed_shapes() {
    static SHAPES: Mutex<Vec<Vec<usize>>> = Mutex::new(Vec::new());
    let f: F = |x| Ok(vec![x[0].try_matmul(&x[1])?.try_relu()?.try_matmul(&x[1])?]);
    let inputs = [
        Tensor::ones([2, 3], firebrand_core::DType::F32).requires_grad_(),
        Tensor::ones([3, 3], firebrand_core::DType::F32).requires_grad_(),
    ];
    let executable = compile(&aot_eager(), &capture(f, &inputs), &inputs);
    let shapes = |run: &dyn Fn() -> Vec<Tensor>| {
        SHAPES.lock().unwrap().clear();
        let _hooks = saved_tensors_hooks(
            |t: &Tensor| {
                SHAPES.lock().unwrap().push(t.shape().to_vec());
                Ok(t.clone())
            },
            |t: &Tensor| Ok(t.clone()),
        )
        .unwrap();
        run();
        SHAPES.lock().unwrap().clone()
    };
    let mut plain = shapes(&|| f(&inputs).unwrap());
    plain.sort();
    assert_eq!(plain, [vec![2, 3], vec![2, 3], vec![2, 3], vec![3, 3], vec![3, 3]]);
    let mut compiled = shapes(&|| call(&executable, &inputs));
    compiled.sort();
    assert_eq!(compiled, [vec![2, 3], vec![3, 2], vec![3, 3]]);
}
