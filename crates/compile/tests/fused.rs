//! Kernels of the fused back end: how many there are, and that their numbers are the plain ones.
//! docs/behaviour/compile-and-hooks.md (e.1), f.8.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand_compile::fused::{Fused, FusedGraph, FusedOptions};
use firebrand_compile::{Call, ExampleInput, ExampleValue, Executable, Value};
use firebrand_core::autograd::no_grad;
use firebrand_core::{DType, Tensor, ops, set_num_threads};
use firebrand_graph::interpret::{Eager, run_module};
use firebrand_graph::ir::{GraphModule, TensorMeta};
use firebrand_graph::text::parse_module;

fn graph(text: &str) -> GraphModule {
    parse_module(&format!("graph {{\n{text}\n}}\n")).unwrap_or_else(|e| panic!("{e}"))
}

fn compile(module: &GraphModule, inputs: &[Tensor], bitwise: bool) -> FusedGraph {
    let example = |t: &Tensor| ExampleInput { value: ExampleValue::Tensor(TensorMeta::of(t)), is_static: false };
    let examples: Vec<ExampleInput> = inputs.iter().map(example).collect();
    Fused::new(FusedOptions { bitwise }).compile_graph(module, &examples).unwrap()
}

fn values(inputs: &[Tensor]) -> Vec<Value> {
    inputs.iter().map(|t| Value::Tensor(t.clone())).collect()
}

fn plain(module: &GraphModule, inputs: &[Tensor]) -> Vec<Tensor> {
    let out = no_grad(|| run_module(&mut Eager::default(), module, &values(inputs))).unwrap();
    out.tensors().into_iter().cloned().collect()
}

fn fused(compiled: &FusedGraph, inputs: &[Tensor]) -> Vec<Tensor> {
    let out = compiled.run(&values(inputs), &Call::default()).unwrap();
    out.iter().map(|v| v.tensor().unwrap().clone()).collect()
}

fn numbers(t: &Tensor) -> Vec<f64> {
    t.to_dtype(DType::F64).contiguous().to_vec()
}

fn far(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!((a.shape(), a.dtype()), (b.shape(), b.dtype()));
    let scale = numbers(b).iter().fold(1e-3, |m: f64, v| m.max(v.abs()));
    numbers(a).iter().zip(numbers(b)).map(|(a, b)| (a - b).abs() / scale).fold(0.0, f64::max)
}

/// Kernels and calls of the plan; results within `eps` of the plain run.
fn check(text: &str, inputs: &[Tensor], eps: f64) -> (usize, usize) {
    let module = graph(text);
    let compiled = compile(&module, inputs, false);
    let copies: Vec<Tensor> = inputs.iter().map(|t| t.clone_tensor()).collect();
    let want = plain(&module, &copies);
    for round in 0..2 {
        let got = fused(&compiled, inputs);
        assert_eq!(got.len(), want.len());
        for (k, (g, w)) in got.iter().zip(&want).enumerate() {
            assert_eq!(g.strides(), w.strides(), "result {k}");
            assert!(far(g, w) <= eps, "result {k} of round {round}:\n{g}\nexpected\n{w}\n{}", compiled.describe());
        }
    }
    for (x, c) in inputs.iter().zip(&copies) {
        assert!(numbers(x) == numbers(c), "an input was written");
    }
    let stats = &compiled.stats()[0];
    (stats.kernels, stats.calls)
}

fn randn(sizes: &[usize]) -> Tensor {
    let sizes: Vec<_> = sizes.iter().map(|&n| n.into()).collect();
    ops::randn(&sizes, Some(DType::F32), None).unwrap()
}

/// U-145: a chain of eight pointwise ops is one kernel.
#[test]
fn a_chain_is_one_kernel() {
    let text = "  %x = placeholder\n  %a = aten.mul.Tensor(%x, %x)\n  %b = aten.add.Tensor(%a, 1.0)\n  %c = aten.sin.default(%b)\n  \
                %d = aten.mul.Tensor(%c, %x)\n  %e = aten.exp.default(%d)\n  %f = aten.neg.default(%e)\n  \
                %g = aten.sigmoid.default(%f)\n  %h = aten.sub.Tensor(%g, %a, alpha=2)\n  return (%h,)";
    assert_eq!(check(text, &[randn(&[1000])], 0.0), (1, 0));
    assert_eq!(check(text, &[randn(&[7, 5, 3])], 0.0), (1, 0));
    assert_eq!(check(text, &[randn(&[0, 3])], 0.0), (1, 0));
    assert_eq!(check(text, &[randn(&[])], 0.0), (1, 0));
}

/// U-146: gelu forward and backward are one kernel each.
#[test]
fn gelu_both_ways() {
    let forward = "  %x = placeholder\n  %y = aten.gelu.default(%x)\n  return (%y,)";
    assert_eq!(check(forward, &[randn(&[64, 33])], 0.0), (1, 0));
    let backward = "  %g = placeholder\n  %x = placeholder\n  %y = aten.gelu_backward.default(%g, %x)\n  return (%y,)";
    assert_eq!(check(backward, &[randn(&[64, 33]), randn(&[64, 33])], 0.0), (1, 0));
}

/// U-147: a product between two activations: two kernels and one call.
#[test]
fn kernels_around_a_product() {
    let text = "  %x = placeholder\n  %w = placeholder\n  %a = aten.relu.default(%x)\n  %b = aten.mm.default(%a, %w)\n  \
                %c = aten.relu.default(%b)\n  return (%c,)";
    assert_eq!(check(text, &[randn(&[8, 16]), randn(&[16, 4])], 0.0), (2, 1));
}

/// Columns times rows are one multiplication for each element, and part of the kernel that uses them.
#[test]
fn a_product_of_columns_and_rows_is_a_loop() {
    let text = "  %x = placeholder\n  %w = placeholder\n  %b = aten.bmm.default(%x, %w)\n  %c = aten.mul.Tensor(%b, 0.5)\n  return (%c,)";
    assert_eq!(check(text, &[randn(&[6, 33, 1]), randn(&[6, 1, 70])], 0.0), (1, 0));
    assert_eq!(check(text, &[randn(&[6, 33, 2]), randn(&[6, 2, 70])], 0.0), (1, 1));
    let turned = "  %x = placeholder\n  %w = placeholder\n  %t = aten.t.default(%x)\n  %b = aten.mm.default(%t, %w)\n  return (%b,)";
    assert_eq!(check(turned, &[randn(&[1, 33]), randn(&[1, 70])], 0.0), (1, 0));
}

/// A layer is a product, which adds its bias as it writes, and one kernel for the activation.
#[test]
fn a_product_adds_its_bias() {
    let text = "  %x = placeholder\n  %w = placeholder\n  %b = placeholder\n  %t = aten.t.default(%w)\n  \
                %h = aten.addmm.default(%b, %x, %t)\n  %y = aten.relu.default(%h)\n  return (%y, %h)";
    let inputs = [randn(&[8, 16]), randn(&[4, 16]), randn(&[4])];
    assert_eq!(check(text, &inputs, 0.0), (1, 1));
    assert_eq!(check(&text.replace("%t)\n  %y", "%t, beta=2)\n  %y"), &inputs, 0.0), (1, 1));
}

/// Attention's softmax: scale, mask and rows without anything allowed in one kernel.
#[test]
fn masked_softmax_is_one_kernel() {
    let text = "  %x = placeholder\n  %m = placeholder\n  %a = aten.add.Tensor(%x, %m)\n  \
                %s = aten._safe_softmax.default(%a, -1)\n  return (%s,)";
    let mut mask = vec![0f32; 80 * 80];
    (0..80).for_each(|r| mask[r * 80 + r..(r + 1) * 80].fill(f32::NEG_INFINITY));
    assert_eq!(check(text, &[randn(&[3, 80, 80]), Tensor::from_slice(&mask, [80, 80])], 1e-5), (1, 0));
}

/// Graphs that write in place run in order: a constant that was written is no constant any more.
#[test]
fn writes_in_place_keep_their_order() {
    let text = "  %x = placeholder\n  %z = aten.zeros.default([3])\n  %a = aten.add.Tensor(%z, %x)\n  \
                %w = aten.add_.Tensor(%z, 2.0)\n  %b = aten.add.Tensor(%z, %x)\n  %v = aten.view.default(%a, [3, 1])\n  \
                %m = aten.mul_.Tensor(%v, 3.0)\n  %c = aten.add.Tensor(%a, %b)\n  return (%a, %b, %c)";
    check(text, &[randn(&[3])], 0.0);
}

/// U-148: a tensor and its transpose are one kernel, and views cost nothing.
#[test]
fn views_cost_nothing() {
    let text = "  %x = placeholder\n  %t = aten.t.default(%x)\n  %y = aten.add.Tensor(%x, %t)\n  return (%y,)";
    assert_eq!(check(text, &[randn(&[70, 70])], 0.0), (1, 0));
    // Sizes change between producer and consumer, the order of elements does not.
    let text = "  %x = placeholder\n  %b = placeholder\n  %a = aten.relu.default(%x)\n  %v = aten.view.default(%a, [24, 10])\n  \
                %y = aten.mul.Tensor(%v, %b)\n  return (%y,)";
    assert_eq!(check(text, &[randn(&[4, 6, 10]), randn(&[10])], 0.0), (1, 0));
    // A slice of a computed value is not place by place: two kernels.
    let text = "  %x = placeholder\n  %a = aten.relu.default(%x)\n  %v = aten.slice.Tensor(%a, 0, 1, 3)\n  \
                %y = aten.mul.Tensor(%v, 2.0)\n  return (%y,)";
    assert_eq!(check(text, &[randn(&[4, 6])], 0.0), (2, 0));
}

/// U-149: a parameter is updated in one kernel, where it is, and its version says so.
#[test]
fn an_update_in_place() {
    let text = "  %p = placeholder\n  %g = placeholder\n  %d = aten.mul.Tensor(%g, 0.1)\n  %n = aten.sub.Tensor(%p, %d)\n  \
                %c = aten.copy_.default(%p, %n)\n  return (%c,)";
    let module = graph(text);
    let (p, g) = (Tensor::full([5000], 1.0, DType::F32), Tensor::full([5000], 2.0, DType::F32));
    let compiled = compile(&module, &[p.clone(), g.clone()], false);
    let before = p.version();
    let out = fused(&compiled, &[p.clone(), g.clone()]);
    assert!(out[0].is_same(&p));
    assert!(numbers(&p).iter().all(|v| (v - 0.8).abs() < 1e-6));
    assert!(p.version() > before);
    let stats = &compiled.stats()[0];
    assert_eq!((stats.kernels, stats.calls), (1, 0), "{}", compiled.describe());
    // Whoever reads the old value reads it first, also from elsewhere than the place itself.
    let text = "  %p = placeholder\n  %t = aten.t.default(%p)\n  %n = aten.add.Tensor(%p, 1.0)\n  %o = aten.mul.Tensor(%t, 2.0)\n  \
                %c = aten.copy_.default(%p, %n)\n  %q = aten.mul.Tensor(%c, 3.0)\n  return (%o, %q)";
    let module = graph(text);
    let p = randn(&[40, 40]);
    let copy = p.clone_tensor();
    let want = plain(&module, std::slice::from_ref(&copy));
    let got = fused(&compile(&module, std::slice::from_ref(&p), false), std::slice::from_ref(&p));
    assert!(numbers(&got[0]) == numbers(&want[0]));
    assert!(numbers(&got[1]) == numbers(&want[1]));
    assert!(numbers(&p) == numbers(&copy));
}

/// The body of a hook in the backward graph is part of its kernel: `cos(2x)` with the hook `sin(g) + 1`.
#[test]
fn a_hook_is_part_of_the_kernel() {
    let forward = "  %x = placeholder\n  %y = aten.mul.Tensor(%x, 2.0)\n  %z = aten.cos.default(%y)\n  return (%z, %x)";
    assert_eq!(check(forward, &[randn(&[100])], 0.0), (1, 0));
    let backward = "  %x = placeholder\n  %g = placeholder\n  %y = aten.mul.Tensor(%x, 2.0)\n  %s = aten.sin.default(%y)\n  \
                    %n = aten.neg.default(%s)\n  %a = aten.mul.Tensor(%g, %n)\n  %h = aten.sin.default(%a)\n  \
                    %i = aten.add.Tensor(%h, 1.0)\n  %o = aten.mul.Tensor(%i, 2.0)\n  return (%o,)";
    assert_eq!(check(backward, &[randn(&[100]), randn(&[100])], 1.2e-7), (1, 0));
}

/// Softmax, layer norm and the sums of their gradients are one kernel per row pass.
#[test]
fn rows_are_one_kernel() {
    let forward = "  %x = placeholder\n  %w = placeholder\n  %b = placeholder\n  %s = aten._softmax.default(%x, -1, False)\n  \
                   %n = aten.native_layer_norm.default(%s, [128], %w, %b, 1e-05)\n  %y = operator.getitem(%n, 0)\n  \
                   %m = operator.getitem(%n, 1)\n  %r = operator.getitem(%n, 2)\n  return (%y, %s, %m, %r)";
    let (x, w, b) = (randn(&[6, 50, 128]), randn(&[128]), randn(&[128]));
    assert_eq!(check(forward, &[x.clone(), w.clone(), b.clone()], 1e-5), (1, 0));
    let backward = "  %g = placeholder\n  %s = placeholder\n  %m = placeholder\n  %r = placeholder\n  %w = placeholder\n  \
                    %b = placeholder\n  %n = aten.native_layer_norm_backward.default(%g, %s, [128], %m, %r, %w, %b, [True, True, True])\n  \
                    %p = operator.getitem(%n, 0)\n  %gw = operator.getitem(%n, 1)\n  %gb = operator.getitem(%n, 2)\n  \
                    %gx = aten._softmax_backward_data.default(%p, %s, -1, float32)\n  return (%gx, %gw, %gb)";
    let s = ops::softmax(&x, -1, None).unwrap();
    let n = ops::native_layer_norm(&s, &[128.into()], Some(&w), Some(&b), 1e-5).unwrap();
    assert_eq!(check(backward, &[randn(&[6, 50, 128]), s, n.1, n.2, w, b], 2e-5), (1, 0));
}

/// Reductions take what they read into their kernel, and what they give along rows goes on in it.
#[test]
fn reductions() {
    let x = randn(&[200, 96]);
    let all = "  %x = placeholder\n  %a = aten.mul.Tensor(%x, %x)\n  %s = aten.sum.default(%a)\n  %m = aten.mean.default(%x)\n  return (%s, %m)";
    assert_eq!(check(all, std::slice::from_ref(&x), 1e-5), (1, 0));
    let rows = "  %x = placeholder\n  %s = aten.sum.dim_IntList(%x, [-1], True)\n  %d = aten.sub.Tensor(%x, %s)\n  \
                %m = aten.amax.default(%d, [-1])\n  return (%d, %m)";
    assert_eq!(check(rows, std::slice::from_ref(&x), 1e-5), (1, 0));
    let columns = "  %x = placeholder\n  %a = aten.relu.default(%x)\n  %s = aten.sum.dim_IntList(%a, [0])\n  \
                   %k = aten.mean.dim(%x, [0], True)\n  return (%a, %s, %k)";
    assert_eq!(check(columns, std::slice::from_ref(&x), 1e-5), (1, 0));
    // The sum is known only when all rows are: what follows is another kernel.
    let after = "  %x = placeholder\n  %s = aten.sum.default(%x)\n  %y = aten.div.Tensor(%x, %s)\n  return (%y,)";
    assert_eq!(check(after, std::slice::from_ref(&x), 1e-5), (2, 0));
    // Middle dimensions and integers keep their own kernels.
    let middle = "  %x = placeholder\n  %s = aten.sum.dim_IntList(%x, [1])\n  return (%s,)";
    assert_eq!(check(middle, &[randn(&[5, 6, 7])], 1e-6), (0, 1));
    let nan = Tensor::new(&[f32::NAN; 80]);
    let most = "  %x = placeholder\n  %s = aten.amax.default(%x, [0])\n  return (%s,)";
    assert!(fused(&compile(&graph(most), std::slice::from_ref(&nan), false), &[nan])[0].item::<f32>().is_nan());
}

/// Two outputs that share what they read are one kernel; a value that a call needs in between is not fused across it.
#[test]
fn sideways_and_between() {
    let two = "  %x = placeholder\n  %y = placeholder\n  %a = aten.mul.Tensor(%x, %y)\n  %b = aten.add.Tensor(%x, 1.0)\n  return (%a, %b)";
    assert_eq!(check(two, &[randn(&[30]), randn(&[30])], 0.0), (1, 0));
    let between = "  %x = placeholder\n  %a = aten.relu.default(%x)\n  %p = aten.mm.default(%a, %a)\n  %b = aten.add.Tensor(%a, %p)\n  \
                   %c = aten.mul.Tensor(%b, 2.0)\n  return (%c,)";
    assert_eq!(check(between, &[randn(&[9, 9])], 0.0), (2, 1));
    // Two chains that meet: one kernel, although they begin apart.
    let meet = "  %x = placeholder\n  %y = placeholder\n  %a = aten.sin.default(%x)\n  %b = aten.cos.default(%y)\n  \
                %c = aten.mul.Tensor(%a, %b)\n  return (%c,)";
    assert_eq!(check(meet, &[randn(&[30]), randn(&[30])], 0.0), (1, 0));
    // Numbers everywhere are no memory.
    let ones = "  %x = placeholder\n  %o = aten.ones_like.default(%x)\n  %z = aten.full.default([1], 3.0)\n  \
                %a = aten.add.Tensor(%x, %o)\n  %b = aten.mul.Tensor(%a, %z)\n  return (%b,)";
    assert_eq!(check(ones, &[randn(&[30])], 0.0), (1, 0));
}

/// L-11: four ops in bf16 are the plain ones to the bit in bitwise mode, and nearer to the truth otherwise.
#[test]
fn half_types() {
    let text = "  %x = placeholder\n  %y = placeholder\n  %a = aten.mul.Tensor(%x, %y)\n  %b = aten.add.Tensor(%a, %x)\n  \
                %c = aten.sin.default(%b)\n  %d = aten.mul.Tensor(%c, 1.1)\n  return (%d,)";
    let module = graph(text);
    for dtype in [DType::BF16, DType::F16] {
        let inputs = [randn(&[3000]).to_dtype(dtype), randn(&[3000]).to_dtype(dtype)];
        let want = &plain(&module, &inputs)[0];
        let exact = &fused(&compile(&module, &inputs, true), &inputs)[0];
        assert!(numbers(exact) == numbers(want), "{dtype}");
        let fast = &fused(&compile(&module, &inputs, false), &inputs)[0];
        let wide: Vec<Tensor> = inputs.iter().map(|t| t.to_dtype(DType::F64)).collect();
        let truth = numbers(&plain(&module, &wide)[0]);
        let error = |t: &Tensor| numbers(t).iter().zip(&truth).map(|(a, b)| (a - b).abs()).sum::<f64>();
        assert!(error(fast) < error(want), "{} and {}", error(fast), error(want));
    }
}

/// Results do not depend on the number of threads, and a plan is made once per geometry.
#[test]
fn threads_and_plans() {
    let text = "  %x = placeholder\n  %a = aten.exp.default(%x)\n  %s = aten.sum.default(%a)\n  %c = aten.sum.dim_IntList(%a, [0])\n  \
                %m = aten._softmax.default(%a, -1, False)\n  return (%s, %c, %m)";
    let module = graph(text);
    let x = randn(&[700, 300]);
    let compiled = compile(&module, std::slice::from_ref(&x), false);
    set_num_threads(1);
    let one = fused(&compiled, std::slice::from_ref(&x));
    set_num_threads(2);
    let two = fused(&compiled, std::slice::from_ref(&x));
    for (a, b) in one.iter().zip(&two) {
        assert!(numbers(a) == numbers(b));
    }
    assert_eq!(compiled.stats().len(), 1);
    fused(&compiled, &[randn(&[5, 300])]);
    fused(&compiled, &[randn(&[300, 700]).t()]);
    fused(&compiled, &[x]);
    assert_eq!(compiled.stats().len(), 3);
}

/// A sum of numbers that are known has as many terms as there are places, also if nobody sees these.
#[test]
fn sums_of_known_numbers() {
    let f = firebrand_compile::compile_with(
        |x: &Tensor| (x.zeros_like().sum(), x.ones_like().sum_dim(0, false)),
        firebrand_compile::Options::default(),
    );
    for _ in 0..2 {
        let (zero, rows) = f.call(&Tensor::ones([3, 4], DType::F64));
        assert_eq!((zero.item::<f64>(), rows.to_vec::<f64>()), (0.0, vec![3.0; 4]));
    }
}

/// Batch norm in training: its statistics are a call, its map shares a kernel with the sum and the relu behind it, and the
/// running statistics move as in a plain run, all to the bit.
#[test]
fn batch_norm_shares_a_kernel_with_what_follows() {
    let head = "  %x = placeholder\n  %w = placeholder\n  %b = placeholder\n  %m = placeholder\n  %v = placeholder\n  \
                %s = placeholder\n  %m1 = aten.clone.default(%m)\n  %v1 = aten.clone.default(%v)\n";
    let tail = "  %y = operator.getitem(%n, 0)\n  %z = aten.add.Tensor(%y, %s)\n  %r = aten.relu.default(%z)\n  \
                %mean = operator.getitem(%n, 1)\n  %inv = operator.getitem(%n, 2)\n  return (%r, %mean, %inv, %m1, %v1)";
    let norm = |args: &str, train: &str| {
        format!("{head}  %n = aten.native_batch_norm.default(%x, {args}, {train}, 0.3, 1e-05)\n{tail}")
    };
    for sizes in [&[4, 3, 32, 32][..], &[2, 5, 1100]] {
        let c = [sizes[1]];
        let inputs = [randn(sizes), randn(&c), randn(&c), randn(&c), randn(&c).square(), randn(sizes)];
        // One kernel over the elements; over the channels one for the map and one for each running statistic.
        assert_eq!(check(&norm("%w, %b, %m1, %v1", "True"), &inputs, 0.0), (4, 1), "{sizes:?}");
        assert_eq!(check(&norm("None, None, %m1, %v1", "True"), &inputs, 0.0).1, 1, "{sizes:?}");
        assert_eq!(check(&norm("%w, None, None, None", "True"), &inputs, 0.0).1, 1, "{sizes:?}");
        // Outside of training, and with one tensor for both statistics, it is a call.
        assert_eq!(check(&norm("%w, %b, %m1, %v1", "False"), &inputs, 0.0).1, 1, "{sizes:?}");
        assert_eq!(check(&norm("%w, %b, %m1, %m1", "True"), &inputs, 0.0).1, 1, "{sizes:?}");
    }
    // Small planes: the op's own loop is the better one.
    let c = [3];
    let inputs = [randn(&[4, 3, 8, 8]), randn(&c), randn(&c), randn(&c), randn(&c).square(), randn(&[4, 3, 8, 8])];
    assert_eq!(check(&norm("%w, %b, %m1, %v1", "True"), &inputs, 0.0), (3, 1));
}

/// U-157: a tensor that gets another layout or other memory in place has it for everything that reads it later.
#[test]
fn layouts_that_change_in_place() {
    let x = Tensor::new(&[[0.0f64, 1.0, 2.0], [3.0, 4.0, 5.0]]);
    for call in [
        "t_.default(%a)",
        "transpose_.default(%a, 0, 1)",
        "swapaxes_.default(%a, 0, 1)",
        "swapdims_.default(%a, 0, 1)",
        "unsqueeze_.default(%a, 1)",
        "squeeze_.default(%a)",
        "squeeze_.dim(%a, 0)",
        "squeeze_.dims(%a, [0])",
        "as_strided_.default(%a, [2, 2], [1, 2], 2)",
        "resize_.default(%a, [3])",
        "resize_.default(%a, [3, 3])",
        "resize_as_.default(%a, %v)",
        "set_.source_Tensor(%a, %v)",
        "set_.source_Tensor_storage_offset(%a, %b, 2, [3])",
        "set_.source_Tensor_storage_offset(%a, %b, 1, [2, 2], [2, 1])",
        "set_.default(%a)",
        "detach_.default(%a)",
        // Empty, and written by an op that makes it as large as its result.
        "sin.out(%v, out=%o)",
        "mm.out(%b, %t, out=%o)",
        "sin.out(%v, out=%w)",
    ] {
        let text = format!(
            "  %x = placeholder\n  %a = aten.clone.default(%x)\n  %b = aten.mul.Tensor(%x, 2.0)\n  %v = aten.select.int(%b, 0, 1)\n  \
             %o = aten.new_zeros.default(%x, [0])\n  %w = aten.slice.Tensor(%o, 0, 0, 0)\n  %t = aten.t.default(%b)\n  %r = aten.{call}\n  %c = aten.add.Tensor(%a, 1.0)\n  %d = aten.exp.default(%r)\n  %e = aten.sin.default(%b)\n  \
             return (%a, %r, %o, %w, %c, %d, %e)"
        );
        let module = graph(&text);
        let want = plain(&module, std::slice::from_ref(&x));
        let compiled = compile(&module, std::slice::from_ref(&x), false);
        for _ in 0..2 {
            for (k, (g, w)) in fused(&compiled, std::slice::from_ref(&x)).iter().zip(&want).enumerate() {
                assert_eq!(g.strides(), w.strides(), "U-157: {call}, result {k}");
                // Of new memory only the front is known.
                assert!(call.contains("[3, 3]") || far(g, w) == 0.0, "U-157: {call}, result {k}:\n{g}\nexpected\n{w}");
            }
        }
        assert_eq!(x.to_vec::<f64>(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "U-157: {call} wrote an input");
    }
}
