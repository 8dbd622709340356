//! Windows of an image as columns, and back.

use super::options::{PerDim, ints, options, sizes};
use firebrand_core::module::{Forward, Module, ModuleCore};
use firebrand_core::{Result, Tensor, ops};

options! {
    /// Which windows [`Unfold`] and [`Fold`] go over.
    pub struct FoldOptions(
        /// Size of the window.
        kernel_size: [usize; 2],
    ) {
        /// Distance of the window's elements.
        dilation: [usize; 2] = [1, 1],
        /// How much is added to both sides of each dimension.
        padding: [usize; 2] = [0, 0],
        /// Steps of the window.
        stride: [usize; 2] = [1, 1],
    }
}

impl FoldOptions {
    /// The layer that takes windows out.
    pub fn unfold(self) -> Unfold {
        Unfold { options: self, core: ModuleCore::new() }
    }

    /// The layer that adds windows up to images of this size.
    pub fn fold(self, output_size: impl PerDim<2>) -> Fold {
        Fold { output_size: output_size.per_dim(), options: self, core: ModuleCore::new() }
    }
}

/// Windows as columns: from `[batch, channels, height, width]` to `[batch, channels · window, windows]`.
#[derive(Module)]
pub struct Unfold {
    #[module(skip)]
    options: FoldOptions,
    core: ModuleCore,
}

impl Unfold {
    /// Windows of this size at every place.
    pub fn new(kernel_size: impl PerDim<2>) -> Unfold {
        FoldOptions::new(kernel_size.per_dim()).unfold()
    }
}

impl Forward for Unfold {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let FoldOptions { kernel_size, dilation, padding, stride } = self.options.clone();
        ops::im2col(x, &ints(kernel_size), &ints(dilation), &ints(padding), &ints(stride))
    }
}

/// Columns as windows of an image, which are added where they overlap: the other way round than [`Unfold`].
#[derive(Module)]
pub struct Fold {
    #[module(skip)]
    output_size: [usize; 2],
    #[module(skip)]
    options: FoldOptions,
    core: ModuleCore,
}

impl Fold {
    /// Images of `output_size` from windows of this size at every place.
    pub fn new(output_size: impl PerDim<2>, kernel_size: impl PerDim<2>) -> Fold {
        FoldOptions::new(kernel_size.per_dim()).fold(output_size)
    }
}

impl Forward for Fold {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let FoldOptions { kernel_size, dilation, padding, stride } = self.options.clone();
        let size = sizes(self.output_size);
        ops::col2im(x, &size, &ints(kernel_size), &ints(dilation), &ints(padding), &ints(stride))
    }
}
