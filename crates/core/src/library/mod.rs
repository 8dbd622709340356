//! Ops registered at run time: a schema, a kernel, and optionally a shape function, derivative, tangents and batching rule.
//! The counterpart of PyTorch's `torch.library`.
//!
//! A registered op is an op like the generated ones: it has an [`Op`] id, is found by name, passes through every layer
//! of dispatch, is captured by export and run by loaded programs. It returns new tensors: schemas that mutate or alias
//! their arguments are errors. Registration lasts for the life of the process, and must come before programs that use the op
//! are read.
//!
//! ```
//! # use firebrand_core as firebrand;
//! use firebrand::{Tensor, library};
//!
//! let cube = library::define("doc::cube(Tensor x, float scale=1.0) -> Tensor")
//!     .shape(|a| Ok(vec![a.tensor(0, "x")?.spec().clone()]))
//!     .kernel(|a| {
//!         let x = a.tensor(0, "x")?;
//!         Ok(vec![x * x * x * a.float(1, "scale")?])
//!     })
//!     .backward(|call, grads| {
//!         let (a, g) = (call.args(), grads[0].as_ref());
//!         let (x, scale) = (a.tensor(0, "x")?, a.float(1, "scale")?);
//!         Ok(vec![g.map(|g| g * x * x * (3.0 * scale))])
//!     })
//!     .register()?;
//!
//! let x = Tensor::scalar(2.0f64).requires_grad_();
//! let y = cube.call1(&[(&x).into(), 0.5.into()])?;
//! y.backward();
//! assert_eq!((y.item::<f64>(), x.grad().unwrap().item::<f64>()), (4.0, 6.0));
//! # Ok::<(), firebrand::Error>(())
//! ```

mod arguments;
mod function;
mod known;
mod linear_cross_entropy;
mod registry;
mod schema;
#[cfg(feature = "torchvision")]
mod vision;

use crate::autograd::{BatchedOutputs, VmapInfo};
use crate::dispatch::{self, Args, Op, Outputs, Value};
use crate::{Error, ErrorKind, Result, Spec, Tensor};

pub(crate) use function::{below, call};
pub(crate) use registry::{by_id, by_name};
pub(crate) use schema::parse;

type Shape = dyn Fn(&Args<'_>) -> Result<Vec<Spec>> + Send + Sync;
type Kernel = dyn Fn(&Args<'_>) -> Result<Vec<Tensor>> + Send + Sync;
type Derivative = dyn Fn(&OpCall<'_>, &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> + Send + Sync;
type Vmap = dyn Fn(VmapInfo, &[Option<usize>], &Args<'_>) -> Result<BatchedOutputs> + Send + Sync;

/// A builder of an op; finish with [`Definition::register`].
#[must_use = "an op exists once register() was called"]
pub struct Definition {
    schema: String,
    tags: &'static [&'static str],
    shape: Option<Box<Shape>>,
    kernel: Option<Box<Kernel>>,
    saved: Option<Vec<String>>,
    backward: Option<Box<Derivative>>,
    jvp: Option<Box<Derivative>>,
    vmap: Option<Box<Vmap>>,
    differentiable: bool,
}

/// Starts defining an op with a schema such as `mylib::scale(Tensor x, float factor=2.0) -> Tensor`.
pub fn define(schema: impl Into<String>) -> Definition {
    Definition {
        schema: schema.into(),
        tags: &[],
        shape: None,
        kernel: None,
        saved: None,
        backward: None,
        jvp: None,
        vmap: None,
        differentiable: true,
    }
}

impl Definition {
    /// Computes the results, one tensor per result of the schema. Runs unrecorded; defaults are filled in.
    pub fn kernel(mut self, f: impl Fn(&Args<'_>) -> Result<Vec<Tensor>> + Send + Sync + 'static) -> Self {
        self.kernel = Some(Box::new(f));
        self
    }

    /// Describes the results, for the meta device and therefore for capture. The kernel's results are checked against it.
    pub fn shape(mut self, f: impl Fn(&Args<'_>) -> Result<Vec<Spec>> + Send + Sync + 'static) -> Self {
        self.shape = Some(Box::new(f));
        self
    }

    /// Gradients of the tensor arguments (elements of lists one by one, in order) from those of the results.
    /// If it is built from ops, it can be differentiated again.
    pub fn backward(
        mut self,
        f: impl Fn(&OpCall<'_>, &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> + Send + Sync + 'static,
    ) -> Self {
        self.backward = Some(Box::new(f));
        self
    }

    /// Which tensors `backward` reads, by argument name, and `result` (or `result0`, `result1`, …) for results. Every
    /// tensor argument and no result unless this is called.
    pub fn save_for_backward(mut self, names: &[&str]) -> Self {
        self.saved = Some(names.iter().map(|n| n.to_string()).collect());
        self
    }

    /// Tangents of the results from those of the tensor arguments; all arguments and results are available.
    pub fn jvp(
        mut self,
        f: impl Fn(&OpCall<'_>, &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> + Send + Sync + 'static,
    ) -> Self {
        self.jvp = Some(Box::new(f));
        self
    }

    /// The batching rule: each tensor argument (elements of lists one by one) has its batch at the given dimension.
    /// Without it, `vmap` runs sample by sample.
    pub fn vmap(
        mut self,
        f: impl Fn(VmapInfo, &[Option<usize>], &Args<'_>) -> Result<BatchedOutputs> + Send + Sync + 'static,
    ) -> Self {
        self.vmap = Some(Box::new(f));
        self
    }

    /// No gradient flows through the op. Without this and without `backward`, a gradient that arrives is an error.
    pub fn non_differentiable(mut self) -> Self {
        self.differentiable = false;
        self
    }

    /// Tags, such as `nondeterministic_seeded` for an op that must neither be merged nor dropped.
    pub fn tags(mut self, tags: &'static [&'static str]) -> Self {
        self.tags = tags;
        self
    }

    /// Registers the op. An error if the schema is invalid, if there is no kernel, or if the name is taken.
    #[track_caller]
    pub fn register(self) -> Result<CustomOp> {
        crate::capture::leave("register")?;
        self.registered()
    }

    /// The same for an op of the library's own, wherever it is first used.
    pub(crate) fn registered(self) -> Result<CustomOp> {
        registry::register(self).map(CustomOp)
    }
}

/// A registered op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CustomOp(Op);

impl CustomOp {
    /// Its id, as any op has one.
    pub fn op(self) -> Op {
        self.0
    }

    /// Calls the op with one value per argument of the schema; omitted trailing arguments take their defaults.
    pub fn call(self, args: &[Value]) -> Result<Outputs> {
        dispatch::call(self.0, args)
    }

    /// Like [`CustomOp::call`], for an op with one result.
    pub fn call1(self, args: &[Value]) -> Result<Tensor> {
        dispatch::one_tensor(self.call(args)?)
    }
}

/// A call, as its derivative sees it.
#[derive(Debug)]
pub struct OpCall<'a> {
    name: &'static str,
    args: Vec<Value>,
    results: Vec<Option<Tensor>>,
    needs_input_grad: &'a [bool],
}

impl OpCall<'_> {
    /// The arguments. Tensors that were not saved are `None`.
    pub fn args(&self) -> Args<'_> {
        Args::new(self.name, &self.args)
    }

    /// Result `k`, if it was saved.
    pub fn result(&self, k: usize) -> Result<&Tensor> {
        self.results.get(k).and_then(Option::as_ref).ok_or_else(|| {
            Error::argument(self.name, format!("result {k} was not saved; name it in save_for_backward"))
        })
    }

    /// For each tensor argument, whether its gradient is needed.
    pub fn needs_input_grad(&self) -> &[bool] {
        self.needs_input_grad
    }
}

/// Why an op cannot be registered.
fn refused(schema: &str, message: impl Into<String>) -> Error {
    ErrorKind::Registration { schema: schema.to_string(), message: message.into() }.into()
}
