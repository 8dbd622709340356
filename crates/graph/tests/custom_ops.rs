//! Ops registered at run time in programs: captured from Rust, written as text, read from an archive.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand_core::Tensor;
use firebrand_core::dispatch::Op;
use firebrand_core::library::{CustomOp, define};
use firebrand_graph::interpret::{Eager, Value, run_module};
use firebrand_graph::text::{Form, parse_module, print};
use firebrand_graph::{ExportedProgram, NamedTensor, export};

/// `factor x²`, once per test process.
fn square(name: &str) -> CustomOp {
    define(format!("mine::{name}(Tensor x, *, float factor=1.0) -> Tensor"))
        .shape(|a| Ok(vec![a.tensor(0, "x")?.spec().clone()]))
        .kernel(|a| {
            let x = a.tensor(0, "x")?;
            Ok(vec![x * x * a.float(1, "factor")?])
        })
        .backward(|call, grads| {
            let a = call.args();
            let (x, factor) = (a.tensor(0, "x")?, a.float(1, "factor")?);
            Ok(vec![grads[0].as_ref().map(|g| g * x * (2.0 * factor))])
        })
        .register()
        .unwrap()
}

fn weight(w: &Tensor) -> NamedTensor {
    NamedTensor { name: "w".to_string(), tensor: w.clone(), is_parameter: true }
}

/// Captured as one node, written to an archive, read back by name, run and differentiated.
#[test]
fn is_captured_and_comes_back_from_an_archive() {
    let op = square("square");
    let w = Tensor::new(&[2.0f64, 3.0]).requires_grad_();
    let f = |x: &[Tensor]| Ok(vec![op.call1(&[(&x[0] * &w).into(), 0.5.into()])?]);
    let program = export(f, &[Tensor::new(&[1.0f64, 1.0])], &[weight(&w)]).unwrap();
    let text = print(&program, Form::Short);
    assert!(text.contains("%square = mine.square.default(%mul, factor=0.5)"), "{text}");

    let again = ExportedProgram::from_bytes(program.to_bytes().unwrap()).unwrap();
    assert_eq!(print(&again, Form::Short), text);
    assert!(again.unsupported().is_empty());
    let module = again.module().unwrap();
    let out = module.run(&[Tensor::new(&[1.0f64, -1.0])]).unwrap();
    let y = out[0].tensor().unwrap().clone();
    assert_eq!(y.to_vec::<f64>(), [2.0, 4.5]);
    y.sum().backward();
    let (_, w) = again.parameters().next().unwrap();
    assert_eq!(w.shape(), [2]);
}

#[test]
fn is_called_from_text() {
    square("from_text");
    let text = "graph {\n  %x = placeholder\n  %y = mine.from_text.default(%x, factor=3.0)\n  return %y\n}\n";
    let module = parse_module(text).unwrap();
    let x = Tensor::scalar(2.0f64).requires_grad_();
    let run = |inputs: &[Value]| run_module(&mut Eager::default(), &module, inputs);
    let y = run(&[(&x).into()]).unwrap().tensor().unwrap().clone();
    y.backward();
    assert_eq!((y.item::<f64>(), x.grad().unwrap().item::<f64>()), (12.0, 12.0));
}

/// A program that was read before its op was registered keeps the name, and says what to do.
#[test]
fn is_registered_before_programs_are_read() {
    let text = "graph {\n  %x = placeholder\n  %y = mine.late.default(%x)\n  return %y\n}\n";
    let module = parse_module(text).unwrap();
    assert!(Op::from_name("mine::late").is_none());
    square("late");
    let inputs = [Tensor::scalar(2.0f64).into()];
    let error = run_module(&mut Eager::default(), &module, &inputs).unwrap_err().to_string();
    assert!(error.contains("registered before the program is loaded"), "{error}");
    assert!(run_module(&mut Eager::default(), &parse_module(text).unwrap(), &inputs).is_ok());
}
