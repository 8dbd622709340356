//! Gradients that a compiled backward hands over before it has ended.

use super::{call, capture};
use firebrand_compile::fused::{Fused, FusedOptions};
use firebrand_compile::joint::{Aot, AotOptions};
use firebrand_compile::partition::PartitionOptions;
use firebrand_compile::{Backend, Call, Early, ExampleInput, ExampleValue, Executable, Result, Value};
use firebrand_core::autograd::no_grad;
use firebrand_core::{DType, Tensor};
use firebrand_graph::ir::{GraphModule, TensorMeta};
use std::sync::{Arc, Mutex};

type Log = Arc<Mutex<Vec<String>>>;

/// The fused back end, which says when the backward graph has ended.
struct Logged(Log);

struct LoggedGraph {
    inner: Arc<dyn Executable>,
    log: Log,
}

impl Backend for Logged {
    fn name(&self) -> &str {
        "logged"
    }
    fn compile(&self, graph: &GraphModule, examples: &[ExampleInput]) -> Result<Arc<dyn Executable>> {
        let inner = Fused::new(FusedOptions::default()).compile(graph, examples)?;
        Ok(Arc::new(LoggedGraph { inner, log: self.0.clone() }))
    }
}

impl Executable for LoggedGraph {
    fn run(&self, inputs: &[Value], call: &Call) -> Result<Vec<Value>> {
        self.inner.run(inputs, call)
    }
    fn run_owned(&self, inputs: Vec<Value>, call: &Call) -> Result<Vec<Value>> {
        let results = self.inner.run_owned(inputs, call);
        self.log.lock().unwrap().push("end".into());
        results
    }
    fn run_handing_over(&self, inputs: Vec<Value>, call: &Call, early: &mut Early<'_>) -> Result<Vec<Value>> {
        let results = self.inner.run_handing_over(inputs, call, early);
        self.log.lock().unwrap().push("end".into());
        results
    }
}

/// Three layers and a scale that is used twice.
fn layers(t: &[Tensor]) -> firebrand_core::Result<Vec<Tensor>> {
    let mut x = t[0].clone();
    for w in &t[1..4] {
        x = (x.matmul(w) * &t[4]).tanh();
    }
    Ok(vec![(&x * &x).sum()])
}

fn inputs() -> Vec<Tensor> {
    firebrand_core::random::manual_seed(3);
    let mut list = vec![Tensor::randn([4, 8], DType::F64)];
    (0..3).for_each(|_| list.push(Tensor::randn([8, 8], DType::F64).requires_grad_()));
    list.push(Tensor::randn([8], DType::F64).requires_grad_());
    list
}

/// Compiles the layers; the log has the names of the leaves as their gradients arrive, and the end of the backward graph.
fn compiled(t: &[Tensor], early: &[usize]) -> (Log, Tensor) {
    let log = Log::default();
    let inner = Arc::new(Logged(log.clone()));
    let backend =
        Aot::new(AotOptions { name: "logged", inner, partition: PartitionOptions::default(), decompose: false });
    let example = |t: &Tensor| ExampleInput { value: ExampleValue::Tensor(TensorMeta::of(t)), is_static: false };
    let examples: Vec<ExampleInput> = t.iter().map(example).collect();
    let executable = backend.compile_graph(&capture(layers, &inputs()), &examples).unwrap();
    for (k, t) in t.iter().enumerate().skip(1) {
        let (log, name) = (log.clone(), format!("w{k}"));
        t.register_post_accumulate_grad_hook(move |_| log.lock().unwrap().push(name.clone()));
        t.set_takes_early_grad(early.contains(&k));
    }
    (log, call(&executable, t).remove(0))
}

fn gradients(t: &[Tensor]) -> Vec<Vec<f64>> {
    t[1..].iter().map(|t| t.grad().unwrap().to_vec::<f64>()).collect()
}

/// Leaves that ask for it get their gradient while the graph runs, each exactly once, and with the same bits.
#[test]
fn leaves_that_ask_get_gradients_early() {
    let late = inputs();
    let (log, loss) = compiled(&late, &[]);
    loss.backward();
    assert_eq!(log.lock().unwrap()[0], "end");
    let t = inputs();
    let (log, loss) = compiled(&t, &[1, 2, 3]);
    loss.backward();
    let said = log.lock().unwrap().clone();
    let at = |name: &str| said.iter().position(|s| s == name).unwrap();
    assert_eq!(said.len(), 5, "{said:?}");
    // The last layer's comes first, and before the end of the graph; what did not ask waits for it.
    assert!(at("w3") < at("w2") && at("w2") < at("end") && at("w4") > at("end"), "{said:?}");
    assert_eq!(gradients(&t), gradients(&late));
}

/// A leaf that something else waits for too gets its gradient when all of it is there; so does one whose gradient is asked for.
#[test]
fn leaves_that_others_use_wait() {
    let t = inputs();
    let (log, loss) = compiled(&t, &[1, 2, 3]);
    (loss + t[3].sum()).backward();
    let said = log.lock().unwrap().clone();
    let at = |name: &str| said.iter().position(|s| s == name).unwrap();
    assert!(at("w3") > at("end") && at("w2") < at("end"), "{said:?}");
    let expected = inputs();
    (layers(&expected).unwrap().remove(0) + expected[3].sum()).backward();
    for (a, b) in gradients(&t).iter().flatten().zip(gradients(&expected).iter().flatten()) {
        assert!((a - b).abs() < 1e-12 * b.abs().max(1.0), "{a} {b}");
    }
}

/// A hook that writes what the graph may still read is an error, not a wrong gradient.
#[test]
fn hooks_must_not_write_what_the_graph_reads() {
    let t = inputs();
    let (_, loss) = compiled(&t, &[1, 2, 3]);
    t[3].register_post_accumulate_grad_hook(|w: &Tensor| {
        no_grad(|| w.try_mul_(0.5).map(drop)).unwrap();
    });
    let told = loss.try_backward(&Default::default()).unwrap_err().to_string();
    assert!(told.contains("write it after the backward pass"), "{told}");
}
