//! Metadata of a node, known without running it: its abstract value and its origin.

use super::{Argument, DeviceName, Expr, MemoryLayout, Name, ScalarType};
use indexmap::IndexMap;
use std::fmt;
use std::sync::Arc;

/// The metadata of a node. Cloning is cheap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meta {
    /// The abstract value. Exported programs have one on every placeholder and call.
    pub val: Option<Val>,
    /// The modules this was called in, outermost first.
    pub nn_module_stack: Option<Arc<ModuleStack>>,
    /// The function that was traced: a counted name and a qualified one.
    pub torch_fn: Option<Arc<(String, String)>>,
    /// Where in the source it came from.
    pub stack_trace: Option<Name>,
    /// Anything else by key, as text.
    pub other: Option<Arc<IndexMap<String, String>>>,
}

/// Modules by key: path and class name.
pub type ModuleStack = IndexMap<String, (String, String)>;

/// An abstract value.
#[derive(Clone, Debug, PartialEq)]
pub enum Val {
    /// A call without a result, or the value `None`.
    None,
    /// A tensor.
    Tensor(Arc<TensorMeta>),
    /// A symbolic integer.
    SymInt(SymInt),
    /// A symbolic float.
    SymFloat(SymFloat),
    /// A symbolic bool.
    SymBool(SymBool),
    /// A plain constant; never holds a node.
    Constant(Argument),
    /// Several values.
    Tuple(Arc<[Val]>),
    /// A list of values.
    List(Arc<[Val]>),
    /// An object of a class that only PyTorch can construct.
    CustomObj {
        /// The class.
        class_fqn: Name,
    },
    /// A token that orders side effects.
    Token,
}

impl Val {
    /// The tensor, if it is one.
    pub fn tensor(&self) -> Option<&TensorMeta> {
        match self {
            Val::Tensor(t) => Some(t),
            _ => None,
        }
    }

    /// The elements of a tuple or list.
    pub fn items(&self) -> Option<&[Val]> {
        match self {
            Val::Tuple(items) | Val::List(items) => Some(items),
            _ => None,
        }
    }
}

/// A number that is known, or an expression over symbols with the value it had at export.
#[derive(Clone, Debug, PartialEq)]
pub enum Symbolic<T> {
    /// A known number.
    Known(T),
    /// An expression.
    Expr {
        /// What it is.
        expr: Arc<Expr>,
        /// Its value at export.
        hint: Option<T>,
    },
}

/// A size.
pub type SymInt = Symbolic<i64>;
/// A symbolic float.
pub type SymFloat = Symbolic<f64>;
/// A symbolic bool.
pub type SymBool = Symbolic<bool>;

impl<T: Copy> Symbolic<T> {
    /// The value, if known.
    pub fn known(&self) -> Option<T> {
        match self {
            Symbolic::Known(v) => Some(*v),
            Symbolic::Expr { .. } => None,
        }
    }

    /// The value, or the one at export.
    pub fn hint(&self) -> Option<T> {
        match self {
            Symbolic::Known(v) => Some(*v),
            Symbolic::Expr { hint, .. } => *hint,
        }
    }

    /// The expression, if it is one.
    pub fn expr(&self) -> Option<&Expr> {
        match self {
            Symbolic::Known(_) => None,
            Symbolic::Expr { expr, .. } => Some(expr),
        }
    }
}

impl From<i64> for SymInt {
    fn from(v: i64) -> SymInt {
        Symbolic::Known(v)
    }
}

/// The metadata of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorMeta {
    /// Element type.
    pub dtype: ScalarType,
    /// Sizes.
    pub sizes: Vec<SymInt>,
    /// Strides, in elements.
    pub strides: Vec<SymInt>,
    /// First element in the storage.
    pub storage_offset: SymInt,
    /// Where it lives.
    pub device: DeviceName,
    /// The layout of its elements.
    pub layout: MemoryLayout,
    /// Whether it requires grad.
    pub requires_grad: bool,
}

impl TensorMeta {
    /// A dense row-major tensor on the CPU.
    pub fn contiguous(dtype: ScalarType, sizes: &[i64]) -> TensorMeta {
        let mut strides = vec![1i64; sizes.len()];
        for d in (1..sizes.len()).rev() {
            strides[d - 1] = strides[d].saturating_mul(sizes[d].max(1));
        }
        TensorMeta {
            dtype,
            sizes: sizes.iter().map(|&s| s.into()).collect(),
            strides: strides.into_iter().map(Symbolic::Known).collect(),
            storage_offset: Symbolic::Known(0),
            device: DeviceName::cpu(),
            layout: MemoryLayout::Strided,
            requires_grad: false,
        }
    }

    /// A dense row-major tensor on the CPU whose sizes may be expressions.
    pub fn contiguous_of(dtype: ScalarType, sizes: Vec<SymInt>) -> TensorMeta {
        let mut strides: Vec<SymInt> = vec![Symbolic::Known(1); sizes.len()];
        for d in (1..sizes.len()).rev() {
            strides[d - 1] = product(&strides[d], &sizes[d]);
        }
        TensorMeta { sizes, strides, ..TensorMeta::contiguous(dtype, &[]) }
    }

    /// The metadata of this tensor; a meta tensor counts as one on the CPU.
    pub fn of(tensor: &firebrand_core::Tensor) -> TensorMeta {
        let known = |v: &[usize]| v.iter().map(|&s| Symbolic::Known(s as i64)).collect();
        TensorMeta {
            dtype: tensor.dtype().into(),
            // Not `shape()`: recording a tensor is not a read of its sizes by the captured function.
            sizes: known(tensor.layout().sizes()),
            strides: known(tensor.layout().strides()),
            storage_offset: Symbolic::Known(tensor.layout().offset() as i64),
            device: DeviceName::cpu(),
            layout: MemoryLayout::Strided,
            requires_grad: tensor.requires_grad(),
        }
    }
}

/// A stride times a size.
fn product(stride: &SymInt, size: &SymInt) -> SymInt {
    if let (Some(a), Some(b)) = (stride.known(), size.known()) {
        return Symbolic::Known(a.saturating_mul(b.max(1)));
    }
    // Factors of one product, as archives write it; a factor of 1 is none.
    let factors = |s: &SymInt| match s {
        Symbolic::Known(1) => Vec::new(),
        Symbolic::Known(n) => vec![Expr::Int(*n)],
        Symbolic::Expr { expr, .. } => match &**expr {
            Expr::Call(super::Head::Mul, args) => args.to_vec(),
            other => vec![other.clone()],
        },
    };
    let mut all = factors(stride);
    all.extend(factors(size));
    let hint = stride.hint().zip(size.hint()).map(|(a, b)| a.saturating_mul(b.max(1)));
    let expr = if all.len() == 1 { all.remove(0) } else { Expr::call(super::Head::Mul, all) };
    Symbolic::Expr { expr: Arc::new(expr), hint }
}

/// `float32[4, s0]`; sizes that are expressions are shown with their value at export.
impl fmt::Display for TensorMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.dtype)?;
        for (i, size) in self.sizes.iter().enumerate() {
            f.write_str(if i > 0 { ", " } else { "" })?;
            match (size.expr().and_then(Expr::symbol), size.hint()) {
                (Some(symbol), _) => f.write_str(symbol)?,
                (None, Some(v)) if size.known().is_some() => write!(f, "{v}")?,
                (None, Some(v)) => write!(f, "~{v}")?,
                (None, None) => f.write_str("?")?,
            }
        }
        f.write_str("]")
    }
}

/// A short description: `float32[4, s0]`, `int`, `(float32[4], int64[4])`.
impl fmt::Display for Val {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Val::None => f.write_str("None"),
            Val::Tensor(t) => t.fmt(f),
            Val::SymInt(_) => f.write_str("int"),
            Val::SymFloat(_) => f.write_str("float"),
            Val::SymBool(_) => f.write_str("bool"),
            Val::Constant(value) => write!(f, "constant {value:?}"),
            Val::Tuple(items) | Val::List(items) => {
                let (open, close) = if matches!(self, Val::Tuple(_)) { ('(', ')') } else { ('[', ']') };
                write!(f, "{open}")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if i > 0 { ", " } else { "" })?;
                }
                write!(f, "{close}")
            }
            Val::CustomObj { class_fqn } => write!(f, "object of {class_fqn}"),
            Val::Token => f.write_str("token"),
        }
    }
}

impl From<TensorMeta> for Val {
    fn from(meta: TensorMeta) -> Val {
        Val::Tensor(Arc::new(meta))
    }
}

impl Meta {
    /// Only a value.
    pub fn with_val(val: impl Into<Val>) -> Meta {
        Meta { val: Some(val.into()), ..Meta::default() }
    }
}
