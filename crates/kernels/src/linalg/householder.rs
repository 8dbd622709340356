//! Reflections `H = I - tau v vᴴ`, and the QR decomposition built from them, with LAPACK's choice of signs.

use super::library::Orthogonal;
use super::{Number, add_scaled, done, dot, fill_identity};
use crate::scratch::Scratch;

/// Up to this many columns the plain loops are faster.
const SMALL: usize = 24;

/// The reflection whose adjoint maps `x` to a real multiple of the first unit vector. Replaces `x` by that multiple and by
/// `v` without its first element, which is 1; returns tau. `tau = 0`: `x` has that direction already, and keeps its sign.
#[inline(always)]
pub(super) fn reflector<T: Number>(x: &mut [T]) -> T {
    let Some((first, rest)) = x.split_first_mut() else { return T::ZERO };
    let largest = rest.iter().fold(0.0, |m: f64, v| m.max(v.weight()));
    if largest == 0.0 && first.im() == 0.0 {
        return T::ZERO;
    }
    // Scaled, so that squares neither overflow nor vanish.
    let scale = largest.max(first.weight());
    let square = |v: &T| (v.re() / scale).powi(2) + (v.im() / scale).powi(2);
    let norm = scale * (square(first) + rest.iter().map(square).sum::<f64>()).sqrt();
    let beta = if first.re().is_sign_negative() { norm } else { -norm };
    let by = T::ONE / (*first - T::real(beta));
    rest.iter_mut().for_each(|v| *v = *v * by);
    let tau = (T::real(beta) - *first) / T::real(beta);
    *first = T::real(beta);
    tau
}

/// Applies `I - tau v vᴴ` to each column of `c` (`m` rows) from row `top` on; `v` comes without its leading 1.
#[inline(always)]
pub(super) fn reflect<T: Number>(v: &[T], tau: T, c: &mut [T], m: usize, top: usize) {
    if tau == T::ZERO {
        return;
    }
    for column in c.chunks_exact_mut(m) {
        let (first, rest) = column[top..].split_first_mut().expect("a reflection has at least one row");
        let w = tau * (*first + dot(v, rest));
        *first = *first - w;
        add_scaled(-w, v, rest);
    }
}

/// Replaces `a` (m × n) by `R` on and above the diagonal and the reflections below it; `tau` has `min(m, n)` elements.
/// Multiplies `c` (m rows), if given, from the left by the adjoint of their product.
pub fn reflections<T: Number>(a: &mut [T], m: usize, n: usize, tau: &mut [T], mut c: Option<&mut [T]>) {
    if !T::COMPLEX && m.min(n) > SMALL {
        let before = Scratch::copy_of(a);
        let wanted = c.as_deref_mut().map_or(Orthogonal::Unused, Orthogonal::AdjointTimes);
        if done(T::qr(a, m, n, wanted, tau)) {
            return;
        }
        a.copy_from_slice(&before);
    }
    plain(a, m, tau);
    if let Some(c) = c {
        multiply_by_q(a, m, tau, true, c);
    }
}

fn plain<T: Number>(a: &mut [T], m: usize, tau: &mut [T]) {
    for (k, tau) in tau.iter_mut().enumerate() {
        let (done, rest) = a.split_at_mut((k + 1) * m);
        let column = &mut done[k * m + k..];
        *tau = reflector(column);
        reflect(&column[1..], tau.conj(), rest, m, k);
    }
}

/// The first columns (as many as `q` holds) of the product of the reflections `a` (m rows) and `tau`.
pub fn orthogonal<T: Number>(a: &[T], m: usize, tau: &[T], q: &mut [T]) {
    if m == 0 {
        return;
    }
    fill_identity(q, m);
    // Columns before the reflection's own are still those of the identity, without anything in its rows.
    for (k, tau) in tau.iter().enumerate().rev() {
        let from = (k * m).min(q.len());
        reflect(&a[k * m + k + 1..(k + 1) * m], *tau, &mut q[from..], m, k);
    }
}

/// Multiplies `c` (m rows) from the left by the product `Q` of the reflections, or by its adjoint.
pub fn multiply_by_q<T: Number>(a: &[T], m: usize, tau: &[T], adjoint: bool, c: &mut [T]) {
    if m == 0 {
        return;
    }
    let mut apply = |k: usize| {
        let tau = if adjoint { tau[k].conj() } else { tau[k] };
        reflect(&a[k * m + k + 1..(k + 1) * m], tau, c, m, k);
    };
    if adjoint { (0..tau.len()).for_each(&mut apply) } else { (0..tau.len()).rev().for_each(&mut apply) }
}

/// `A = Q R` for `a` (m × n): `q` holds the first k columns of the orthogonal factor (m × k, `min(m, n) <= k <= m`;
/// empty for none), `r` the first `rows` rows of the triangular one.
pub fn qr<T: Number>(a: &[T], m: usize, n: usize, q: &mut [T], r: &mut [T], rows: usize) {
    let (mut work, mut tau) = (Scratch::copy_of(a), Scratch::<T>::zeroed(m.min(n)));
    let large = !T::COMPLEX && m.min(n) > SMALL;
    let wanted = if q.is_empty() { Orthogonal::Unused } else { Orthogonal::Columns(&mut *q) };
    if !(large && done(T::qr(&mut work, m, n, wanted, &mut tau))) {
        work.copy_from_slice(a);
        plain(&mut work, m, &mut tau);
        orthogonal(&work, m, &tau, q);
    }
    r.fill(T::ZERO);
    for j in 0..n {
        let kept = (j + 1).min(rows).min(m);
        r[j * rows..j * rows + kept].copy_from_slice(&work[j * m..j * m + kept]);
    }
}
