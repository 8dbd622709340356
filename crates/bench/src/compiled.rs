//! The benches of the compiler's fused backend: graphs as its joint stage hands them over, forward and backward.
//!
//! Graphs are written out, so that a figure is about the backend and not about capture; but `cold` starts at functions. Peers run the same work through
//! torch.compile and `jax.jit` in `bench/peers.py`.

use super::workloads::normal;
use super::{Bench, Done};
use firebrand::graph::ir::{GraphModule, TensorMeta};
use firebrand::graph::text::parse_module;
use firebrand::ops;
use firebrand::prelude::*;
use firebrand_compile::fused::{Fused, FusedGraph};
use firebrand_compile::{Call, ExampleInput, ExampleValue, Executable, Value, compile};
use std::fmt::Write;

const POINTS: usize = 1 << 24;
const BUDGET: f64 = 1.0;

/// Ten ops, and what their gradient needs of them.
const TEN_OPS: &str = "  %a = aten.mul.Tensor(%x, %x)\n  %b = aten.mul.Tensor(%a, %x)\n  %c = aten.mul.Tensor(%b, 0.044715)\n  \
    %d = aten.add.Tensor(%c, %x)\n  %u = aten.mul.Tensor(%d, 0.7978845608)\n  %t = aten.tanh.default(%u)\n  \
    %e = aten.add.Tensor(%t, 1.0)\n";
const TEN_OPS_END: &str =
    "  %f = aten.mul.Tensor(%e, %x)\n  %h = aten.mul.Tensor(%f, 0.5)\n  %y = aten.sub.Tensor(%h, 0.1)\n";
const TEN_OPS_BACKWARD: &str = "  %df = aten.mul.Tensor(%g, 0.5)\n  %de = aten.mul.Tensor(%df, %x)\n  %x1 = aten.mul.Tensor(%df, %e)\n  \
    %dt = aten.tanh_backward.default(%de, %t)\n  %dd = aten.mul.Tensor(%dt, 0.7978845608)\n  %db = aten.mul.Tensor(%dd, 0.044715)\n  \
    %x2 = aten.mul.Tensor(%db, %a)\n  %da = aten.mul.Tensor(%db, %x)\n  %x3 = aten.mul.Tensor(%da, %x)\n  \
    %s1 = aten.add.Tensor(%x1, %dd)\n  %s2 = aten.add.Tensor(%s1, %x2)\n  %s3 = aten.add.Tensor(%s2, %x3)\n  \
    %gx = aten.add.Tensor(%s3, %x3)\n";

fn graph(body: &str) -> Done<GraphModule> {
    Ok(parse_module(&format!("graph {{\n{body}\n}}\n"))?)
}

fn examples(inputs: &[Tensor]) -> Vec<ExampleInput> {
    let example = |t: &Tensor| ExampleInput { value: ExampleValue::Tensor(TensorMeta::of(t)), is_static: false };
    inputs.iter().map(example).collect()
}

fn compiled(body: &str, inputs: &[Tensor]) -> Done<(FusedGraph, Vec<Value>)> {
    let graph = Fused::default().compile_graph(&graph(body)?, &examples(inputs))?;
    Ok((graph, inputs.iter().map(|t| Value::Tensor(t.detach())).collect()))
}

fn run(graph: &FusedGraph, inputs: &[Value]) -> Result<Vec<Value>> {
    Ok(graph.run(inputs, &Call::default())?)
}

/// The chain forward; forward and a backward that computes again what it needs; both as one graph.
pub(super) fn pointwise(bench: &Bench) -> Done {
    let (x, g) = (normal(&[POINTS])?, Tensor::ones([POINTS], DType::F32));
    let (forward, fx) =
        compiled(&format!("  %x = placeholder\n{TEN_OPS}{TEN_OPS_END}  return (%y,)"), std::slice::from_ref(&x))?;
    bench.emit_ms("forward", bench.measure(BUDGET, || run(&forward, &fx).map(drop))?)?;
    let both = "  %x = placeholder\n  %g = placeholder\n";
    let (backward, bx) =
        compiled(&format!("{both}{TEN_OPS}{TEN_OPS_BACKWARD}  return (%gx,)"), &[x.clone(), g.clone()])?;
    let both_ways = bench.measure(BUDGET, || {
        let y = run(&forward, &fx)?;
        drop(run(&backward, &bx)?);
        drop(y);
        Ok(())
    })?;
    bench.emit_ms("forward_backward", both_ways)?;
    let (joint, jx) = compiled(&format!("{both}{TEN_OPS}{TEN_OPS_END}{TEN_OPS_BACKWARD}  return (%y, %gx)"), &[x, g])?;
    bench.emit_ms("joint", bench.measure(BUDGET, || run(&joint, &jx).map(drop))?)
}

/// Softmax and layer norm, one kernel each way.
pub(super) fn softmax_layernorm(bench: &Bench) -> Done {
    const SIZES: [usize; 2] = [4096, 1024];
    let (x, w, b) = (normal(&SIZES)?, Tensor::ones([1024], DType::F32), Tensor::zeros([1024], DType::F32));
    let forward = "  %x = placeholder\n  %w = placeholder\n  %b = placeholder\n  %s = aten._softmax.default(%x, -1, False)\n  \
        %n = aten.native_layer_norm.default(%s, [1024], %w, %b, 1e-05)\n  %y = operator.getitem(%n, 0)\n  \
        %m = operator.getitem(%n, 1)\n  %r = operator.getitem(%n, 2)\n  return (%y, %s, %m, %r)";
    let backward = "  %g = placeholder\n  %s = placeholder\n  %m = placeholder\n  %r = placeholder\n  %w = placeholder\n  \
        %b = placeholder\n  %n = aten.native_layer_norm_backward.default(%g, %s, [1024], %m, %r, %w, %b, [True, True, True])\n  \
        %p = operator.getitem(%n, 0)\n  %gw = operator.getitem(%n, 1)\n  %gb = operator.getitem(%n, 2)\n  \
        %gx = aten._softmax_backward_data.default(%p, %s, -1, float32)\n  return (%gx, %gw, %gb)";
    let (forward, fx) = compiled(forward, &[x, w.clone(), b.clone()])?;
    let saved = run(&forward, &fx)?;
    let tensor =
        |k: usize| -> Result<Tensor> { Ok(saved[k].tensor().map_err(firebrand_compile::Error::from)?.clone()) };
    let given = [normal(&SIZES)?, tensor(1)?, tensor(2)?, tensor(3)?, w, b];
    let (backward, mut bx) = compiled(backward, &given)?;
    drop(saved);
    drop(given);
    let both_ways = bench.measure(BUDGET, || {
        let mut out = run(&forward, &fx)?.into_iter();
        let y = out.next();
        bx.splice(1..4, out);
        drop(run(&backward, &bx)?);
        drop(y);
        Ok(())
    })?;
    bench.emit_ms("forward_backward", both_ways)
}

/// The forward and backward of a perceptron of these widths, as the joint stage writes them.
fn perceptron(widths: &[usize]) -> String {
    let layers = widths.len() - 1;
    let mut text = String::from("  %x = placeholder\n  %y = placeholder\n");
    for k in 0..layers {
        let _ = write!(text, "  %w{k} = placeholder\n  %b{k} = placeholder\n");
    }
    let mut last = "x".to_string();
    for k in 0..layers {
        let _ = write!(text, "  %t{k} = aten.t.default(%w{k})\n  %h{k} = aten.addmm.default(%b{k}, %{last}, %t{k})\n");
        last = format!("h{k}");
        if k + 1 < layers {
            let _ = writeln!(text, "  %r{k} = aten.relu.default(%h{k})");
            last = format!("r{k}");
        }
    }
    let _ = write!(
        text,
        "  %l = aten._log_softmax.default(%{last}, 1, False)\n  %n = aten.nll_loss_forward.default(%l, %y, None, 1, -100)\n  \
         %loss = operator.getitem(%n, 0)\n  %total = operator.getitem(%n, 1)\n  %one = aten.ones_like.default(%loss)\n  \
         %gl = aten.nll_loss_backward.default(%one, %l, %y, None, 1, -100, %total)\n  \
         %g{layers} = aten._log_softmax_backward_data.default(%gl, %l, 1, float32)\n"
    );
    let mut results = vec!["%loss".to_string()];
    for k in (0..layers).rev() {
        let (above, input) = (k + 1, if k == 0 { "x".to_string() } else { format!("r{}", k - 1) });
        let _ = write!(
            text,
            "  %gt{k} = aten.t.default(%g{above})\n  %gw{k} = aten.mm.default(%gt{k}, %{input})\n  \
             %gb{k} = aten.sum.dim_IntList(%g{above}, [0])\n"
        );
        if k > 0 {
            let _ = write!(
                text,
                "  %gr{k} = aten.mm.default(%g{above}, %w{k})\n  \
                 %g{k} = aten.threshold_backward.default(%gr{k}, %r{}, 0)\n",
                k - 1
            );
        }
        results.extend([format!("%gw{k}"), format!("%gb{k}")]);
    }
    let _ = write!(text, "  return ({},)", results.join(", "));
    text
}

fn perceptron_inputs(widths: &[usize], batch: usize) -> Result<Vec<Tensor>> {
    let mut inputs = vec![normal(&[batch, widths[0]])?, Tensor::zeros([batch], DType::I64)];
    for w in widths.windows(2) {
        inputs.extend([normal(&[w[1], w[0]])?, normal(&[w[1]])?]);
    }
    Ok(inputs)
}

/// From a function to its first gradients, capture included; and calls of functions that are compiled.
pub(super) fn cold(bench: &Bench) -> Done {
    const WIDTHS: [usize; 4] = [64, 128, 128, 10];
    let mut inputs = perceptron_inputs(&WIDTHS, 32)?;
    let weights = inputs.split_off(2).into_iter().map(|w| w.try_requires_grad_(true)).collect::<Result<Vec<_>>>()?;
    let mut scale = 1.0;
    let mut first = || {
        // A constant of its own: equal graphs of one function share what was compiled for the first of them.
        scale += 1e-3;
        let f = compile(move |(x, y, weights): &(Tensor, Tensor, Vec<Tensor>)| -> Result<Tensor> {
            let mut h = x.clone();
            for (k, layer) in weights.chunks(2).enumerate() {
                h = ops::linear(&if k == 0 { h } else { ops::relu(&h)? }, &layer[0], Some(&layer[1]))?;
            }
            ops::mul_scalar(&ops::cross_entropy_loss(&h, y, None, 1, (-100).into(), 0.0)?, scale.into())
        });
        let loss = f.try_call(&(inputs[0].clone(), inputs[1].clone(), weights.clone()))?;
        loss.try_backward(&BackwardOptions::default())
    };
    bench.emit("perceptron", 1e3 * bench.clock.best(0.0, &mut first)?, "ms")?;

    const CALLS: usize = 1000;
    let calls = |f: &dyn Fn() -> Result<()>| bench.clock.best(BUDGET, || (0..CALLS).try_for_each(|_| f()));
    let x = Tensor::ones([4], DType::F32);
    let two_ops = compile(|x: &Tensor| ops::add_scalar(&ops::mul_scalar(x, 2.0.into())?, 1.0.into(), 1.into()));
    let seconds = calls(&|| Ok(two_ops.try_call(&x).map(drop)?))?;
    bench.emit("call_of_two_ops", 1e9 * seconds / CALLS as f64, "ns")?;
    let many: Vec<Tensor> = (0..32).map(|_| Tensor::ones([4], DType::F32)).collect();
    let sum =
        compile(|many: &Vec<Tensor>| many.iter().skip(1).try_fold(many[0].clone(), |s, t| ops::add(&s, t, 1.into())));
    let seconds = calls(&|| Ok(sum.try_call(&many).map(drop)?))?;
    bench.emit("sum_of_32_tensors", 1e9 * seconds / CALLS as f64, "ns")?;
    let seconds = calls(&|| {
        assert!(std::hint::black_box(sum.is_compiled_for(&many)), "it was compiled for these");
        Ok(())
    })?;
    bench.emit("guards_of_32_tensors", 1e9 * seconds / CALLS as f64, "ns")
}

/// Forward and backward of the perceptron of the training bench, without the optimizer's step.
pub(super) fn mlp(bench: &Bench) -> Done {
    const WIDTHS: [usize; 4] = [784, 512, 512, 10];
    let (graph, values) = compiled(&perceptron(&WIDTHS), &perceptron_inputs(&WIDTHS, 128)?)?;
    bench.emit_ms("forward_backward", bench.measure(2.0, || run(&graph, &values).map(drop))?)
}
