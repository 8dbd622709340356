//! Shape functions of convolution, and the geometry that kernels need.

use super::need_float;
use crate::layout::Dims;
use crate::limits::as_size;
use crate::{Error, Result, Spec, SymInt, Tensor};
use firebrand_kernels::conv::ConvShape;

/// The largest kernel, padding or dilation: so sums and products of two of them, and of one with an image's size, do not
/// overflow, and kernels may count positions in 32 bits.
const LARGEST: i64 = if usize::BITS == 64 { i32::MAX as i64 } else { 1 << 15 };

/// One number per spatial dimension, each at least `least`; a single one counts for all. Strides may be as large as they
/// like; for anything else there is a limit.
pub(crate) fn spatial(op: &'static str, name: &str, list: &[i64], n: usize, least: i64) -> Result<Dims> {
    let filled: Dims = match list {
        [one] if n > 0 => smallvec::smallvec![as_size(*one); n],
        list => list.iter().map(|&v| as_size(v)).collect(),
    };
    let most = if name == "stride" { i64::MAX } else { LARGEST };
    if filled.len() != n || list.iter().any(|&v| v < least || v > most) {
        let limit = if list.iter().any(|&v| v > most) { format!(" and at most {most}") } else { String::new() };
        let message = format!("expected {name} to be {n} integers of at least {least}{limit}, found {list:?}");
        return Err(Error::argument(op, message));
    }
    Ok(filled)
}

/// How many pixels a window reaches over.
pub(crate) fn reach(op: &'static str, dilation: usize, kernel: usize) -> Result<usize> {
    let reach = kernel.checked_sub(1).and_then(|k| k.checked_mul(dilation)?.checked_add(1));
    reach.filter(|&reach| reach <= LARGEST as usize).ok_or_else(|| {
        let message = format!("a window of {kernel} pixels with dilation {dilation} reaches over more than {LARGEST}");
        Error::argument(op, message)
    })
}

/// The integers of a size argument.
pub(crate) fn ints(list: &[SymInt]) -> Vec<i64> {
    list.iter().map(|n| n.int()).collect()
}

/// A convolution whose arguments fit: sizes for the kernels, and the shape of the result.
pub(crate) struct ConvGeometry {
    /// As the plain convolution that a transposed one is the gradient of.
    pub(crate) shape: ConvShape,
    pub(crate) output: Dims,
}

/// Strides, paddings and so on as they are passed.
#[derive(Clone, Copy)]
pub(crate) struct ConvArgs<'a> {
    pub(crate) stride: &'a [SymInt],
    pub(crate) padding: &'a [SymInt],
    pub(crate) dilation: &'a [SymInt],
    pub(crate) transposed: bool,
    pub(crate) output_padding: &'a [SymInt],
    pub(crate) groups: SymInt,
}

impl ConvArgs<'_> {
    /// Checks the arguments against an input and a weight.
    pub(crate) fn geometry(&self, op: &'static str, input: &[usize], weight: &[usize]) -> Result<ConvGeometry> {
        let refuse = |message: String| Error::argument(op, message);
        let (&[batch, channels, ref space @ ..], &[first, second, ref kernel @ ..]) = (input, weight) else {
            return Err(refuse(format!("expected a batch of images and a weight, found {input:?} and {weight:?}")));
        };
        let n = kernel.len();
        if !(1..=3).contains(&n) || space.len() != n {
            let message = format!("expected an input with {} dimensions for weight {weight:?}, found {input:?}", n + 2);
            return Err(refuse(message));
        }
        let stride = spatial(op, "stride", &ints(self.stride), n, 1)?;
        let padding = spatial(op, "padding", &ints(self.padding), n, 0)?;
        let dilation = spatial(op, "dilation", &ints(self.dilation), n, 1)?;
        let extra = spatial(op, "output_padding", &ints(self.output_padding), n, 0)?;
        let groups = self.groups.to_usize().filter(|&g| g > 0);
        let groups = groups.ok_or_else(|| refuse(format!("expected one group or more, found {}", self.groups)))?;
        if first % groups != 0 || kernel.contains(&0) {
            let message = format!("expected a weight {weight:?} without size 0 that {groups} groups divide");
            return Err(refuse(message));
        }
        // What overflows is not a valid number of channels, so it is rejected below.
        let expected = if self.transposed { first } else { second.saturating_mul(groups) };
        if channels != expected {
            let message = format!("weight {weight:?} expects {expected} input channels, found {channels} in {input:?}");
            return Err(refuse(message));
        }
        let result = (0..n).map(|d| {
            let (size, reach) = (space[d], reach(op, dilation[d], kernel[d])?);
            if self.transposed {
                if extra[d] >= stride[d].max(dilation[d]) {
                    let message = format!("output padding {} must be smaller than stride or dilation", extra[d]);
                    return Err(refuse(message));
                }
                // No output pixel is left if the padding cuts off more than there is.
                let whole = (size.max(1) - 1).checked_mul(stride[d]).and_then(|w| w.checked_add(reach + extra[d]));
                let whole = whole.ok_or_else(|| refuse(format!("stride {} makes the result too large", stride[d])))?;
                let left = whole.checked_sub(2 * padding[d]).filter(|&left| left > 0 && size > 0);
                return left.ok_or_else(|| refuse(format!("the result of {input:?} with these paddings is empty")));
            }
            let padded = size + 2 * padding[d];
            if padded < reach {
                let whole = |f: &dyn Fn(usize) -> usize| (0..n).map(|d| f(d).to_string()).collect::<Vec<_>>().join(" x ");
                return Err(refuse(format!(
                    "Calculated padded input size per channel: ({}). Kernel size: ({}). Kernel size can't be greater than \
                     actual input size",
                    whole(&|d| space[d] + 2 * padding[d]),
                    whole(&|d| dilation[d].saturating_mul(kernel[d] - 1).saturating_add(1))
                )));
            }
            Ok((padded - reach) / stride[d] + 1)
        });
        let result = result.collect::<Result<Dims>>()?;
        let out_channels = if self.transposed { second.checked_mul(groups) } else { Some(first) };
        let out_channels = out_channels.ok_or_else(|| refuse(format!("{groups} groups of {second} channels")))?;
        let mut output: Dims = smallvec::smallvec![batch, out_channels];
        output.extend_from_slice(&result);
        // A transposed convolution goes from the small image to the large one.
        let (from, to) = if self.transposed { (&result[..], space) } else { (space, &result[..]) };
        let (c_from, c_to) = if self.transposed { (out_channels, channels) } else { (channels, out_channels) };
        // With a stride beyond the padded image there is one position, and any such stride means the same.
        let stride: Dims = (0..n).map(|d| stride[d].min(from[d] + 2 * padding[d])).collect();
        let (row, step) = (from[n - 1], stride[n - 1]);
        if row > LARGEST as usize && step > LARGEST as usize / 16 {
            return Err(refuse(format!("stride {step} over rows of {row} pixels is more than 32 bits count")));
        }
        let wide = |s: &[usize], fill: usize| {
            let mut a = [fill; 3];
            a[3 - n..].copy_from_slice(s);
            a
        };
        let shape = ConvShape {
            batch,
            in_channels: c_from,
            out_channels: c_to,
            groups,
            input: wide(from, 1),
            kernel: wide(kernel, 1),
            stride: wide(&stride, 1),
            padding: wide(&padding, 0),
            dilation: wide(&dilation, 1),
            output: wide(to, 1),
        };
        Ok(ConvGeometry { shape, output })
    }
}

fn one_dtype(op: &'static str, input: &Tensor, others: &[&Tensor]) -> Result<()> {
    need_float(op, input.dtype())?;
    match others.iter().find(|t| t.dtype() != input.dtype()) {
        None => Ok(()),
        Some(t) => {
            let (a, b) = (input.dtype(), t.dtype());
            Err(Error::argument(op, format!("expected operands of one dtype, found {a} and {b}; convert one of them")))
        }
    }
}

pub(crate) fn convolution(
    op: &'static str,
    input: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    stride: &[SymInt],
    padding: &[SymInt],
    dilation: &[SymInt],
    transposed: bool,
    output_padding: &[SymInt],
    groups: SymInt,
) -> Result<Spec> {
    let args = ConvArgs { stride, padding, dilation, transposed, output_padding, groups };
    let sizes = args.geometry(op, input.shape(), weight.shape())?.output;
    if let Some(b) = bias
        && b.shape() != &sizes[1..2]
    {
        let message =
            format!("expected a bias with one number per output channel ({}), found {:?}", sizes[1], b.shape());
        return Err(Error::argument(op, message));
    }
    match bias {
        Some(b) => one_dtype(op, input, &[weight, b])?,
        None => one_dtype(op, input, &[weight])?,
    }
    Spec::new(&sizes, input.dtype(), input.device())
}

/// Gradients of input, weight and bias; one that is not needed has no elements.
pub(crate) fn convolution_backward(
    op: &'static str,
    grad_output: &Tensor,
    input: &Tensor,
    weight: &Tensor,
    _bias_sizes: Option<&[SymInt]>,
    stride: &[SymInt],
    padding: &[SymInt],
    dilation: &[SymInt],
    transposed: bool,
    output_padding: &[SymInt],
    groups: SymInt,
    output_mask: [bool; 3],
) -> Result<(Spec, Spec, Spec)> {
    let args = ConvArgs { stride, padding, dilation, transposed, output_padding, groups };
    let sizes = args.geometry(op, input.shape(), weight.shape())?.output;
    if grad_output.shape() != &sizes[..] {
        let message = format!("expected a gradient of the result's shape {sizes:?}, found {:?}", grad_output.shape());
        return Err(Error::argument(op, message));
    }
    one_dtype(op, input, &[grad_output, weight])?;
    let device = grad_output.device();
    let spec = |wanted: bool, sizes: &[usize]| Spec::new(if wanted { sizes } else { &[0] }, input.dtype(), device);
    let [i, w, b] = output_mask;
    Ok((spec(i, input.shape())?, spec(w, weight.shape())?, spec(b, &sizes[1..2])?))
}

/// Positions of a window over an image: kernel, dilation, padding, stride.
fn window(
    op: &'static str,
    space: &[usize],
    kernel_size: &[i64],
    dilation: &[i64],
    padding: &[i64],
    stride: &[i64],
) -> Result<ConvShape> {
    let kernel = spatial(op, "kernel_size", kernel_size, 2, 1)?;
    let dilation = spatial(op, "dilation", dilation, 2, 1)?;
    let padding = spatial(op, "padding", padding, 2, 0)?;
    let stride = spatial(op, "stride", stride, 2, 1)?;
    for d in 0..2 {
        if space[d] + 2 * padding[d] < reach(op, dilation[d], kernel[d])? {
            let message =
                format!("a window of {kernel_size:?} with these dilations does not fit an image of {space:?}");
            return Err(Error::argument(op, message));
        }
    }
    let stride: Dims = (0..2).map(|d| stride[d].min(space[d] + 2 * padding[d])).collect();
    Ok(ConvShape::new((1, 1, 1, 1), space, &kernel, &stride, &padding, &dilation))
}

fn product(sizes: &[usize]) -> Option<usize> {
    sizes.iter().try_fold(1usize, |product, &n| product.checked_mul(n))
}

fn too_large(op: &'static str, taps: &ConvShape) -> Error {
    let (kernel, places) = (&taps.kernel[1..], &taps.output[1..]);
    Error::argument(op, format!("windows of {kernel:?} at {places:?} places have too many elements"))
}

/// `[batch, channels, height, width]` of images with or without a batch.
fn images(op: &'static str, sizes: &[usize], expected: &str) -> Result<(usize, Dims)> {
    match *sizes {
        [ref rest @ .., _, _] if rest.len() == 1 => Ok((1, Dims::from_slice(sizes))),
        [n, ref rest @ ..] if rest.len() == 3 => Ok((n, Dims::from_slice(rest))),
        _ => Err(Error::argument(op, format!("expected {expected}, found shape {sizes:?}"))),
    }
}

/// The convolution with one-hot weights that writes each pixel of a window to a channel of its own.
pub(crate) fn im2col_geometry(
    op: &'static str,
    input: &[usize],
    kernel_size: &[i64],
    dilation: &[i64],
    padding: &[i64],
    stride: &[i64],
) -> Result<ConvShape> {
    let (batch, image) = images(op, input, "images [batch, channels, height, width]")?;
    let taps = window(op, &image[1..], kernel_size, dilation, padding, stride)?;
    let c = image[0];
    let columns = product(&taps.kernel).and_then(|k| k.checked_mul(c));
    let out_channels = columns.filter(|_| product(&taps.output).is_some()).ok_or_else(|| too_large(op, &taps))?;
    Ok(ConvShape { batch, in_channels: c, out_channels, groups: c, ..taps })
}

pub(crate) fn im2col(
    op: &'static str,
    self_: &Tensor,
    kernel_size: &[i64],
    dilation: &[i64],
    padding: &[i64],
    stride: &[i64],
) -> Result<Spec> {
    let s = im2col_geometry(op, self_.shape(), kernel_size, dilation, padding, stride)?;
    let columns = [s.batch, s.out_channels, s.output.iter().product()];
    let sizes = if self_.ndim() == 3 { &columns[1..] } else { &columns[..] };
    Spec::new(sizes, self_.dtype(), self_.device())
}

pub(crate) fn col2im(
    op: &'static str,
    self_: &Tensor,
    output_size: &[SymInt],
    kernel_size: &[i64],
    dilation: &[i64],
    padding: &[i64],
    stride: &[i64],
) -> Result<Spec> {
    need_float(op, self_.dtype().to_real())?;
    let space = spatial(op, "output_size", &ints(output_size), 2, 1)?;
    let taps = window(op, &space, kernel_size, dilation, padding, stride)?;
    let (Some(k), Some(places)) = (product(&taps.kernel), product(&taps.output)) else {
        return Err(too_large(op, &taps));
    };
    let (lead, rows, columns) = match *self_.shape() {
        [rows, columns] => (None, rows, columns),
        [n, rows, columns] => (Some(n), rows, columns),
        _ => (None, 0, 0),
    };
    if rows == 0 || rows % k != 0 || columns != places {
        let message =
            format!("expected [batch, channels * {k}, {places}] for these windows, found shape {:?}", self_.shape());
        return Err(Error::argument(op, message));
    }
    let sizes: Dims = lead.into_iter().chain([rows / k, space[0], space[1]]).collect();
    Spec::new(&sizes, self_.dtype(), self_.device())
}
