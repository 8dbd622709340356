//! Gradients of single functions: bit-equal to a plain run, and PyTorch's numbers.

use super::*;
use firebrand_core::{DType, ops};

struct Row {
    case: &'static str,
    f: F,
    inputs: &'static [&'static [f32]],
    expected: &'static [&'static [f32]],
}

/// Weights as a tensor of the graph: 1, 2, 3, ….
fn counted(y: &Tensor) -> Result<Tensor> {
    let n = y.numel() as i64;
    let weights = ops::arange_start_step(1.into(), (n + 1).into(), 1.into(), Some(y.dtype()), Some(y.device()))?;
    y.try_mul(&weights)
}

fn indices(x: &Tensor, list: &[i64]) -> Result<Tensor> {
    // Made of ops, so that the graph has no constants.
    let mut parts = Vec::new();
    for &i in list {
        parts.push(ops::full(&[1.into()], i.into(), Some(DType::I64), Some(x.device()))?);
    }
    ops::cat(&parts, 0)
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row { case: "U-121", f: |x| Ok(vec![&(&x[0] * &x[0]) * &x[0]]), inputs: &[&[1.0, 2.0, 3.0]], expected: &[&[3.0, 12.0, 27.0]] },
    Row { case: "U-122", f: |x| Ok(vec![ops::where_self(&x[0].try_gt_scalar(0.0)?, &(&x[0] * 2.0), &(&x[0] * 5.0))?]), inputs: &[&[-1.0, 0.0, 2.0]], expected: &[&[5.0, 5.0, 2.0]] },
    Row { case: "U-123", f: |x| Ok(vec![x[0].try_relu()?]), inputs: &[&[-1.0, 0.0, 2.0]], expected: &[&[0.0, 0.0, 1.0]] },
    Row { case: "U-124", f: |x| Ok(vec![x[0].try_abs()?]), inputs: &[&[-1.0, 0.0, 2.0]], expected: &[&[-1.0, 0.0, 1.0]] },
    Row { case: "U-125", f: |x| Ok(vec![x[0].try_max()?]), inputs: &[&[2.0, 2.0, 1.0]], expected: &[&[0.5, 0.5, 0.0]] },
    Row { case: "U-125", f: |x| Ok(vec![ops::amax(&x[0], &[], false)?]), inputs: &[&[2.0, 2.0, 1.0]], expected: &[&[0.5, 0.5, 0.0]] },
    Row { case: "U-126", f: |x| Ok(vec![counted(&ops::sort(&x[0], -1, false)?.0)?]), inputs: &[&[3.0, 1.0, 2.0]], expected: &[&[3.0, 1.0, 2.0]] },
    Row { case: "U-127", f: |x| Ok(vec![x[0].try_cumsum(0)?]), inputs: &[&[1.0, 1.0, 1.0]], expected: &[&[3.0, 2.0, 1.0]] },
    Row { case: "U-128", f: |x| Ok(vec![x[0].try_prod()?]), inputs: &[&[2.0, 3.0, 0.0]], expected: &[&[0.0, 0.0, 6.0]] },
    Row { case: "U-129", f: |x| Ok(vec![x[0].try_softmax(0)?.try_select(0, 0)?]), inputs: &[&[0.0, 0.0, 0.0]], expected: &[&[0.222_222_22, -0.111_111_11, -0.111_111_11]] },
    Row { case: "U-130", f: |x| {
        let picked = x[0].try_gather(0, &indices(&x[0], &[0, 0, 2])?)?;
        let parts = [1.0, 10.0, 100.0].map(|w| ops::full(&[1.into()], w.into(), Some(DType::F32), Some(x[0].device())));
        Ok(vec![picked.try_mul(&ops::cat(&parts.into_iter().collect::<Result<Vec<_>>>()?, 0)?)?])
    }, inputs: &[&[1.0, 2.0, 3.0]], expected: &[&[11.0, 0.0, 100.0]] },
    Row { case: "U-131", f: |x| Ok(vec![x[0].try_clamp(Some(0.0.into()), Some(1.0.into()))?]), inputs: &[&[-1.0, 0.0, 0.5, 1.0, 2.0]], expected: &[&[0.0, 0.0, 1.0, 0.0, 0.0]] },
    Row { case: "U-131", f: |x| Ok(vec![x[0].try_clamp(Some(0.0.into()), None)?]), inputs: &[&[0.0, 1.0, 2.0]], expected: &[&[0.0, 1.0, 1.0]] },
    Row { case: "U-132", f: |x| Ok(vec![x[0].try_sqrt()?]), inputs: &[&[0.0, 1.0, 4.0]], expected: &[&[f32::INFINITY, 0.5, 0.25]] },
    Row { case: "U-133", f: |x| Ok(vec![ops::linalg_vector_norm(&x[0], 2.0.into(), None, false, None)?]), inputs: &[&[0.0, 0.0]], expected: &[&[0.0, 0.0]] },
    Row { case: "U-134", f: |x| {
        let y = &x[0] * 2.0;
        y.try_add_scalar_(1.0, 1.0)?;
        y.try_mul_scalar_(3.0)?;
        Ok(vec![y])
    }, inputs: &[&[1.0]], expected: &[&[6.0]] },
    Row { case: "U-135", f: |x| Ok(vec![counted(&ops::roll(&ops::flip(&x[0], &[0])?, &[1.into()], &[0])?)?]), inputs: &[&[1.0, 1.0, 1.0]], expected: &[&[1.0, 3.0, 2.0]] },
    Row { case: "U-136", f: |x| Ok(vec![ops::outer(&x[0], &x[1])?]), inputs: &[&[1.0, 2.0], &[3.0, 4.0, 5.0]], expected: &[&[12.0, 12.0], &[3.0, 3.0, 3.0]] },
    Row { case: "U-137", f: |x| Ok(vec![ops::var(&x[0], true)?]), inputs: &[&[1.0, 2.0, 3.0]], expected: &[&[-1.0, 0.0, 1.0]] },
    Row { case: "U-138", f: |x| Ok(vec![ops::maximum(&x[0], &x[1])?]), inputs: &[&[1.0, 2.0], &[1.0, 3.0]], expected: &[&[0.5, 0.0], &[0.5, 1.0]] },
];

/// U-121 to U-138: every back end is bit-equal to the plain run, which gives PyTorch's gradients.
#[test]
fn numerics() {
    for Row { case, f, inputs, expected } in ROWS {
        let given = || inputs.iter().map(|v| leaf(v)).collect::<Vec<_>>();
        let x = given();
        let plain = f(&x).unwrap();
        let wanted: Vec<Vec<u64>> = grads(&plain, &x).iter().map(|g| bits(g.as_ref().unwrap())).collect();
        for (found, expected) in grads(&f(&x).unwrap(), &x).iter().zip(*expected) {
            for (a, b) in found.as_ref().unwrap().to_vec::<f32>().iter().zip(*expected) {
                assert!(a == b || (a - b).abs() <= 1e-7, "{case}: {a} for {b}");
            }
        }
        let graph = capture(f, &x);
        for (name, backend) in backends() {
            let x = given();
            let executable = compile(&backend, &graph, &x);
            let outs = call(&executable, &x);
            assert_eq!(bits(&outs[0]), bits(&plain[0]), "{case} on {name}: the value");
            let found: Vec<Vec<u64>> = grads(&outs, &x).iter().map(|g| bits(g.as_ref().unwrap())).collect();
            assert_eq!(found, wanted, "{case} on {name}: the gradients");
        }
    }
}

/// U-121 to U-138 on the optimising back end, up to rounding.
#[test]
fn numerics_of_the_fused_back_end() {
    for Row { case, f, inputs, expected } in ROWS {
        let x: Vec<Tensor> = inputs.iter().map(|v| leaf(v)).collect();
        let backend = firebrand_compile::joint::firebrand(Default::default());
        let executable = compile(&backend, &capture(f, &x), &x);
        for (found, expected) in grads(&call(&executable, &x), &x).iter().zip(*expected) {
            for (a, b) in found.as_ref().unwrap().to_vec::<f32>().iter().zip(*expected) {
                assert!(a == b || (a - b).abs() <= 1e-6, "{case}: {a} for {b}");
            }
        }
    }
}

/// U-144: a bf16 region, then a product in f32.
#[test]
fn autocast_regions() {
    use firebrand_graph::ir::*;
    let mut body = Graph::new();
    let a = body.placeholder("a");
    let product = body.call_function(Target::aten("mm.default"), [a.into(), a.into()]);
    body.output(Argument::tuple([product.into()]));
    let mut module = GraphModule::default();
    module.attributes.set("region", Attribute::Graph(Arc::new(GraphModule::new(body))));
    let g = &mut module.graph;
    let x = g.placeholder("x");
    let region = g.get_attr("region");
    let args: Vec<Argument> =
        vec!["cpu".into(), ScalarType::BFloat16.into(), true.into(), false.into(), region.into(), x.into()];
    let low = g.call_function(Hop::WrapWithAutocast, args);
    let low = g.call_function(Function::GetItem, [low.into(), 0i64.into()]);
    let named = [("dtype".into(), Argument::DType(ScalarType::Float32))];
    let high = g.create_node(Kind::CallFunction(Target::aten("_to_copy.default")), [low.into()], named, None);
    let square = g.call_function(Target::aten("mul.Tensor"), [high.into(), high.into()]);
    g.output(Argument::tuple([square.into(), low.into()]));
    let mut all = backends();
    all.push(("firebrand", firebrand_compile::joint::firebrand(Default::default())));
    for (name, backend) in all {
        let x = [Tensor::ones([2, 2], DType::F32).requires_grad_()];
        let out = call(&compile(&backend, &module, &x), &x);
        assert_eq!((out[0].dtype(), out[1].dtype()), (DType::F32, DType::BF16), "{name}");
        let g = grads(&out, &x)[0].clone().unwrap();
        assert_eq!((g.dtype(), g.to_vec::<f32>()), (DType::F32, vec![16.0; 4]), "{name}");
    }
}

/// U-75: a custom function that comes with the call: `10 g x`.
#[test]
fn custom_functions() {
    use firebrand_core::autograd::{Context, Function as Custom};
    use firebrand_graph::ir::{Argument, Function, Graph};
    struct Ten;
    impl Custom for Ten {
        fn forward(&self, ctx: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
            ctx.save_for_backward(&[Some(&inputs[0])]);
            Ok(vec![&inputs[0] * &inputs[0]])
        }
        fn backward(&self, ctx: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
            let x = ctx.saved_tensors()?[0].clone().unwrap();
            Ok(vec![grads[0].as_ref().map(|g| &(g * &x) * 10.0)])
        }
    }
    let mut g = Graph::new();
    let x = g.placeholder("x");
    let applied = g.call_function(Function::ApplyFunction, [0i64.into(), x.into()]);
    let first = g.call_function(Function::GetItem, [applied.into(), 0i64.into()]);
    g.output(Argument::tuple([first.into()]));
    let x = leaf(&[1.0, 2.0]);
    let inputs = std::slice::from_ref(&x);
    let example = ExampleInput { value: ExampleValue::Tensor(TensorMeta::of(&x)), is_static: false };
    let executable = aot_eager().compile_graph(&GraphModule::new(g), &[example]).unwrap();
    let functions: Arc<[Arc<dyn Custom>]> = Arc::new([Arc::new(Ten)]);
    let out = call_with(&executable, inputs, &Call::new(Vec::new(), functions));
    assert_eq!(grads(&out, inputs)[0].as_ref().unwrap().to_vec::<f32>(), [10.0, 20.0]);
}
