//! lift_constants_pass: reads of constant tensors and objects become inputs with their own spec.

use super::{Context, Report};
use crate::error::{Error, Result};
use crate::ir::*;
use crate::program::{Constant, ExportedProgram};
use crate::signature::{GraphSignature, InputKind, InputSpec, SpecArg};
use firebrand_core::dispatch::Op;
use firebrand_core::{Tensor, TensorMap};
use std::sync::Arc;

const PASS: &str = "lift_constants_pass";

/// Runs the pass without knowing the model's attributes: constants are called `lifted_tensor_<n>`.
pub fn lift_constants_pass(program: &ExportedProgram, _: &Context) -> Result<(ExportedProgram, Report)> {
    lift_constants(program, &[])
}

/// Runs the pass. `attributes` gives the names tensors have in the model; a tensor with several names is one input, under
/// the first of them, and a constant under each.
pub fn lift_constants(
    program: &ExportedProgram,
    attributes: &[(Tensor, Vec<String>)],
) -> Result<(ExportedProgram, Report)> {
    let mut lift = Lift {
        module: (*program.module).clone(),
        signature: program.signature()?.clone(),
        result: program.clone(),
        attributes: TensorMap::new(),
        seen: TensorMap::new(),
    };
    attributes.iter().for_each(|(t, names)| _ = lift.attributes.insert(t, names));
    let reads: Vec<NodeId> =
        lift.module.graph.nodes().filter(|&n| lift.module.graph[n].attr_path().is_some()).collect();
    let mut count = 0;
    for n in reads {
        count += usize::from(lift.one(n)?);
    }
    if count == 0 {
        return Ok((program.clone(), Report::default()));
    }
    let Lift { module, signature, mut result, .. } = lift;
    result.module = Arc::new(module);
    result.signature = Some(Arc::new(signature));
    Ok((result, Report::of(count)))
}

struct Lift<'a> {
    module: GraphModule,
    signature: GraphSignature,
    result: ExportedProgram,
    attributes: TensorMap<&'a [String]>,
    /// Constants lifted so far, and their placeholders.
    seen: TensorMap<NodeId>,
}

impl Lift<'_> {
    /// Lifts one read; says whether anything changed.
    fn one(&mut self, n: NodeId) -> Result<bool> {
        let path = self.module.graph[n].attr_path().cloned().expect("only reads come here");
        if self.erase_unused_chain(n)? {
            return Ok(true);
        }
        let tensor = match self.module.attributes.get(&path) {
            Some(Attribute::Graph(_)) => return Ok(false),
            Some(Attribute::Object { class_fqn }) => {
                let class_fqn = class_fqn.clone();
                return self.object(n, class_fqn);
            }
            Some(a) if a.tensor().is_some() => a.tensor().expect("just asked").clone(),
            _ => {
                let node = self.module.graph[n].name().to_string();
                let message = format!("reads {path}, which is neither a tensor nor an object");
                return Err(Error::PassNode { pass: PASS, node, message });
            }
        };
        let placeholder = match self.seen.get(&tensor) {
            Some(placeholder) => *placeholder,
            None => {
                let fqns = self.attributes.get(&tensor).map(|names| names.to_vec());
                let fqns = fqns.filter(|f| !f.is_empty()).unwrap_or_else(|| vec![self.fresh(n, "lifted_tensor_")]);
                for fqn in &fqns {
                    // A parameter that is a constant is trained no more.
                    self.result.constants.insert(fqn.clone(), Constant::Tensor(tensor.detach()));
                }
                let name = fqns[0].replace('.', "_");
                let placeholder = self.placeholder(n, &name);
                self.module.graph.meta_mut(placeholder).val = Some(TensorMeta::of(&tensor.detach()).into());
                let arg = SpecArg::Tensor(self.module.graph[placeholder].name().clone());
                self.spec(InputSpec { kind: InputKind::ConstantTensor(fqns[0].as_str().into()), arg });
                self.seen.insert(&tensor, placeholder);
                placeholder
            }
        };
        self.redirect(n, placeholder)?;
        Ok(true)
    }

    fn object(&mut self, n: NodeId, class_fqn: Name) -> Result<bool> {
        let fqn = self.fresh(n, "lifted_custom_");
        self.result.constants.insert(fqn.clone(), Constant::CustomObj { class_fqn: class_fqn.clone() });
        let placeholder = self.placeholder(n, &fqn.replace('.', "_"));
        let arg = SpecArg::CustomObj { name: self.module.graph[placeholder].name().clone(), class_fqn };
        self.spec(InputSpec { kind: InputKind::CustomObj(fqn.as_str().into()), arg });
        self.redirect(n, placeholder)?;
        Ok(true)
    }

    /// A constant that is only lifted, and then detached at most, is not needed.
    fn erase_unused_chain(&mut self, n: NodeId) -> Result<bool> {
        let graph = &mut self.module.graph;
        let only_user = |graph: &Graph, n: NodeId| graph.users(n).next().filter(|_| graph[n].num_users() == 1);
        let calls = |graph: &Graph, n: NodeId, ops: [Op; 2]| {
            graph[n].target().is_some_and(|t| ops.into_iter().any(|op| t.is_op(op)))
        };
        let Some(lift) = only_user(graph, n).filter(|&u| calls(graph, u, [Op::LIFT_FRESH, Op::LIFT_FRESH_COPY])) else {
            return Ok(false);
        };
        let detach = only_user(graph, lift).filter(|&u| calls(graph, u, [Op::DETACH, Op::DETACH_]));
        let dead = match detach {
            Some(detach) if graph[detach].num_users() == 0 => vec![detach, lift, n],
            None if graph[lift].num_users() == 0 => vec![lift, n],
            _ => return Ok(false),
        };
        for n in dead {
            graph.erase(n)?;
        }
        Ok(true)
    }

    /// A new qualified name below the module this node was called in.
    fn fresh(&self, n: NodeId, stem: &str) -> String {
        let stack = self.module.graph[n].meta().nn_module_stack.as_ref();
        let prefix = stack.and_then(|s| s.last()).map_or("", |(_, (path, _))| path.as_str());
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}.") };
        let kind = |s: &InputSpec| matches!(s.kind, InputKind::ConstantTensor(_));
        let first = self.signature.inputs.iter().filter(|s| kind(s)).count();
        let name = |i: usize| format!("{prefix}{stem}{i}");
        (first..).map(name).find(|f| !self.result.constants.contains_key(f)).expect("there is a free name")
    }

    /// Where the caller's inputs begin among the specs.
    fn first_user_input(&self) -> usize {
        let user = self.signature.inputs.iter().position(|s| s.kind == InputKind::UserInput);
        user.unwrap_or(self.signature.inputs.len())
    }

    fn placeholder(&mut self, n: NodeId, name: &str) -> NodeId {
        let at = self.first_user_input();
        let graph = &mut self.module.graph;
        let place = match graph.placeholders().nth(at).or_else(|| graph.nodes().find(|&n| !graph[n].is_placeholder())) {
            Some(before) => InsertPoint::Before(before),
            None => InsertPoint::End,
        };
        let meta = Meta { nn_module_stack: None, stack_trace: None, ..graph[n].meta().clone() };
        let new = graph.inserting(place, |g| g.create_node(Kind::Placeholder(name.into()), [], [], Some(name)));
        let target = graph[new].name().clone();
        graph.set_kind(new, Kind::Placeholder(target));
        *graph.meta_mut(new) = meta;
        new
    }

    fn spec(&mut self, spec: InputSpec) {
        let at = self.first_user_input();
        self.signature.inputs.insert(at, spec);
    }

    fn redirect(&mut self, n: NodeId, placeholder: NodeId) -> Result<()> {
        let graph = &mut self.module.graph;
        let (old, new) = (graph[n].name().clone(), graph[placeholder].name().clone());
        let path = graph[n].attr_path().cloned();
        graph.replace_all_uses_with(n, placeholder);
        graph.erase(n)?;
        for spec in &mut self.signature.outputs {
            if spec.arg.node() == Some(&old) {
                spec.arg.set_name(new.clone());
            }
        }
        let read = |path: &Name| graph.nodes().any(|n| graph[n].attr_path() == Some(path));
        if let Some(path) = path.filter(|p| !read(p)) {
            self.module.attributes.remove(&path);
        }
        Ok(())
    }
}
