//! Lists whose length comes from arguments: a failed allocation is an error here, where `Vec` would abort.
//!
//! Values for a tensor are written into it piece by piece ([`write`]), so that no second copy is needed.

use crate::layout::Layout;
use crate::{Element, ErrorKind, Result, Tensor};
use firebrand_kernels::write_slice;

/// An empty list with room for `n` values.
pub(crate) fn room<T>(n: usize) -> Result<Vec<T>> {
    let mut list = Vec::new();
    match list.try_reserve_exact(n) {
        Ok(()) => Ok(list),
        Err(_) => Err(ErrorKind::OutOfMemory { bytes: n.saturating_mul(size_of::<T>()) }.into()),
    }
}

/// `n` times the same value.
pub(crate) fn filled<T: Clone>(value: T, n: usize) -> Result<Vec<T>> {
    let mut list = room(n)?;
    list.resize(n, value);
    Ok(list)
}

/// The first `n` of some values.
pub(crate) fn collected<T>(n: usize, values: impl IntoIterator<Item = T>) -> Result<Vec<T>> {
    let mut list = room(n)?;
    list.extend(values.into_iter().take(n));
    Ok(list)
}

/// Whether there is memory for `n` tensors that share theirs: a list of views costs its handles and descriptions.
pub(crate) fn room_for_views(n: usize) -> Result<()> {
    const VIEW: usize = 512;
    if n > 1 << 16 { room::<[u8; VIEW]>(n).map(drop) } else { Ok(()) }
}

/// Writes values into a new row-major tensor, as many as it has elements.
pub(crate) fn write<T: Element>(out: &Tensor, values: impl IntoIterator<Item = T>) -> Result<()> {
    const PIECE: usize = 1 << 12;
    let (mut values, to) = (values.into_iter(), out.write()?);
    let mut piece = Vec::with_capacity(PIECE.min(out.numel()));
    let mut at = 0;
    while at < out.numel() {
        piece.clear();
        piece.extend(values.by_ref().take(PIECE.min(out.numel() - at)));
        if piece.is_empty() {
            break;
        }
        write_slice(&piece, to.part_mut(&Layout::derived(&[piece.len()], &[1], at)));
        at += piece.len();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Device, Spec};

    #[test]
    fn memory_that_cannot_be_had_is_an_error() {
        for n in [1 << (usize::BITS - 6).max(29), usize::MAX] {
            assert!(matches!(filled(0u64, n).unwrap_err().kind(), ErrorKind::OutOfMemory { .. }));
            assert!(matches!(collected(n, 0..).unwrap_err().kind(), ErrorKind::OutOfMemory { .. }));
            assert!(room_for_views(n).is_err());
        }
        assert_eq!(collected(3, 0..).unwrap(), [0, 1, 2]);
    }

    #[test]
    fn pieces_follow_each_other() {
        let out = Tensor::try_empty(Spec::new(&[3, 5000], DType::I32, Device::Cpu).unwrap()).unwrap();
        write(&out, 0i64..).unwrap();
        assert!(out.to_vec::<i64>().into_iter().eq(0..15_000));
    }
}
