//! Windows of an image as columns, and back.

use super::options::{OneOrEach, PerDim, ints, options, sizes};
use firebrand_core::module::{ExtraRepr, Forward, Module, ModuleCore};
use firebrand_core::{Result, Tensor, ops};

options! {
    /// Windows of [`Unfold`] and [`Fold`].
    pub struct FoldOptions(
        /// Size of the kernel.
        kernel_size: [usize; 2],
    ) {
        /// Spacing between kernel elements.
        dilation: [usize; 2] = [1, 1],
        /// Padding on both sides of each dimension.
        padding: [usize; 2] = [0, 0],
        /// Stride of the kernel.
        stride: [usize; 2] = [1, 1],
    }
}

impl FoldOptions {
    fn show(&self, extra: ExtraRepr) -> String {
        let window =
            extra.field("kernel_size", OneOrEach(self.kernel_size)).field("dilation", OneOrEach(self.dilation));
        window.field("padding", OneOrEach(self.padding)).field("stride", OneOrEach(self.stride)).finish()
    }

    /// Builds the layer that extracts windows.
    pub fn unfold(self) -> Unfold {
        Unfold { options: self, core: ModuleCore::new() }
    }

    /// Builds the layer that sums windows into images of this size.
    pub fn fold(self, output_size: impl PerDim<2>) -> Fold {
        Fold { output_size: output_size.per_dim(), options: self, core: ModuleCore::new() }
    }
}

/// Extracts windows as columns: from `[batch, channels, height, width]` to `[batch, channels · window, windows]`.
#[derive(Module)]
#[module(extra_repr = Self::arguments)]
pub struct Unfold {
    #[module(skip)]
    options: FoldOptions,
    core: ModuleCore,
}

impl Unfold {
    /// Windows of this size at every position.
    pub fn new(kernel_size: impl PerDim<2>) -> Unfold {
        FoldOptions::new(kernel_size.per_dim()).unfold()
    }

    fn arguments(&self) -> String {
        self.options.show(ExtraRepr::new())
    }
}

impl Forward for Unfold {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let FoldOptions { kernel_size, dilation, padding, stride } = self.options.clone();
        ops::im2col(x, &ints(kernel_size), &ints(dilation), &ints(padding), &ints(stride))
    }
}

/// Sums columns into windows of an image, adding where they overlap: the adjoint of [`Unfold`].
#[derive(Module)]
#[module(extra_repr = Self::arguments)]
pub struct Fold {
    #[module(skip)]
    output_size: [usize; 2],
    #[module(skip)]
    options: FoldOptions,
    core: ModuleCore,
}

impl Fold {
    /// Images of `output_size` from windows of this size at every position.
    pub fn new(output_size: impl PerDim<2>, kernel_size: impl PerDim<2>) -> Fold {
        FoldOptions::new(kernel_size.per_dim()).fold(output_size)
    }

    fn arguments(&self) -> String {
        self.options.show(ExtraRepr::new().field("output_size", OneOrEach(self.output_size)))
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
