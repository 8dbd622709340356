//! Calling a module with other tensors in place of its parameters and buffers.
//!
//! Parameters are leaves whose objects never change, so nothing is swapped: while the call runs, every op of the calling
//! thread that is given a replaced tensor gets its replacement instead. The module's own tensors and their gradients
//! stay untouched, also if the call fails, and other threads see nothing.

use crate::capture;
use crate::dispatch::Value;
use crate::module::{Buffer, Forward, Module, ModuleVisitor, Parameter, TensorTree};
use crate::state::{self, ModeGuard};
use crate::{ErrorKind, Result, Tensor};
use indexmap::IndexMap;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;

/// Replacements, by the identity of the replaced tensor, which the map keeps alive.
pub(crate) type Replacements = Arc<HashMap<usize, (Tensor, Tensor)>>;

/// Calls `module` with the tensors of `tensors` (by path, as `named_parameters` and `named_buffers` list them) instead of
/// its own. Assignments to buffers during the call are undone.
///
/// ```
/// # use firebrand_core as firebrand;
/// use firebrand::func::{functional_call, grad};
/// use firebrand::module::{Forward, Module, ModuleCore, Parameter};
/// use firebrand::{Result, Tensor};
/// use indexmap::IndexMap;
///
/// #[derive(Module)]
/// struct Scale {
///     weight: Parameter,
///     core: ModuleCore,
/// }
/// impl Forward for Scale {
///     type Output = Tensor;
///     fn forward(&self, x: &Tensor) -> Result<Tensor> {
///         Ok(x * &*self.weight)
///     }
/// }
/// let module = Scale { weight: Parameter::new(Tensor::scalar(1.0f64)), core: ModuleCore::new() };
/// let params = IndexMap::from([("weight".to_string(), Tensor::scalar(2.0f64))]);
/// let x = Tensor::scalar(3.0f64);
/// let g = grad(|p: &IndexMap<String, Tensor>| functional_call(&module, p, &x))(&params).unwrap();
/// assert_eq!(g["weight"].item::<f64>(), 3.0);
/// ```
pub fn functional_call<I: TensorTree, M: Forward<I>>(
    module: &M,
    tensors: &IndexMap<String, Tensor>,
    input: &I,
) -> Result<M::Output> {
    let mut found = Found { path: String::new(), parameters: Vec::new(), buffers: Vec::new() };
    for (path, m) in module.named_modules() {
        found.path = path;
        m.visit(&mut found);
    }
    let own: HashMap<&str, Tensor> = found
        .parameters
        .iter()
        .map(|(n, p)| (n.as_str(), p.tensor().clone()))
        .chain(found.buffers.iter().map(|(n, b)| (n.as_str(), b.get())))
        .collect();
    let mut map: HashMap<usize, (Tensor, Tensor)> =
        state::stacks(|s| s.replacements.as_deref().cloned().unwrap_or_default());
    for (name, replacement) in tensors {
        let Some(t) = own.get(name.as_str()) else {
            let message = format!("{} has no parameter or buffer named '{name}'", module.name());
            return Err(ErrorKind::Functional { function: "functional_call", message }.into());
        };
        map.insert(t.id(), (t.clone(), replacement.clone()));
    }
    let _buffers = Restore(found.buffers.iter().map(|(_, b)| (*b, b.get())).collect());
    let _scope = Scope::new(Arc::new(map));
    module.try_call(input)
}

/// Own parameters and buffers of every module, by path.
struct Found<'a> {
    path: String,
    parameters: Vec<(String, &'a Parameter)>,
    buffers: Vec<(String, &'a Buffer)>,
}

impl Found<'_> {
    fn name(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_string() } else { format!("{}.{name}", self.path) }
    }
}

impl<'a> ModuleVisitor<'a> for Found<'a> {
    fn parameter(&mut self, name: &str, parameter: &'a Parameter) {
        self.parameters.push((self.name(name), parameter))
    }
    fn buffer(&mut self, name: &str, buffer: &'a Buffer) {
        self.buffers.push((self.name(name), buffer))
    }
    fn module(&mut self, _: &str, _: &'a dyn Module) {}
}

/// Puts the buffers' tensors back.
struct Restore<'a>(Vec<(&'a Buffer, Tensor)>);

impl Drop for Restore<'_> {
    fn drop(&mut self) {
        for (buffer, t) in self.0.drain(..) {
            if !buffer.get().is_same(&t) {
                buffer.set(t)
            }
        }
    }
}

struct Scope {
    before: Option<Replacements>,
    _mode: ModeGuard,
}

impl Scope {
    fn new(map: Replacements) -> Scope {
        let before = state::stacks(|s| s.replacements.replace(map));
        Scope { before, _mode: ModeGuard::new(state::LAYERS, 0) }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        let ended = state::stacks(|s| std::mem::replace(&mut s.replacements, self.before.take()));
        drop(ended);
    }
}

/// The arguments of a call with replaced tensors and stand-ins replaced; `None` if there are none.
pub(crate) fn replaced(args: &[Value]) -> Option<SmallVec<[Value; 8]>> {
    let map = state::stacks(|s| s.replacements.clone());
    if map.is_none() && !capture::has_stand_ins() {
        return None;
    }
    let swap = |t: &Tensor| {
        let t = capture::real(t);
        map.as_ref().and_then(|map| map.get(&t.id())).map_or(t, |(_, new)| new.clone())
    };
    let value = |v: &Value| match v {
        Value::Tensor(t) => Value::Tensor(swap(t)),
        Value::Tensors(list) => Value::Tensors(list.iter().map(swap).collect()),
        Value::OptTensors(list) => Value::OptTensors(list.iter().map(|t| t.as_ref().map(swap)).collect()),
        other => other.clone(),
    };
    Some(args.iter().map(value).collect())
}
