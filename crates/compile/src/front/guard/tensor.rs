//! What a graph requires of one tensor: dtype, device, whether it wants gradients, sizes and strides. Never its numbers,
//! and never its hooks.

use super::{Symbols, UNSET};
use crate::backend::same_list;
use firebrand_core::{DType, Device, Tensor};
use smallvec::SmallVec;
use std::fmt;

/// What a graph requires of one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dim {
    /// This size.
    Is(usize),
    /// The value of a symbol: at least `least`, and the same wherever the symbol occurs.
    Symbol { symbol: u32, least: i64 },
}

impl Dim {
    /// Whether a size fits. The first occurrence of a symbol decides its value.
    #[inline]
    pub(crate) fn holds(self, size: i64, symbols: &mut Symbols) -> bool {
        match self {
            Dim::Is(n) => n as i64 == size,
            Dim::Symbol { symbol, least } => {
                let value = &mut symbols[symbol as usize];
                if *value == UNSET {
                    *value = size;
                    return size >= least;
                }
                *value == size
            }
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Is(n) => n.fmt(f),
            Dim::Symbol { symbol, .. } => write!(f, "s{symbol}"),
        }
    }
}

/// What differs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mismatch {
    DType,
    Device,
    RequiresGrad,
    Inference,
    Rank,
    Size(usize),
    Stride,
}

/// How strides are compared.
#[derive(Clone, Debug)]
enum Strides {
    /// Row-major, whatever the sizes.
    Contiguous,
    /// These.
    Are(SmallVec<[usize; 5]>),
    /// Not row-major, with sizes that vary: the dimensions in this order, from the largest stride to the smallest.
    Order(SmallVec<[usize; 5]>),
}

/// What a graph requires of one tensor.
#[derive(Clone, Debug)]
pub(crate) struct TensorGuard {
    dtype: DType,
    device: Device,
    requires_grad: bool,
    inference: bool,
    /// The sizes, if none varies: one comparison of slices.
    fixed: Option<SmallVec<[usize; 5]>>,
    pub(crate) dims: SmallVec<[Dim; 5]>,
    strides: Strides,
}

fn order(strides: &[usize]) -> SmallVec<[usize; 5]> {
    let mut dims: SmallVec<[usize; 5]> = (0..strides.len()).collect();
    dims.sort_by_key(|&d| std::cmp::Reverse(strides[d]));
    dims
}

impl TensorGuard {
    /// For tensors like this one, with these dimensions.
    pub(crate) fn new(t: &Tensor, dims: SmallVec<[Dim; 5]>) -> TensorGuard {
        let sizes: Option<SmallVec<[usize; 5]>> =
            dims.iter().map(|d| if let Dim::Is(n) = d { Some(*n) } else { None }).collect();
        let strides = match &sizes {
            _ if t.is_contiguous() => Strides::Contiguous,
            Some(_) => Strides::Are(t.strides().into()),
            None => Strides::Order(order(t.strides())),
        };
        TensorGuard {
            dtype: t.dtype(),
            device: t.device(),
            requires_grad: t.requires_grad(),
            inference: t.is_inference_here(),
            fixed: sizes,
            dims,
            strides,
        }
    }

    /// For tensors of the same sizes.
    pub(crate) fn fixed(t: &Tensor) -> TensorGuard {
        TensorGuard::new(t, t.layout().sizes().iter().map(|&n| Dim::Is(n)).collect())
    }

    /// The first difference.
    #[inline(always)]
    pub(crate) fn mismatch(&self, t: &Tensor, symbols: &mut Symbols) -> Option<Mismatch> {
        if self.fits_as_most_do(t) { None } else { self.first_difference(t, symbols) }
    }

    /// Whether a row-major tensor of the one size that fits is all that it should be.
    #[inline(always)]
    fn fits_as_most_do(&self, t: &Tensor) -> bool {
        let spec = t.spec();
        matches!(self.strides, Strides::Contiguous)
            && spec.layout.is_contiguous()
            && spec.dtype == self.dtype
            && spec.device == self.device
            && t.is_inference_here() == self.inference
            && self.fixed.as_ref().is_some_and(|fixed| same_list(fixed, spec.layout.sizes()))
            && t.requires_grad() == self.requires_grad
    }

    #[inline(never)]
    fn first_difference(&self, t: &Tensor, symbols: &mut Symbols) -> Option<Mismatch> {
        let spec = t.spec();
        if spec.dtype != self.dtype {
            return Some(Mismatch::DType);
        }
        if spec.device != self.device {
            return Some(Mismatch::Device);
        }
        if t.requires_grad() != self.requires_grad {
            return Some(Mismatch::RequiresGrad);
        }
        if t.is_inference_here() != self.inference {
            return Some(Mismatch::Inference);
        }
        let sizes = spec.layout.sizes();
        match &self.fixed {
            Some(fixed) if same_list(fixed, sizes) => {}
            _ => {
                if sizes.len() != self.dims.len() {
                    return Some(Mismatch::Rank);
                }
                let differs = |(d, n): (&Dim, &usize)| !d.holds(*n as i64, symbols);
                if let Some(d) = self.dims.iter().zip(sizes).position(differs) {
                    return Some(Mismatch::Size(d));
                }
            }
        }
        let fits = match &self.strides {
            Strides::Contiguous => spec.layout.is_contiguous(),
            Strides::Are(strides) => same_list(strides, spec.layout.strides()),
            Strides::Order(dims) => !spec.layout.is_contiguous() && *dims == order(spec.layout.strides()),
        };
        if fits { None } else { Some(Mismatch::Stride) }
    }

    /// A difference as text.
    pub(crate) fn describe(&self, mismatch: Mismatch, t: &Tensor) -> String {
        match mismatch {
            Mismatch::DType => format!("dtype: expected {}, actual {}", self.dtype, t.dtype()),
            Mismatch::Device => format!("device: expected {}, actual {}", self.device.name(), t.device().name()),
            Mismatch::RequiresGrad => {
                format!("requires_grad: expected {}, actual {}", self.requires_grad, t.requires_grad())
            }
            Mismatch::Inference => {
                format!("made in inference mode: expected {}, actual {}", self.inference, t.is_inference_here())
            }
            Mismatch::Rank => format!("rank: expected {}, actual {}", self.dims.len(), t.ndim()),
            Mismatch::Size(d) => {
                let found = t.layout().sizes()[d];
                match self.dims[d] {
                    Dim::Symbol { symbol, least } if (found as i64) < least => {
                        format!("size at index {d}: expected at least {least} (s{symbol}), actual {found}")
                    }
                    dim => format!("size at index {d}: expected {dim}, actual {found}"),
                }
            }
            Mismatch::Stride => match &self.strides {
                Strides::Contiguous => format!("strides: expected row-major, actual {:?}", t.strides()),
                Strides::Are(s) => format!("strides: expected {s:?}, actual {:?}", t.strides()),
                Strides::Order(d) => {
                    format!("strides: expected dimensions in the order {d:?}, actual {:?}", t.strides())
                }
            },
        }
    }
}

impl fmt::Display for TensorGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self.dims.iter().map(Dim::to_string).collect();
        write!(f, "{}[{}], requires_grad {}", self.dtype, dims.join(", "), self.requires_grad)
    }
}
