//! The JSON of an archive, as types: what `models/<name>.json` and the payload configs hold.
//!
//! A union is an object with exactly one key, which serde calls an externally tagged enum; an unknown tag is an error
//! that names it. Unknown keys of ordinary objects are ignored, those of the top level are kept and written back.
//! Enums are integers. These types mirror the file and mean nothing by themselves: `read.rs` and `write.rs` translate.

#![allow(clippy::enum_variant_names)] // variants are the tags of the file

use indexmap::IndexMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The major version this build reads and writes.
pub(crate) const MAJOR: i64 = 8;
/// The minor version written.
pub(crate) const MINOR: i64 = 20;

/// A float that may be infinite, or written as an integer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Float(pub(crate) f64);

impl Serialize for Float {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            v if v.is_nan() => s.serialize_str("NaN"),
            f64::INFINITY => s.serialize_str("Infinity"),
            f64::NEG_INFINITY => s.serialize_str("-Infinity"),
            v => s.serialize_f64(v),
        }
    }
}

impl<'de> Deserialize<'de> for Float {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Float, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(f64),
            Text(String),
        }
        match Written::deserialize(d)? {
            Written::Number(v) => Ok(Float(v)),
            Written::Text(t) => match t.as_str() {
                "Infinity" => Ok(Float(f64::INFINITY)),
                "-Infinity" => Ok(Float(f64::NEG_INFINITY)),
                "NaN" => Ok(Float(f64::NAN)),
                other => Err(serde::de::Error::custom(format!("expected a float, found the string {other:?}"))),
            },
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Program {
    pub(crate) graph_module: Module,
    #[serde(default)]
    pub(crate) opset_version: IndexMap<String, i64>,
    #[serde(default)]
    pub(crate) range_constraints: IndexMap<String, Range>,
    pub(crate) schema_version: Version,
    #[serde(default)]
    pub(crate) verifiers: Vec<String>,
    #[serde(default = "old_torch")]
    pub(crate) torch_version: String,
    #[serde(default)]
    pub(crate) guards_code: Vec<String>,
    #[serde(flatten)]
    pub(crate) other: IndexMap<String, serde_json::Value>,
}

fn old_torch() -> String {
    "<=2.4".into()
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Version {
    pub(crate) major: i64,
    pub(crate) minor: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Range {
    pub(crate) min_val: Option<i64>,
    pub(crate) max_val: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Module {
    pub(crate) graph: Graph,
    pub(crate) signature: Signature,
    #[serde(default)]
    pub(crate) module_call_graph: Vec<ModuleCall>,
    #[serde(default)]
    pub(crate) metadata: IndexMap<String, String>,
    #[serde(default)]
    pub(crate) treespec_namedtuple_fields: IndexMap<String, serde_json::Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Graph {
    pub(crate) inputs: Vec<Argument>,
    pub(crate) outputs: Vec<Argument>,
    pub(crate) nodes: Vec<Node>,
    #[serde(default)]
    pub(crate) tensor_values: IndexMap<String, TensorMeta>,
    #[serde(default)]
    pub(crate) sym_int_values: IndexMap<String, Sym<i64>>,
    #[serde(default)]
    pub(crate) sym_bool_values: IndexMap<String, Sym<bool>>,
    #[serde(default)]
    pub(crate) is_single_tensor_return: bool,
    #[serde(default)]
    pub(crate) custom_obj_values: IndexMap<String, CustomObj>,
    #[serde(default)]
    pub(crate) sym_float_values: IndexMap<String, Sym<Float>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Node {
    pub(crate) target: String,
    pub(crate) inputs: Vec<NamedArgument>,
    pub(crate) outputs: Vec<Argument>,
    #[serde(default)]
    pub(crate) metadata: IndexMap<String, String>,
    #[serde(default)]
    pub(crate) is_hop_single_tensor_return: Option<bool>,
    #[serde(default)]
    pub(crate) name: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NamedArgument {
    pub(crate) name: String,
    pub(crate) arg: Argument,
    #[serde(default)]
    pub(crate) kind: Option<i64>,
}

/// [`NamedArgument::kind`]: by position.
pub(crate) const POSITIONAL: i64 = 1;
/// [`NamedArgument::kind`]: by name.
pub(crate) const KEYWORD: i64 = 2;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Named {
    pub(crate) name: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CustomObj {
    pub(crate) name: String,
    pub(crate) class_fqn: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Device {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) index: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Subgraph {
    pub(crate) name: String,
    pub(crate) graph: Box<Graph>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Complex {
    pub(crate) real: Float,
    pub(crate) imag: Float,
}

/// A symbolic argument: the value of a node, or a number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SymArg {
    AsName(String),
    AsInt(i64),
    AsBool(bool),
    AsFloat(Float),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OptionalTensor {
    AsTensor(Named),
    AsNone(bool),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Argument {
    AsNone(bool),
    AsTensor(Named),
    AsTensors(Vec<Named>),
    AsInt(i64),
    AsInts(Vec<i64>),
    AsFloat(Float),
    AsFloats(Vec<Float>),
    AsString(String),
    AsStrings(Vec<String>),
    AsSymInt(SymArg),
    AsSymInts(Vec<SymArg>),
    AsScalarType(i64),
    AsMemoryFormat(i64),
    AsLayout(i64),
    AsDevice(Device),
    AsBool(bool),
    AsBools(Vec<bool>),
    AsSymBool(SymArg),
    AsSymBools(Vec<SymArg>),
    AsGraph(Subgraph),
    AsOptionalTensors(Vec<OptionalTensor>),
    AsCustomObj(CustomObj),
    AsOperator(String),
    AsSymFloat(SymArg),
    AsSymFloats(Vec<SymArg>),
    AsOptionalTensor(OptionalTensor),
    AsComplex(Complex),
    AsNestedTensors(Vec<Vec<Named>>),
    AsIntLists(Vec<Vec<i64>>),
    AsFloatLists(Vec<Vec<Float>>),
    AsStringToArgument(IndexMap<String, Argument>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TensorMeta {
    pub(crate) dtype: i64,
    pub(crate) sizes: Vec<Sym<i64>>,
    pub(crate) requires_grad: bool,
    pub(crate) device: Device,
    pub(crate) strides: Vec<Sym<i64>>,
    pub(crate) storage_offset: Sym<i64>,
    pub(crate) layout: i64,
}

/// A number, or an expression over symbols. The tag of a number follows its type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Sym<T> {
    Known(T),
    Expr(Expr<T>),
}

/// An expression and the value it had at export.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expr<T> {
    pub(crate) expr_str: String,
    pub(crate) hint: Option<T>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawSym {
    AsInt(i64),
    AsFloat(Float),
    AsBool(bool),
    AsExpr(RawExpr),
}

#[derive(Serialize, Deserialize)]
struct RawExpr {
    expr_str: String,
    #[serde(default)]
    hint: Option<RawHint>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawHint {
    AsInt(i64),
    AsFloat(Float),
    AsBool(bool),
}

/// A type of numbers that has a tag.
pub(crate) trait Tagged: Copy {
    fn hint(self) -> RawTag;
    fn from_hint(tag: RawTag) -> Option<Self>;
}

/// A tagged number.
pub(crate) enum RawTag {
    Int(i64),
    Float(Float),
    Bool(bool),
}

impl Tagged for i64 {
    fn hint(self) -> RawTag {
        RawTag::Int(self)
    }
    fn from_hint(tag: RawTag) -> Option<i64> {
        if let RawTag::Int(v) = tag { Some(v) } else { None }
    }
}
impl Tagged for bool {
    fn hint(self) -> RawTag {
        RawTag::Bool(self)
    }
    fn from_hint(tag: RawTag) -> Option<bool> {
        if let RawTag::Bool(v) = tag { Some(v) } else { None }
    }
}
impl Tagged for Float {
    fn hint(self) -> RawTag {
        RawTag::Float(self)
    }
    fn from_hint(tag: RawTag) -> Option<Float> {
        match tag {
            RawTag::Float(v) => Some(v),
            RawTag::Int(v) => Some(Float(v as f64)),
            RawTag::Bool(_) => None,
        }
    }
}

impl<T: Tagged> Serialize for Sym<T> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let raw = match self {
            Sym::Known(v) => match v.hint() {
                RawTag::Int(v) => RawSym::AsInt(v),
                RawTag::Float(v) => RawSym::AsFloat(v),
                RawTag::Bool(v) => RawSym::AsBool(v),
            },
            Sym::Expr(e) => RawSym::AsExpr(RawExpr {
                expr_str: e.expr_str.clone(),
                hint: e.hint.map(|h| match h.hint() {
                    RawTag::Int(v) => RawHint::AsInt(v),
                    RawTag::Float(v) => RawHint::AsFloat(v),
                    RawTag::Bool(v) => RawHint::AsBool(v),
                }),
            }),
        };
        raw.serialize(s)
    }
}

impl<'de, T: Tagged> Deserialize<'de> for Sym<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Sym<T>, D::Error> {
        let wrong = || serde::de::Error::custom("a number of another kind than this value has");
        Ok(match RawSym::deserialize(d)? {
            RawSym::AsInt(v) => Sym::Known(T::from_hint(RawTag::Int(v)).ok_or_else(wrong)?),
            RawSym::AsFloat(v) => Sym::Known(T::from_hint(RawTag::Float(v)).ok_or_else(wrong)?),
            RawSym::AsBool(v) => Sym::Known(T::from_hint(RawTag::Bool(v)).ok_or_else(wrong)?),
            RawSym::AsExpr(e) => Sym::Expr(Expr {
                expr_str: e.expr_str,
                // A hint of another kind is not an error: it is only what the value was once.
                hint: e.hint.and_then(|h| {
                    T::from_hint(match h {
                        RawHint::AsInt(v) => RawTag::Int(v),
                        RawHint::AsFloat(v) => RawTag::Float(v),
                        RawHint::AsBool(v) => RawTag::Bool(v),
                    })
                }),
            }),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Signature {
    pub(crate) input_specs: Vec<InputSpec>,
    pub(crate) output_specs: Vec<OutputSpec>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum InputSpec {
    UserInput { arg: Argument },
    Parameter { arg: Named, parameter_name: String },
    Buffer { arg: Named, buffer_name: String, persistent: bool },
    TensorConstant { arg: Named, tensor_constant_name: String },
    CustomObj { arg: CustomObj, custom_obj_name: String },
    Token { arg: Named },
    ConstantInput { name: String, value: ConstantValue },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ConstantValue {
    AsNone(bool),
    AsInt(i64),
    AsFloat(Float),
    AsString(String),
    AsBool(bool),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OutputSpec {
    UserOutput { arg: Argument },
    LossOutput { arg: Named },
    BufferMutation { arg: Named, buffer_name: String },
    ParameterMutation { arg: Named, parameter_name: String },
    GradientToParameter { arg: Named, parameter_name: String },
    GradientToUserInput { arg: Named, user_input_name: String },
    UserInputMutation { arg: Named, user_input_name: String },
    Token { arg: Named },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ModuleCall {
    pub(crate) fqn: String,
    #[serde(default)]
    pub(crate) signature: Option<ModuleCallSignature>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ModuleCallSignature {
    pub(crate) inputs: Vec<Argument>,
    pub(crate) outputs: Vec<Argument>,
    pub(crate) in_spec: String,
    pub(crate) out_spec: String,
    #[serde(default)]
    pub(crate) forward_arg_names: Option<Vec<String>>,
}

/// `data/weights/<model>_weights_config.json` and its sibling of constants.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PayloadConfig {
    pub(crate) config: IndexMap<String, PayloadMeta>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PayloadMeta {
    pub(crate) path_name: String,
    pub(crate) is_param: bool,
    pub(crate) use_pickle: bool,
    pub(crate) tensor_meta: Option<TensorMeta>,
}
