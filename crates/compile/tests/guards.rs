//! Guards and recompilations (U-1 to U-30): how many graphs a sequence of calls needs, and what is said about it. Those on settings of
//! the process are in `process`.

mod common;

use common::*;
use firebrand_compile::{Compiled, Dynamic, Error, Number, Options, Shared, compile_with};
use firebrand_core::autograd::{autocast, inference_mode, no_grad};
use firebrand_core::module::Module;
use firebrand_core::{DType, Tensor};
use std::sync::Arc;

type Counter = Arc<firebrand_compile::backends::Counter>;

/// Frames after each call.
fn frames<'a>(counter: &Counter, calls: impl IntoIterator<Item = Box<dyn FnOnce() + 'a>>) -> Vec<usize> {
    let after = |call: Box<dyn FnOnce() + 'a>| {
        call();
        counter.frames()
    };
    calls.into_iter().map(after).collect()
}

/// Frames of `x + 1` after each of these calls.
fn plus_one(options: impl FnOnce(&Counter) -> Options, inputs: &[Tensor]) -> Vec<usize> {
    let c = counter();
    let f = compile_with(|x: &Tensor| x + 1.0, options(&c));
    let call = |x: &Tensor| {
        let (f, x) = (f.clone(), x.clone());
        Box::new(move || {
            let plain: Vec<f32> = x.to_vec::<f32>().iter().map(|v| v + 1.0).collect();
            assert_eq!(f.call(&x).to_vec::<f32>(), plain);
        }) as Box<dyn FnOnce()>
    };
    frames(&c, inputs.iter().map(call))
}

/// U-1 to U-5: sizes of one vector under the three policies.
#[test]
fn sizes() {
    let rows: [(&str, Dynamic, &[usize], &[usize]); 5] = [
        ("U-1", Dynamic::Automatic, &[3, 3, 4, 5, 7], &[1, 1, 2, 2, 2]),
        ("U-2", Dynamic::Never, &[3, 4, 5], &[1, 2, 3]),
        ("U-3", Dynamic::Always, &[3, 4, 5, 1, 0], &[1, 1, 1, 2, 3]),
        ("U-4", Dynamic::Automatic, &[3, 4, 1, 0, 9], &[1, 2, 3, 4, 4]),
        ("U-5", Dynamic::Automatic, &[1, 3, 4], &[1, 2, 2]),
    ];
    for (case, dynamic, sizes, expected) in rows {
        let inputs: Vec<Tensor> = sizes.iter().map(|&n| ones(n)).collect();
        assert_eq!(plus_one(|c| Options { dynamic, ..with(c) }, &inputs), expected, "{case}");
    }
}

/// U-6 rank, U-7 dtype, U-8 strides, U-9 requires_grad.
#[test]
fn properties_of_a_tensor() {
    let f32 = |sizes: &[i64]| Tensor::ones(sizes, DType::F32);
    let rows: [(&str, Vec<Tensor>, &[usize]); 4] = [
        ("U-6", vec![f32(&[2]), f32(&[2, 2]), f32(&[2, 2, 2])], &[1, 2, 3]),
        ("U-7", [DType::F32, DType::F64, DType::I64, DType::F32].map(|d| Tensor::ones([3], d)).to_vec(), &[1, 2, 3, 3]),
        (
            "U-8",
            vec![f32(&[3, 4]), f32(&[4, 3]).t(), f32(&[3, 8]).slice(1, None, None, 2), f32(&[3, 4])],
            &[1, 2, 3, 3],
        ),
        ("U-9", vec![ones(3), ones_leaf(3), ones(3)], &[1, 2, 2]),
    ];
    for (case, inputs, expected) in rows {
        assert_eq!(plus_one(with, &inputs), expected, "{case}");
    }
}

/// U-10 to U-12: grad mode and inference mode. U-11 may share a graph, but the state is part of the key.
#[test]
fn modes() {
    fn run(x: Tensor, modes: &[fn(&dyn Fn())]) -> Vec<usize> {
        let c = counter();
        let f = compile_with(|x: &Tensor| x + 1.0, with(&c));
        let call = |mode: &fn(&dyn Fn())| {
            let (f, x, mode) = (f.clone(), x.clone(), *mode);
            Box::new(move || mode(&|| drop(f.call(&x)))) as Box<dyn FnOnce()>
        };
        frames(&c, modes.iter().map(call))
    }
    let on: fn(&dyn Fn()) = |f| f();
    let off: fn(&dyn Fn()) = |f| no_grad(f);
    let inference: fn(&dyn Fn()) = |f| inference_mode(f);
    assert_eq!(run(ones_leaf(3), &[on, off, on]), [1, 2, 2], "U-10");
    assert_eq!(run(ones(3), &[on, off]), [1, 2], "U-11");
    assert_eq!(run(ones_leaf(3), &[on, inference, on]), [1, 2, 2], "U-12");
}

/// U-13, U-14: autocast is part of the key, and its casts are part of the graph.
#[test]
fn autocast_regions() {
    let run = |dtypes: &[Option<DType>]| {
        let c = counter();
        let f = compile_with(|(x, y): &(Tensor, Tensor)| x.matmul(y), with(&c));
        let xy = (Tensor::ones([2, 2], DType::F32), Tensor::ones([2, 2], DType::F32));
        let mut found = Vec::new();
        for dtype in dtypes {
            let z = match dtype {
                Some(d) => autocast(*d, || f.call(&xy)),
                None => f.call(&xy),
            };
            assert_eq!(z.dtype(), dtype.unwrap_or(DType::F32));
            found.push(c.frames());
        }
        found
    };
    assert_eq!(run(&[None, Some(DType::BF16), None, Some(DType::BF16)]), [1, 2, 2, 2], "U-13");
    assert_eq!(run(&[Some(DType::BF16), Some(DType::F16), Some(DType::BF16)]), [1, 2, 2], "U-14");
}

/// U-17, U-18: a number is compiled in first and becomes an input when it changes. A plain host value never does.
#[test]
fn host_numbers() {
    let run = |numbers: &[Number]| {
        let c = counter();
        let f = compile_with(|(x, n): &(Tensor, Number)| x * n, with(&c));
        let mut found = Vec::new();
        for n in numbers {
            let product = f.call(&(ones(2), n.clone()));
            assert_eq!(product.to_vec::<f64>(), [n.value().to_f64(); 2]);
            assert_eq!(product.dtype(), DType::F32, "a number is weak in type promotion");
            found.push(c.frames());
        }
        found
    };
    let ints: Vec<Number> = [2i64, 2, 3, 4, 1, 0].map(Number::from).to_vec();
    assert_eq!(run(&ints), [1, 1, 2, 2, 2, 2], "U-17");
    let floats: Vec<Number> = [2.0f64, 3.0, 4.0, 5.0].map(Number::from).to_vec();
    assert_eq!(run(&floats), [1, 2, 2, 2], "U-18");

    let c = counter();
    let f = compile_with(|(x, n): &(Tensor, f64)| x * *n, with(&c));
    for n in [2.0, 3.0, 4.0] {
        assert_eq!(f.call(&(ones(1), n)).to_vec::<f64>(), [n]);
    }
    assert_eq!(c.frames(), 3);
}

/// Asking a number for its value ties the graph to it.
#[test]
fn a_number_that_is_looked_at_is_fixed() {
    let c = counter();
    let f = compile_with(|(x, n): &(Tensor, Number)| if n.value().to_f64() > 2.0 { x * n } else { x + n }, with(&c));
    for (n, expected) in [(1.0, 2.0f32), (2.0, 3.0), (3.0, 3.0), (2.0, 3.0)] {
        assert_eq!(f.call(&(ones(1), Number::from(n))).to_vec::<f32>(), [expected]);
    }
}

/// U-19: which arguments are the same tensor.
#[test]
fn aliased_arguments() {
    let c = counter();
    let f = compile_with(|(x, y): &(Tensor, Tensor)| x + y, with(&c));
    let x = ones(2);
    let mut found = Vec::new();
    for y in [ones(2), x.clone(), ones(2)] {
        assert_eq!(f.call(&(x.clone(), y)).to_vec::<f32>(), [2.0, 2.0]);
        found.push(c.frames());
    }
    assert_eq!(found, [1, 2, 2]);
}

/// U-20: writes through overlapping slices land where a plain run puts them.
#[test]
fn overlapping_arguments() {
    let c = counter();
    let f = compile_with(
        |(x, y): &(Tensor, Tensor)| {
            x.mul_(&Tensor::scalar(2.0f32));
            y.add_(&Tensor::scalar(1.0f32));
            x + y
        },
        with(&c),
    );
    let b = ones(6);
    let z = f.call(&(b.i(0..4), b.i(2..6)));
    assert_eq!(z.to_vec::<f32>(), [5.0; 4]);
    assert_eq!(b.to_vec::<f32>(), [2.0, 2.0, 3.0, 3.0, 2.0, 2.0]);
    assert_eq!(c.frames(), 1);
}

/// U-21: distinct, same, overlapping.
#[test]
fn mutation_seen_through_an_alias() {
    let c = counter();
    let f = compile_with(
        |(x, y): &(Tensor, Tensor)| {
            x.add_(&Tensor::scalar(1.0f32));
            y * 2.0
        },
        with(&c),
    );
    assert_eq!(f.call(&(ones(3), ones(3))).to_vec::<f32>(), [2.0; 3]);
    let x = ones(3);
    assert_eq!(f.call(&(x.clone(), x)).to_vec::<f32>(), [4.0; 3]);
    let b = ones(4);
    let (plain, expected) = (ones(4), {
        let plain = ones(4);
        plain.i(0..3).add_(&Tensor::scalar(1.0f32));
        (plain.i(1..4) * 2.0).to_vec::<f32>()
    });
    drop(plain);
    assert_eq!(f.call(&(b.i(0..3), b.i(1..4))).to_vec::<f32>(), expected);
    assert_eq!(b.to_vec::<f32>(), [2.0, 2.0, 2.0, 1.0]);
    assert_eq!(c.frames(), 2);
}

/// U-22 bool, U-23 text, U-24 length of a list: plain host values are compiled in.
#[test]
fn host_values() {
    let c = counter();
    let f = compile_with(|(x, up): &(Tensor, bool)| if *up { x + 1.0 } else { x - 1.0 }, with(&c));
    let mut found = Vec::new();
    for (up, expected) in [(true, 2.0f32), (false, 0.0), (true, 2.0)] {
        assert_eq!(f.call(&(ones(1), up)).to_vec::<f32>(), [expected]);
        found.push(c.frames());
    }
    assert_eq!(found, [1, 2, 2], "U-22");

    let c = counter();
    let f = compile_with(|(x, name): &(Tensor, String)| x * name.len() as f64, with(&c));
    for (name, frames) in [("a", 1), ("b", 2), ("c", 3)] {
        f.call(&(ones(1), name.to_string()));
        assert_eq!(c.frames(), frames, "U-23");
    }

    let c = counter();
    let f = compile_with(|list: &Vec<Tensor>| list.iter().skip(1).fold(&list[0] + 0.0, |sum, t| sum + t), with(&c));
    for n in 1..=3 {
        assert_eq!(f.call(&vec![ones(2); n]).to_vec::<f32>(), [n as f32; 2]);
        assert_eq!(c.frames(), n, "U-24");
    }
}

/// U-25: a captured tensor is an input, whether it is replaced or written.
#[test]
fn captured_tensor() {
    let c = counter();
    let w = Shared::new(ones(1));
    let held = w.clone();
    let f = compile_with(move |x: &Tensor| x + held.get(), with(&c));
    assert_eq!(f.call(&ones(1)).to_vec::<f32>(), [2.0]);
    w.set(v(&[5.0]));
    assert_eq!(f.call(&ones(1)).to_vec::<f32>(), [6.0]);
    w.get().add_(&ones(1));
    assert_eq!(f.call(&ones(1)).to_vec::<f32>(), [7.0]);
    assert_eq!(c.frames(), 1);
}

/// A tensor that the closure itself owns is an input too: writing it needs no new graph.
#[test]
fn a_tensor_of_the_closure_is_an_input() {
    let c = counter();
    let w = ones(1);
    let held = w.clone();
    let f = compile_with(move |x: &Tensor| x + &held, with(&c));
    assert_eq!(f.call(&ones(1)).to_vec::<f32>(), [2.0]);
    w.add_(&ones(1));
    assert_eq!(f.call(&ones(1)).to_vec::<f32>(), [3.0]);
    assert_eq!(c.frames(), 1);
}

/// U-26: a captured number becomes an input when it changes.
#[test]
fn captured_number() {
    let c = counter();
    let k = Shared::new(Number::from(2.0));
    let held = k.clone();
    let f = compile_with(move |x: &Tensor| x * &held.get(), with(&c));
    let mut found = Vec::new();
    for value in [2.0, 3.0, 4.0] {
        k.set(Number::from(value));
        assert_eq!(f.call(&ones(1)).to_vec::<f64>(), [value]);
        found.push(c.frames());
    }
    assert_eq!(found, [1, 2, 2]);
}

/// U-27: a captured function is guarded by its identity.
#[test]
fn captured_function() {
    #[derive(Clone, Copy)]
    struct Op(&'static str, fn(&Tensor) -> Tensor);
    impl firebrand_compile::Tree for Op {
        type With<X> = Op;
        fn map_leaves<X>(
            &self,
            _: &mut impl FnMut(&Tensor) -> firebrand_core::Result<X>,
        ) -> firebrand_core::Result<Op> {
            Ok(*self)
        }
        fn visit<'a>(&'a self, see: &mut dyn FnMut(firebrand_compile::Leaf<'a>)) {
            see(firebrand_compile::Leaf::Host(firebrand_compile::Host::Text(self.0.into())))
        }
        fn rebuild(&self, _: &mut dyn firebrand_compile::Rebuild) -> Op {
            *self
        }
    }
    let c = counter();
    let op = Shared::new(Op("sin", Tensor::sin));
    let held = op.clone();
    let f = compile_with(move |x: &Tensor| (held.get().1)(x), with(&c));
    assert_eq!(f.call(&v(&[0.0])).to_vec::<f32>(), [0.0]);
    op.set(Op("cos", Tensor::cos));
    assert_eq!(f.call(&v(&[0.0])).to_vec::<f32>(), [1.0]);
    assert_eq!(c.frames(), 2);
}

/// U-28: the training mode of a module is guarded.
#[test]
fn training_mode() {
    let c = counter();
    let dropout = Arc::new(firebrand_nn::layers::Dropout::new(0.5));
    let f = firebrand_compile::compile_module::<_, Tensor>(dropout.clone(), with(&c));
    let x = ones(64);
    assert_ne!(f.call(&x).to_vec::<f32>(), x.to_vec::<f32>());
    dropout.eval();
    assert_eq!(f.call(&x).to_vec::<f32>(), x.to_vec::<f32>());
    assert_eq!(c.frames(), 2);
}

/// U-29: eight entries at most; then what fits none of them runs plainly, or fails if one graph was asked for.
#[test]
fn cache_limit() {
    let c = counter();
    let f = compile_with(|x: &Tensor| x + 1.0, Options { dynamic: Dynamic::Never, ..with(&c) });
    for n in 2..14 {
        assert_eq!(f.call(&ones(n)).to_vec::<f32>(), vec![2.0; n]);
    }
    assert_eq!(c.frames(), 8);
    assert_eq!(f.call(&ones(2)).to_vec::<f32>(), [2.0; 2]);

    let c = counter();
    let f = compile_with(|x: &Tensor| x + 1.0, Options { dynamic: Dynamic::Never, ..full(&c) });
    for n in 2..10 {
        f.call(&ones(n));
    }
    assert!(matches!(f.try_call(&ones(10)), Err(Error::CacheLimit { limit: 8, .. })));
}

/// U-30: the error names argument, index, expected and actual size.
#[test]
fn recompilation_forbidden() {
    let c = counter();
    let f = compile_with(|x: &Tensor| x + 1.0, Options { error_on_recompile: true, ..with(&c) });
    f.call(&ones(3));
    let told = f.try_call(&ones(4)).map(drop).unwrap_err().to_string();
    for part in ["argument 0", "index 0", "expected 3", "actual 4"] {
        assert!(told.contains(part), "{part} in {told}");
    }
    assert_eq!(f.call(&ones(3)).to_vec::<f32>(), [2.0; 3]);
}

fn failure<I: firebrand_compile::Tree, O: firebrand_compile::Tree + Send + Sync>(
    f: &Compiled<I, O>,
    x: &I,
) -> Vec<String> {
    match f.try_call(x) {
        Err(Error::Recompile { reasons, .. }) => reasons,
        other => panic!("expected a refusal to recompile, found {:?}", other.map(|_| ())),
    }
}

/// U-154: a refusal to recompile tells the same.
#[test]
fn recompile_reasons() {
    let c = counter();
    let f = compile_with(|x: &Tensor| x * 2.0, Options { error_on_recompile: true, ..with(&c) });
    f.call(&ones(3));
    assert_eq!(
        failure(&f, &Tensor::ones([3], DType::F64)),
        ["entry 0: argument 0: dtype: expected float32, actual float64"]
    );
    assert_eq!(failure(&f, &ones_leaf(3)), ["entry 0: argument 0: requires_grad: expected false, actual true"]);
    no_grad(|| assert_eq!(failure(&f, &ones(3)), ["entry 0: gradient mode: expected true, actual false"]));
}
