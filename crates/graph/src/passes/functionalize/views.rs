//! Views as data: how an alias is recomputed from its base, and how a value written through it is written back.
//!
//! A step is one view op with its arguments. Replaying it on a value gives the alias; its inverse puts a new value of
//! the alias into the value it was cut from. Geometry is that of the traced run, sizes that were symbols stay symbols.

use super::PASS;
use super::walk::Walk;
use crate::error::{Error, Result};
use crate::interpret::Value;
use crate::ir::*;
use firebrand_core::Layout;

/// One view op on the way from memory to an alias.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// The op; its first argument is what it is applied to.
    pub(super) target: Target,
    /// The other positional arguments, in the new graph.
    pub(super) args: Vec<Argument>,
    pub(super) kwargs: Vec<(Name, Argument)>,
    /// The same arguments at run time.
    pub(super) given: Vec<Value>,
    pub(super) given_named: Vec<(Name, Value)>,
    /// Which of several results.
    pub(super) item: Option<usize>,
    /// Where the elements lay before and after.
    pub(super) from: Layout,
    pub(super) to: Layout,
    /// What is known of both values.
    pub(super) from_val: Option<Val>,
    pub(super) to_val: Option<Val>,
    /// What is known of all results of the op.
    pub(super) whole: Option<Val>,
    /// What a new node is called.
    pub(super) name: Name,
}

impl Step {
    fn base(&self) -> &str {
        self.target.overload().map_or("", OpOverload::base)
    }

    /// Whether it cuts the history off.
    pub(super) fn is_detach(&self) -> bool {
        self.base() == "detach"
    }

    fn refuse<T>(&self, message: String) -> Result<T> {
        Err(Error::PassNode { pass: PASS, node: self.name.to_string(), message })
    }
}

fn known(layout: &Layout, d: usize) -> (i64, i64) {
    (layout.sizes()[d] as i64, layout.strides()[d] as i64)
}

fn ints(values: &[usize]) -> Argument {
    Argument::list(values.iter().map(|&v| Argument::Int(v as i64)))
}

impl Walk {
    /// Applies a view op to a value.
    pub(super) fn replay(&mut self, step: &Step, value: NodeId) -> NodeId {
        let mut args = vec![Argument::Node(value)];
        args.extend(step.args.iter().cloned());
        let kind = Kind::CallFunction(step.target.clone());
        let node = self.graph.create_node(kind, args, step.kwargs.clone(), Some(&step.name));
        let Some(item) = step.item else {
            self.graph.meta_mut(node).val = step.to_val.clone();
            return node;
        };
        self.graph.meta_mut(node).val = step.whole.clone();
        let item = self.graph.call_function(Function::GetItem, [node.into(), (item as i64).into()]);
        self.graph.meta_mut(item).val = step.to_val.clone();
        item
    }

    /// What `parent` becomes when the alias that `step` cuts out of it becomes `new`.
    pub(super) fn put_back(&mut self, step: &Step, parent: NodeId, new: NodeId) -> Result<NodeId> {
        let arg = |k: usize, name: &str| {
            let named = step.kwargs.iter().find(|(n, _)| &**n == name).map(|(_, a)| a.clone());
            step.args.get(k).cloned().or(named)
        };
        let dim = |a: Option<Argument>| match a {
            Some(Argument::Int(d)) => Ok(d),
            None => Ok(0),
            Some(other) => step.refuse(format!("the dimension of a view is {other:?}, not a number")),
        };
        let at = |d: i64| {
            let d = if d < 0 { d + step.from.sizes().len() as i64 } else { d };
            usize::try_from(d).unwrap_or(usize::MAX)
        };
        let (from, to) = (&step.from, &step.to);
        match step.base() {
            _ if from.same_geometry(to) && from.offset() == to.offset() => Ok(new),
            "view" | "_unsafe_view" | "reshape" | "view_as" | "reshape_as" | "flatten" | "unflatten" | "ravel"
            | "squeeze" | "unsqueeze" | "atleast_1d" | "atleast_2d" | "atleast_3d" => self.reshaped(step, new),
            "expand" | "expand_as" | "broadcast_to" | "contiguous" if from.numel() == to.numel() => {
                self.reshaped(step, new)
            }
            "t" | "transpose" | "swapaxes" | "swapdims" | "numpy_T" | "mT" => {
                Ok(self.undo(step, new, step.args.clone()))
            }
            "movedim" | "moveaxis" => {
                let args = step.args.iter().rev().cloned().collect();
                Ok(self.undo(step, new, args))
            }
            "permute" => {
                let Some(Argument::List(dims)) = arg(0, "dims") else {
                    return step.refuse("a permutation is a list of numbers".to_string());
                };
                let mut inverse = vec![0i64; dims.len()];
                for (i, d) in dims.iter().enumerate() {
                    let place = at(dim(Some(d.clone()))?);
                    *inverse.get_mut(place).ok_or_else(|| Error::Value(format!("no dimension {d:?}")))? = i as i64;
                }
                Ok(self.undo(step, new, vec![Argument::list(inverse.into_iter().map(Argument::Int))]))
            }
            "select" => {
                let (d, index) = (arg(0, "dim").unwrap_or(0i64.into()), arg(1, "index").unwrap_or(0i64.into()));
                Ok(self.scatter("select_scatter.default", step, vec![parent.into(), new.into(), d, index]))
            }
            "slice" => {
                let mut args = vec![parent.into(), new.into()];
                for (k, name, default) in [
                    (0, "dim", Argument::Int(0)),
                    (1, "start", Argument::None),
                    (2, "end", Argument::None),
                    (3, "step", Argument::Int(1)),
                ] {
                    args.push(arg(k, name).unwrap_or(default));
                }
                Ok(self.scatter("slice_scatter.default", step, args))
            }
            "diagonal" => {
                let mut args = vec![parent.into(), new.into()];
                for (k, name, default) in [(0, "offset", 0i64), (1, "dim1", 0), (2, "dim2", 1)] {
                    args.push(arg(k, name).unwrap_or(default.into()));
                }
                Ok(self.scatter("diagonal_scatter.default", step, args))
            }
            "unbind" => {
                let (d, index) = (arg(0, "dim").unwrap_or(0i64.into()), step.item.unwrap_or(0) as i64);
                Ok(self.scatter("select_scatter.default", step, vec![parent.into(), new.into(), d, index.into()]))
            }
            "split" | "split_with_sizes" | "chunk" | "tensor_split" | "narrow" => {
                let d = match step.base() {
                    "narrow" => dim(arg(0, "dim"))?,
                    _ => dim(arg(1, "dim"))?,
                };
                let place = at(d);
                if place >= from.sizes().len() {
                    return step.refuse(format!("there is no dimension {d} to cut"));
                }
                let ((_, stride), (length, _)) = (known(from, place), known(to, place));
                let start = (to.offset() as i64 - from.offset() as i64) / stride.max(1);
                let range = [d.into(), start.into(), (start + length).into(), 1i64.into()];
                let args = [parent.into(), new.into()].into_iter().chain(range).collect();
                Ok(self.scatter("slice_scatter.default", step, args))
            }
            _ if from.is_contiguous() => {
                let geometry = [ints(to.sizes()), ints(to.strides()), (to.offset() as i64).into()];
                let args = [parent.into(), new.into()].into_iter().chain(geometry).collect();
                Ok(self.scatter("as_strided_scatter.default", step, args))
            }
            base => {
                step.refuse(format!("a write through a {base} view of a non-contiguous tensor has no functional form"))
            }
        }
    }

    /// `new` in the shape it had before the step.
    fn reshaped(&mut self, step: &Step, new: NodeId) -> Result<NodeId> {
        let sizes = match &step.from_val {
            Some(Val::Tensor(meta)) => meta.sizes.clone(),
            _ => step.from.sizes().iter().map(|&s| Symbolic::Known(s as i64)).collect(),
        };
        if sizes.iter().filter(|s| s.known().is_none()).count() > 1 {
            return step
                .refuse("a write through a view that changes two symbolic sizes has no functional form".to_string());
        }
        // At most one size is a symbol, and the others say what it is.
        let sizes = Argument::list(sizes.iter().map(|s| Argument::Int(s.known().unwrap_or(-1))));
        Ok(self.scatter("reshape.default", step, vec![new.into(), sizes]))
    }

    /// The same op with other arguments, on the new value.
    fn undo(&mut self, step: &Step, new: NodeId, args: Vec<Argument>) -> NodeId {
        let all: Vec<Argument> = std::iter::once(Argument::Node(new)).chain(args).collect();
        let kind = Kind::CallFunction(step.target.clone());
        let node = self.graph.create_node(kind, all, step.kwargs.clone(), Some(&step.name));
        self.graph.meta_mut(node).val = step.from_val.clone();
        node
    }

    fn scatter(&mut self, op: &str, step: &Step, args: Vec<Argument>) -> NodeId {
        let node = self.graph.call_function(Target::aten(op), args);
        self.graph.meta_mut(node).val = step.from_val.clone();
        node
    }
}
