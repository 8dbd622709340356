//! The rows of `golden/opinfo/*.json` as Rust values. The format is described in `golden/README.md`.
//!
//! Rows are what the files say: this module knows no op and makes no tensor.

use firebrand_core::{Complex, DType};
use serde_json::Value as Json;
use std::collections::HashMap;

/// One call of one op, and what PyTorch did with it.
#[derive(Clone, Debug)]
pub struct Row {
    /// Line of the file.
    pub line: usize,
    /// How many samples of the same op come before it: rows for which [`is_base`](Row::is_base) holds.
    pub sample: usize,
    /// `aten::name.overload`.
    pub op: String,
    /// Positional arguments.
    pub args: Vec<Argument>,
    /// Named arguments.
    pub kwargs: Vec<(String, Argument)>,
    /// Results, flattened; empty for a refused call.
    pub out: Vec<Argument>,
    /// Arguments the op writes to besides its results, after the call: tensors or lists of tensors.
    pub after: Vec<(String, Argument)>,
    /// Cotangents of the results.
    pub seeds: Vec<Option<TensorData>>,
    /// Gradients of the tensors that want one; none if the row has no gradients.
    pub grads: Option<Vec<TensorData>>,
    /// The call is refused.
    pub error: bool,
    /// See the README.
    pub tags: Vec<String>,
}

/// A tensor in a file.
#[derive(Clone, Debug)]
pub struct TensorData {
    /// Element type.
    pub dtype: DType,
    /// Sizes.
    pub shape: Vec<usize>,
    /// Elements in row-major order; none if only the shape is promised.
    pub data: Option<Numbers>,
    /// Steps in memory; none for row-major.
    pub strides: Option<Vec<usize>>,
    /// Whether it wants a gradient.
    pub grad: bool,
}

/// Elements of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub enum Numbers {
    /// Of an integer or bool tensor.
    Ints(Vec<i64>),
    /// Of a float tensor.
    Floats(Vec<f64>),
    /// Of a complex tensor.
    Complex(Vec<Complex<f64>>),
}

/// An argument or result.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // the names say it
pub enum Argument {
    None,
    Tensor(TensorData),
    Tensors(Vec<Option<TensorData>>),
    Int(i64),
    Float(f64),
    Complex(Complex<f64>),
    Bool(bool),
    Str(String),
    Ints(Vec<i64>),
    Floats(Vec<f64>),
    Bools(Vec<bool>),
    DType(DType),
    MemoryFormat(String),
    Layout,
    Device,
}

impl Row {
    /// Whether the row has this tag.
    pub fn has(&self, tag: &str) -> bool {
        self.tags.iter().any(|t| t == tag)
    }

    /// A sample of its own: no row of the dtype matrix, none made from another row by moving tensors in memory.
    pub fn is_base(&self) -> bool {
        !self.error && !self.has("dtype") && !self.has("promote") && !self.has("noncontiguous")
    }

    /// Every argument, positional ones first.
    pub fn arguments(&self) -> impl Iterator<Item = &Argument> {
        self.args.iter().chain(self.kwargs.iter().map(|(_, a)| a))
    }

    /// Every tensor among the arguments.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorData> {
        self.arguments().flat_map(|a| match a {
            Argument::Tensor(t) => vec![t],
            Argument::Tensors(list) => list.iter().flatten().collect(),
            _ => Vec::new(),
        })
    }
}

/// Reads one file. The files are part of the program, so a malformed one panics with the line at fault.
pub fn read(text: &str) -> Vec<Row> {
    let file: Json = serde_json::from_str(text).expect("golden/opinfo holds valid JSON");
    let rows = file["rows"].as_array().expect("golden/opinfo files hold a list of rows");
    let mut seen: HashMap<&str, usize> = HashMap::new();
    rows.iter()
        .enumerate()
        .map(|(n, r)| {
            let count = seen.entry(r["op"].as_str().unwrap_or_default()).or_default();
            let row = row(n + 2, *count, r);
            *count += usize::from(row.is_base());
            row
        })
        .collect()
}

fn list<T>(j: &Json, f: impl Fn(&Json) -> T) -> Vec<T> {
    j.as_array().map_or(Vec::new(), |v| v.iter().map(f).collect())
}

fn map<T>(j: &Json, f: impl Fn(&Json) -> T) -> Vec<(String, T)> {
    j.as_object().map_or(Vec::new(), |m| m.iter().map(|(k, v)| (k.clone(), f(v))).collect())
}

fn row(line: usize, sample: usize, j: &Json) -> Row {
    Row {
        line,
        sample,
        op: text(&j["op"]),
        args: list(&j["args"], argument),
        kwargs: map(&j["kwargs"], argument),
        out: list(&j["out"], argument),
        after: map(&j["after"], argument),
        seeds: list(&j["seeds"], optional),
        grads: j.get("grads").map(|g| list(g, tensor)),
        error: j["error"] == true,
        tags: list(&j["tags"], text),
    }
}

fn text(j: &Json) -> String {
    j.as_str().expect("a string").to_string()
}

fn int(j: &Json) -> i64 {
    j.as_i64().unwrap_or_else(|| i64::from(j.as_bool().expect("an integer or a bool")))
}

fn size(j: &Json) -> usize {
    usize::try_from(int(j)).expect("a size is not negative")
}

fn float(j: &Json) -> f64 {
    match j.as_str() {
        Some(s) => s.parse().expect("nan, inf or -inf"),
        None => j.as_f64().expect("a number"),
    }
}

fn dtype(j: &Json) -> DType {
    let name = j.as_str().expect("the name of a dtype");
    DType::from_name(name).unwrap_or_else(|| panic!("unknown dtype {name:?}"))
}

fn pairs(j: &Json) -> Vec<Complex<f64>> {
    list(j, float).chunks_exact(2).map(|z| Complex::new(z[0], z[1])).collect()
}

fn tensor(j: &Json) -> TensorData {
    let dtype = dtype(&j["dtype"]);
    let numbers = |d: &Json| match dtype {
        t if t.is_floating_point() => Numbers::Floats(list(d, float)),
        t if t.is_complex() => Numbers::Complex(pairs(d)),
        _ => Numbers::Ints(list(d, int)),
    };
    TensorData {
        dtype,
        shape: list(&j["shape"], size),
        data: j.get("data").map(numbers),
        strides: j.get("strides").map(|s| list(s, size)),
        grad: j["grad"] == true,
    }
}

fn optional(j: &Json) -> Option<TensorData> {
    (!j.is_null()).then(|| tensor(j))
}

fn argument(j: &Json) -> Argument {
    if j.is_null() {
        return Argument::None;
    }
    if j.get("dtype").is_some() {
        return Argument::Tensor(tensor(j));
    }
    let (kind, v) = j.as_object().and_then(|m| m.iter().next()).expect("an argument is an object with one key");
    match kind.as_str() {
        "int" => Argument::Int(int(v)),
        "float" => Argument::Float(float(v)),
        "complex" => Argument::Complex(pairs(v)[0]),
        "bool" => Argument::Bool(v == true),
        "str" => Argument::Str(text(v)),
        "ints" => Argument::Ints(list(v, int)),
        "floats" => Argument::Floats(list(v, float)),
        "bools" => Argument::Bools(list(v, |b| b == true)),
        "tensors" => Argument::Tensors(list(v, optional)),
        "dtype_arg" => Argument::DType(dtype(v)),
        "memory_format" => Argument::MemoryFormat(text(v)),
        "layout" => Argument::Layout,
        "device" => Argument::Device,
        other => panic!("unknown kind of argument {other:?}"),
    }
}
