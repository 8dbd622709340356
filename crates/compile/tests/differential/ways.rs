//! Two more ways to run a program, as back ends: [`Methods`] is the Rust code a user would write for it (tensor methods,
//! grad-mode scopes, hooks, `cond`), and [`Reloaded`] is that code exported, saved as a `.pt2` archive and loaded again.

use firebrand_compile::{Backend, Call, Error, ExampleInput, ExampleValue, Executable, Result, Value};
use firebrand_core::autograd::{is_grad_enabled, set_grad_enabled};
use firebrand_core::{DType, Result as CoreResult, Tensor, ops};
use firebrand_graph::ir::*;
use firebrand_graph::{Export, ExportedProgram, cond};
use std::sync::Arc;

/// The value of a node.
#[derive(Clone)]
enum Slot {
    Tensor(Tensor),
    Tensors(Vec<Tensor>),
    Side(Arc<GraphModule>),
    Nothing,
}

fn tensor(slot: &Slot) -> &Tensor {
    match slot {
        Slot::Tensor(t) => t,
        _ => panic!("a tensor is expected here"),
    }
}

/// Runs the graph node by node with typed calls.
fn run(module: &GraphModule, inputs: &[Tensor], call: Option<&Call>) -> CoreResult<Vec<Tensor>> {
    let graph = &module.graph;
    let mut slots = vec![Slot::Nothing; graph.capacity()];
    let mut inputs = inputs.iter();
    for n in graph.nodes() {
        let node = &graph[n];
        slots[n.index()] = match node.kind() {
            Kind::Placeholder(_) => Slot::Tensor(inputs.next().expect("one input each").clone()),
            Kind::GetAttr(path) => Slot::Side(module.subgraph(path).expect("a side of a conditional").clone()),
            Kind::CallFunction(target) => step(&target.to_string(), node.args(), &slots, call)?,
            Kind::Output => break,
            other => panic!("no node of the programs is {other:?}"),
        };
    }
    let results = graph.result().and_then(Argument::items).expect("programs return tuples");
    Ok(results.iter().map(|a| tensor(of(a, &slots)).clone()).collect())
}

fn of<'a>(a: &Argument, slots: &'a [Slot]) -> &'a Slot {
    match a {
        Argument::Node(n) => &slots[n.index()],
        other => panic!("a node is expected, not {other:?}"),
    }
}

fn step(target: &str, args: &[Argument], slots: &[Slot], call: Option<&Call>) -> CoreResult<Slot> {
    let t = |k: usize| tensor(of(&args[k], slots));
    let number = |k: usize| match args[k] {
        Argument::Float(v) => v,
        Argument::Int(v) => v as f64,
        _ => panic!("a number is expected"),
    };
    let int = |k: usize| number(k) as i64;
    Ok(Slot::Tensor(match target {
        "aten.sin.default" => t(0).try_sin()?,
        "aten.tanh.default" => t(0).try_tanh()?,
        "aten.neg.default" => t(0).try_neg()?,
        "aten.exp.default" => t(0).try_exp()?,
        "aten.add.Tensor" => t(0) + t(1),
        "aten.mul.Tensor" => t(0) * t(1),
        "aten.sub.Tensor" => t(0) - t(1),
        "aten.sum.default" => t(0).try_sum()?,
        "aten.gt.Scalar" => t(0).gt_scalar(number(1)),
        "aten.select.int" => t(0).try_select(int(1), int(2))?,
        "aten.slice.Tensor" => t(0).slice(int(1), Some(int(2).into()), Some(int(3).into()), 1),
        "aten.t.default" => t(0).t(),
        "aten.reshape.default" => t(0).try_reshape([-1i64])?,
        "aten.detach.default" => t(0).detach(),
        "aten.add_.Scalar" => t(0).try_add_scalar_(number(1), 1)?.clone(),
        "aten.mul_.Scalar" => t(0).try_mul_scalar_(number(1))?.clone(),
        "aten.add_.Tensor" => t(0).try_add_(t(1))?.clone(),
        "aten.mul_.Tensor" => t(0).try_mul_(t(1))?.clone(),
        "aten.copy_.default" => ops::copy_(t(0), t(1), false)?.clone(),
        "aten.sin_.default" => t(0).try_sin_()?.clone(),
        "aten.relu_.default" => t(0).try_relu_()?.clone(),
        "torch._set_grad_enabled" => {
            set_grad_enabled(matches!(args[0], Argument::Bool(true)));
            return Ok(Slot::Nothing);
        }
        "torch.register_hook" => {
            if let Some(call) = call {
                let slot = call.hook(int(1) as usize).expect("the call has this hook").clone();
                t(0).try_register_hook_any(move |g| slot.run(g))?;
            }
            t(0).clone()
        }
        "hop.cond" => {
            let Argument::Tuple(operands) = &args[3] else { panic!("operands come as a tuple") };
            let operands: Vec<&Tensor> = operands.iter().map(|a| tensor(of(a, slots))).collect();
            let side = |k: usize| match of(&args[k], slots) {
                Slot::Side(side) => side.clone(),
                _ => panic!("a side is a graph"),
            };
            let (yes, no) = (side(1), side(2));
            let results = cond(t(0), |x| run(&yes, x, None), |x| run(&no, x, None), &operands)?;
            return Ok(Slot::Tensors(results));
        }
        "operator.getitem" => match of(&args[0], slots) {
            Slot::Tensors(list) => list[int(1) as usize].clone(),
            _ => panic!("only conditionals have several results"),
        },
        other => panic!("no program calls {other}"),
    }))
}

fn tensors(inputs: &[Value]) -> Vec<Tensor> {
    inputs.iter().map(|v| v.tensor().expect("programs take tensors").clone()).collect()
}

/// Leaves grad mode as it was found, however the run ends.
fn in_own_mode<R>(f: impl FnOnce() -> R) -> R {
    let _scope = set_grad_enabled(is_grad_enabled()).scoped();
    f()
}

/// The program as tensor methods.
pub(crate) struct Methods;

struct MethodCalls(Arc<GraphModule>);

impl Backend for Methods {
    fn name(&self) -> &str {
        "methods"
    }

    fn compile(&self, graph: &GraphModule, _: &[ExampleInput]) -> Result<Arc<dyn Executable>> {
        Ok(Arc::new(MethodCalls(Arc::new(graph.clone()))))
    }
}

impl Executable for MethodCalls {
    fn run(&self, inputs: &[Value], call: &Call) -> Result<Vec<Value>> {
        let results = in_own_mode(|| run(&self.0, &tensors(inputs), Some(call)))?;
        Ok(results.into_iter().map(Value::Tensor).collect())
    }
}

/// The program exported, saved and loaded. Archives hold no hooks: they are left out. What export or the writer refuses
/// does not compile; what they accept must load.
pub(crate) struct Reloaded;

struct LoadedProgram(ExportedProgram);

impl Backend for Reloaded {
    fn name(&self) -> &str {
        "saved and loaded"
    }

    fn compile(&self, graph: &GraphModule, examples: &[ExampleInput]) -> Result<Arc<dyn Executable>> {
        let inputs: Vec<Tensor> = examples.iter().map(like).collect();
        let program = in_own_mode(|| Export::new(&inputs).run(|x| run(graph, x, None)))?;
        let bytes = program.to_bytes()?;
        let loaded = ExportedProgram::from_bytes(bytes).unwrap_or_else(|e| panic!("it cannot be loaded: {e}"));
        Ok(Arc::new(LoadedProgram(loaded)))
    }
}

/// A tensor as an example describes it: computed from a leaf if it requires grad.
fn like(example: &ExampleInput) -> Tensor {
    let ExampleValue::Tensor(meta) = &example.value else { panic!("programs take tensors") };
    let zeros = Tensor::zeros([2, 3], DType::F64);
    if meta.requires_grad { zeros.requires_grad_() * 1.0 } else { zeros }
}

impl Executable for LoadedProgram {
    fn run(&self, inputs: &[Value], _: &Call) -> Result<Vec<Value>> {
        self.0.run(&tensors(inputs)).map_err(Error::from)
    }
}
