//! Matrix products.

use crate::layout::Layout;
use crate::{Result, Tensor};

pub(crate) fn mm(a: &Tensor, b: &Tensor, out: &Tensor) -> Result<()> {
    firebrand_kernels::matmul(a.access().view(), b.access().view(), out.access().view_mut(), 1.0, 0.0);
    Ok(())
}

pub(crate) fn mv(a: &Tensor, v: &Tensor, out: &Tensor) -> Result<()> {
    let column = |t: &Tensor| {
        let (size, stride) = (t.shape()[0], t.strides()[0]);
        t.alias_with(Layout::strided(&[size, 1], &[stride, 1], t.storage_offset()))
    };
    mm(a, &column(v), &column(out))
}
