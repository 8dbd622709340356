//! One binder for all ops: Python's arguments against the overloads of a name, the first that fits wins.
//!
//! The rules are PyTorch's: positional first, then by keyword, integers instead of a tuple for a sole list of integers
//! (`view(2, 3)`), one number for a list of fixed length, a number for a tensor where its parser takes one. What fits none is
//! refused with its text: what was given, and what was expected.

use crate::convert::{self, device_of, dtype_of, int_of, items, scalar_of, tensor_of};
use crate::errors::Raise;
use crate::layer;
use crate::random::PyGenerator;
use crate::table::{Entry, Param, Signature};
use firebrand::dispatch::{Op, Tags, Value};
use firebrand::sym::SymInt;
use firebrand::{Scalar, Tensor};
use firebrand_core::schema::Type;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString, PyTuple};

/// A call: the object of a method, and what was given.
pub(crate) struct Call<'a, 'py> {
    pub(crate) this: Option<&'a Bound<'py, PyAny>>,
    pub(crate) args: &'a [Bound<'py, PyAny>],
    pub(crate) kwargs: Option<&'a Bound<'py, PyDict>>,
}

/// What does not fit.
enum Misfit {
    TooMany,
    Missing(Vec<&'static str>),
    Type { param: usize, position: Option<usize> },
    Unexpected(String),
    Twice(String),
}

/// What fits: the op and its arguments.
struct Fitted {
    op: Op,
    values: Vec<Value>,
    requires_grad: bool,
    /// Where its random numbers come from, if not from the thread's generator.
    generator: Option<Py<PyGenerator>>,
}

type Fit = Result<Fitted, Misfit>;

/// Calls whichever overload fits.
pub(crate) fn call<'py>(py: Python<'py>, entry: &Entry, call: &Call<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    for signature in &entry.signatures {
        if let Ok(bound) = fit(signature, call)? {
            return run(py, entry.name, signature, bound);
        }
    }
    Err(refusal(entry, call)?)
}

/// Runs an op with two operands that are known to fit.
pub(crate) fn run_values(py: Python<'_>, op: Op, values: &[Value]) -> PyResult<Value> {
    let mut outputs = py.detach(|| layer::call(op, values)).raise()?;
    Ok(if outputs.is_empty() { Value::None } else { outputs.swap_remove(0) })
}

fn run<'py>(py: Python<'py>, name: &str, signature: &Signature, bound: Fitted) -> PyResult<Bound<'py, PyAny>> {
    let Fitted { op, values, requires_grad, generator } = bound;
    let mut outputs = match &generator {
        None => py.detach(|| layer::call(op, &values)),
        Some(own) => {
            let own = own.get();
            py.detach(|| own.during(|| layer::call(op, &values)))
        }
    }
    .raise()?;
    if outputs.len() == 1 {
        let mut value = outputs.swap_remove(0);
        if requires_grad && let Value::Tensor(t) = value {
            value = Value::Tensor(convert::requiring_grad(t)?);
        }
        return convert::object(py, value);
    }
    if outputs.is_empty() {
        return Ok(py.None().into_bound(py));
    }
    let objects = outputs.into_iter().map(|v| convert::object(py, v)).collect::<PyResult<Vec<_>>>()?;
    match signature.results(py, name)? {
        Some(class) => class.call1(PyTuple::new(py, objects)?),
        None => Ok(PyTuple::new(py, objects)?.into_any()),
    }
}

/// Second names of parameters, as numpy has them.
fn second_names(name: &str) -> &'static [&'static str] {
    match name {
        "dim" => &["axis"],
        "keepdim" => &["keepdims"],
        "input" => &["x", "a", "x1"],
        "other" => &["x2"],
        _ => &[],
    }
}

fn by_keyword<'py>(kwargs: &Bound<'py, PyDict>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    if let Some(found) = kwargs.get_item(name)? {
        return Ok(Some(found));
    }
    for other in second_names(name) {
        if let Some(found) = kwargs.get_item(other)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Whether a tensor is among the arguments, whose device an op that makes one like it takes.
fn takes_tensor(s: &Signature) -> bool {
    s.params.iter().any(|p| p.arg.ty == Type::Tensor)
}

/// Binds a call to one overload.
fn fit(s: &Signature, call: &Call<'_, '_>) -> PyResult<Fit> {
    let this = match (call.this, s.this) {
        (None, _) => None,
        (Some(this), Some(at)) => Some((at, this)),
        // Without `self` it is no method.
        (Some(_), None) => return Ok(Err(Misfit::TooMany)),
    };
    let own = usize::from(this.is_some());
    let given = call.args.len();
    let is_this = |k: usize| this.is_some_and(|(at, _)| at == k);
    // A sole list of integers may be written out.
    let first = (0..s.params.len()).find(|&k| !is_this(k));
    let spread = s.positional == own + 1 && first.is_some_and(|k| s.params[k].arg.ty == Type::Ints);
    if given + own > s.positional && !spread {
        return Ok(Err(Misfit::TooMany));
    }
    let mut values: Vec<Value> = Vec::with_capacity(s.params.len() + s.outs);
    let (mut named, mut position) = (0, 0);
    let mut missing = Vec::new();
    for (k, p) in s.params.iter().enumerate() {
        if let Some((at, this)) = this
            && at == k
        {
            match tensor_of(this) {
                Some(t) => values.push(Value::Tensor(t.clone())),
                None => return Ok(Err(Misfit::Type { param: k, position: None })),
            }
            continue;
        }
        if position < given && p.arg.kwarg_only {
            return Ok(Err(Misfit::TooMany));
        }
        let by_position = call.args.get(position);
        let keyword = match (by_position, call.kwargs) {
            (None, Some(kwargs)) => by_keyword(kwargs, p.name)?,
            _ => None,
        };
        named += usize::from(keyword.is_some());
        // `with device(...)` says where, unless a call does.
        let device_here = || convert::making_on().filter(|_| p.option && p.arg.ty == Type::Device && !takes_tensor(s));
        let Some(object) = by_position.or(keyword.as_ref()) else {
            if p.arg.default.is_none() && !(p.option || p.arg.ty == Type::Other) {
                missing.push(p.name);
            }
            values.push(device_here().map_or(Value::None, Value::Device));
            continue;
        };
        if let Some(value) = convert_to(p, object)? {
            let absent = matches!(value, Value::None);
            values.push(absent.then(device_here).flatten().map_or(value, Value::Device));
            position += usize::from(by_position.is_some());
            continue;
        }
        if spread && Some(k) == first && by_position.is_some() {
            let ints = call.args.iter().map(int_of).collect::<PyResult<Option<Vec<i64>>>>()?;
            if let Some(ints) = ints {
                values.push(Value::from(&ints[..]));
                position = given;
                continue;
            }
        }
        return Ok(Err(Misfit::Type { param: k, position: by_position.map(|_| position) }));
    }
    if position < given {
        return Ok(Err(Misfit::TooMany));
    }
    if !missing.is_empty() {
        return Ok(Err(Misfit::Missing(missing)));
    }
    let (mut op, mut requires_grad, mut generator) = (s.op, false, None);
    if let Some(kwargs) = call.kwargs {
        if let Some(out) = kwargs.get_item("out")?.filter(|_| s.out.is_some() && own == 0) {
            named += 1;
            if !out.is_none() {
                let Some(targets) = outs(s, &out)? else {
                    return Ok(Err(Misfit::Type { param: s.params.len(), position: None }));
                };
                op = s.out.unwrap_or(op);
                let mut kept = s.params.iter().map(|p| !p.option);
                values.retain(|_| kept.next().unwrap_or(true));
                values.extend(targets.into_iter().map(Value::Tensor));
            }
        }
        if s.makes
            && let Some(wish) = kwargs.get_item("requires_grad")?
        {
            named += 1;
            let Ok(wish) = wish.cast::<PyBool>() else {
                return Ok(Err(Misfit::Type { param: s.params.len(), position: None }));
            };
            requires_grad = wish.is_true();
        }
        if s.op.has(Tags::NONDETERMINISTIC_SEEDED)
            && let Some(given) = kwargs.get_item("generator")?
        {
            // Whether the schema names it or not, the op itself is not told.
            named += usize::from(s.params.iter().all(|p| p.arg.ty != Type::Other));
            if !given.is_none() {
                let Ok(own) = given.cast_into::<PyGenerator>() else {
                    return Ok(Err(Misfit::Type { param: s.params.len(), position: None }));
                };
                generator = Some(own.unbind());
            }
        }
        if named < kwargs.len() {
            return Ok(Err(unexpected(s, this.map(|(at, _)| at), given, kwargs)?));
        }
    }
    Ok(Ok(Fitted { op, values, requires_grad, generator }))
}

/// The tensors that `out=` names.
fn outs(s: &Signature, out: &Bound<'_, PyAny>) -> PyResult<Option<Vec<Tensor>>> {
    if let Some(t) = tensor_of(out) {
        return Ok((s.outs == 1).then(|| vec![t.clone()]));
    }
    Ok(convert::tensors_of(out)?.filter(|list| list.len() == s.outs))
}

/// A keyword that no parameter takes, or that was given by position too.
fn unexpected(s: &Signature, this: Option<usize>, given: usize, kwargs: &Bound<'_, PyDict>) -> PyResult<Misfit> {
    for key in kwargs.keys() {
        let key = key.cast::<PyString>().map(|k| k.to_string()).unwrap_or_default();
        let mut others = s.params.iter().enumerate().filter(|(k, _)| Some(*k) != this).map(|(_, p)| p);
        match others.position(|p| p.name == key || second_names(p.name).contains(&key.as_str())) {
            Some(k) if k < given => return Ok(Misfit::Twice(key)),
            Some(_) => {}
            None if key == "out" && s.out.is_some() || key == "requires_grad" && s.makes => {}
            None => return Ok(Misfit::Unexpected(key)),
        }
    }
    Ok(Misfit::Unexpected(String::new()))
}

/// A 0-dim tensor that may stand for a number.
fn number_of_tensor(object: &Bound<'_, PyAny>) -> PyResult<Option<Scalar>> {
    match tensor_of(object) {
        Some(t) if t.ndim() == 0 && !t.requires_grad() && !t.is_meta() && !t.is_batched() => {
            t.try_scalar_value().raise().map(Some)
        }
        _ => Ok(None),
    }
}

fn any_number(object: &Bound<'_, PyAny>) -> PyResult<Option<Scalar>> {
    match scalar_of(object)? {
        None => number_of_tensor(object),
        found => Ok(found),
    }
}

/// The argument as this parameter takes it; `None` if it does not.
fn convert_to(p: &Param, object: &Bound<'_, PyAny>) -> PyResult<Option<Value>> {
    if object.is_none() {
        let leave_out = p.arg.optional || p.option || matches!(p.arg.ty, Type::Other);
        return Ok(leave_out.then_some(Value::None));
    }
    Ok(match p.arg.ty {
        Type::Tensor => match tensor_of(object) {
            Some(t) => Some(Value::Tensor(t.clone())),
            None if p.numbers => match scalar_of(object)? {
                Some(s) => Some(Value::Tensor(Tensor::try_wrapped_number(s).raise()?)),
                None => None,
            },
            None => None,
        },
        Type::Tensors => convert::tensors_of(object)?.map(Value::Tensors),
        Type::OptTensors => match items(object)? {
            Some(list) => {
                let one = |o: &Bound<'_, PyAny>| if o.is_none() { Some(None) } else { tensor_of(o).cloned().map(Some) };
                list.iter().map(one).collect::<Option<Vec<_>>>().map(Value::OptTensors)
            }
            None => None,
        },
        Type::Scalar => any_number(object)?.map(Value::Scalar),
        Type::Scalars => match items(object)? {
            Some(list) => list.iter().map(scalar_of).collect::<PyResult<Option<Vec<_>>>>()?.map(Value::Scalars),
            None => None,
        },
        Type::Int => int_of(object)?.map(|i| Value::Int(i.into())),
        Type::Ints => ints(p, object)?,
        Type::Float => match any_number(object)? {
            Some(Scalar::Float(f)) => Some(Value::Float(f)),
            Some(Scalar::Int(i)) => Some(Value::Float(i as f64)),
            _ => None,
        },
        Type::Floats => match (items(object)?, scalar_of(object)?) {
            (Some(list), _) => {
                let all = list.iter().map(scalar_of).collect::<PyResult<Option<Vec<_>>>>()?;
                all.map(|all| Value::Floats(all.iter().map(|s| s.to_f64()).collect()))
            }
            (None, Some(s)) if p.size > 0 => Some(Value::Floats(vec![s.to_f64(); p.size as usize])),
            _ => None,
        },
        Type::Bool => match object.cast::<PyBool>() {
            Ok(b) => Some(Value::Bool(b.is_true())),
            Err(_) => match scalar_of(object)? {
                Some(Scalar::Bool(b)) => Some(Value::Bool(b)),
                _ => None,
            },
        },
        Type::Bools => match items(object)? {
            Some(list) => {
                let one = |o: &Bound<'_, PyAny>| o.cast::<PyBool>().ok().map(|b| b.is_true());
                list.iter().map(one).collect::<Option<Vec<_>>>().map(Value::Bools)
            }
            None => None,
        },
        Type::Str => object.cast::<PyString>().ok().map(|s| Value::Str(s.to_string())),
        Type::DType => dtype_of(object).map(Value::DType),
        Type::Device => device_of(object)?.map(Value::Device),
        Type::Layout => object.cast::<convert::PyLayout>().ok().filter(|l| !l.get().sparse).map(|_| Value::None),
        Type::MemoryFormat => object.cast::<convert::PyMemoryFormat>().ok().map(|m| Value::MemoryFormat(m.get().0)),
        // A generator: `fit` sees to it.
        Type::Other => object.is_instance_of::<PyGenerator>().then_some(Value::None),
    })
}

fn ints(p: &Param, object: &Bound<'_, PyAny>) -> PyResult<Option<Value>> {
    if let Some(list) = items(object)? {
        let all = list.iter().map(int_of).collect::<PyResult<Option<Vec<i64>>>>()?;
        return Ok(all.map(|all| Value::from(&all[..])));
    }
    if p.size == 0 {
        return Ok(None);
    }
    let filled = |i: i64| Value::Ints(std::iter::repeat_n(SymInt::from(i), p.size as usize).collect());
    Ok(int_of(object)?.map(filled))
}

// ---- refusals

fn type_name(object: &Bound<'_, PyAny>) -> String {
    let name = |o: &Bound<'_, PyAny>| o.get_type().name().map(|n| n.to_string()).unwrap_or_default();
    let inner = |list: Vec<Bound<'_, PyAny>>| list.iter().map(name).collect::<Vec<_>>().join(", ");
    match items(object) {
        Ok(Some(list)) if object.is_instance_of::<PyTuple>() => {
            format!("tuple of ({},)", inner(list)).replace(",,", ",")
        }
        Ok(Some(list)) => format!("list of [{}]", inner(list)),
        _ => name(object),
    }
}

/// The error for a call that fits no overload.
fn refusal(entry: &Entry, call: &Call<'_, '_>) -> PyResult<PyErr> {
    let method = call.this.is_some();
    let own = usize::from(method);
    let given = call.args.len() + own + call.kwargs.map_or(0, |k| k.len());
    let plausible = |s: &&Signature| {
        let required =
            s.params.iter().filter(|p| p.arg.default.is_none() && !p.option && p.arg.ty != Type::Other).count();
        let most = s.params.len() + usize::from(s.out.is_some()) + usize::from(s.makes);
        required <= given && given <= most
    };
    let all: Vec<&Signature> = entry.signatures.iter().filter(|s| !method || s.this.is_some()).collect();
    let close: Vec<&Signature> = all.iter().copied().filter(plausible).collect();
    let only = match (&all[..], &close[..]) {
        ([one], _) => Some(*one),
        (_, [one]) => Some(*one),
        _ => None,
    };
    let name = entry.name;
    if let Some(s) = only
        && let Err(misfit) = fit(s, call)?
        && let Some(text) = precise(s, method, call, misfit)?
    {
        return Ok(PyTypeError::new_err(format!("{name}(){text}")));
    }
    let mut types: Vec<String> = call.args.iter().map(type_name).collect();
    let mut words: Vec<(String, String)> = Vec::new();
    for (key, value) in call.kwargs.iter().flat_map(|k| k.iter()) {
        words.push((key.to_string(), type_name(&value)));
    }
    let plain = types.len();
    types.extend(words.iter().map(|(k, t)| format!("{k}={t}")));
    let got = types.join(", ");
    let mut text = format!("{name}() received an invalid combination of arguments - got ({got}), but expected ");
    if let [one] = &all[..] {
        text += &one.text(method);
        return Ok(PyTypeError::new_err(text));
    }
    text += "one of:\n";
    for s in all {
        text += &format!(" * {}\n", s.text(method));
        if s.shown(method) != types.len() {
            continue;
        }
        let known = |k: &str| s.params.iter().any(|p| p.name == k) || k == "out" || k == "requires_grad";
        let strangers: Vec<&str> = words.iter().map(|(k, _)| k.as_str()).filter(|k| !known(k)).collect();
        if !strangers.is_empty() {
            text +=
                &format!("      didn't match because some of the keywords were incorrect: {}\n", strangers.join(", "));
            continue;
        }
        let marked = |k: usize, shown: &String| -> PyResult<String> {
            let fits = if k < plain {
                let mut shown =
                    s.params.iter().enumerate().filter(|(at, _)| !method || Some(*at) != s.this).map(|(_, p)| p);
                shown.nth(k).is_some_and(|p| matches!(convert_to(p, &call.args[k]), Ok(Some(_))))
            } else {
                let word = &words[k - plain].0;
                let value = call.kwargs.map(|d| d.get_item(word)).transpose()?.flatten();
                let p = s.params.iter().find(|p| p.name == word);
                p.zip(value).is_some_and(|(p, v)| matches!(convert_to(p, &v), Ok(Some(_))))
            };
            Ok(if fits { shown.clone() } else { format!("!{shown}!") })
        };
        let marked = types.iter().enumerate().map(|(k, t)| marked(k, t)).collect::<PyResult<Vec<_>>>()?;
        text +=
            &format!("      didn't match because some of the arguments have invalid types: ({})\n", marked.join(", "));
    }
    Ok(PyTypeError::new_err(text))
}

/// What is wrong with a call that can only have meant this overload.
fn precise(s: &Signature, method: bool, call: &Call<'_, '_>, misfit: Misfit) -> PyResult<Option<String>> {
    let own = usize::from(method);
    Ok(Some(match misfit {
        Misfit::TooMany => {
            let (most, given) = (s.positional - own, call.args.len());
            let plural = if most == 1 { "" } else { "s" };
            let were = if given == 1 { "was" } else { "were" };
            format!(" takes {most} positional argument{plural} but {given} {were} given")
        }
        Misfit::Missing(names) => {
            let list: Vec<String> = names.iter().map(|n| format!("\"{n}\"")).collect();
            format!(" missing {} required positional arguments: {}", names.len(), list.join(", "))
        }
        Misfit::Unexpected(key) if !key.is_empty() => format!(" got an unexpected keyword argument '{key}'"),
        Misfit::Twice(key) => format!(" got multiple values for argument '{key}'"),
        Misfit::Type { param, position } => {
            let Some(p) = s.params.get(param) else { return Ok(None) };
            let value = match position {
                Some(at) => call.args.get(at).cloned(),
                None => call.kwargs.map(|k| by_keyword(k, p.name)).transpose()?.flatten(),
            };
            let Some(value) = value else { return Ok(None) };
            let place = position.map_or(String::new(), |at| format!(" (position {})", at + 1));
            let found = value.get_type().name()?;
            format!(": argument '{}'{place} must be {}, not {found}", p.name, p.type_name())
        }
        Misfit::Unexpected(_) => return Ok(None),
    }))
}
