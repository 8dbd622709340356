//! Optimizer state written by `torch.save(optimizer.state_dict(), path)`.
//!
//! The file is read as plain data (`firebrand_io::read_torch_save`): nothing in it is executed. Settings that we do not have,
//! such as `foreach` or `capturable`, are kept and change nothing.

use super::{GroupDict, Setting, Settings, StateDict};
use firebrand_core::{Error, Result, Tensor};
use firebrand_io::torch_save::{Object, read_torch_save};
use indexmap::IndexMap;
use std::collections::BTreeMap;
use std::path::Path;

fn refused(expected: &str, found: &Object) -> Error {
    let found = match found {
        Object::None => "None".into(),
        Object::Tensor(t) => format!("a tensor of shape {:?}", t.shape()),
        Object::Dict(items) => format!("a dictionary of {} entries", items.len()),
        Object::List(items) | Object::Tuple(items) => format!("a list of {} elements", items.len()),
        other => format!("{other:?}"),
    };
    Error::argument("StateDict", format!("expected {expected}, found {found}"))
}

fn entries<'a>(object: &'a Object, what: &str) -> Result<&'a [(Object, Object)]> {
    if let Object::Dict(items) = object { Ok(items) } else { Err(refused(what, object)) }
}

fn list<'a>(object: &'a Object, what: &str) -> Result<&'a [Object]> {
    match object {
        Object::List(items) | Object::Tuple(items) => Ok(items),
        other => Err(refused(what, other)),
    }
}

fn text<'a>(object: &'a Object, what: &str) -> Result<&'a str> {
    if let Object::Str(s) = object { Ok(s) } else { Err(refused(what, object)) }
}

fn position(object: &Object) -> Result<usize> {
    match object {
        Object::Int(i) => usize::try_from(*i).map_err(|_| refused("the position of a parameter", object)),
        other => Err(refused("the position of a parameter", other)),
    }
}

fn float(object: &Object) -> Result<f64> {
    match object {
        Object::Float(v) => Ok(*v),
        Object::Int(v) => Ok(*v as f64),
        Object::Tensor(t) if t.numel() == 1 => t.to_dtype(firebrand_core::DType::F64).try_item::<f64>(),
        other => Err(refused("a number", other)),
    }
}

/// State of one parameter; `None` is left out, and elements of lists are numbered (`old_dirs.0`).
fn slots(object: &Object) -> Result<IndexMap<String, Tensor>> {
    let mut slots = IndexMap::new();
    for (name, value) in entries(object, "the state of a parameter as a dictionary")? {
        let name = text(name, "the name of a state")?;
        match value {
            Object::List(items) => {
                for (k, item) in items.iter().enumerate() {
                    slots.extend(slot(item)?.map(|t| (format!("{name}.{k}"), t)));
                }
            }
            value => slots.extend(slot(value)?.map(|t| (name.to_string(), t))),
        }
    }
    Ok(slots)
}

fn slot(object: &Object) -> Result<Option<Tensor>> {
    Ok(match object {
        Object::None => None,
        Object::Tensor(t) => Some(t.clone()),
        // Numbers of steps were plain numbers before PyTorch 1.12, and are with L-BFGS.
        number => Some(Tensor::scalar(float(number)?)),
    })
}

fn setting(object: &Object) -> Result<Setting> {
    Ok(match object {
        Object::None => Setting::None,
        Object::Bool(v) => Setting::Bool(*v),
        Object::Int(v) => Setting::Int(*v),
        Object::Str(v) => Setting::Text(v.clone()),
        Object::List(items) | Object::Tuple(items) => match items.iter().map(float).collect::<Result<Vec<f64>>>() {
            Ok(numbers) => Setting::Floats(numbers),
            Err(_) => Setting::List(items.iter().map(setting).collect::<Result<_>>()?),
        },
        other => Setting::Float(float(other)?),
    })
}

fn group(object: &Object) -> Result<GroupDict> {
    let mut group = GroupDict { settings: Settings::new(), params: Vec::new() };
    for (name, value) in entries(object, "a group as a dictionary")? {
        match text(name, "the name of a setting")? {
            "params" => {
                let positions = list(value, "the positions of a group's parameters")?;
                group.params = positions.iter().map(position).collect::<Result<_>>()?;
            }
            name => {
                group.settings.insert(name.to_string(), setting(value)?);
            }
        }
    }
    Ok(group)
}

impl StateDict {
    /// Converts PyTorch's `state_dict`.
    pub fn from_torch(object: &Object) -> Result<StateDict> {
        let all = entries(object, "an optimizer's `state_dict` with `state` and `param_groups`")?;
        let part = |wanted: &str| {
            let found = all.iter().find(|(name, _)| matches!(name, Object::Str(s) if s == wanted));
            found.map(|(_, value)| value).ok_or_else(|| {
                Error::argument("StateDict", format!("expected an optimizer's `state_dict`, found no `{wanted}`"))
            })
        };
        let mut state = BTreeMap::new();
        for (at, value) in entries(part("state")?, "`state` as a dictionary")? {
            state.insert(position(at)?, slots(value)?);
        }
        let groups = list(part("param_groups")?, "`param_groups` as a list")?;
        Ok(StateDict { state, param_groups: groups.iter().map(group).collect::<Result<_>>()? })
    }

    /// Reads what `torch.save(optimizer.state_dict(), path)` wrote.
    pub fn read_torch_save(path: impl AsRef<Path>) -> Result<StateDict> {
        let path = path.as_ref();
        let in_file = |e: &dyn std::fmt::Display| Error::user(format!("{}: {e}", path.display()));
        // Errors of the reader name the file themselves.
        let object = read_torch_save(path).map_err(|e| Error::user(e.to_string()))?;
        StateDict::from_torch(&object).map_err(|e| in_file(&e))
    }
}
