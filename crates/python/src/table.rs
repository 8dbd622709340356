//! The table of names at run time: what each name's overloads take, made from their records when the name is first used.

use crate::overloads::NAMES;
use firebrand::dispatch::Op;
use firebrand_core::schema::{Constant, SchemaArg, Type};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::sync::OnceLock;

/// Tensors have it.
pub(crate) const METHOD: u8 = 1;
/// The package has it.
pub(crate) const FUNCTION: u8 = 2;
/// `nn.functional` has it.
pub(crate) const NN: u8 = 4;
/// `linalg` has it, without the prefix.
pub(crate) const LINALG: u8 = 8;
/// `fft` has it, without the prefix.
pub(crate) const FFT: u8 = 16;
/// `special` has it, without the prefix.
pub(crate) const SPECIAL: u8 = 32;

/// A name, where Python finds it, and its overloads in the order in which they are tried.
pub(crate) struct Name(pub(crate) &'static str, pub(crate) u8, pub(crate) &'static [Overload]);

/// One overload, as the generator wrote it.
pub(crate) struct Overload {
    pub(crate) op: &'static str,
    /// The op that writes the results into tensors given; empty if there is none.
    pub(crate) out: &'static str,
    /// Which arguments are lists of a fixed length, for which one number may stand.
    pub(crate) sizes: &'static [(u8, u8)],
}

/// One parameter of a signature.
pub(crate) struct Param {
    pub(crate) arg: &'static SchemaArg,
    /// As Python calls it: `self` of a function is `input`.
    pub(crate) name: &'static str,
    /// The length of the list that one number may stand for; 0 if none may.
    pub(crate) size: u8,
    /// Whether a number is accepted in a tensor's place.
    pub(crate) numbers: bool,
    /// Dtype, layout, device or pinning of a tensor that is made.
    pub(crate) option: bool,
}

/// One overload, ready to be called.
pub(crate) struct Signature {
    pub(crate) op: Op,
    pub(crate) out: Option<Op>,
    /// How many tensors `out=` names.
    pub(crate) outs: usize,
    pub(crate) params: Vec<Param>,
    /// How many parameters can be given by position.
    pub(crate) positional: usize,
    /// Where a method's tensor goes.
    pub(crate) this: Option<usize>,
    /// Whether the result is made from dtype and device, so that `requires_grad` can be asked for.
    pub(crate) makes: bool,
    /// The class of several named results.
    results: PyOnceLock<Option<Py<PyAny>>>,
}

/// A name with its overloads.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) signatures: Vec<Signature>,
}

/// Names for which PyTorch's parser takes a number where a tensor is expected.
fn takes_numbers(name: &str) -> bool {
    matches!(
        name.trim_end_matches('_'),
        "add" | "div" | "divide" | "floor_divide" | "mul" | "multiply" | "sub" | "subtract" | "true_divide"
    )
}

/// The entry of a name.
pub(crate) fn entry(name: &str) -> Option<&'static Entry> {
    static ENTRIES: OnceLock<Vec<OnceLock<Entry>>> = OnceLock::new();
    let at = NAMES.binary_search_by(|n| n.0.cmp(name)).ok()?;
    let entries = ENTRIES.get_or_init(|| NAMES.iter().map(|_| OnceLock::new()).collect());
    Some(entries[at].get_or_init(|| Entry::new(&NAMES[at])))
}

/// The entry of a name that this crate itself calls.
pub(crate) fn known(name: &str) -> &'static Entry {
    entry(name).unwrap_or_else(|| unreachable!("the table has {name}"))
}

impl Entry {
    fn new(name: &'static Name) -> Entry {
        let signatures = name.2.iter().filter_map(|o| Signature::new(name.0, o.op, o.out, o.sizes)).collect();
        Entry { name: name.0, signatures }
    }

    /// An entry for one op, whatever its name.
    pub(crate) fn of_op(op: Op) -> Entry {
        let name = op.base();
        let sizes = NAMES.iter().flat_map(|n| n.2).find(|o| o.op == op.name()).map_or(&[][..], |o| o.sizes);
        Entry { name, signatures: Signature::new("", op.name(), "", sizes).into_iter().collect() }
    }
}

impl Signature {
    fn new(name: &str, op: &str, out: &str, sizes: &'static [(u8, u8)]) -> Option<Signature> {
        let op = Op::from_name(op)?;
        let args = op.schema().args;
        let makes = ["dtype", "layout", "device", "pin_memory"].iter().all(|n| args.iter().any(|a| a.name == *n));
        let param = |(k, arg): (usize, &'static SchemaArg)| Param {
            arg,
            name: if arg.name == "self" && arg.ty == Type::Tensor && !name.is_empty() { "input" } else { arg.name },
            size: sizes.iter().find(|(at, _)| *at as usize == k).map_or(0, |(_, n)| *n),
            numbers: takes_numbers(name) && arg.ty == Type::Tensor,
            option: makes && matches!(arg.name, "dtype" | "layout" | "device" | "pin_memory"),
        };
        let params: Vec<Param> = args.iter().enumerate().map(param).collect();
        let positional = params.iter().filter(|p| !p.arg.kwarg_only).count();
        let out = if out.is_empty() { None } else { Op::from_name(out) };
        let outs = out.map_or(0, |o| o.schema().args.iter().filter(|a| a.is_out()).count());
        let this = args.iter().position(|a| a.name == "self" && a.ty == Type::Tensor);
        Some(Signature { op, out, outs, params, positional, this, makes, results: PyOnceLock::new() })
    }

    /// The class that several results are given as, if the schema names them.
    pub(crate) fn results<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        let make = || -> PyResult<Option<Py<PyAny>>> {
            let text = self.op.schema().text;
            let Some((_, returns)) = text.rsplit_once(" -> (") else { return Ok(None) };
            let names: Option<Vec<&str>> =
                returns.trim_end_matches(')').split(", ").map(|r| r.rsplit_once(' ').map(|(_, n)| n)).collect();
            let Some(names) = names else { return Ok(None) };
            Ok(Some(py.import("firebrand.return_types")?.call_method1("_class", (name, names))?.unbind()))
        };
        Ok(self.results.get_or_try_init(py, make)?.as_ref().map(|c| c.bind(py).clone()))
    }
}

impl Param {
    /// The word for its type in messages.
    pub(crate) fn type_name(&self) -> &'static str {
        match self.arg.ty {
            Type::Tensor => "Tensor",
            Type::Tensors | Type::OptTensors => "tuple of Tensors",
            Type::Scalar => "Number",
            Type::Scalars => "tuple of Scalars",
            Type::Int => "int",
            Type::Ints => "tuple of ints",
            Type::Float => "float",
            Type::Floats => "tuple of floats",
            Type::Bool => "bool",
            Type::Bools => "tuple of bools",
            Type::Str => "str",
            Type::DType => "firebrand.dtype",
            Type::Device => "firebrand.device",
            Type::Layout => "firebrand.layout",
            Type::MemoryFormat => "firebrand.memory_format",
            Type::Other => "firebrand.Generator",
        }
    }

    fn default(&self) -> Option<String> {
        Some(match self.arg.default? {
            Constant::None => "None".into(),
            Constant::Bool(b) => if b { "True" } else { "False" }.into(),
            Constant::Int(i) => i.to_string(),
            Constant::Float(f) => format!("{f:?}"),
            Constant::Str(s) => s.into(),
            Constant::Ints([one]) => one.to_string(),
            Constant::Ints(list) => format!("({})", list.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")),
            Constant::Floats(list) => format!("{list:?}"),
            Constant::Bools(list) => format!("{list:?}"),
            Constant::DType(d) => d.name().into(),
            Constant::MemoryFormat(_) => "None".into(),
        })
    }
}

impl Signature {
    /// `(Tensor input, Tensor other, *, Tensor out = None)`; without `self` for a method.
    pub(crate) fn text(&self, method: bool) -> String {
        format!("({})", self.parts(method).join(", "))
    }

    /// How many parts it shows, as PyTorch counts them: the star is one, and nothing is one too.
    pub(crate) fn shown(&self, method: bool) -> usize {
        self.parts(method).len().max(1)
    }

    fn parts(&self, method: bool) -> Vec<String> {
        let one = |p: &Param| {
            let default = p.default().map_or(String::new(), |d| format!(" = {d}"));
            format!("{} {}{default}", p.type_name(), p.name)
        };
        let mut parts: Vec<String> = Vec::new();
        let mut star = false;
        let mut keyword = |parts: &mut Vec<String>| {
            if !std::mem::replace(&mut star, true) {
                parts.push("*".into());
            }
        };
        for (k, p) in self.params.iter().enumerate() {
            if p.option || method && Some(k) == self.this {
                continue;
            }
            if p.arg.kwarg_only {
                keyword(&mut parts);
            }
            parts.push(one(p));
        }
        if self.out.is_some() && !method {
            keyword(&mut parts);
            parts.push(if self.outs > 1 { "tuple of Tensors out = None" } else { "Tensor out = None" }.into());
        }
        if self.makes {
            keyword(&mut parts);
            let options = self.params.iter().filter(|p| p.option);
            parts.extend(options.map(|p| match p.arg.name {
                "pin_memory" => "bool pin_memory = False".into(),
                name => format!("{} {name} = None", p.type_name()),
            }));
            parts.push("bool requires_grad = False".into());
        }
        parts
    }
}
