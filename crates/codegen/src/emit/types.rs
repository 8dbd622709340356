//! Rust types of schema types: how an argument is passed, kept, boxed, and written as a default.
//!
//! The one table of spellings; the rest of `emit` asks it and knows no type by name.

use crate::ctype::{CBase, CType};
use crate::schema::{BaseTy, Type};

/// The Rust side of a schema type, and of the attributes that nodes keep of tensors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ty {
    Tensor,
    OptTensor,
    Tensors,
    OptTensors,
    Scalar,
    OptScalar,
    Scalars,
    Int,
    OptInt,
    Ints,
    OptInts,
    SymInt,
    OptSymInt,
    SymInts,
    OptSymInts,
    Float,
    OptFloat,
    Floats,
    OptFloats,
    Bool,
    OptBool,
    Bools(u64),
    Str,
    OptStr,
    DType,
    OptDType,
    Device,
    OptDevice,
    MemoryFormat,
    OptMemoryFormat,
    /// In the schema only: layouts, pinned memory, generators.
    Dropped,
    // Attributes of tensors.
    Usize,
    Spec,
    Layout,
    SizesList,
    DTypes,
}

impl Ty {
    /// The type of an argument or return; `None` if there is no spelling for it.
    pub(super) fn of(ty: &Type) -> Option<Ty> {
        let base = |ty: &Type| match ty {
            Type::Base(base) => Some(*base),
            _ => None,
        };
        Some(match ty {
            Type::Base(b) => match b {
                BaseTy::Tensor => Ty::Tensor,
                BaseTy::Scalar => Ty::Scalar,
                BaseTy::Int => Ty::Int,
                BaseTy::SymInt => Ty::SymInt,
                BaseTy::Float => Ty::Float,
                BaseTy::Bool => Ty::Bool,
                BaseTy::Str => Ty::Str,
                BaseTy::ScalarType => Ty::DType,
                BaseTy::Device => Ty::Device,
                BaseTy::MemoryFormat => Ty::MemoryFormat,
                _ => return None,
            },
            Type::Optional(inner) => match &**inner {
                Type::Base(b) => match b {
                    BaseTy::Tensor => Ty::OptTensor,
                    BaseTy::Scalar => Ty::OptScalar,
                    BaseTy::Int => Ty::OptInt,
                    BaseTy::SymInt => Ty::OptSymInt,
                    BaseTy::Float => Ty::OptFloat,
                    BaseTy::Bool => Ty::OptBool,
                    BaseTy::Str => Ty::OptStr,
                    BaseTy::ScalarType => Ty::OptDType,
                    BaseTy::Device => Ty::OptDevice,
                    BaseTy::MemoryFormat => Ty::OptMemoryFormat,
                    _ => return None,
                },
                Type::List(elem, _) => match base(elem)? {
                    BaseTy::Int => Ty::OptInts,
                    BaseTy::SymInt => Ty::OptSymInts,
                    BaseTy::Float => Ty::OptFloats,
                    _ => return None,
                },
                _ => return None,
            },
            Type::List(elem, size) => match &**elem {
                Type::Base(b) => match (b, size) {
                    (BaseTy::Tensor, _) => Ty::Tensors,
                    (BaseTy::Scalar, _) => Ty::Scalars,
                    (BaseTy::Int, _) => Ty::Ints,
                    (BaseTy::SymInt, _) => Ty::SymInts,
                    (BaseTy::Float, _) => Ty::Floats,
                    (BaseTy::Bool, Some(n)) => Ty::Bools(*n),
                    _ => return None,
                },
                Type::Optional(inner) if base(inner)? == BaseTy::Tensor => Ty::OptTensors,
                _ => return None,
            },
            Type::Custom(_) => return None,
        })
    }

    /// The type of a part of a tensor, or of a list of them, that a formula asks for.
    pub(super) fn of_attribute(ty: &CType) -> Ty {
        match ty {
            CType::Base(CBase::SymIntArrayRef) => Ty::SymInts,
            CType::Base(CBase::SymInt) => Ty::SymInt,
            CType::Base(CBase::ScalarType) => Ty::DType,
            CType::Base(CBase::Device) => Ty::Device,
            CType::Base(CBase::TypeAndSize) => Ty::Spec,
            CType::Base(CBase::TensorGeometry) => Ty::Layout,
            CType::Optional(_) => Ty::OptSymInts,
            CType::Vector(of) if **of == CType::Base(CBase::ScalarType) => Ty::DTypes,
            CType::Vector(_) => Ty::SizesList,
            // The others are counts.
            _ => Ty::Usize,
        }
    }

    /// A tensor, optional tensor or list of them.
    pub(super) fn is_tensor(self) -> bool {
        matches!(self, Ty::Tensor | Ty::OptTensor | Ty::Tensors | Ty::OptTensors)
    }

    /// A list of tensors.
    pub(super) fn is_tensor_list(self) -> bool {
        matches!(self, Ty::Tensors | Ty::OptTensors)
    }

    /// Whether Rust's own operators work on it.
    pub(super) fn is_plain(self) -> bool {
        matches!(self, Ty::Int | Ty::Float | Ty::Bool | Ty::SymInt | Ty::Usize)
    }

    /// How a function takes it.
    pub(super) fn typed(self) -> String {
        let text = match self {
            Ty::Tensor => "&Tensor",
            Ty::OptTensor => "Option<&Tensor>",
            Ty::Tensors => "&[Tensor]",
            Ty::OptTensors => "&[Option<Tensor>]",
            Ty::Scalar => "Scalar",
            Ty::OptScalar => "Option<Scalar>",
            Ty::Scalars => "&[Scalar]",
            Ty::Int => "i64",
            Ty::OptInt => "Option<i64>",
            Ty::Ints => "&[i64]",
            Ty::OptInts => "Option<&[i64]>",
            Ty::SymInt => "SymInt",
            Ty::OptSymInt => "Option<SymInt>",
            Ty::SymInts => "&[SymInt]",
            Ty::OptSymInts => "Option<&[SymInt]>",
            Ty::Float => "f64",
            Ty::OptFloat => "Option<f64>",
            Ty::Floats => "&[f64]",
            Ty::OptFloats => "Option<&[f64]>",
            Ty::Bool => "bool",
            Ty::OptBool => "Option<bool>",
            Ty::Bools(n) => return format!("[bool; {n}]"),
            Ty::Str => "&str",
            Ty::OptStr => "Option<&str>",
            Ty::DType => "DType",
            Ty::OptDType => "Option<DType>",
            Ty::Device => "Device",
            Ty::OptDevice => "Option<Device>",
            Ty::MemoryFormat => "MemoryFormat",
            Ty::OptMemoryFormat => "Option<MemoryFormat>",
            Ty::Usize => "usize",
            Ty::Spec => "&Spec",
            Ty::Layout => "&Layout",
            Ty::SizesList => "&[SymInts]",
            Ty::DTypes => "&[DType]",
            Ty::Dropped => unreachable!("dropped arguments are no part of Rust signatures"),
        };
        text.to_owned()
    }

    /// The field of a node that keeps it.
    pub(super) fn owned(self) -> String {
        match self {
            Ty::Tensor | Ty::OptTensor => "SavedTensor".into(),
            Ty::Tensors | Ty::OptTensors => "Vec<SavedTensor>".into(),
            Ty::Scalars => "Vec<Scalar>".into(),
            Ty::Ints => "Vec<i64>".into(),
            Ty::OptInts => "Option<Vec<i64>>".into(),
            Ty::SymInts => "SymInts".into(),
            Ty::OptSymInts => "Option<SymInts>".into(),
            Ty::Floats => "Vec<f64>".into(),
            Ty::OptFloats => "Option<Vec<f64>>".into(),
            Ty::Str => "String".into(),
            Ty::OptStr => "Option<String>".into(),
            Ty::Spec => "Spec".into(),
            Ty::Layout => "Layout".into(),
            Ty::SizesList => "Vec<SymInts>".into(),
            Ty::DTypes => "Vec<DType>".into(),
            copied => copied.typed(),
        }
    }

    /// Text that makes the saved value of an argument that is not a tensor.
    pub(super) fn keep(self, x: &str) -> String {
        match self {
            Ty::Scalars | Ty::Ints | Ty::Floats => format!("{x}.to_vec()"),
            Ty::OptInts | Ty::OptFloats => format!("{x}.map(|x| x.to_vec())"),
            Ty::SymInts => format!("{x}.iter().copied().collect()"),
            Ty::OptSymInts => format!("{x}.map(|x| x.iter().copied().collect())"),
            Ty::Str => format!("{x}.to_string()"),
            Ty::OptStr => format!("{x}.map(str::to_string)"),
            _ => x.to_owned(),
        }
    }

    /// Text that passes a kept value on, as a function takes it. Not for tensors.
    pub(super) fn lend(self, x: &str) -> String {
        match self {
            Ty::Scalars | Ty::Ints | Ty::Floats | Ty::SymInts | Ty::Str | Ty::SizesList | Ty::DTypes => {
                format!("&{x}[..]")
            }
            Ty::OptInts | Ty::OptFloats | Ty::OptSymInts | Ty::OptStr => format!("{x}.as_deref()"),
            Ty::Spec | Ty::Layout => format!("&{x}"),
            _ => x.to_owned(),
        }
    }

    /// Text that makes a `Lent` of a passed value.
    pub(super) fn lent(self, x: &str) -> String {
        match self {
            Ty::Dropped => "Lent::None".into(),
            Ty::Bools(_) => format!("(&{x}[..]).into()"),
            _ => format!("{x}.into()"),
        }
    }

    /// What `Args::get` makes of a boxed value.
    pub(super) fn unboxed_type(self) -> String {
        match self {
            Ty::Tensors => "Vec<Tensor>".into(),
            Ty::OptTensors => "Vec<Option<Tensor>>".into(),
            Ty::Str | Ty::OptStr => self.typed(),
            _ if self.is_tensor() => self.typed(),
            other => other.owned(),
        }
    }

    /// Text that passes an unboxed value on.
    pub(super) fn unboxed(self, x: &str) -> String {
        match self {
            Ty::Tensors | Ty::OptTensors | Ty::Scalars | Ty::Ints | Ty::SymInts | Ty::Floats => format!("&{x}"),
            Ty::OptInts | Ty::OptSymInts | Ty::OptFloats => format!("{x}.as_deref()"),
            _ => x.to_owned(),
        }
    }

    /// A schema default that is not `None` as data: a `Given`. `None` if there is no form for it.
    pub(super) fn given(self, text: &str, size: Option<u64>) -> Option<String> {
        let list = |variant: &str, item: &dyn Fn(&str) -> String| -> Option<String> {
            let items: Vec<String> = match text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
                Some(inner) => inner.split(',').map(str::trim).filter(|t| !t.is_empty()).map(item).collect(),
                None => vec![item(text); usize::try_from(size?).ok()?],
            };
            Some(format!("Given::{variant}(&[{}])", items.join(", ")))
        };
        let float = |t: &str| if t.parse::<i64>().is_ok() { format!("{t}.0") } else { t.to_owned() };
        let number = |t: &str| match t {
            "True" | "False" => format!("Given::Bool({})", t.to_lowercase()),
            "Mean" => "Given::Int(1)".to_owned(),
            "Sum" => "Given::Int(2)".to_owned(),
            t if t.parse::<i64>().is_ok() => format!("Given::Int({t})"),
            t => format!("Given::Float({t})"),
        };
        match self {
            Ty::Ints | Ty::OptInts | Ty::SymInts | Ty::OptSymInts | Ty::Tensors | Ty::OptTensors => {
                list("Ints", &str::to_owned)
            }
            Ty::Floats | Ty::OptFloats | Ty::Scalars => list("Floats", &float),
            Ty::Float | Ty::OptFloat => Some(format!("Given::Float({})", float(text))),
            Ty::Scalar | Ty::OptScalar | Ty::Int | Ty::OptInt | Ty::SymInt | Ty::OptSymInt | Ty::Bool | Ty::OptBool => {
                Some(number(text))
            }
            Ty::Str | Ty::OptStr => Some(format!("Given::Str({})", text.replace('\'', "\""))),
            Ty::DType | Ty::OptDType => {
                let spelled = Ty::DType.default(text, size)?;
                Some(format!("Given::DType({spelled})"))
            }
            Ty::MemoryFormat | Ty::OptMemoryFormat => {
                let spelled = Ty::MemoryFormat.default(text, size)?;
                Some(format!("Given::MemoryFormat({spelled})"))
            }
            _ => None,
        }
    }

    /// The Rust spelling of a schema default, as a function takes it; `None` if there is none.
    /// `size` is the declared length of a list, which a single number fills.
    pub(super) fn default(self, text: &str, size: Option<u64>) -> Option<String> {
        let list = |item: &dyn Fn(&str) -> String| -> Option<String> {
            if let Some(inner) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
                let items: Vec<_> = inner.split(',').map(str::trim).filter(|t| !t.is_empty()).map(item).collect();
                return Some(format!("&[{}]", items.join(", ")));
            }
            let n = usize::try_from(size?).ok()?;
            Some(format!("&[{}]", vec![item(text); n].join(", ")))
        };
        let is_int = |t: &str| t.parse::<i64>().is_ok();
        let float = |t: &str| if is_int(t) { format!("{t}.0") } else { t.to_owned() };
        let scalar = |t: &str| match t {
            "True" | "False" => format!("Scalar::Bool({})", t.to_lowercase()),
            t if is_int(t) => format!("Scalar::Int({t})"),
            t => format!("Scalar::Float({t})"),
        };
        let reduction = |t: &str| match t {
            "Mean" => "1".to_owned(),
            "Sum" => "2".to_owned(),
            t => t.to_owned(),
        };
        let dtype = |t: &str| match t {
            "long" => Some("DType::I64".to_owned()),
            "float" => Some("DType::F32".to_owned()),
            "double" => Some("DType::F64".to_owned()),
            _ => None,
        };
        let format = |t: &str| match t {
            "contiguous_format" => Some("MemoryFormat::Contiguous".to_owned()),
            "preserve_format" => Some("MemoryFormat::Preserve".to_owned()),
            _ => None,
        };
        let some = |t: Option<String>| t.map(|t| format!("Some({t})"));
        if text == "None" {
            return Some("None".to_owned());
        }
        match self {
            Ty::Scalar => Some(scalar(text)),
            Ty::OptScalar => some(Some(scalar(text))),
            Ty::Int => Some(reduction(text)),
            Ty::OptInt => some(Some(reduction(text))),
            Ty::SymInt => Some(format!("SymInt::from({text}i64)")),
            Ty::OptSymInt => Some(format!("Some(SymInt::from({text}i64))")),
            Ty::Float => Some(float(text)),
            Ty::OptFloat => Some(format!("Some({})", float(text))),
            Ty::Bool => Some(text.to_lowercase()),
            Ty::OptBool => Some(format!("Some({})", text.to_lowercase())),
            Ty::Ints => list(&str::to_owned),
            Ty::OptInts => some(list(&str::to_owned)),
            Ty::SymInts => list(&|t| format!("SymInt::from({t}i64)")),
            Ty::OptSymInts => some(list(&|t| format!("SymInt::from({t}i64)"))),
            Ty::Floats => list(&float),
            Ty::OptFloats => some(list(&float)),
            Ty::Scalars => list(&scalar),
            Ty::Tensors | Ty::OptTensors => list(&str::to_owned).filter(|t| t == "&[]"),
            Ty::Str => Some(text.replace('\'', "\"")),
            Ty::OptStr => Some(format!("Some({})", text.replace('\'', "\""))),
            Ty::DType => dtype(text),
            Ty::OptDType => some(dtype(text)),
            Ty::MemoryFormat => format(text),
            Ty::OptMemoryFormat => some(format(text)),
            _ => None,
        }
    }
}
