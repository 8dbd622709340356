//! Rows of the plain engine that compiled functions must keep.

use crate::{Case, How, check, leaf, leaf_of};
use firebrand_core::autograd::{BackwardOptions, Context, Function, get_gradient_edge};
use firebrand_core::module::{Forward, Module, ModuleCore, ModuleHooks};
use firebrand_core::{Result, Scalar, Tensor};

/// Zeros of either sign are equal: a clamp keeps the one it gets.
fn clamp_keeps_the_sign_of_zero(how: &How) {
    let f = how.compile(|x: &Tensor| x.clamp(Some(Scalar::Float(0.0)), Some(Scalar::Float(1.0))));
    for _ in 0..3 {
        let x = leaf(&[-0.0, 0.0, -1.0, 2.0]);
        let y = f(&x).unwrap();
        how.log.push(format!("{:?}", y.to_vec::<f64>().iter().map(|v| v.to_bits()).collect::<Vec<_>>()));
        y.sum().backward();
        how.log.grad("x", &x);
    }
}

/// Gives no gradient.
struct Swallow;

impl Function for Swallow {
    fn forward(&self, _: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![&inputs[0] * 2.0])
    }
    fn backward(&self, _: &Context, _: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![None])
    }
}

/// A node pre-hook gives a gradient where there is none.
fn pre_hook_defines_a_gradient(how: &How) {
    let f = how.compile(|x: &Tensor| -> Result<Tensor> {
        let y = x * 2.0;
        get_gradient_edge(&y)?
            .node
            .register_prehook(|grads| Ok(Some(grads.iter().map(|_| Some(Tensor::new(&[1.0, 1.0, 1.0]))).collect())));
        Ok(Swallow.apply(&[&y])?.remove(0))
    });
    for k in 0..3 {
        let x = leaf_of(k);
        let done = f(&x).unwrap().sum().try_backward(&BackwardOptions::default());
        how.log.push(format!("{:?}", done.map_err(|e| e.to_string())));
        how.log.grad("x", &x);
    }
}

/// Returns 2a and 3b.
#[derive(Module)]
struct Apart(ModuleCore);

impl Forward<(Tensor, Tensor)> for Apart {
    type Output = (Tensor, Tensor);
    fn forward(&self, (a, b): &(Tensor, Tensor)) -> Result<(Tensor, Tensor)> {
        Ok((a * 2.0, b * 3.0))
    }
}

/// A full backward hook sees zeros for an input without gradient.
fn module_hook_sees_zeros(how: &How) {
    let module = Apart(ModuleCore::new());
    let log = how.log.clone();
    module
        .register_full_backward_hook(move |_, gi: &[Option<Tensor>], go: &[Option<Tensor>]| {
            gi.iter().for_each(|g| log.see_opt("input", g.as_ref()));
            go.iter().for_each(|g| log.see_opt("output", g.as_ref()));
        })
        .unwrap();
    let f = how.compile(move |x: &(Tensor, Tensor)| module.call(x).0);
    for k in 0..3 {
        let (a, b) = (leaf_of(k), leaf_of(k + 1));
        f(&(a.clone(), b.clone())).unwrap().sum().backward();
        how.log.grad("a", &a);
        how.log.grad("b", &b);
    }
}

#[test]
fn rows_of_the_plain_engine() {
    const CASES: &[Case] = &[
        ("X-50", clamp_keeps_the_sign_of_zero),
        ("X-51", pre_hook_defines_a_gradient),
        ("X-52", module_hook_sees_zeros),
    ];
    check(CASES);
}
