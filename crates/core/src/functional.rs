//! Jacobians, Hessians and products with them by the ordinary engine: `jacobian`, `hessian`, `vjp`, `jvp`, `hvp`, `vhp`.
//!
//! These are PyTorch's `autograd.functional`: the function runs once (twice for `jvp`, by double backward) on copies of
//! the inputs' handles, results have no history unless `create_graph` asks for it, and `strict` turns silent zeros into
//! errors. The transforms of [`crate::func`] nest better; these report missing dependencies more precisely.

use crate::autograd::{EnableGrad, GradOptions, Target, record};
use crate::func::vmap::joined;
use crate::func::{self, Outcome, TensorTree};
use crate::{ErrorKind, Result, Tensor, ops};

/// How a vectorized Jacobian is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// A row for every output element.
    #[default]
    ReverseMode,
    /// A column for every input element; needs `vectorize`.
    ForwardMode,
}

/// Options of all functions here; each ignores those that do not apply to it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Results can be differentiated.
    pub create_graph: bool,
    /// An output that does not depend on an input is an error instead of zeros.
    pub strict: bool,
    /// All rows at once, by `vmap`.
    pub vectorize: bool,
    /// Of the Jacobian; of the outer one for `hessian`.
    pub strategy: Strategy,
}

fn wrong<T>(function: &'static str, message: impl Into<String>) -> Result<T> {
    Err(ErrorKind::Functional { function, message: message.into() }.into())
}

/// The inputs as the function sees them: aliases with history if results need one, else fresh leaves.
fn prepared<A: TensorTree>(inputs: &A, create_graph: bool) -> Result<A> {
    inputs.replace(&mut |t| if create_graph { ops::alias(t) } else { t.detach().try_requires_grad_(true) })
}

fn finished<A: TensorTree>(tree: A, create_graph: bool) -> Result<A> {
    if create_graph { Ok(tree) } else { tree.replace(&mut |t| Ok(t.detach())) }
}

fn check_outputs(function: &'static str, outputs: &[Tensor], strict: bool) -> Result<()> {
    match outputs.iter().position(|t| !record::wants_grad(t)).filter(|_| strict) {
        Some(k) => {
            let message = format!("output {k} of the function does not require grad");
            Err(ErrorKind::StrictIndependent { function, message }.into())
        }
        None => Ok(()),
    }
}

/// Gradients; zeros for what is not reached, or an error if `strict`.
fn grads(
    function: &'static str,
    outputs: &[Tensor],
    inputs: &[Tensor],
    cotangents: Option<&[Tensor]>,
    create_graph: bool,
    strict: bool,
) -> Result<Vec<Tensor>> {
    let live: Vec<usize> = (0..outputs.len()).filter(|&k| record::wants_grad(&outputs[k])).collect();
    let found = if live.is_empty() {
        vec![None; inputs.len()]
    } else {
        let targets: Vec<Target> = live.iter().map(|&k| (&outputs[k]).into()).collect();
        let options = GradOptions {
            grad_outputs: cotangents.map_or(Vec::new(), |c| live.iter().map(|&k| Some(c[k].clone())).collect()),
            retain_graph: Some(true),
            create_graph,
            allow_unused: Some(true),
            ..Default::default()
        };
        crate::autograd::grad(targets, inputs, &options)?
    };
    let mut list = Vec::with_capacity(inputs.len());
    for (k, (g, x)) in found.into_iter().zip(inputs).enumerate() {
        list.push(match g {
            Some(g) => g,
            None if strict => {
                let message = format!("the output of the function is independent of input {k}");
                return Err(ErrorKind::StrictIndependent { function, message }.into());
            }
            None => ops::zeros_like(x, None, None, None)?,
        });
    }
    Ok(list)
}

/// Constants where the derivative was asked to be differentiable: an error if `strict`.
fn check_graph(function: &'static str, what: &str, list: &[Tensor], options: &Options) -> Result<()> {
    if !(options.strict && options.create_graph) {
        return Ok(());
    }
    match list.iter().position(|t| !record::wants_grad(t)) {
        Some(k) => {
            let message = format!("the {what} is independent of input {k}");
            Err(ErrorKind::StrictIndependent { function, message }.into())
        }
        None => Ok(()),
    }
}

/// The Jacobian: for every output the structure of the inputs, with blocks of the output's shape followed by the input's.
pub fn jacobian<A: TensorTree, R: Outcome>(
    f: impl Fn(&A) -> R,
    inputs: &A,
    options: &Options,
) -> Result<<R::Tree as TensorTree>::With<A>> {
    const NAME: &str = "jacobian";
    if options.strategy == Strategy::ForwardMode {
        let refuse = |what: &str| Err(ErrorKind::NotImplemented { op: NAME.into(), what: what.into() }.into());
        if !options.vectorize {
            return refuse("forward mode without vectorize");
        }
        if options.create_graph {
            return refuse("forward mode together with create_graph");
        }
    }
    if options.strict && options.vectorize {
        return wrong(NAME, "strict and vectorize cannot be combined");
    }
    let _recording = EnableGrad::new();
    let inside = prepared(inputs, options.create_graph)?;
    if options.strategy == Strategy::ForwardMode {
        let blocks = func::jacfwd(f)(&inputs.replace(&mut |t| Ok(t.detach()))?)?;
        return Ok(blocks);
    }
    let outputs = f(&inside).outcome()?;
    let leaves = inside.leaves();
    check_outputs(NAME, &outputs.leaves(), options.strict)?;
    outputs.map_leaves(&mut |y| {
        let blocks = if options.vectorize {
            all_rows(y, &leaves, options.create_graph)?
        } else {
            row_by_row(y, &leaves, options)?
        };
        check_graph(NAME, "Jacobian of the function", &blocks, options)?;
        finished(inputs.with_leaves(blocks)?, options.create_graph)
    })
}

/// One backward per row; every row is checked if `strict`.
fn row_by_row(y: &Tensor, inputs: &[Tensor], options: &Options) -> Result<Vec<Tensor>> {
    let flat = ops::reshape(y, &[(-1).into()])?;
    let mut rows: Vec<Vec<Tensor>> = vec![Vec::new(); inputs.len()];
    for k in 0..y.numel() {
        let element = ops::select(&flat, 0, k.into())?;
        let found = grads("jacobian", &[element], inputs, None, options.create_graph, options.strict)?;
        for (list, g) in rows.iter_mut().zip(found) {
            list.push(g);
        }
    }
    let block = |(list, x): (Vec<Tensor>, &Tensor)| match list.is_empty() {
        true => ops::new_zeros(x, &joined(y.shape(), x.shape()), None, None),
        false => ops::reshape(&ops::stack(&list, 0)?, &joined(y.shape(), x.shape())),
    };
    rows.into_iter().zip(inputs).map(block).collect()
}

/// All rows in one batched backward.
fn all_rows(y: &Tensor, inputs: &[Tensor], create_graph: bool) -> Result<Vec<Tensor>> {
    let n = y.numel();
    let zeros = |x: &Tensor| ops::new_zeros(x, &joined(y.shape(), x.shape()), None, None);
    if !record::wants_grad(y) {
        return inputs.iter().map(zeros).collect();
    }
    let identity = ops::eye_m(n.into(), n.into(), Some(y.dtype()), None)?;
    let options = GradOptions {
        grad_outputs: vec![Some(ops::view(&identity, &joined(&[n], y.shape()))?)],
        retain_graph: Some(true),
        create_graph,
        allow_unused: Some(true),
        is_grads_batched: true,
        ..Default::default()
    };
    let found = crate::autograd::grad(y, inputs, &options)?;
    let block = |(g, x): (Option<Tensor>, &Tensor)| match g {
        Some(g) => ops::reshape(&g, &joined(y.shape(), x.shape())),
        None => zeros(x),
    };
    found.into_iter().zip(inputs).map(block).collect()
}

/// One element, as a 0-dim tensor.
fn scalar<T: TensorTree>(function: &'static str, output: &T) -> Result<Tensor> {
    match &output.leaves()[..] {
        [y] if y.numel() == 1 => ops::reshape(y, &[]),
        [y] => wrong(function, format!("the function should return one element, found shape {:?}", y.shape())),
        list => wrong(function, format!("the function should return one tensor, found {}", list.len())),
    }
}

/// The Hessian of a function that returns one element: for every input, the structure of the inputs.
pub fn hessian<A: TensorTree, R: Outcome>(f: impl Fn(&A) -> R, inputs: &A, options: &Options) -> Result<A::With<A>> {
    let single = |x: &A| -> Result<Tensor> { scalar("hessian", &f(x).outcome()?) };
    if options.strategy == Strategy::ForwardMode && options.vectorize && !options.create_graph {
        return func::jacfwd(func::grad(single))(&inputs.replace(&mut |t| Ok(t.detach()))?);
    }
    let inner = Options { create_graph: true, strict: options.strict, ..Default::default() };
    jacobian(|x: &A| jacobian(single, x, &inner), inputs, options)
}

/// A vector for every leaf of `like`, checked; if none is given, a one for the only element.
fn vector<T: TensorTree>(function: &'static str, v: Option<&T>, like: &[Tensor]) -> Result<Vec<Tensor>> {
    match v {
        None => match like {
            [y] if y.numel() == 1 => Ok(vec![ops::ones_like(y, None, None, None)?]),
            _ => Err(ErrorKind::MissingV { function }.into()),
        },
        Some(v) => {
            let list = v.leaves();
            if list.len() != like.len() {
                return wrong(function, format!("v has {} tensors, expected {}", list.len(), like.len()));
            }
            if let Some((v, y)) = list.iter().zip(like).find(|(v, y)| v.shape() != y.shape()) {
                let (expected, found) = (y.shape().to_vec(), v.shape().to_vec());
                return Err(ErrorKind::VSize { function, expected, found }.into());
            }
            Ok(list)
        }
    }
}

/// The output and `v` times the Jacobian. `v` may be left out for an output of one element.
pub fn vjp<A: TensorTree, R: Outcome>(
    f: impl Fn(&A) -> R,
    inputs: &A,
    v: Option<&R::Tree>,
    options: &Options,
) -> Result<(R::Tree, A)> {
    const NAME: &str = "vjp";
    let _recording = EnableGrad::new();
    let inside = prepared(inputs, options.create_graph)?;
    let output = f(&inside).outcome()?;
    let outputs = output.leaves();
    check_outputs(NAME, &outputs, options.strict)?;
    let v = vector(NAME, v, &outputs)?;
    let found = grads(NAME, &outputs, &inside.leaves(), Some(&v), options.create_graph, options.strict)?;
    check_graph(NAME, "product", &found, options)?;
    Ok((finished(output, options.create_graph)?, finished(inputs.with_leaves(found)?, options.create_graph)?))
}

/// The output and the Jacobian times `v`, by double backward. `v` may be left out for one input of one element.
pub fn jvp<A: TensorTree, R: Outcome>(
    f: impl Fn(&A) -> R,
    inputs: &A,
    v: Option<&A>,
    options: &Options,
) -> Result<(R::Tree, R::Tree)> {
    const NAME: &str = "jvp";
    let _recording = EnableGrad::new();
    let v = vector(NAME, v, &inputs.leaves())?;
    let inside = prepared(inputs, options.create_graph)?;
    let output = f(&inside).outcome()?;
    let outputs = output.leaves();
    check_outputs(NAME, &outputs, options.strict)?;
    let dual = outputs
        .iter()
        .map(|y| ops::zeros_like(y, None, None, None)?.try_requires_grad_(true))
        .collect::<Result<Vec<_>>>()?;
    let pulled = grads(NAME, &outputs, &inside.leaves(), Some(&dual), true, options.strict)?;
    let found = grads(NAME, &pulled, &dual, Some(&v), options.create_graph, options.strict)?;
    check_graph(NAME, "product", &found, options)?;
    let tangent = output.with_leaves(found)?;
    Ok((finished(output, options.create_graph)?, finished(tangent, options.create_graph)?))
}

/// The gradient of a function of one element, recorded.
fn recorded_gradient<A: TensorTree, R: Outcome>(
    function: &'static str,
    f: impl Fn(&A) -> R,
    inside: &A,
    strict: bool,
) -> Result<(Tensor, Vec<Tensor>)> {
    let y = scalar(function, &f(inside).outcome()?)?;
    check_outputs(function, std::slice::from_ref(&y), strict)?;
    let g = grads(function, std::slice::from_ref(&y), &inside.leaves(), None, true, strict)?;
    check_outputs(function, &g, strict)?;
    Ok((y, g))
}

/// The value and the Hessian times `v`.
pub fn hvp<A: TensorTree, R: Outcome>(
    f: impl Fn(&A) -> R,
    inputs: &A,
    v: Option<&A>,
    options: &Options,
) -> Result<(Tensor, A)> {
    const NAME: &str = "hvp";
    let _recording = EnableGrad::new();
    let v = vector(NAME, v, &inputs.leaves())?;
    let inside = prepared(inputs, options.create_graph)?;
    let (y, g) = recorded_gradient(NAME, f, &inside, options.strict)?;
    let dual =
        g.iter().map(|g| ops::zeros_like(g, None, None, None)?.try_requires_grad_(true)).collect::<Result<Vec<_>>>()?;
    let pulled = grads(NAME, &g, &inside.leaves(), Some(&dual), true, options.strict)?;
    let found = grads(NAME, &pulled, &dual, Some(&v), options.create_graph, options.strict)?;
    check_graph(NAME, "product", &found, options)?;
    Ok((finished(y, options.create_graph)?, finished(inputs.with_leaves(found)?, options.create_graph)?))
}

/// The value and `v` times the Hessian: the same result as [`hvp`], for less work.
pub fn vhp<A: TensorTree, R: Outcome>(
    f: impl Fn(&A) -> R,
    inputs: &A,
    v: Option<&A>,
    options: &Options,
) -> Result<(Tensor, A)> {
    const NAME: &str = "vhp";
    let _recording = EnableGrad::new();
    let v = vector(NAME, v, &inputs.leaves())?;
    let inside = prepared(inputs, options.create_graph)?;
    let (y, g) = recorded_gradient(NAME, f, &inside, options.strict)?;
    let found = grads(NAME, &g, &inside.leaves(), Some(&v), options.create_graph, options.strict)?;
    check_graph(NAME, "product", &found, options)?;
    Ok((finished(y, options.create_graph)?, finished(inputs.with_leaves(found)?, options.create_graph)?))
}
