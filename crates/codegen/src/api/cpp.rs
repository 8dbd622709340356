//! The public C++ form of an operator: names, argument types, return types, defaults.
//!
//! The *convenience* form joins tensor options, puts out arguments first and has defaults; the *faithful*
//! form is schema order and nothing else. Formulas see the arguments of the convenience form.

use super::{Binding, POSSIBLY_REDUNDANT_MEMORY_FORMAT, TypeStyle};
use crate::ctype::{CBase, CType};
use crate::error::{Kind, Refusal};
use crate::native::NativeFunction;
use crate::schema::{Argument, Arguments, BaseTy, FunctionSchema, Return, TensorOptions, Type};

type Check<T> = std::result::Result<T, Refusal>;

/// The C++ name of an operator.
pub fn name(func: &FunctionSchema) -> String {
    let mut name = func.name.name.to_string();
    if func.is_out_fn() {
        name.push_str("_out");
    }
    name
}

/// The C++ name in the faithful form, which out operators spell `_outf`.
pub fn faithful_name(func: &FunctionSchema) -> String {
    let mut name = func.name.name.to_string();
    if func.is_out_fn() {
        name.push_str("_outf");
    }
    name
}

/// The C++ type of a base type other than tensors, scalars and symbolic integers.
fn base_ctype(base: BaseTy) -> Check<CBase> {
    Ok(match base {
        BaseTy::Generator => CBase::Generator,
        BaseTy::ScalarType => CBase::ScalarType,
        BaseTy::Tensor => CBase::Tensor,
        BaseTy::Int => CBase::Long,
        BaseTy::DimVector => CBase::DimVector,
        BaseTy::Float => CBase::Double,
        BaseTy::Str => CBase::StringView,
        BaseTy::Bool => CBase::Bool,
        BaseTy::Layout => CBase::Layout,
        BaseTy::Device => CBase::Device,
        BaseTy::DeviceIndex => CBase::DeviceIndex,
        BaseTy::Scalar => CBase::Scalar,
        BaseTy::MemoryFormat => CBase::MemoryFormat,
        BaseTy::QScheme => CBase::QScheme,
        BaseTy::Storage => CBase::Storage,
        BaseTy::Stream => CBase::Stream,
        BaseTy::SymInt => CBase::SymInt,
        BaseTy::SymBool => CBase::SymBool,
        BaseTy::GraphModule => return Err(Refusal::new(Kind::TypeUnknown, "GraphModule has no C++ type")),
    })
}

/// The type of a value that is passed and returned alike; `None` when the two differ.
pub fn value_type(ty: &Type, symint: bool) -> Check<Option<CType>> {
    Ok(match ty {
        Type::Base(BaseTy::Tensor | BaseTy::Scalar) => None,
        Type::Base(BaseTy::SymInt) if !symint => Some(CBase::Long.into()),
        Type::Base(base) => Some(base_ctype(*base)?.into()),
        Type::Optional(elem) => value_type(elem, symint)?.map(CType::optional),
        Type::List(elem, size) if elem.is_base(BaseTy::Bool) => match size {
            Some(size) => Some(CType::Array(Box::new(CBase::Bool.into()), *size)),
            None => return Err(Refusal::new(Kind::BoolListNeedsSize, "a list of booleans needs a size")),
        },
        Type::List(..) => None,
        Type::Custom(name) => {
            return Err(Refusal::new(Kind::TypeUnknown, format!("custom class `{name}` has no C++ type")));
        }
    })
}

/// The type of an argument.
pub fn argument_type(ty: &Type, mutable: bool, symint: bool, style: TypeStyle) -> Check<CType> {
    if let Some(value) = value_type(ty, symint)? {
        return Ok(value);
    }
    let by_mut_ref = mutable && !style.const_ref_for_mutable;
    let int_list = |symbolic, plain| CType::from(if symint { symbolic } else { plain });
    Ok(match ty {
        Type::Base(BaseTy::Tensor) if by_mut_ref => CType::from(CBase::Tensor).mut_ref(),
        Type::Base(base) => CType::from(base_ctype(*base)?).const_ref(),
        Type::Optional(elem) => match &**elem {
            // Not an optional: a mutable argument is always there.
            Type::Base(BaseTy::Tensor) if by_mut_ref => CType::from(CBase::Tensor).mut_ref(),
            Type::Base(base @ (BaseTy::Tensor | BaseTy::Scalar)) => {
                CType::from(base_ctype(*base)?).optional().const_ref()
            }
            Type::List(elem, _) if elem.is_base(BaseTy::Int) => CBase::OptionalIntArrayRef.into(),
            Type::List(elem, _) if elem.is_base(BaseTy::SymInt) => {
                int_list(CBase::OptionalSymIntArrayRef, CBase::OptionalIntArrayRef)
            }
            elem => argument_type(elem, mutable, symint, style)?.optional(),
        },
        Type::List(elem, _) => match &**elem {
            Type::Base(BaseTy::Int) => CBase::IntArrayRef.into(),
            Type::Base(BaseTy::SymInt) => int_list(CBase::SymIntArrayRef, CBase::IntArrayRef),
            Type::Base(BaseTy::Tensor) if style.ilistref => CType::from(CBase::ITensorListRef).const_ref(),
            Type::Base(BaseTy::Tensor) => CBase::TensorList.into(),
            Type::Base(BaseTy::Scalar) => CType::ArrayRef(Box::new(CBase::Scalar.into())),
            Type::Optional(elem) if **elem == Type::TENSOR => {
                CType::List(Box::new(CType::from(CBase::Tensor).optional())).const_ref()
            }
            elem => CType::ArrayRef(Box::new(argument_type(elem, mutable, symint, style)?)),
        },
        Type::Custom(name) => {
            return Err(Refusal::new(Kind::TypeUnknown, format!("custom class `{name}` has no C++ type")));
        }
    })
}

/// The type of a return. Symbolic integers always show.
pub fn return_type(ty: &Type, mutable: bool, style: TypeStyle) -> Check<CType> {
    if let Some(value) = value_type(ty, true)? {
        return Ok(value);
    }
    match ty {
        Type::Base(BaseTy::Tensor) if mutable && style.const_ref_for_mutable => {
            Ok(CType::from(CBase::Tensor).const_ref())
        }
        Type::Base(BaseTy::Tensor) if mutable => Ok(CType::from(CBase::Tensor).mut_ref()),
        Type::Base(base) => Ok(base_ctype(*base)?.into()),
        Type::List(..) if mutable => Err(Refusal::new(Kind::ReturnUnsupported, "a mutable list cannot be returned")),
        Type::List(elem, size) => {
            let elem = return_type(elem, false, style)?;
            if size.is_some() {
                return Err(Refusal::new(Kind::ReturnSizedList, format!("`{ty}`: a sized list cannot be returned")));
            }
            Ok(elem.vector())
        }
        Type::Optional(elem) if **elem == Type::TENSOR => Ok(return_type(elem, mutable, style)?.optional()),
        _ => Err(Refusal::new(Kind::ReturnUnsupported, format!("`{ty}` cannot be returned"))),
    }
}

/// The type of all returns together.
pub fn returns_type(returns: &[Return], style: TypeStyle) -> Check<CType> {
    match returns {
        [] => Ok(CBase::Void.into()),
        [only] => return_type(&only.ty, only.is_write(), style),
        several => {
            let each = several.iter().map(|r| return_type(&r.ty, r.is_write(), style));
            Ok(CType::Tuple(each.collect::<Check<_>>()?))
        }
    }
}

/// What the outputs of an operator are called.
pub fn return_names(f: &NativeFunction) -> Vec<String> {
    let func = &f.func;
    let name = |(i, r): (usize, &Return)| {
        if func.name.name.inplace {
            return "self".to_owned();
        }
        if let Some(out) = func.arguments.out.get(i) {
            return out.name.clone();
        }
        match &r.name {
            Some(name) if func.arguments.flat_all().any(|a| a.name == *name) => format!("{name}_return"),
            Some(name) => name.clone(),
            None if func.returns.len() == 1 => "result".to_owned(),
            None => format!("result{i}"),
        }
    };
    func.returns.iter().enumerate().map(name).collect()
}

/// A schema default as C++ text.
pub fn default_expr(default: &str, ty: &Type, symint: bool) -> Check<String> {
    match ty {
        Type::Optional(elem) if default == "None" => {
            Ok(if **elem == Type::TENSOR { "{}" } else { "::std::nullopt" }.to_owned())
        }
        Type::Optional(elem) => default_expr(default, elem, symint),
        Type::Base(BaseTy::Str) if default.len() >= 2 && default.starts_with('\'') && default.ends_with('\'') => {
            Ok(requote(&default[1..default.len() - 1]))
        }
        Type::List(elem, size) => {
            if let Some(items) = default.strip_prefix('[').and_then(|d| d.strip_suffix(']')) {
                return Ok(format!("{{{items}}}"));
            }
            let digits = !default.is_empty() && default.bytes().all(|b| b.is_ascii_digit());
            if symint && digits && elem.is_base(BaseTy::SymInt) {
                return Ok(format!("c10::SymInt({default})"));
            }
            if size.is_none() {
                let message = format!("the default `{default}` of a list needs brackets");
                return Err(Refusal::new(Kind::DefaultUnsupported, message));
            }
            Ok(word_default(default))
        }
        _ => Ok(word_default(default)),
    }
}

/// Words that C++ spells differently.
fn word_default(default: &str) -> String {
    match default {
        "False" => "false",
        "True" => "true",
        "None" => "::std::nullopt",
        "Mean" => "at::Reduction::Mean",
        "[]" => "{}",
        "contiguous_format" => "c10::MemoryFormat::Contiguous",
        "long" => "at::kLong",
        other => other,
    }
    .to_owned()
}

/// The inside of a single-quoted string as a double-quoted one.
fn requote(inside: &str) -> String {
    let mut text = String::from("\"");
    let mut chars = inside.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => match chars.next() {
                Some('\'') => text.push('\''),
                Some(other) => text.extend(['\\', other]),
                None => text.push('\\'),
            },
            c => text.push(c),
        }
    }
    text.push('"');
    text
}

/// Which C++ form is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Form {
    /// Schema order, nothing joined, no defaults.
    pub faithful: bool,
    /// Symbolic integers show.
    pub symint: bool,
    /// `self` is implicit.
    pub method: bool,
}

/// One argument of the C++ form.
pub fn argument(
    a: &Argument,
    symint: bool,
    has_options: bool,
    no_default: &[String],
    style: TypeStyle,
) -> Check<Binding> {
    let default = match &a.default {
        Some(default) if !no_default.contains(&a.name) => Some(default_expr(default, &a.ty, symint)?),
        _ => None,
    };
    let redundant = a.name == "memory_format" && has_options;
    Ok(Binding {
        name: a.name.clone(),
        binds: if redundant { POSSIBLY_REDUNDANT_MEMORY_FORMAT.to_owned() } else { a.name.clone() },
        ty: argument_type(&a.ty, a.is_write(), symint, style)?,
        default,
    })
}

/// The arguments of the C++ form.
pub fn arguments(arguments: &Arguments, form: Form, no_default: &[String], style: TypeStyle) -> Check<Vec<Binding>> {
    let has_options = arguments.tensor_options.is_some();
    let mut bindings = Vec::new();
    let one = |a: &Argument| argument(a, form.symint, has_options, no_default, style);
    if !form.faithful {
        bindings.extend(arguments.out.iter().map(one).collect::<Check<Vec<_>>>()?);
    }
    let self_arg = arguments.self_arg.iter().filter(|_| !form.method);
    let positional = arguments.pre_self_positional.iter().chain(self_arg).chain(&arguments.post_self_positional);
    for a in positional.chain(&arguments.pre_tensor_options_kwarg_only) {
        bindings.push(one(a)?);
    }
    match &arguments.tensor_options {
        Some(options) if form.faithful => {
            for a in options.all() {
                bindings.push(one(a)?);
            }
        }
        Some(options) => {
            let default = options_default(options);
            bindings.push(Binding { default, ..Binding::new("options", CBase::TensorOptions) });
        }
        None => {}
    }
    for a in &arguments.post_tensor_options_kwarg_only {
        bindings.push(one(a)?);
    }
    if form.faithful {
        bindings.extend(arguments.out.iter().map(one).collect::<Check<Vec<_>>>()?);
        return Ok(bindings.into_iter().map(Binding::no_default).collect());
    }
    Ok(bindings)
}

fn options_default(options: &TensorOptions) -> Option<String> {
    if options.all().iter().all(|a| a.default.as_deref() == Some("None")) {
        Some("{}".to_owned())
    } else {
        (options.dtype.default.as_deref() == Some("long")).then(|| "at::kLong".to_owned())
    }
}

/// The arguments formulas see: convenience form, with symbolic integers if there are any.
pub fn formula_arguments(f: &NativeFunction) -> Check<Vec<Binding>> {
    let form = Form { symint: f.func.has_symint(), ..Form::default() };
    arguments(&f.func.arguments, form, &f.cpp_no_default_args, TypeStyle::of(f))
}
