//! Whole Jacobians: a pullback mapped over a basis of the outputs, or a pushforward over one of the inputs.

use super::grad::{Vjp, vjp, vjp_with_aux};
use super::jvp::jvp;
use super::vmap::{joined, vmap};
use crate::tree::{Outcome, TensorTree};
use crate::{Result, Scalar, Tensor, ops};

/// For every leaf, all rows of a basis of the whole tree: ones of its own elements, zeros for the others'.
fn basis<T: TensorTree>(tree: &T) -> Result<T> {
    let total: usize = tree.leaves().iter().map(Tensor::numel).sum();
    let mut start = 0;
    tree.replace(&mut |t| {
        let n = t.numel();
        let identity = ops::eye_m(n.into(), n.into(), Some(t.dtype()), None)?;
        let pad = [0, 0, start as i64, (total - start - n) as i64];
        let rows =
            if total == n { identity } else { ops::constant_pad_nd(&identity, &pad.map(Into::into), Scalar::Int(0))? };
        start += n;
        ops::view(&rows, &joined(&[total], t.shape()))
    })
}

/// The rows that belong to each leaf of `tree`: `(start, length)`.
fn blocks<T: TensorTree>(tree: &T) -> Vec<(usize, usize)> {
    let mut start = 0;
    tree.leaves()
        .iter()
        .map(|t| {
            start += t.numel();
            (start - t.numel(), t.numel())
        })
        .collect()
}

fn reverse<A: TensorTree, O: TensorTree>(args: &A, pullback: &Vjp<A, O>) -> Result<O::With<A>> {
    let output = pullback.output().clone();
    let rows = vmap(|cotangents: &O| pullback.call(cotangents)).call(&basis(&output)?)?.leaves();
    let mut blocks = blocks(&output).into_iter();
    output.map_leaves(&mut |y| {
        let (start, n) = blocks.next().unwrap_or_default();
        let cut = rows.iter().zip(args.leaves()).map(|(r, x)| {
            let block = ops::narrow(r, 0, start.into(), n.into())?;
            ops::reshape(&block, &joined(y.shape(), x.shape()))
        });
        args.with_leaves(cut.collect::<Result<_>>()?)
    })
}

/// The function that computes the Jacobian of `f` by reverse mode: for every output, the structure of the arguments,
/// with blocks of the output's shape followed by the argument's.
pub fn jacrev<A: TensorTree, R: Outcome>(
    f: impl Fn(&A) -> R,
) -> impl Fn(&A) -> Result<<R::Tree as TensorTree>::With<A>> {
    move |args| {
        let (_, pullback) = vjp(&f, args)?;
        reverse(args, &pullback)
    }
}

/// Like [`jacrev`], for a function that also returns an auxiliary output, which is passed through.
pub fn jacrev_with_aux<A: TensorTree, O: TensorTree, X: TensorTree, R: Outcome<Tree = (O, X)>>(
    f: impl Fn(&A) -> R,
) -> impl Fn(&A) -> Result<(O::With<A>, X)> {
    move |args| {
        let (_, pullback, aux) = vjp_with_aux(&f, args)?;
        Ok((reverse(args, &pullback)?, aux))
    }
}

/// The function that computes the Jacobian of `f` by forward mode; the result is that of [`jacrev`].
pub fn jacfwd<A: TensorTree, R: Outcome>(
    f: impl Fn(&A) -> R,
) -> impl Fn(&A) -> Result<<R::Tree as TensorTree>::With<A>> {
    move |args| {
        let columns = vmap(|tangents: &A| Ok(jvp(&f, args, tangents)?.1)).call(&basis(args)?)?;
        let blocks = blocks(args);
        columns.map_leaves(&mut |c| {
            let output = &c.shape()[1..];
            let cut = blocks.iter().zip(args.leaves()).map(|(&(start, n), x)| {
                let block = ops::narrow(c, 0, start.into(), n.into())?;
                ops::reshape(&ops::movedim(&block, 0, -1)?, &joined(output, x.shape()))
            });
            args.with_leaves(cut.collect::<Result<_>>()?)
        })
    }
}

/// The function that computes the Hessian of `f`, which returns one tensor: forward over reverse.
pub fn hessian<A: TensorTree, R: Outcome<Tree = Tensor>>(f: impl Fn(&A) -> R) -> impl Fn(&A) -> Result<A::With<A>> {
    jacfwd(jacrev(f))
}
