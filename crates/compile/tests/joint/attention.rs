//! Attention stays whole in a joint graph: the kernel's results, no matrix of weights; derivatives of gradients go through
//! its products.

use super::*;
use firebrand_compile::fused::FusedOptions;
use firebrand_compile::joint::{aot_eager_decomp, firebrand};
use firebrand_core::{DType, ops};
use firebrand_graph::ir::Target;

/// Heads of one projection, as a transformer's layer has them, and attention among them.
fn attend(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let parts = ops::unbind(&ops::permute(&ops::view(&x[0], &[2, 5, 3, 2, 4].map(Into::into))?, &[2, 0, 3, 1, 4])?, 0)?;
    let a = ops::scaled_dot_product_attention(&parts[0], &parts[1], &parts[2], None, 0.0, true, None, false)?;
    Ok(vec![ops::reshape(&ops::transpose(&a, 1, 2)?, &[2, 5, 8].map(Into::into))?])
}

fn projected() -> Tensor {
    Tensor::randn([2, 5, 24], DType::F32).requires_grad_()
}

fn calls(graph: &GraphModule, op: &str) -> usize {
    let g = &graph.graph;
    g.nodes().filter(|&n| g[n].target().and_then(Target::overload).is_some_and(|o| o.base() == op)).count()
}

#[test]
fn is_one_op_each_way() {
    let x = projected();
    let inputs = std::slice::from_ref(&x);
    let plain = attend(inputs).unwrap();
    let expected = grads(&[(&plain[0] * &plain[0])], inputs)[0].clone().unwrap();
    for backend in [aot_eager(), firebrand(FusedOptions::default()), firebrand(FusedOptions { bitwise: true })] {
        let executable = compile(&backend, &capture(attend, inputs), inputs);
        let (forward, backward) = (executable.forward_graph().unwrap(), executable.backward_graph().unwrap());
        assert_eq!((calls(&forward, "_attention"), calls(&backward, "_attention_backward")), (1, 1));
        assert_eq!(calls(&forward, "bmm") + calls(&backward, "bmm") + calls(&backward, "_softmax_backward_data"), 0);
        let out = call(&executable, inputs);
        assert_eq!(bits(&out[0]), bits(&plain[0]));
        assert_eq!(bits(&grads(&[(&out[0] * &out[0])], inputs)[0].clone().unwrap()), bits(&expected));
    }
}

#[test]
fn is_taken_apart_where_that_is_asked_for() {
    let x = projected();
    let inputs = std::slice::from_ref(&x);
    let executable = compile(&aot_eager_decomp(), &capture(attend, inputs), inputs);
    assert_eq!(calls(&executable.forward_graph().unwrap(), "_attention"), 0);
}

#[test]
fn gradients_can_be_differentiated() {
    let x = projected();
    let inputs = std::slice::from_ref(&x);
    let executable = compile(&firebrand(FusedOptions::default()), &capture(attend, inputs), inputs);
    let second = |out: &Tensor| {
        let g = grad(&(out * out).sum(), &x, &GradOptions::create_graph()).unwrap()[0].clone().unwrap();
        grads(&[(&g * &g)], inputs)[0].clone().unwrap()
    };
    let (found, expected) = (second(&call(&executable, inputs)[0]), second(&attend(inputs).unwrap()[0]));
    let off = (&found - &expected).abs().max().item::<f32>();
    assert!(off <= 1e-4 * expected.abs().max().item::<f32>(), "off by {off}");
}

/// The gradients of one projection's queries, keys and values are written where it reads them: nothing is stacked or copied.
#[test]
fn gradients_of_one_projection_are_joined_in_place() {
    let (sizes, turned) = ([2usize, 2, 5, 4], "[1, 3, 0, 2, 4]");
    let graph = |then: &str| {
        let text = format!(
            "graph {{\n  %g = placeholder\n  %q = placeholder\n  %k = placeholder\n  %v = placeholder\n  \
             %n = aten._attention_backward.default(%g, %q, %k, %v, None, 0.5, True)\n  %dq = operator.getitem(%n, 0)\n  \
             %dk = operator.getitem(%n, 1)\n  %dv = operator.getitem(%n, 2)\n  %s = aten.stack.default([%dq, %dk, %dv])\n  \
             %p = aten.permute.default(%s, {turned})\n{then}}}\n"
        );
        firebrand_graph::text::parse_module(&text).unwrap()
    };
    let copied = "  %c = aten.clone.default(%p, memory_format=contiguous_format)\n";
    let inputs: Vec<Tensor> = (0..4).map(|_| Tensor::randn(sizes, DType::F32)).collect();
    let values: Vec<Value> = inputs.iter().map(Value::from).collect();
    let [q, k, v] = [&inputs[1], &inputs[2], &inputs[3]];
    let (dq, dk, dv) = ops::_attention_backward(&inputs[0], q, k, v, None, 0.5, true).unwrap();
    let joined = ops::permute(&ops::stack(&[dq, dk, dv], 0).unwrap(), &[1, 3, 0, 2, 4]).unwrap();
    let table = [
        ("  return (%c,)\n", 1, 0),     // the memory itself
        ("  return (%c, %dk)\n", 2, 1), // a part has another reader
        ("  return (%c, %p)\n", 2, 1),  // the joined value has another reader
    ];
    for (results, calls, kernels) in table {
        let fused = firebrand_compile::fused::Fused::default()
            .compile_graph(&graph(&format!("{copied}{results}")), &[])
            .unwrap();
        let out = fused.run(&values, &Call::default()).unwrap();
        let out = out[0].tensor().unwrap();
        assert!(out.is_contiguous() && bits(out) == bits(&joined.contiguous()), "{results}");
        let stats = fused.stats().remove(0);
        assert_eq!((stats.calls, stats.kernels), (calls, kernels), "{results}: {}", fused.describe());
    }
}
