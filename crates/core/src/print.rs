//! Printing tensors the way PyTorch does: four digits, one format for all elements, long tensors summarized.

use crate::capture::{self, Read};
use crate::layout::Layout;
use crate::{Complex, DType, Device, Tensor};
use std::fmt::{Debug, Display, Formatter, Result};

const PREFIX: &str = "tensor(";

/// How tensors are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrintOptions {
    /// Digits after the point.
    pub precision: usize,
    /// Tensors of more elements are summarized.
    pub threshold: usize,
    /// How many elements are shown at each end of a summarized dimension.
    pub edge_items: usize,
    /// The length of a line.
    pub line_width: usize,
    /// Whether numbers are in scientific notation; what fits them if it is not said.
    pub scientific: Option<bool>,
}

impl Default for PrintOptions {
    fn default() -> PrintOptions {
        PrintOptions { precision: 4, threshold: 1000, edge_items: 3, line_width: 80, scientific: None }
    }
}

/// One format for all elements, chosen from those that are shown.
struct Format {
    precision: usize,
    float: bool,
    integral: bool,
    scientific: bool,
    width: usize,
}

/// Scientific notation with at least two exponent digits.
fn scientific(v: f64, precision: usize) -> String {
    let s = format!("{v:.precision$e}");
    match s.split_once('e') {
        Some((m, e)) => {
            let (sign, digits) = e.strip_prefix('-').map_or(('+', e), |d| ('-', d));
            format!("{m}e{sign}{digits:0>2}")
        }
        None => s,
    }
}

impl Format {
    fn new(values: &[f64], dtype: DType, options: &PrintOptions) -> Format {
        let (precision, float) = (options.precision, dtype.is_floating_point());
        let mut f = Format { precision, float, integral: true, scientific: false, width: 1 };
        if !f.float {
            f.width = values.iter().map(|v| f.plain(*v, dtype).len()).max().unwrap_or(1);
            return f;
        }
        let finite: Vec<f64> = values.iter().copied().filter(|v| v.is_finite() && *v != 0.0).collect();
        if finite.is_empty() {
            return f;
        }
        let (lo, hi) = finite.iter().fold((f64::MAX, 0f64), |(lo, hi), v| (lo.min(v.abs()), hi.max(v.abs())));
        f.integral = values.iter().filter(|v| v.is_finite()).all(|v| v.fract() == 0.0);
        let fitting = hi / lo > 1000.0 || hi > 1e8 || (!f.integral && lo < 1e-4);
        f.scientific = options.scientific.unwrap_or(fitting);
        f.width = finite.iter().map(|v| f.number(*v).len()).max().unwrap_or(1);
        f
    }

    fn plain(&self, v: f64, dtype: DType) -> String {
        match dtype {
            DType::Bool => if v != 0.0 { "True" } else { "False" }.to_string(),
            _ => format!("{v:.0}"),
        }
    }

    fn number(&self, v: f64) -> String {
        if v.is_nan() {
            "nan".to_string()
        } else if v.is_infinite() {
            if v > 0.0 { "inf" } else { "-inf" }.to_string()
        } else if self.scientific {
            scientific(v, self.precision)
        } else if self.integral {
            format!("{v:.0}.")
        } else {
            format!("{v:.precision$}", precision = self.precision)
        }
    }

    fn cell(&self, v: f64, dtype: DType) -> String {
        let s = if self.float { self.number(v) } else { self.plain(v, dtype) };
        format!("{s:>width$}", width = self.width)
    }
}

/// The indices shown along a dimension; None marks the gap. `edge` is how many are shown at each end, if not all are.
fn shown(n: usize, edge: Option<usize>) -> Vec<Option<usize>> {
    match edge {
        Some(edge) if n > edge.saturating_mul(2) => {
            (0..edge).map(Some).chain([None]).chain((n - edge..n).map(Some)).collect()
        }
        _ => (0..n).map(Some).collect(),
    }
}

/// Values and their format.
struct Column {
    values: Vec<f64>,
    format: Format,
}

struct Printer<'a> {
    layout: &'a Layout,
    dtype: DType,
    /// The values, or their real parts.
    real: Column,
    /// Imaginary parts of complex numbers.
    imag: Option<Column>,
    /// How many elements are shown at each end, if not all are.
    edge: Option<usize>,
    line: usize,
}

impl Printer<'_> {
    fn cell(&self, at: usize) -> String {
        let real = self.real.format.cell(self.real.values[at], self.dtype);
        let Some(imag) = &self.imag else { return real };
        let imag = imag.format.cell(imag.values[at], self.dtype);
        let imag = imag.trim_start();
        let plus = if imag.starts_with('-') { "" } else { "+" };
        format!("{real}{plus}{imag}j")
    }

    fn width(&self) -> usize {
        self.real.format.width + self.imag.as_ref().map_or(0, |i| i.format.width + 1)
    }

    fn text(&self, dim: usize, at: usize, indent: usize) -> String {
        let sizes = self.layout.sizes();
        let Some(&n) = sizes.get(dim) else { return self.cell(at) };
        let step: usize = sizes[dim + 1..].iter().product();
        let cells = shown(n, self.edge);
        if dim + 1 == sizes.len() {
            let per_line = (self.line.saturating_sub(indent) / (self.width() + 2)).max(1);
            let cells: Vec<String> =
                cells.iter().map(|k| k.map_or(" ...".to_string(), |k| self.cell(at + k * step))).collect();
            let lines: Vec<String> = cells.chunks(per_line).map(|c| c.join(", ")).collect();
            return format!("[{}]", lines.join(&format!(",\n{}", " ".repeat(indent + 1))));
        }
        let parts: Vec<String> = cells
            .iter()
            .map(|k| k.map_or("...".to_string(), |k| self.text(dim + 1, at + k * step, indent + 1)))
            .collect();
        let gap = format!(",{}{}", "\n".repeat(sizes.len() - dim - 1), " ".repeat(indent + 1));
        format!("[{}]", parts.join(&gap))
    }
}

/// The values that are shown, for choosing the format.
fn visible(sizes: &[usize], values: &[f64], edge: Option<usize>) -> Vec<f64> {
    if edge.is_none() {
        return values.to_vec();
    }
    let mut positions = vec![0];
    for &n in sizes {
        let keep = shown(n, edge);
        positions = positions.iter().flat_map(|p| keep.iter().flatten().map(move |k| p * n + k)).collect();
    }
    positions.iter().map(|&p| values[p]).collect()
}

fn describe(t: &Tensor, options: &PrintOptions) -> String {
    let mut suffixes = Vec::new();
    let dtype = t.dtype();
    let size = || {
        let list = t.shape().iter().map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
        format!("size=({list}{})", if t.ndim() == 1 { "," } else { "" })
    };
    let default = crate::dtype::default_dtype();
    let common = dtype == default || dtype == default.to_complex() || matches!(dtype, DType::I64 | DType::Bool);
    let body = if let Some((indices, values)) = crate::tensor::sparse::parts(t) {
        let gap = format!(",\n{}", " ".repeat(PREFIX.len()));
        let nested = |name: &str, t: &Tensor| {
            format!(
                "{name}={}",
                describe(t, options).replace('\n', &format!("\n{}", " ".repeat(PREFIX.len() + name.len() + 1)))
            )
        };
        suffixes.push(format!("nnz={}", t.nnz()));
        suffixes.push("layout=sparse_coo".to_string());
        format!("{}{gap}{}{gap}{}", nested("indices", indices), nested("values", values), size())
    } else if t.device() == Device::Meta {
        suffixes.push("device='meta'".to_string());
        suffixes.push(size());
        "...".to_string()
    } else if t.numel() == 0 {
        if t.ndim() != 1 {
            suffixes.push(size());
        }
        "[]".to_string()
    } else {
        let edge = (t.numel() > options.threshold).then_some(options.edge_items);
        let layout = t.layout().to_contiguous();
        let part = dtype.to_real();
        let column = |values: Vec<f64>| {
            let format = Format::new(&visible(t.shape(), &values, edge), part, options);
            Column { values, format }
        };
        let imag = dtype.is_complex().then(|| t.to_vec::<Complex<f64>>().iter().map(|z| z.im).collect());
        let (real, imag) = (column(t.to_vec()), imag.map(column));
        let line = options.line_width;
        Printer { layout: &layout, dtype: part, real, imag, edge, line }.text(0, 0, PREFIX.len())
    };
    if if t.numel() == 0 { dtype != crate::dtype::default_dtype() } else { !common } {
        suffixes.push(format!("dtype={dtype}"));
    }
    match t.try_grad_fn_edge() {
        Ok(Some(e)) => {
            let name = e.node.name().rsplit("::").next().unwrap_or_default().to_string();
            suffixes.push(format!("grad_fn=<{name}>"));
        }
        Ok(None) if t.requires_grad() => suffixes.push("requires_grad=True".to_string()),
        Ok(None) => {}
        Err(_) => suffixes.push("grad_fn=<Invalid>".to_string()),
    }
    if crate::autograd::forward::tangent(t).is_some() {
        suffixes.push("tangent=...".to_string());
    }
    let mut out = format!("{PREFIX}{body}");
    let mut line = out.len() - out.rfind('\n').map_or(0, |p| p + 1);
    for s in suffixes {
        if line + s.len() + 2 > options.line_width {
            out += &format!(",\n{}{s}", " ".repeat(PREFIX.len()));
            line = PREFIX.len() + s.len();
        } else {
            out += &format!(", {s}");
            line += s.len() + 2;
        }
    }
    out + ")"
}

/// A tensor and how to print it.
struct Printed<'a>(&'a Tensor, PrintOptions);

impl Display for Printed<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Printed(t, options) = self;
        match capture::tracer() {
            Some(tracer) => {
                // Under capture the numbers to show are somewhere else.
                let real = tracer.materialize(t, Read::Data, std::panic::Location::caller());
                let real = real.map_err(|_| std::fmt::Error)?;
                f.write_str(&capture::suspended(|| describe(&real, options)))
            }
            None => f.write_str(&describe(&capture::real(t), options)),
        }
    }
}

impl Tensor {
    /// The tensor for `format!` with other options than the default ones.
    pub fn display_with(&self, options: PrintOptions) -> impl Display + '_ {
        Printed(self, options)
    }
}

impl Display for Tensor {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        Printed(self, PrintOptions::default()).fmt(f)
    }
}

impl Debug for Tensor {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts as PyTorch 2.15 prints them, but for `torch.` before dtypes.
    #[test]
    fn prints_like_pytorch() {
        let show = |t: Tensor| t.to_string();
        assert_eq!(show(Tensor::new(&[1.0f32, 2.0, 3.0])), "tensor([1., 2., 3.])");
        assert_eq!(show(Tensor::new(&[1.5f32, -2.25, 0.0])), "tensor([ 1.5000, -2.2500,  0.0000])");
        assert_eq!(show(Tensor::new(&[1e-5f32, 1.0])), "tensor([1.0000e-05, 1.0000e+00])");
        assert_eq!(show(Tensor::scalar(3.0f64)), "tensor(3., dtype=float64)");
        assert_eq!(show(Tensor::new(&[true, false])), "tensor([ True, False])");
        assert_eq!(show(Tensor::from_slice(&[1i64, 20, 3, 4], [2, 2])), "tensor([[ 1, 20],\n        [ 3,  4]])");
        assert_eq!(show(Tensor::zeros([2, 0], DType::F32)), "tensor([], size=(2, 0))");
        assert_eq!(show(Tensor::new(&[1.0f32, f32::NAN, f32::INFINITY])), "tensor([1., nan, inf])");
        assert_eq!(show(Tensor::scalar(2.0f32).requires_grad_()), "tensor(2., requires_grad=True)");
        assert_eq!(show(Tensor::zeros([2], (DType::F32, Device::Meta))), "tensor(..., device='meta', size=(2,))");
        let z = |re: f32, im: f32| Complex::new(re, im);
        assert_eq!(show(Tensor::new(&[z(1.0, 2.0), z(-3.0, -4.0)])), "tensor([ 1.+2.j, -3.-4.j])");
        assert_eq!(show(Tensor::new(&[Complex::new(1.5f64, 2.0)])), "tensor([1.5000+2.j], dtype=complex128)");
        let options = PrintOptions { precision: 2, scientific: Some(false), ..PrintOptions::default() };
        let few = Tensor::new(&[1.23456f32, 1e-9]).display_with(options).to_string();
        assert_eq!(few, "tensor([1.23, 0.00])");
        let options = PrintOptions { threshold: 3, edge_items: 1, ..PrintOptions::default() };
        assert_eq!(Tensor::new(&[1i64, 2, 3, 4]).display_with(options).to_string(), "tensor([1,  ..., 4])");
        let long: Vec<f32> = (0..2000).map(|v| v as f32).collect();
        assert_eq!(
            show(Tensor::new(&long)),
            "tensor([0.0000e+00, 1.0000e+00, 2.0000e+00,  ..., 1.9970e+03, 1.9980e+03,\n        1.9990e+03])"
        );
    }
}
