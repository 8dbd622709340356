//! A custom op: called eagerly, captured in a program, and looked up by name when the program is loaded.

use firebrand::graph::text::{Form, print};
use firebrand::graph::{ExportedProgram, export};
use firebrand::library::{CustomOp, define};
use firebrand::prelude::*;

/// log(exp(beta x) + 1) / beta, with its derivative.
fn softplus() -> Result<CustomOp> {
    define("example::softplus(Tensor x, float beta=1.0) -> Tensor")
        .shape(|a| Ok(vec![a.tensor(0, "x")?.spec().clone()]))
        .kernel(|a| {
            let (x, beta) = (a.tensor(0, "x")?, a.float(1, "beta")?);
            Ok(vec![((x * beta).exp() + 1.0).log() / beta])
        })
        .backward(|call, grads| {
            let a = call.args();
            let (x, beta) = (a.tensor(0, "x")?, a.float(1, "beta")?);
            Ok(vec![grads[0].as_ref().map(|g| g * (x * beta).sigmoid())])
        })
        .register()
}

pub(crate) fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let softplus = softplus()?;
    let x = Tensor::new(&[-1.0f64, 0.0, 2.0]).requires_grad_();
    let y = softplus.call1(&[(&x).into(), 2.0.into()])?;
    y.sum().backward();
    println!("{y:?}, gradient {:?}", x.grad().expect("x is a leaf"));

    let program = export(|x| Ok(vec![softplus.call1(&[(&x[0]).into()])?]), &[x.detach()], &[])?;
    print!("{}", print(&program, Form::Short));
    let loaded = ExportedProgram::from_bytes(program.to_bytes()?)?;
    println!("{:?}", loaded.run(&[x.detach()])?);
    Ok(())
}
