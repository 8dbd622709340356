//! The library behind the plain loops; in a build without it, answers that leave the work to those.

#[cfg(feature = "linalg")]
pub use firebrand_linalg::{Field, Triangle};
#[cfg(feature = "linalg")]
pub(super) use firebrand_linalg::{Orthogonal, OutOfMemory};
#[cfg(not(feature = "linalg"))]
pub use without::{Field, Triangle};
#[cfg(not(feature = "linalg"))]
pub(super) use without::{Orthogonal, OutOfMemory};

/// Whether this build has it. Without it there are no eigenvalues of matrices that are not self-adjoint, and no singular
/// values and eigenvalues of complex ones.
pub const LIBRARY: bool = cfg!(feature = "linalg");

#[cfg(not(feature = "linalg"))]
mod without {
    use crate::Complex;
    pub(in super::super) use crate::OutOfMemory;

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

    /// What is made of the orthogonal factor of a QR decomposition.
    #[derive(Debug)]
    #[allow(dead_code, reason = "what is wanted is not read where nothing is made, which only some builds notice")]
    pub enum Orthogonal<'a, T> {
        Unused,
        Columns(&'a mut [T]),
        AdjointTimes(&'a mut [T]),
    }

    type Answer = Result<bool, OutOfMemory>;

    /// An element type. Every decomposition answers that it was not made.
    #[expect(missing_docs, reason = "described where they are implemented, in firebrand-linalg")]
    pub trait Field: Copy + Send + Sync + 'static {
        type Real: Copy + Send + Sync;

        fn cholesky(_: &mut [Self], _: usize) -> Answer {
            Ok(false)
        }
        fn solve_triangular(_: &[Self], _: usize, _: Triangle, _: &mut [Self], _: usize) {}
        fn qr(_: &mut [Self], _: usize, _: usize, _: Orthogonal<'_, Self>, _: &mut [Self]) -> Answer {
            Ok(false)
        }
        fn svd(
            _: &[Self],
            _: usize,
            _: usize,
            _: &mut [Self],
            _: Option<&mut [Self]>,
            _: Option<&mut [Self]>,
        ) -> Answer {
            Ok(false)
        }
        fn eigh(_: &[Self], _: usize, _: &mut [Self], _: Option<&mut [Self]>) -> Answer {
            Ok(false)
        }
        fn eig(_: &[Self], _: usize, _: &mut [Complex<Self::Real>], _: Option<&mut [Complex<Self::Real>]>) -> Answer {
            Ok(false)
        }
    }

    impl Field for f32 {
        type Real = f32;
    }
    impl Field for f64 {
        type Real = f64;
    }
    impl Field for Complex<f64> {
        type Real = f64;
    }
}
