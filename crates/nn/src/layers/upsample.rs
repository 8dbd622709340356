//! Resampling of `[batch, channels, sizes…]` to other sizes.

use firebrand_core::module::{ExtraRepr, Forward, Module, ModuleCore};
use firebrand_core::{Error, Result, SymInt, Tensor, ops};

/// Interpolation method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpsampleMode {
    /// The nearest element.
    #[default]
    Nearest,
    /// Linear, bilinear or trilinear, by the number of dimensions.
    Linear {
        /// Whether to align the corners of input and output.
        align_corners: bool,
    },
    /// Bicubic; for images.
    Cubic {
        /// Whether to align the corners of input and output.
        align_corners: bool,
    },
}

/// Resamples by a factor, or to a size.
#[derive(Module)]
#[module(extra_repr = Self::arguments)]
pub struct Upsample {
    #[module(skip)]
    mode: UpsampleMode,
    size: Vec<usize>,
    scale_factor: Vec<f64>,
    core: ModuleCore,
}

impl Upsample {
    /// Resamples by this factor along every dimension.
    pub fn by(scale_factor: f64, mode: UpsampleMode) -> Upsample {
        Upsample { mode, size: Vec::new(), scale_factor: vec![scale_factor], core: ModuleCore::new() }
    }

    /// Resamples to these sizes.
    pub fn to(size: impl Into<Vec<usize>>, mode: UpsampleMode) -> Upsample {
        Upsample { mode, size: size.into(), scale_factor: Vec::new(), core: ModuleCore::new() }
    }

    fn arguments(&self) -> String {
        let extra = match (&self.size[..], self.scale_factor.first()) {
            ([n], _) => ExtraRepr::new().field("size", *n),
            (_, Some(&factor)) => ExtraRepr::new().field("scale_factor", factor),
            (sizes, None) => ExtraRepr::new().field("size", sizes),
        };
        // The dimensions of the input decide between PyTorch's linear modes; sizes tell how many there are.
        let mode = match (self.mode, self.size.len()) {
            (UpsampleMode::Nearest, _) => "nearest",
            (UpsampleMode::Linear { .. }, 2) => "bilinear",
            (UpsampleMode::Linear { .. }, 3) => "trilinear",
            (UpsampleMode::Linear { .. }, _) => "linear",
            (UpsampleMode::Cubic { .. }, _) => "bicubic",
        };
        extra.field("mode", mode).finish()
    }
}

impl Forward for Upsample {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let dims = x.ndim().saturating_sub(2);
        let size: Vec<SymInt> = self.size.iter().map(|&n| n.into()).collect();
        let size = (!size.is_empty()).then_some(&size[..]);
        let factors = vec![self.scale_factor.first().copied().unwrap_or(1.0); dims];
        let factors = size.is_none().then_some(&factors[..]);
        match (self.mode, dims) {
            (UpsampleMode::Nearest, 1) => ops::upsample_nearest1d_vec(x, size, factors),
            (UpsampleMode::Nearest, 2) => ops::upsample_nearest2d_vec(x, size, factors),
            (UpsampleMode::Nearest, 3) => ops::upsample_nearest3d_vec(x, size, factors),
            (UpsampleMode::Linear { align_corners }, 1) => ops::upsample_linear1d_vec(x, size, align_corners, factors),
            (UpsampleMode::Linear { align_corners }, 2) => {
                ops::upsample_bilinear2d_vec(x, size, align_corners, factors)
            }
            (UpsampleMode::Linear { align_corners }, 3) => {
                ops::upsample_trilinear3d_vec(x, size, align_corners, factors)
            }
            (UpsampleMode::Cubic { align_corners }, 2) => ops::upsample_bicubic2d_vec(x, size, align_corners, factors),
            (mode, _) => {
                let message = format!("{mode:?} does not support inputs of shape {:?}", x.shape());
                Err(Error::argument("Upsample", message))
            }
        }
    }
}
