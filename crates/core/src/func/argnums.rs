//! Transforms with respect to some of the arguments: PyTorch's `argnums`.
//!
//! Positions are types, so that the result has the type of the arguments they name: `Arg::<0>` is the first member of a
//! tuple, `(Arg::<0>, Arg::<2>)` the first and the third. Everything else is a constant of the call.

use super::{grad, grad_and_value, hessian, jacfwd, jacrev};
use crate::tree::{Outcome, TensorTree};
use crate::{Result, Tensor};

/// The argument at position `N` of a tuple of arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arg<const N: usize>;

/// Positions in a tuple of arguments: [`Arg`], or a tuple of those.
pub trait Argnums<A: TensorTree> {
    /// The type of the arguments at these positions.
    type Part: TensorTree;

    /// The arguments at these positions.
    fn part(&self, args: &A) -> Self::Part;

    /// All arguments, with replacements at these positions.
    fn put(&self, args: &A, part: &Self::Part) -> A;
}

macro_rules! position {
    ($at:tt $part:ident of $($name:ident)+) => {
        impl<$($name: TensorTree),+> Argnums<($($name,)+)> for Arg<$at> {
            type Part = $part;
            fn part(&self, args: &($($name,)+)) -> $part {
                args.$at.clone()
            }
            fn put(&self, args: &($($name,)+), part: &$part) -> ($($name,)+) {
                let mut args = args.clone();
                args.$at = part.clone();
                args
            }
        }
    };
}
macro_rules! positions {
    ($($at:tt $part:ident),+; $all:tt) => {
        $(positions!(@ $at $part $all);)+
    };
    (@ $at:tt $part:ident ($($name:ident)+)) => {
        position!($at $part of $($name)+);
    };
}
positions!(0 A, 1 B; (A B));
positions!(0 A, 1 B, 2 C; (A B C));
positions!(0 A, 1 B, 2 C, 3 D; (A B C D));
positions!(0 A, 1 B, 2 C, 3 D, 4 E; (A B C D E));
positions!(0 A, 1 B, 2 C, 3 D, 4 E, 5 F; (A B C D E F));

macro_rules! several {
    ($($($name:ident $at:tt),+;)+) => {$(
        impl<T: TensorTree, $($name: Argnums<T>),+> Argnums<T> for ($($name,)+) {
            type Part = ($($name::Part,)+);
            fn part(&self, args: &T) -> Self::Part {
                ($(self.$at.part(args),)+)
            }
            fn put(&self, args: &T, part: &Self::Part) -> T {
                let mut args = args.clone();
                $(args = self.$at.put(&args, &part.$at);)+
                args
            }
        }
    )+};
}
several! {
    A 0, B 1;
    A 0, B 1, C 2;
    A 0, B 1, C 2, D 3;
}

/// `f` as a function of some of its arguments, and those arguments, ready for any transform.
///
/// ```
/// # use firebrand_core as firebrand;
/// use firebrand::func::{self, Arg};
/// use firebrand::Tensor;
///
/// let args = (Tensor::new(&[2.0f64]), Tensor::new(&[3.0f64]));
/// let (f, w) = func::with_respect_to(Arg::<0>, |(w, x): &(Tensor, Tensor)| w * w * x, &args);
/// let (_, tangent) = func::jvp(f, &w, &Tensor::new(&[1.0f64])).unwrap();
/// assert_eq!(tangent.to_vec::<f64>(), [12.0]);
/// ```
pub fn with_respect_to<A: TensorTree, R, W: Argnums<A>>(
    argnums: W,
    f: impl Fn(&A) -> R,
    args: &A,
) -> (impl Fn(&W::Part) -> R, W::Part) {
    let (part, args) = (argnums.part(args), args.clone());
    (move |part: &W::Part| f(&argnums.put(&args, part)), part)
}

/// Like [`grad`](super::grad()), with respect to some of the arguments.
///
/// ```
/// # use firebrand_core as firebrand;
/// use firebrand::func::{self, Arg};
/// use firebrand::Tensor;
///
/// let loss = |(w, x, y): &(Tensor, Tensor, Tensor)| ((w * x - y) * (w * x - y)).sum();
/// let args = (Tensor::new(&[1.0f64]), Tensor::new(&[2.0f64]), Tensor::new(&[5.0f64]));
/// let w = func::grad_argnums(loss, Arg::<0>)(&args).unwrap();
/// assert_eq!(w.to_vec::<f64>(), [-12.0]);
/// let (w, y) = func::grad_argnums(loss, (Arg::<0>, Arg::<2>))(&args).unwrap();
/// assert_eq!((w.to_vec::<f64>(), y.to_vec::<f64>()), (vec![-12.0], vec![6.0]));
/// ```
pub fn grad_argnums<A: TensorTree, R: Outcome<Tree: TensorTree>, W: Argnums<A> + Clone>(
    f: impl Fn(&A) -> R,
    argnums: W,
) -> impl Fn(&A) -> Result<W::Part> {
    move |args| {
        let (f, part) = with_respect_to(argnums.clone(), &f, args);
        grad(f)(&part)
    }
}

/// Like [`grad_and_value`](super::grad_and_value()), with respect to some of the arguments.
pub fn grad_and_value_argnums<A: TensorTree, R: Outcome, W: Argnums<A> + Clone>(
    f: impl Fn(&A) -> R,
    argnums: W,
) -> impl Fn(&A) -> Result<(W::Part, Tensor)> {
    move |args| {
        let (f, part) = with_respect_to(argnums.clone(), &f, args);
        grad_and_value(f)(&part)
    }
}

/// Like [`jacrev`](super::jacrev()), with respect to some of the arguments.
pub fn jacrev_argnums<A: TensorTree, R: Outcome, W: Argnums<A> + Clone>(
    f: impl Fn(&A) -> R,
    argnums: W,
) -> impl Fn(&A) -> Result<<R::Tree as TensorTree>::With<W::Part>> {
    move |args| {
        let (f, part) = with_respect_to(argnums.clone(), &f, args);
        jacrev(f)(&part)
    }
}

/// Like [`jacfwd`](super::jacfwd()), with respect to some of the arguments.
pub fn jacfwd_argnums<A: TensorTree, R: Outcome, W: Argnums<A> + Clone>(
    f: impl Fn(&A) -> R,
    argnums: W,
) -> impl Fn(&A) -> Result<<R::Tree as TensorTree>::With<W::Part>> {
    move |args| {
        let (f, part) = with_respect_to(argnums.clone(), &f, args);
        jacfwd(f)(&part)
    }
}

/// Like [`hessian`](super::hessian()), with respect to some of the arguments.
pub fn hessian_argnums<A: TensorTree, R: Outcome<Tree = Tensor>, W: Argnums<A> + Clone>(
    f: impl Fn(&A) -> R,
    argnums: W,
) -> impl Fn(&A) -> Result<<W::Part as TensorTree>::With<W::Part>> {
    move |args| {
        let (f, part) = with_respect_to(argnums.clone(), &f, args);
        hessian(f)(&part)
    }
}
