//! Forward mode as a transform: `jvp` and `linearize`.
//!
//! A tensor has room for one tangent, so a `jvp` inside another (or inside a dual level) enters a wrapping level: its
//! tangents are those of the wrappers, the outer ones those of the tensors the wrappers stand for.

use super::grad::{argument, vjp};
use super::level::{self, TransformGuard};
use crate::autograd::{EnableGrad, GradOptions, Target, api, forward};
use crate::tree::{Outcome, TensorTree};
use crate::{ErrorKind, Result, Tensor, capture, ops, state};
use std::any::Any;
use std::sync::Arc;

/// Runs `f` at `primals`; returns its output and the directional derivative along `tangents`.
#[track_caller]
pub fn jvp<A: TensorTree, R: Outcome>(
    f: impl FnOnce(&A) -> R,
    primals: &A,
    tangents: &A,
) -> Result<(R::Tree, R::Tree)> {
    let (y, t, ()) = pushed(f, primals, tangents, |o| Ok((o, ())))?;
    Ok((y, t))
}

/// Like [`jvp`], for a function that also returns an auxiliary output, which is passed through.
#[track_caller]
pub fn jvp_with_aux<A: TensorTree, O: TensorTree, X: TensorTree, R: Outcome<Tree = (O, X)>>(
    f: impl FnOnce(&A) -> R,
    primals: &A,
    tangents: &A,
) -> Result<(O, O, X)> {
    pushed(f, primals, tangents, Ok)
}

#[track_caller]
fn pushed<A: TensorTree, O: TensorTree, X: TensorTree, R: Outcome>(
    f: impl FnOnce(&A) -> R,
    primals: &A,
    tangents: &A,
    split: impl FnOnce(R::Tree) -> Result<(O, X)>,
) -> Result<(O, O, X)> {
    let scope = capture::transform("a function transform", true)?;
    let primals = &primals.replace(&mut |t| Ok(capture::real(t)))?;
    let directions: Vec<Tensor> = tangents.leaves().iter().map(capture::real).collect();
    let count = primals.leaves().len();
    if directions.len() != count {
        let message = format!("{} tangents for {count} primals", directions.len());
        return Err(ErrorKind::Functional { function: "jvp", message }.into());
    }
    if !forward::is_dual_level_active() {
        let pushed = dual(f, primals, directions, split)?;
        return capture::transformed(scope, pushed);
    }
    let pushed = {
        let _level = level::enter_plain()?;
        let primals = primals.replace(&mut |t| Ok(level::wrap(t.clone(), None)))?;
        let directions = directions.into_iter().map(|t| level::wrap(t, None)).collect();
        let (y, t, aux) = dual(f, &primals, directions, split)?;
        let down = &mut |t: &Tensor| Ok(level::unwrap(t)?.value);
        (y.replace(down)?, t.replace(down)?, aux.replace(down)?)
    };
    capture::transformed(scope, pushed)
}

fn dual<A: TensorTree, O: TensorTree, X: TensorTree, R: Outcome>(
    f: impl FnOnce(&A) -> R,
    primals: &A,
    directions: Vec<Tensor>,
    split: impl FnOnce(R::Tree) -> Result<(O, X)>,
) -> Result<(O, O, X)> {
    let _transform = TransformGuard::new(None);
    forward::level_of_transform(|| {
        let mut directions = directions.into_iter();
        let inside = primals.replace(&mut |p| match directions.next() {
            Some(d) => forward::make_dual(&argument(p), &argument(&d)),
            None => Ok(p.clone()),
        })?;
        let (output, aux) = split(f(&inside).outcome()?)?;
        let plain = &mut |t: &Tensor| Ok(forward::unpack_dual(t)?.0);
        let tangent = output.replace(&mut |t| match forward::tangent(t) {
            Some(t) => Ok(t),
            None => ops::zeros_like(t, None, None, None),
        })?;
        Ok((output.replace(plain)?, tangent, aux.replace(plain)?))
    })?
}

/// A function linearized at a point: what [`linearize`] returns.
pub struct Linear<A, O> {
    output: O,
    /// The pullback of `dual`, a stand-in for the outputs' cotangents: linear, so its own pullback is the pushforward.
    dual: Vec<Tensor>,
    pulled: Vec<Tensor>,
    /// For a capture to know that nodes of it are kept here.
    keeps: Option<Arc<dyn Any + Send + Sync>>,
    _args: std::marker::PhantomData<A>,
}

impl<A: TensorTree, O: TensorTree> Linear<A, O> {
    /// The directional derivative along `tangents`. `f` is not run again.
    #[track_caller]
    pub fn call(&self, tangents: &A) -> Result<O> {
        if self.keeps.is_none() {
            // Its nodes are not those of a function that is being captured.
            capture::leave("a pushforward")?;
        }
        let scope = capture::transform("a pushforward", true)?;
        let tangents: Vec<Tensor> = tangents.leaves().iter().map(capture::real).collect();
        if tangents.len() != self.pulled.len() {
            let message = format!("{} tangents for {} arguments", tangents.len(), self.pulled.len());
            return Err(ErrorKind::Functional { function: "linearize", message }.into());
        }
        let live: Vec<usize> = (0..tangents.len()).filter(|&k| self.pulled[k].requires_grad()).collect();
        let found = if live.is_empty() {
            vec![None; self.dual.len()]
        } else {
            let options = GradOptions {
                grad_outputs: live.iter().map(|&k| Some(tangents[k].clone())).collect(),
                retain_graph: Some(true),
                create_graph: state::is(state::GRAD) && tangents.iter().any(|t| t.requires_grad()),
                allow_unused: Some(true),
                ..Default::default()
            };
            let targets: Vec<Target> = live.iter().map(|&k| Target::from(&self.pulled[k])).collect();
            api::grad_here(targets, self.dual.iter().map(Target::from).collect(), &options)?
        };
        let mut found = found.into_iter();
        let pushed = self.output.replace(&mut |y| match found.next().flatten() {
            Some(t) => Ok(t),
            None => ops::zeros_like(y, None, None, None),
        })?;
        capture::transformed(scope, pushed)
    }
}

/// Runs `f` once; returns its output and the linear function that maps tangents at `primals` to those of the output.
#[track_caller]
pub fn linearize<A: TensorTree, O: TensorTree, R: Outcome<Tree = O>>(
    f: impl FnOnce(&A) -> R,
    primals: &A,
) -> Result<(O, Linear<A, O>)> {
    let scope = capture::transform("a function transform", state::is(state::GRAD))?;
    let (output, pullback) = vjp(f, primals)?;
    let _recording = EnableGrad::new();
    let dual = output.replace(&mut |y| capture::leaf_of_transform(ops::zeros_like(y, None, None, None)?))?;
    let (dual, pulled) = (dual.leaves(), pullback.call(&dual)?.leaves());
    let keeps = capture::keeps_nodes();
    let output = capture::transformed(scope, output)?;
    let linear = Linear { output: output.clone(), dual, pulled, keeps, _args: std::marker::PhantomData };
    Ok((output, linear))
}
