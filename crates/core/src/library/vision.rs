//! The ops of detection models: `torchvision`'s pooling of regions, suppression of overlapping boxes and deformable
//! convolution, registered when a program first names them.
//!
//! Positions are computed in the input's precision, so that borders fall where they do in torchvision. As there, regions
//! have no gradient, and gradients of regional pooling cannot be differentiated again: that is refused. The gradient of
//! `ps_roi_pool` is that of its values also where a region leaves the image, which torchvision's is not.

use super::define;
use crate::autograd::{EnableGrad, GradOptions, grad};
use crate::dispatch::{Args, Op};
use crate::limits::as_size;
use crate::ops::formulas::sym;
use crate::ops::lists;
use crate::{DType, Error, Result, Scalar, Spec, Tensor, ops, state};

/// Registers the op of this name, and the one of its gradient, if it is one of them.
pub(super) fn by_name(name: &str) -> Option<Op> {
    let made = match name.strip_prefix("torchvision::")? {
        "nms" => nms(),
        "roi_align" | "_roi_align_backward" => pool(&ROI_ALIGN),
        "ps_roi_align" | "_ps_roi_align_backward" => pool(&PS_ROI_ALIGN),
        "ps_roi_pool" | "_ps_roi_pool_backward" => pool(&PS_ROI_POOL),
        "roi_pool" | "_roi_pool_backward" => pool(&ROI_POOL),
        "deform_conv2d" => deform_conv2d(),
        _ => return None,
    };
    made.ok().and_then(|()| super::registry::found(name))
}

fn wrong<T>(op: &'static str, message: String) -> Result<T> {
    Err(Error::argument(op, message))
}

/// Rounds to the precision of a dtype.
fn precise(dtype: DType) -> fn(f64) -> f64 {
    if dtype == DType::F64 { |x| x } else { |x| f64::from(x as f32) }
}

fn values(t: &Tensor) -> Result<Vec<f64>> {
    t.need_data("torchvision")?;
    t.try_detach()?.try_to_dtype(DType::F64)?.try_to_vec::<f64>()
}

fn made(values: Vec<f64>, sizes: &[usize], dtype: DType) -> Result<Tensor> {
    Tensor::try_from_vec(values, sizes)?.try_to_dtype(dtype)
}

// ---- regions

/// What a bin of a region reads: places in a plane of the input, with weights.
type Taps = Vec<(usize, f64)>;

/// A call that takes more samples is refused: a region or a ratio can ask for any number of them.
const MOST_SAMPLES: u64 = 1 << 32;

/// A kind of regional pooling.
struct Pool {
    op: &'static str,
    schema: &'static str,
    backward: &'static str,
    /// Whether each bin has channels of its own.
    by_position: bool,
    /// Whether the largest element is taken instead of the weighted sum.
    largest: bool,
    taps: fn(&Region, usize, usize) -> Result<Taps>,
}

/// One region, and what it is cut into.
struct Region {
    height: usize,
    width: usize,
    bins: (usize, usize),
    corners: [f64; 4],
    scale: f64,
    sampling: i64,
    aligned: bool,
    precise: fn(f64) -> f64,
    /// How many samples a bin may take.
    most: u64,
}

const ROI_ALIGN: Pool = Pool {
    op: "roi_align",
    schema: "torchvision::roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor",
    backward: "torchvision::_roi_align_backward",
    by_position: false,
    largest: false,
    taps: |r, y, x| {
        let shift = if r.aligned { 0.5 } else { 0.0 };
        r.sampled(y, x, shift, if r.aligned { 0.0 } else { 1.0 })
    },
};
const PS_ROI_ALIGN: Pool = Pool {
    op: "ps_roi_align",
    schema: "torchvision::ps_roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio) -> (Tensor, Tensor)",
    backward: "torchvision::_ps_roi_align_backward",
    by_position: true,
    largest: false,
    taps: |r, y, x| r.sampled(y, x, 0.5, f64::NEG_INFINITY),
};
const PS_ROI_POOL: Pool = Pool {
    op: "ps_roi_pool",
    schema: "torchvision::ps_roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) -> (Tensor, Tensor)",
    backward: "torchvision::_ps_roi_pool_backward",
    by_position: true,
    largest: false,
    taps: |r, y, x| {
        let mut places = r.whole(y, x, 0.0, 1)?;
        let weight = 1.0 / places.len().max(1) as f64;
        places.iter_mut().for_each(|p| p.1 = weight);
        Ok(places)
    },
};
const ROI_POOL: Pool = Pool {
    op: "roi_pool",
    schema: "torchvision::roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) -> (Tensor, Tensor)",
    backward: "torchvision::_roi_pool_backward",
    by_position: false,
    largest: true,
    taps: |r, y, x| r.whole(y, x, 1.0, 0),
};

impl Region {
    /// Bilinear samples on a regular grid inside a bin, averaged.
    fn sampled(&self, y: usize, x: usize, shift: f64, least: f64) -> Result<Taps> {
        let p = self.precise;
        let [x1, y1, x2, y2] = self.corners.map(|c| p(p(c * self.scale) - shift));
        let size = |a: f64, b: f64| p(b - a).max(least);
        let (h, w) = (size(y1, y2), size(x1, x2));
        let (bin_h, bin_w) = (p(h / self.bins.0 as f64), p(w / self.bins.1 as f64));
        let grid = |size: f64, bins: usize| match self.sampling {
            n if n > 0 => as_size(n),
            _ => p(size / bins as f64).ceil().max(0.0) as usize,
        };
        let (rows, columns) = (grid(h, self.bins.0), grid(w, self.bins.1));
        let samples = rows.saturating_mul(columns);
        if samples as u64 > self.most {
            let m = format!(
                "{rows} by {columns} samples in each of {} by {} bins of every region are too many; \
                 lower sampling_ratio, or give smaller regions",
                self.bins.0, self.bins.1
            );
            return wrong("roi_align", m);
        }
        let weight = 1.0 / samples.max(1) as f64;
        let mut taps = lists::room(samples.saturating_mul(4))?;
        for i in 0..rows {
            let at_y = p(y1 + y as f64 * bin_h + p((i as f64 + 0.5) * bin_h / rows as f64));
            for j in 0..columns {
                let at_x = p(x1 + x as f64 * bin_w + p((j as f64 + 0.5) * bin_w / columns as f64));
                self.corners_of(at_y, at_x, weight, &mut taps);
            }
        }
        Ok(taps)
    }

    /// The four elements around a point, if it is not outside by more than one.
    fn corners_of(&self, y: f64, x: f64, weight: f64, taps: &mut Taps) {
        let outside = |v: f64, n: usize| v < -1.0 || v > n as f64;
        if outside(y, self.height) || outside(x, self.width) || self.height * self.width == 0 {
            return;
        }
        let around = |v: f64, n: usize| {
            let v = v.max(0.0);
            let low = v as usize;
            if low >= n - 1 { (n - 1, n - 1, 0.0) } else { (low, low + 1, v - low as f64) }
        };
        let ((top, bottom, dy), (left, right, dx)) = (around(y, self.height), around(x, self.width));
        for (row, wy) in [(top, 1.0 - dy), (bottom, dy)] {
            for (column, wx) in [(left, 1.0 - dx), (right, dx)] {
                taps.push((row * self.width + column, weight * wy * wx));
            }
        }
    }

    /// All elements of a bin, its borders rounded outward; `more` is added to the size of the region, `last` is how far
    /// before the end of the input it must end.
    fn whole(&self, y: usize, x: usize, more: f64, last: usize) -> Result<Taps> {
        let p = self.precise;
        let [x1, y1, x2, y2] = self.corners.map(|c| p(c * self.scale).round());
        let range = |k: usize, from: f64, to: f64, bins: usize, n: usize| {
            let bin = p((to - from + more).max(1.0) / bins as f64);
            let place = |v: f64| (v + from).clamp(0.0, n.saturating_sub(last) as f64) as usize;
            place(p(k as f64 * bin).floor())..place(p((k + 1) as f64 * bin).ceil())
        };
        let (rows, columns) = (range(y, y1, y2, self.bins.0, self.height), range(x, x1, x2, self.bins.1, self.width));
        let count = rows.len() * columns.len(); // no more than the plane has
        lists::collected(count, rows.flat_map(|r| columns.clone().map(move |c| (r * self.width + c, 1.0))))
    }
}

/// Sizes of a call: input, regions, bins, channels of the result.
struct Sizes {
    input: [usize; 4],
    regions: usize,
    bins: (usize, usize),
    channels: usize,
}

impl Sizes {
    fn of(pool: &Pool, a: &Args<'_>) -> Result<Sizes> {
        let (input, rois) = (a.tensor(0, "input")?, a.tensor(1, "rois")?);
        let size = |k: usize, name: &'static str| a.sym_int(k, name).map(|n| n.to_usize().filter(|n| *n > 0));
        let (h, w) = (size(3, "pooled_height")?, size(4, "pooled_width")?);
        let (Ok(input_sizes), &[regions, 5], Some(h), Some(w)) =
            (<[usize; 4]>::try_from(input.shape()), rois.shape(), h, w)
        else {
            let m = format!("expected images and regions [n, 5], found {:?} and {:?}", input.shape(), rois.shape());
            return wrong(pool.op, m);
        };
        if input.dtype() != rois.dtype() || !input.is_floating_point() {
            let m = format!("expected floats of one dtype, found {} and {}", input.dtype(), rois.dtype());
            return wrong(pool.op, m);
        }
        let bins = h.saturating_mul(w);
        let channels = match pool.by_position {
            true if input_sizes[1].is_multiple_of(bins) => input_sizes[1] / bins,
            true => {
                return wrong(
                    pool.op,
                    format!("expected channels for each of {h} by {w} bins, found {}", input_sizes[1]),
                );
            }
            false => input_sizes[1],
        };
        Ok(Sizes { input: input_sizes, regions, bins: (h, w), channels })
    }

    fn output(&self) -> [usize; 4] {
        [self.regions, self.channels, self.bins.0, self.bins.1]
    }
}

/// Calls `f(output place, image, input channel, taps)` for every element of the result.
fn each(pool: &Pool, s: &Sizes, a: &Args<'_>, mut f: impl FnMut(usize, usize, usize, &Taps)) -> Result<()> {
    let rois = a.tensor(1, "rois")?;
    let (scale, precise) = (a.float(2, "spatial_scale")?, precise(rois.dtype()));
    let sampling = if pool.schema.contains("sampling_ratio") { a.int(5, "sampling_ratio")? } else { 0 };
    let aligned = pool.op == "roi_align" && a.bool(6, "aligned")?;
    let (h, w) = s.bins;
    let bins = s.output().iter().fold(1u64, |n, &size| n.saturating_mul(size as u64)) / s.channels.max(1) as u64;
    for (r, roi) in values(rois)?.chunks_exact(5).enumerate() {
        let image = roi[0];
        if !(0.0..s.input[0] as f64).contains(&image) {
            return wrong(pool.op, format!("region {r} names image {image} of {}", s.input[0]));
        }
        let region = Region {
            height: s.input[2],
            width: s.input[3],
            bins: s.bins,
            corners: [roi[1], roi[2], roi[3], roi[4]],
            scale: precise(scale),
            sampling,
            aligned,
            precise,
            most: MOST_SAMPLES / bins.max(1),
        };
        if s.channels == 0 {
            continue; // no bin is read, however many there are
        }
        for (y, x) in (0..h).flat_map(|y| (0..w).map(move |x| (y, x))) {
            let taps = (pool.taps)(&region, y, x)?;
            for c in 0..s.channels {
                let channel = if pool.by_position { (c * h + y) * w + x } else { c };
                f(((r * s.channels + c) * h + y) * w + x, image as usize, channel, &taps);
            }
        }
    }
    Ok(())
}

/// Values, and where they came from: the channel, or the place of the largest.
fn forward(pool: &Pool, a: &Args<'_>) -> Result<Vec<Tensor>> {
    let s = Sizes::of(pool, a)?;
    let input = a.tensor(0, "input")?;
    let (from, plane) = (values(input)?, s.input[2] * s.input[3]);
    let count = Spec::new(&s.output(), DType::I64, input.device())?.layout.numel();
    let (mut out, mut origin) = (lists::filled(0.0, count)?, lists::filled(0i64, count)?);
    each(pool, &s, a, |at, image, channel, taps| {
        let plane = &from[(image * s.input[1] + channel) * plane..][..plane];
        if pool.largest {
            let best = taps.iter().fold(None, |best: Option<usize>, &(k, _)| match best {
                Some(b) if plane[k] <= plane[b] || plane[k].is_nan() => Some(b),
                _ => Some(k),
            });
            out[at] = best.map_or(0.0, |k| plane[k]);
            origin[at] = best.map_or(-1, |k| k as i64);
        } else {
            out[at] = taps.iter().map(|&(k, w)| w * plane[k]).sum();
            origin[at] = channel as i64;
        }
    })?;
    let out = made(out, &s.output(), input.dtype())?;
    let origin = Tensor::try_from_vec(origin, s.output())?.try_to_dtype(DType::I32)?;
    Ok(if pool.op == "roi_align" { vec![out] } else { vec![out, origin] })
}

/// The gradient of the input. Arguments are those of the op, then the gradient.
fn backward(pool: &Pool, a: &Args<'_>) -> Result<Vec<Tensor>> {
    let s = Sizes::of(pool, a)?;
    let input = a.tensor(0, "input")?;
    let grad = a.tensor(a.values().len() - 1, "grad")?;
    if grad.shape() != s.output() {
        return wrong(pool.op, format!("expected a gradient of {:?}, found {:?}", s.output(), grad.shape()));
    }
    let (from, grads, plane) = (values(input)?, values(grad)?, s.input[2] * s.input[3]);
    let mut out = lists::filled(0.0, from.len())?;
    each(pool, &s, a, |at, image, channel, taps| {
        let begin = (image * s.input[1] + channel) * plane;
        let (seen, to) = (&from[begin..][..plane], &mut out[begin..][..plane]);
        if !pool.largest {
            return taps.iter().for_each(|&(k, w)| to[k] += w * grads[at]);
        }
        let best = taps.iter().fold(None, |best: Option<usize>, &(k, _)| match best {
            Some(b) if seen[k] <= seen[b] || seen[k].is_nan() => Some(b),
            _ => Some(k),
        });
        best.into_iter().for_each(|k| to[k] += grads[at]);
    })?;
    Ok(vec![made(out, &s.input, input.dtype())?])
}

/// Registers a kind of regional pooling and its gradient, which has none of its own.
fn pool(pool: &'static Pool) -> Result<()> {
    let arguments = &pool.schema[pool.schema.find('(').unwrap_or(0)..pool.schema.find(") ->").unwrap_or(0)];
    let gradient = define(format!("{}{arguments}, Tensor grad) -> Tensor", pool.backward))
        .shape(|a| Ok(vec![a.tensor(0, "input")?.spec().clone()]))
        .kernel(move |a| backward(pool, a))
        .registered()?;
    define(pool.schema)
        .shape(move |a| {
            let (s, input) = (Sizes::of(pool, a)?, a.tensor(0, "input")?);
            let out = Spec::new(&s.output(), input.dtype(), input.device())?;
            let origin = Spec::new(&s.output(), DType::I32, input.device())?;
            Ok(if pool.op == "roi_align" { vec![out] } else { vec![out, origin] })
        })
        .kernel(move |a| forward(pool, a))
        .backward(move |call, grads| {
            let Some(g) = grads[0].as_ref() else { return Ok(vec![None, None]) };
            let mut args = call.args().values().to_vec();
            args.push(g.into());
            Ok(vec![Some(gradient.call1(&args)?), None])
        })
        .registered()
        .map(drop)
}

// ---- boxes

/// Registers `nms`: the boxes, best first, that overlap none that is kept by more than the threshold.
fn nms() -> Result<()> {
    define("torchvision::nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        .tags(&["dynamic_output_shape"])
        .non_differentiable()
        .kernel(|a| {
            let (boxes, scores) = (a.tensor(0, "dets")?, a.tensor(1, "scores")?);
            let threshold = a.float(2, "iou_threshold")?;
            if boxes.ndim() != 2 || boxes.shape()[1] != 4 || scores.shape() != &boxes.shape()[..1] {
                let m =
                    format!("expected boxes [n, 4] and n scores, found {:?} and {:?}", boxes.shape(), scores.shape());
                return wrong("nms", m);
            }
            let (p, corners) = (precise(boxes.dtype()), values(boxes)?);
            let corners: Vec<&[f64]> = corners.chunks_exact(4).collect();
            let scores = values(scores)?;
            let mut order: Vec<usize> = (0..scores.len()).collect();
            order.sort_by(|&i, &j| scores[j].total_cmp(&scores[i]));
            let area = |b: &[f64]| p(p(b[2] - b[0]) * p(b[3] - b[1]));
            let mut kept: Vec<usize> = Vec::new();
            for i in order {
                let overlaps = |&j: &usize| {
                    let (a, b) = (corners[i], corners[j]);
                    let side = |k: usize| p(a[k + 2].min(b[k + 2]) - a[k].max(b[k])).max(0.0);
                    let shared = p(side(0) * side(1));
                    p(shared / p(p(area(a) + area(b)) - shared)) > threshold
                };
                if !kept.iter().any(overlaps) {
                    kept.push(i);
                }
            }
            let count = kept.len();
            Ok(vec![Tensor::try_from_vec(kept.into_iter().map(|k| k as i64).collect(), [count])?])
        })
        .registered()
        .map(drop)
}

// ---- deformable convolution

/// A convolution whose window is bent by offsets: samples between pixels, weighted by a mask, times the weight.
fn deformed(a: &Args<'_>) -> Result<Tensor> {
    const OP: &str = "deform_conv2d";
    let [input, weight, offset, mask, bias] =
        [(0, "input"), (1, "weight"), (2, "offset"), (3, "mask"), (4, "bias")].map(|(k, name)| a.tensor(k, name));
    let (input, weight, offset, mask, bias) = (input?, weight?, offset?, mask?, bias?);
    let numbers = (5..13).map(|k| a.sym_int(k, "").map(|n| n.int())).collect::<Result<Vec<_>>>()?;
    let [stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups, offset_groups] = numbers[..] else {
        return wrong(OP, "expected eight numbers".into());
    };
    let use_mask = a.bool(13, "use_mask")?;
    let (&[n, c, h, w], &[o, per_group, kh, kw], &[_, planes, oh, ow]) =
        (input.shape(), weight.shape(), offset.shape())
    else {
        return wrong(OP, format!("expected images, a weight and offsets, found {:?}", input.shape()));
    };
    let (g, og) = (as_size(groups.max(1)), as_size(offset_groups.max(1)));
    let taps = kh * kw;
    let fits = [og, 2, taps].iter().try_fold(1usize, |n, &size| n.checked_mul(size)) == Some(planes)
        && per_group.checked_mul(g) == Some(c)
        && c.is_multiple_of(og)
        && o.is_multiple_of(g);
    if !fits {
        let m = format!(
            "offsets {:?} and weight {:?} do not fit images {:?}",
            offset.shape(),
            weight.shape(),
            input.shape()
        );
        return wrong(OP, m);
    }
    let dtype = input.dtype();
    // Where each tap would be without offsets: [taps, oh, ow].
    let places = |along_rows: bool| -> Result<Tensor> {
        let count = Spec::new(&[taps, oh, ow], DType::F64, input.device())?.layout.numel();
        let mut list = lists::room(count)?;
        let place = |at: usize, stride: i64, pad: i64, tap: usize, dilation: i64| {
            at as f64 * stride as f64 - pad as f64 + tap as f64 * dilation as f64
        };
        for (k, y) in (0..taps).flat_map(|k| (0..oh).map(move |y| (k, y))) {
            list.extend((0..ow).map(|x| match along_rows {
                true => place(y, stride_h, pad_h, k / kw, dilation_h),
                false => place(x, stride_w, pad_w, k % kw, dilation_w),
            }));
        }
        made(list, &[taps, oh, ow], dtype)
    };
    let shifts = ops::reshape(offset, &sym(&[n, og, taps, 2, oh, ow]))?;
    let one = Scalar::Int(1);
    let at = |k: i64, rows: bool| ops::add(&ops::select(&shifts, 3, k.into())?, &places(rows)?, one);
    let (y, x) = (at(0, true)?, at(1, false)?);
    let inside = |t: &Tensor, size: usize| {
        ops::logical_and(&ops::gt_scalar(t, Scalar::Int(-1))?, &ops::lt_scalar(t, Scalar::Int(size as i64))?)
    };
    let whole = ops::logical_and(&inside(&y, h)?, &inside(&x, w)?)?;
    let pixels = ops::reshape(input, &sym(&[n, og, c / og, h * w]))?;
    let mut columns: Option<Tensor> = None;
    for (down, right) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let corner = |t: &Tensor, step: i64, size: usize| -> Result<(Tensor, Tensor, Tensor)> {
            let low = ops::floor(t)?;
            let part = ops::sub(t, &low, one)?;
            let share = if step == 0 { ops::rsub_scalar(&part, one, one)? } else { part };
            let place = ops::add_scalar(&ops::detach(&low)?, Scalar::Int(step), one)?;
            let valid = ops::logical_and(
                &ops::ge_scalar(&place, Scalar::Int(0))?,
                &ops::lt_scalar(&place, Scalar::Int(size as i64))?,
            )?;
            let place = ops::clamp(&place, Some(Scalar::Int(0)), Some(Scalar::Int(size as i64 - 1)))?;
            Ok((share, ops::formulas::cast(&place, DType::I64)?, valid))
        };
        let ((sy, py, vy), (sx, px, vx)) = (corner(&y, down, h)?, corner(&x, right, w)?);
        let share = ops::mul(&sy, &sx)?;
        let valid = ops::logical_and(&ops::logical_and(&vy, &vx)?, &whole)?;
        let share = ops::formulas::zero_where(&ops::logical_not(&valid)?, &share)?;
        let place = ops::add(&ops::mul_scalar(&py, Scalar::Int(w as i64))?, &px, one)?;
        let wide = |t: &Tensor| {
            let flat = ops::reshape(t, &sym(&[n, og, 1, taps * oh * ow]))?;
            ops::expand(&flat, &sym(&[n, og, c / og, taps * oh * ow]), false)
        };
        let term = ops::mul(&ops::gather(&pixels, -1, &wide(&place)?, false)?, &wide(&share)?)?;
        columns = Some(match columns {
            Some(sum) => ops::add(&sum, &term, one)?,
            None => term,
        });
    }
    let Some(columns) = columns else { return wrong(OP, "no taps".into()) };
    let mut columns = ops::reshape(&columns, &sym(&[n, og, c / og, taps, oh * ow]))?;
    if use_mask {
        columns = ops::mul(&columns, &ops::reshape(mask, &sym(&[n, og, 1, taps, oh * ow]))?)?;
    }
    let columns = ops::reshape(&columns, &sym(&[n, g, per_group * taps, oh * ow]))?;
    let weight = ops::reshape(weight, &sym(&[g, o / g, per_group * taps]))?;
    let out = ops::reshape(&ops::matmul(&weight, &columns)?, &sym(&[n, o, oh, ow]))?;
    ops::add(&out, &ops::reshape(bias, &sym(&[o, 1, 1]))?, one)
}

fn deform_conv2d() -> Result<()> {
    define("torchvision::deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask) -> Tensor")
        .shape(|a| {
            let (input, weight, offset) = (a.tensor(0, "input")?, a.tensor(1, "weight")?, a.tensor(2, "offset")?);
            let (&[n, ..], &[o, ..], &[.., oh, ow]) = (input.shape(), weight.shape(), offset.shape()) else {
                return wrong("deform_conv2d", format!("expected images, found {:?}", input.shape()));
            };
            Ok(vec![Spec::new(&[n, o, oh, ow], input.dtype(), input.device())?])
        })
        .kernel(|a| Ok(vec![deformed(a)?]))
        .backward(|call, grads| {
            let Some(g) = grads[0].as_ref() else { return Ok(vec![None; 5]) };
            let create_graph = state::is(state::GRAD);
            let args = call.args();
            let tensors = (0..5).map(|k| args.tensor(k, "").cloned()).collect::<Result<Vec<_>>>()?;
            // The same computation with history; inputs that have none of their own stand in for themselves.
            let _recorded = EnableGrad::new();
            let inputs = tensors
                .iter()
                .map(|t| if t.requires_grad() { ops::alias(t) } else { t.try_detach()?.try_requires_grad_(true) })
                .collect::<Result<Vec<_>>>()?;
            let mut again = args.values().to_vec();
            inputs.iter().enumerate().for_each(|(k, t)| again[k] = t.into());
            let out = deformed(&Args::new("torchvision::deform_conv2d", &again))?;
            let options = GradOptions { grad_outputs: vec![Some(g.clone())], allow_unused: Some(true), create_graph, ..Default::default() };
            grad(&out, &inputs[..], &options)
        })
        .registered()
        .map(drop)
}
