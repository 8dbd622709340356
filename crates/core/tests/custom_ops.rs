//! Ops registered at run time: called, differentiated in both modes and batched like any other; bad ones are refused.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand_core::autograd::{BackwardOptions, GradcheckOptions, gradcheck, gradgradcheck};
use firebrand_core::dispatch::{self, Args, Op, Value};
use firebrand_core::func;
use firebrand_core::library::{CustomOp, Definition, define};
use firebrand_core::schema::{Constant, Schema};
use firebrand_core::{Device, ErrorKind, Result, Spec, Tensor};

fn cube(a: &Args<'_>) -> Result<Vec<Tensor>> {
    let x = a.tensor(0, "x")?;
    Ok(vec![x * x * x * a.float(1, "scale")?])
}

fn like(a: &Args<'_>) -> Result<Vec<Spec>> {
    Ok(vec![a.tensor(0, "x")?.spec().clone()])
}

/// 3 x² scale, times what flows in: the derivative of the cube in both modes.
fn slope(a: &Args<'_>, flow: &Option<Tensor>) -> Result<Option<Tensor>> {
    let (x, scale) = (a.tensor(0, "x")?, a.float(1, "scale")?);
    Ok(flow.as_ref().map(|g| g * x * x * (3.0 * scale)))
}

fn cube_op(name: &str) -> Definition {
    define(format!("test::{name}(Tensor x, float scale=1.0) -> Tensor"))
        .shape(like)
        .kernel(cube)
        .backward(|call, grads| Ok(vec![slope(&call.args(), &grads[0])?]))
        .jvp(|call, tangents| Ok(vec![slope(&call.args(), &tangents[0])?]))
}

fn apply(op: CustomOp, x: &Tensor) -> Tensor {
    op.call1(&[x.into(), 0.5.into()]).unwrap()
}

#[test]
fn is_an_op_like_any_other() {
    let op = cube_op("cube").register().unwrap();
    assert_eq!(Op::from_name("test::cube.default"), Some(op.op()));
    assert_eq!(Schema::of_op(op.op()).args[1].default, Some(Constant::Float(1.0)));
    assert!(Op::all().all(|o| o != op.op()), "the list of this build's ops is unchanged");
    let x = Tensor::new(&[1.0f64, 2.0]).requires_grad_();
    let y = op.call1(&[(&x).into()]).unwrap();
    assert_eq!(y.to_vec::<f64>(), [1.0, 8.0]);
    assert_eq!(y.grad_fn().unwrap().name(), "test_cubeBackward");
    let by_name = dispatch::call_by_name("test::cube", &[(&x).into(), 2.into()]).unwrap();
    assert!(matches!(&by_name[..], [Value::Tensor(t)] if t.to_vec::<f64>() == [2.0, 16.0]));
    let meta = op.call1(&[x.to_device(Device::Meta).into()]).unwrap();
    assert!(meta.is_meta() && meta.shape() == [2]);
}

#[test]
fn differentiates_in_both_modes_and_twice() {
    let op = cube_op("cube_derivatives").register().unwrap();
    let x = Tensor::new(&[0.3f64, -1.2, 2.0]).requires_grad_();
    let f = |x: &[Tensor]| Ok(vec![apply(op, &x[0])]);
    let both = GradcheckOptions { check_forward_ad: true, check_batched_grad: true, ..Default::default() };
    assert!(gradcheck(f, std::slice::from_ref(&x), &both).unwrap());
    assert!(gradgradcheck(f, &[x], None, &GradcheckOptions::default()).unwrap());
}

/// Only what is named is kept; results can be.
#[test]
fn saves_what_it_is_told() {
    let op = define("test::exponential(Tensor x) -> Tensor")
        .kernel(|a| Ok(vec![a.tensor(0, "x")?.exp()]))
        .save_for_backward(&["result"])
        .backward(|call, grads| {
            assert!(call.args().is_none(0) && call.needs_input_grad() == [true]);
            Ok(vec![Some(grads[0].as_ref().unwrap() * call.result(0)?)])
        })
        .register()
        .unwrap();
    let x = Tensor::new(&[0.1f64, 0.7]).requires_grad_();
    let f = |x: &[Tensor]| Ok(vec![op.call1(&[(&x[0]).into()])?]);
    assert!(gradcheck(f, std::slice::from_ref(&x), &GradcheckOptions::default()).unwrap());
    assert!(gradgradcheck(f, &[x], None, &GradcheckOptions::default()).unwrap());
}

/// With a rule by the rule, without one sample by sample; gradients of samples come along.
#[test]
fn comes_through_vmap() {
    let looped = cube_op("cube_looped").register().unwrap();
    let ruled = cube_op("cube_ruled")
        .vmap(|info, dims, a| {
            assert_eq!((info.batch_size, dims), (2, &[Some(0)][..]));
            Ok((cube(a)?, vec![dims[0]]))
        })
        .register()
        .unwrap();
    let x = Tensor::new(&[1.0f64, 2.0, 3.0, 4.0]).reshape([2, 2]);
    for op in [looped, ruled] {
        let f = |x: &Tensor| apply(op, x).sum();
        assert_eq!(func::vmap(f).call(&x).unwrap().to_vec::<f64>(), [4.5, 45.5]);
        let slopes: Tensor = func::vmap(func::grad(f)).call(&x).unwrap();
        assert_eq!(slopes.to_vec::<f64>(), [1.5, 6.0, 13.5, 24.0]);
    }
}

#[test]
fn lists_options_and_several_results() {
    let op =
        define("test::sums(Tensor[] xs, Tensor? shift=None, *, int[] weights=[1, 1]) -> (Tensor total, Tensor first)")
            .kernel(|a| {
                let (xs, weights) = (a.tensors(0, "xs")?, a.ints(2, "weights")?);
                let total = &xs[0] * weights[0] + &xs[1] * weights[1];
                let total = a.opt_tensor(1, "shift")?.map_or(total.clone(), |s| total + s);
                Ok(vec![total, xs[0].clone_tensor()])
            })
            .backward(|call, grads| {
                let (weights, g) = (call.args().ints(2, "weights")?, grads[0].as_ref().unwrap());
                let mut due = vec![Some(g * weights[0] + grads[1].as_ref().unwrap()), Some(g * weights[1])];
                due.extend((!call.args().is_none(1)).then(|| Some(g.clone())));
                Ok(due)
            })
            .register()
            .unwrap();
    let inputs: Vec<Tensor> = (1..4).map(|k| Tensor::new(&[k as f64, 0.5]).requires_grad_()).collect();
    let f = |x: &[Tensor]| {
        let outs = op.call(&[x[..2].into(), (&x[2]).into(), (&[2i64, 3][..]).into()])?;
        Ok(outs.into_iter().filter_map(|v| if let Value::Tensor(t) = v { Some(t) } else { None }).collect::<Vec<_>>())
    };
    assert_eq!(f(&inputs).unwrap()[0].to_vec::<f64>(), [11.0, 3.0]);
    assert!(gradcheck(f, &inputs, &GradcheckOptions::default()).unwrap());
}

#[test]
fn refuses_bad_schemas() {
    let table = [
        ("no schema", "expected `namespace::name(arguments) -> results`"),
        ("cube(Tensor x) -> Tensor", "needs a namespace"),
        ("my lib::f(Tensor x) -> Tensor", "'my lib' is not a valid name"),
        ("aten::f(Tensor x) -> Tensor", "the namespace 'aten' is reserved"),
        ("test::f(Tensor) -> Tensor", "should be a type and a name"),
        ("test::f(Tensor x, int x) -> Tensor", "two arguments are called 'x'"),
        ("test::f(Tensor(a!) x) -> Tensor", "without alias annotations"),
        ("test::f(Tensor x, Thing y) -> Tensor", "argument 'y' has a type"),
        ("test::f(Tensor x, int k=one) -> Tensor", "'one' is not a valid default"),
        ("test::f(Tensor x) -> Tensor[]", "expected one or more results of type Tensor"),
        ("test::f(Tensor x) -> ()", "expected one or more results of type Tensor"),
    ];
    for (schema, message) in table {
        let error = define(schema).kernel(cube).register().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Registration { .. }));
        assert!(error.to_string().contains(message), "{error}");
    }
    let error = |d: Definition| d.register().unwrap_err().to_string();
    assert!(error(define("test::f(Tensor x) -> Tensor")).contains("needs a kernel"));
    let saves = define("test::f(Tensor x) -> Tensor").kernel(cube).save_for_backward(&["y"]);
    assert!(error(saves).contains("'y' is neither a tensor argument nor a result"));
    cube_op("twice").register().unwrap();
    assert!(error(cube_op("twice")).contains("there already is an op 'test::twice'"));
}

#[test]
fn calls_say_what_is_wrong() {
    let op = define("test::half_done(Tensor x, float scale=1.0) -> Tensor").kernel(cube).register().unwrap();
    let x = Tensor::scalar(2.0f64).requires_grad_();
    let error = |args: &[Value]| op.call(args).unwrap_err().to_string();
    assert!(error(&[]).contains("argument 0 ('x') should be a tensor"));
    assert!(error(&[(&x).into(), "no".into()]).contains("argument 1 ('scale') should be a float"));
    assert!(error(&[(&x).into(), 1.0.into(), 2.0.into()]).contains("3 arguments given, the schema has 2"));
    assert!(error(&[x.to_device(Device::Meta).into()]).contains("shape function"));
    let y = op.call1(&[(&x).into()]).unwrap();
    assert!(
        y.try_backward(&BackwardOptions::default())
            .unwrap_err()
            .to_string()
            .contains("test::half_done does not define backward")
    );
    let liar = define("test::liar(Tensor x) -> Tensor")
        .shape(like)
        .kernel(|a| Ok(vec![a.tensor(0, "x")?.reshape([1])]))
        .register()
        .unwrap();
    let error = liar.call(&[(&x).into()]).unwrap_err().to_string();
    assert!(error.contains("the kernel returned float64 [1], the shape function says float64 []"), "{error}");
    let constant = define("test::constant(Tensor x) -> Tensor")
        .kernel(|a| Ok(vec![a.tensor(0, "x")?.sign()]))
        .non_differentiable()
        .register()
        .unwrap();
    assert!(!constant.call1(&[(&x).into()]).unwrap().requires_grad());
}
