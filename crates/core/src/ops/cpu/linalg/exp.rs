//! Exponentials of matrices.

use super::*;
use firebrand_kernels::linalg::{self as kernel, batched};

/// `linalg_matrix_exp`. Rows and columns change places in neither or in both: they need not.
pub(crate) fn matrix_exp(a: &Tensor, out: &Tensor) -> Result<()> {
    with_number!(a.dtype(), T => {
        let ((count, n, _), from) = (extents(a), rows::<T>(a)?);
        let mut to = zeros::<T>(from.len())?;
        batched::<T, T, 1, 1, 0>(count, [(&from, n * n)], [(&mut to, n * n)], [], |_, [a], [out], []| {
            kernel::matrix_exp(a, n, out);
            0
        });
        write(&to, out)
    })
}
