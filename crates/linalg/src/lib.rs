//! Decompositions of one matrix: `faer` behind plain slices.
//!
//! Everything generic is instantiated here, once for each of the three element types ([`Field`]), so that no crate that uses it
//! compiles it again, and this crate is built in parallel with them. Matrices are column-major without gaps.
//!
//! - *Guarantee:* memory is reserved fallibly before `faer` works in it; if there is none, the result is [`OutOfMemory`]. A thread
//!   keeps up to 4 MiB for the next call.
//! - *Guarantee:* nothing panics on values that are not finite.
//! - *Guarantee:* results that differ from LAPACK's for singular or indefinite matrices are reported, not repaired: the caller has
//!   plain loops for those.
//! - *Independent of:* batches, strides, and LAPACK's signs and pivots.

mod factor;
mod spectral;

use faer::dyn_stack::{MemStack, StackReq};
use faer::traits::{ComplexField, RealField};
use faer::{Conj, Par};
use num_complex::Complex;
use std::cell::Cell;

/// Memory that there was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfMemory {
    /// How much was requested.
    pub bytes: usize,
}

/// A triangular matrix as it is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Triangle {
    /// The upper triangle is read, not the lower one.
    pub upper: bool,
    /// The diagonal counts as ones.
    pub unit: bool,
    /// The matrix as stored is the transpose of the one that is meant.
    pub transposed: bool,
    /// The conjugate of the matrix as stored is meant.
    pub conjugated: bool,
}

/// Which vectors of a decomposition are needed: none, or as many columns as the slice holds.
pub type Wanted<'a, T> = Option<&'a mut [T]>;

/// What is made of the orthogonal factor of a QR decomposition, which is stored as reflections.
#[derive(Debug)]
pub enum Orthogonal<'a, T> {
    /// Nothing.
    Unused,
    /// Its first columns, as many as the slice holds, at least as many as there are reflections.
    Columns(&'a mut [T]),
    /// The slice multiplied from the left by its adjoint.
    AdjointTimes(&'a mut [T]),
}

/// An element type, and what can be computed with matrices of it. Lengths that do not fit the extents panic.
pub trait Field: Copy + Send + Sync + 'static {
    /// The type of absolute values.
    type Real: Field<Real = Self::Real>;

    /// Replaces the lower triangle of `a` (n × n) by its Cholesky factor. False if it is not positive-definite.
    fn cholesky(a: &mut [Self], n: usize) -> Result<bool, OutOfMemory>;

    /// Replaces `b` (n × k) by the solution of `A X = B` for a triangular `A`.
    fn solve_triangular(a: &[Self], n: usize, triangle: Triangle, b: &mut [Self], k: usize);

    /// Replaces the upper triangle of `a` (m × n) by `R` and the rest by what the reflections are made of; makes of `Q` what
    /// is wanted; writes the factors of the reflections.
    /// False if the rank is not full: the results are not those of LAPACK then, and what is wanted is left alone.
    fn qr(
        a: &mut [Self],
        m: usize,
        n: usize,
        wanted: Orthogonal<'_, Self>,
        tau: &mut [Self],
    ) -> Result<bool, OutOfMemory>;

    /// Singular values of `a` (m × n), largest first, and vectors: `u` m × k, `v` n × k. False if nothing converged.
    fn svd(
        a: &[Self],
        m: usize,
        n: usize,
        s: &mut [Self],
        u: Wanted<'_, Self>,
        v: Wanted<'_, Self>,
    ) -> Result<bool, OutOfMemory>;

    /// Eigenvalues, smallest first, and vectors of the self-adjoint matrix of which `a` (n × n) holds the lower triangle.
    fn eigh(a: &[Self], n: usize, values: &mut [Self], vectors: Wanted<'_, Self>) -> Result<bool, OutOfMemory>;

    /// Eigenvalues and right vectors of any matrix (n × n), as they come and without a norm.
    fn eig(
        a: &[Self],
        n: usize,
        values: &mut [Complex<Self::Real>],
        vectors: Wanted<'_, Complex<Self::Real>>,
    ) -> Result<bool, OutOfMemory>;
}

macro_rules! field {
    ($($t:ty, $real:ty, $eig:ident;)*) => {$(
        impl Field for $t {
            type Real = $real;

            fn cholesky(a: &mut [Self], n: usize) -> Result<bool, OutOfMemory> {
                factor::cholesky(a, n)
            }

            fn solve_triangular(a: &[Self], n: usize, triangle: Triangle, b: &mut [Self], k: usize) {
                factor::solve_triangular(a, n, triangle, b, k);
            }

            fn qr(
                a: &mut [Self],
                m: usize,
                n: usize,
                wanted: Orthogonal<'_, Self>,
                tau: &mut [Self],
            ) -> Result<bool, OutOfMemory> {
                factor::qr(a, m, n, wanted, tau)
            }

            fn svd(
                a: &[Self],
                m: usize,
                n: usize,
                s: &mut [Self],
                u: Wanted<'_, Self>,
                v: Wanted<'_, Self>,
            ) -> Result<bool, OutOfMemory> {
                spectral::svd(a, m, n, s, u, v)
            }

            fn eigh(a: &[Self], n: usize, values: &mut [Self], vectors: Wanted<'_, Self>) -> Result<bool, OutOfMemory> {
                spectral::eigh(a, n, values, vectors)
            }

            fn eig(
                a: &[Self],
                n: usize,
                values: &mut [Complex<$real>],
                vectors: Wanted<'_, Complex<$real>>,
            ) -> Result<bool, OutOfMemory> {
                spectral::$eig(a, n, values, vectors)
            }
        }
    )*};
}

field! {
    f32, f32, eig_real;
    f64, f64, eig_real;
    Complex<f64>, f64, eig_complex;
}

/// A list of `n` elements.
fn filled<T: Copy>(value: T, n: usize) -> Result<Vec<T>, OutOfMemory> {
    let mut list = Vec::new();
    list.try_reserve_exact(n).map_err(|_| OutOfMemory { bytes: n.saturating_mul(size_of::<T>()) })?;
    list.resize(n, value);
    Ok(list)
}

/// Memory for `faer` to work in.
struct Workspace(Vec<u8>);

/// What a thread keeps of it, in bytes: enough for matrices of some hundred rows, for which fresh pages would cost as much as the arithmetic.
const KEPT: usize = 4 << 20;

thread_local! {
    static MEMORY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl Workspace {
    fn new(needed: StackReq) -> Result<Workspace, OutOfMemory> {
        let bytes = needed.unaligned_bytes_required();
        let mut memory = MEMORY.take();
        if memory.capacity() < bytes {
            memory = Vec::new();
            memory.try_reserve_exact(bytes).map_err(|_| OutOfMemory { bytes })?;
        }
        Ok(Workspace(memory))
    }

    fn stack(&mut self) -> &mut MemStack {
        MemStack::new(self.0.spare_capacity_mut())
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if self.0.capacity() <= KEPT {
            // A thread that ends keeps nothing.
            _ = MEMORY.try_with(|memory| memory.set(std::mem::take(&mut self.0)));
        }
    }
}

/// How many threads work on one matrix.
const PAR: Par = Par::Seq;

fn conj(yes: bool) -> Conj {
    if yes { Conj::Yes } else { Conj::No }
}

/// Bounds of what is instantiated.
trait Scalar: ComplexField + Copy {}
impl<T: ComplexField + Copy> Scalar for T {}
trait Real: RealField + Copy {}
impl<T: RealField + Copy> Real for T {}
