//! The built-in model: a small convolutional network for images of 8 by 8 pixels.

use firebrand::Result;
use firebrand::digits::CLASSES;
use firebrand::nn::layers::{
    BatchNorm2d, Conv2d, Conv2dOptions, Dropout, Flatten, Linear, MaxPool2d, Padding, ReLU, Sequential,
};
use firebrand::nn::sequential;

/// Channels of the first convolutions.
const WIDTH: usize = 16;

/// A description for the report.
pub(crate) const DESCRIPTION: &str =
    "conv 16, conv 16, pool, conv 32, pool, linear 10; 3 by 3, with batch norm and ReLU";

fn convolution(inputs: usize, outputs: usize) -> Result<Conv2d> {
    Conv2dOptions { padding: Padding::Size([1, 1]), ..Conv2dOptions::new(inputs, outputs, [3, 3]) }.build()
}

/// Maps `[batch, 1, 8, 8]` to class scores; weights are initialized from the default generator.
pub(crate) fn convolutional() -> Result<Sequential> {
    Ok(sequential![
        convolution(1, WIDTH)?,
        BatchNorm2d::new(WIDTH),
        ReLU::new(),
        convolution(WIDTH, WIDTH)?,
        BatchNorm2d::new(WIDTH),
        ReLU::new(),
        MaxPool2d::new(2),
        convolution(WIDTH, 2 * WIDTH)?,
        BatchNorm2d::new(2 * WIDTH),
        ReLU::new(),
        MaxPool2d::new(2),
        Flatten::new(),
        Dropout::new(0.3),
        Linear::new(8 * WIDTH, CLASSES),
    ])
}
