//! Layers whose weight is computed from other parameters: weight norm, spectral norm, orthogonal matrices.
//!
//! `weight_norm(Linear::new(4, 3), "weight", Some(0))` is a layer that is called as the one inside is, with PyTorch's names in
//! its state: `bias`, `parametrizations.weight.original0`, …. The weight is computed at every call, and its gradient flows on
//! to the original parameters. [`Parametrized::into_layer`] removes the parametrization: the layer keeps the current weight.

mod orthogonal;

pub use orthogonal::{Orthogonal, OrthogonalMap, OrthogonalOptions, orthogonal};

use crate::init;
use firebrand_core::autograd::no_grad;
use firebrand_core::func::functional_call;
use firebrand_core::module::{Buffer, Forward, Module, ModuleCore, ModuleVisitor, Parameter, TensorTree, fmt_module};
use firebrand_core::{Error, Result, Tensor, ops};
use indexmap::IndexMap;

/// A parameter that is computed from other parameters, which it owns.
pub trait Parametrization: Module {
    /// Its current value, with history.
    fn compute(&self) -> Result<Tensor>;
}

/// A layer with one parameter computed.
pub struct Parametrized<L, P> {
    layer: L,
    parametrizations: ByName<P>,
    core: ModuleCore,
}

/// What is between the layer and the parametrization in the tree of names.
struct ByName<P> {
    name: String,
    parametrization: P,
    core: ModuleCore,
}

impl<P: Parametrization> Module for ByName<P> {
    fn core(&self) -> &ModuleCore {
        &self.core
    }
    fn visit<'a>(&'a self, visitor: &mut dyn ModuleVisitor<'a>) {
        visitor.module(&self.name, &self.parametrization)
    }
}

/// Sees everything but one parameter.
struct Without<'n, 'v, 'a> {
    name: &'n str,
    visitor: &'v mut dyn ModuleVisitor<'a>,
}

impl<'a> ModuleVisitor<'a> for Without<'_, '_, 'a> {
    fn parameter(&mut self, name: &str, parameter: &'a Parameter) {
        if name != self.name {
            self.visitor.parameter(name, parameter)
        }
    }
    fn buffer(&mut self, name: &str, buffer: &'a Buffer) {
        self.visitor.buffer(name, buffer)
    }
    fn module(&mut self, name: &str, module: &'a dyn Module) {
        self.visitor.module(name, module)
    }
}

impl<L: Module, P: Parametrization> Module for Parametrized<L, P> {
    fn core(&self) -> &ModuleCore {
        &self.core
    }
    fn visit<'a>(&'a self, visitor: &mut dyn ModuleVisitor<'a>) {
        self.layer.visit(&mut Without { name: &self.parametrizations.name, visitor });
        visitor.module("parametrizations", &self.parametrizations)
    }
    fn name(&self) -> &'static str {
        self.layer.name()
    }
    fn extra_repr(&self) -> String {
        self.layer.extra_repr()
    }
}

impl<L: Module, P: Parametrization> std::fmt::Debug for Parametrized<L, P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        fmt_module(self, f)
    }
}

impl<I: TensorTree, L: Forward<I>, P: Parametrization> Forward<I> for Parametrized<L, P> {
    type Output = L::Output;
    fn forward(&self, input: &I) -> Result<L::Output> {
        let ByName { name, parametrization, .. } = &self.parametrizations;
        functional_call(&self.layer, &IndexMap::from([(name.clone(), parametrization.compute()?)]), input)
    }
}

/// A parameter owned by the layer itself.
fn parameter_of(layer: &dyn Module, name: &str) -> Result<Parameter> {
    let all = layer.named_parameters();
    let found = all.iter().find(|(path, _)| path == name).map(|(_, p)| p.clone());
    found.filter(|_| !name.contains('.')).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(path, _)| path.as_str()).filter(|path| !path.contains('.')).collect();
        Error::argument("parametrize", format!("expected one of the layer's own parameters {names:?}, found {name:?}"))
    })
}

impl<L: Module, P: Parametrization> Parametrized<L, P> {
    fn new(layer: L, name: &str, make: impl FnOnce(&Tensor) -> Result<P>) -> Result<Parametrized<L, P>> {
        let parametrization = make(&parameter_of(layer.as_module(), name)?.detach())?;
        let parametrizations = ByName { name: name.to_string(), parametrization, core: ModuleCore::new() };
        Ok(Parametrized { layer, parametrizations, core: ModuleCore::new() })
    }

    /// The inner layer. Its own copy of the computed parameter is unused.
    pub fn layer(&self) -> &L {
        &self.layer
    }

    /// The parametrization.
    pub fn parametrization(&self) -> &P {
        &self.parametrizations.parametrization
    }

    /// The plain layer, with the current value of the parameter.
    pub fn into_layer(self) -> Result<L> {
        let value = no_grad(|| self.parametrization().compute())?.detach();
        let parameter = parameter_of(self.layer.as_module(), &self.parametrizations.name)?;
        // The layer inside was not converted along.
        parameter.set_data(&value.try_deep_copy()?);
        Ok(self.layer)
    }
}

/// Length and direction separately: `g · v / ‖v‖`.
#[derive(Module)]
pub struct WeightNorm {
    /// The length, `g`.
    pub original0: Parameter,
    /// The direction, `v`.
    pub original1: Parameter,
    /// The dimension along which each slice has its own length; `None` for one length.
    #[module(skip)]
    dim: Option<usize>,
    core: ModuleCore,
}

/// The length of each slice along a dimension, or of all.
fn lengths(weight: &Tensor, dim: Option<usize>) -> Result<Tensor> {
    let others: Vec<i64> = (0..weight.ndim()).filter(|d| Some(*d) != dim).map(|d| d as i64).collect();
    // No dimension would mean all of them.
    if others.is_empty() {
        return ops::abs(weight);
    }
    ops::linalg_vector_norm(weight, 2.into(), Some(&others), dim.is_some(), None)
}

impl Parametrization for WeightNorm {
    fn compute(&self) -> Result<Tensor> {
        ops::mul(&self.original1, &ops::div(&self.original0, &lengths(&self.original1, self.dim)?)?)
    }
}

/// A layer whose parameter `name` is trained as length and direction. Every slice along `dim` has its own length; without
/// a dimension there is one.
pub fn weight_norm<L: Module>(layer: L, name: &str, dim: Option<usize>) -> Result<Parametrized<L, WeightNorm>> {
    Parametrized::new(layer, name, |weight| {
        if dim.is_some_and(|d| d >= weight.ndim()) {
            let message = format!("expected a dimension of {:?}, found {dim:?}", weight.shape());
            return Err(Error::argument("weight_norm", message));
        }
        Ok(WeightNorm {
            original0: Parameter::try_new(lengths(weight, dim)?)?,
            original1: Parameter::try_new(weight.try_deep_copy()?)?,
            dim,
            core: ModuleCore::new(),
        })
    })
}

/// A weight divided by its largest singular value, which power iterations follow: one or more at every call in training mode.
pub struct SpectralNorm {
    original: Parameter,
    vectors: SingularVectors,
    n_power_iterations: usize,
    dim: usize,
    eps: f64,
    core: ModuleCore,
}

/// The first left and right singular vectors.
#[derive(Module)]
struct SingularVectors {
    _u: Buffer,
    _v: Buffer,
    core: ModuleCore,
}

impl Module for SpectralNorm {
    fn core(&self) -> &ModuleCore {
        &self.core
    }
    fn visit<'a>(&'a self, visitor: &mut dyn ModuleVisitor<'a>) {
        visitor.parameter("original", &self.original);
        visitor.module("0", &self.vectors);
    }
}

impl std::fmt::Debug for SpectralNorm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        fmt_module(self, f)
    }
}

fn normalized(t: &Tensor, eps: f64) -> Result<Tensor> {
    let length = ops::linalg_vector_norm(t, 2.into(), None, false, None)?;
    ops::div(t, &ops::clamp(&length, Some(eps.into()), None)?)
}

impl SpectralNorm {
    /// The weight as a matrix whose rows are the slices along `dim`.
    fn matrix(weight: &Tensor, dim: usize) -> Result<Tensor> {
        ops::flatten(&ops::movedim(weight, dim as i64, 0)?, 1, -1)
    }

    fn iterate(&self, matrix: &Tensor, times: usize) -> Result<()> {
        let SingularVectors { _u: u, _v: v, .. } = &self.vectors;
        no_grad(|| {
            for _ in 0..times {
                // New tensors each time: an earlier call's graph keeps those it used.
                u.set(normalized(&ops::mv(matrix, &v.get())?, self.eps)?);
                v.set(normalized(&ops::mv(&ops::t(matrix)?, &u.get())?, self.eps)?);
            }
            Ok(())
        })
    }
}

impl Parametrization for SpectralNorm {
    fn compute(&self) -> Result<Tensor> {
        let matrix = SpectralNorm::matrix(&self.original, self.dim)?;
        if self.is_training() {
            self.iterate(&matrix.detach(), self.n_power_iterations)?;
        }
        let largest = ops::dot(&self.vectors._u.get(), &ops::mv(&matrix, &self.vectors._v.get())?)?;
        ops::div(&self.original, &largest)
    }
}

/// How [`spectral_norm`] follows the largest singular value, with PyTorch's defaults.
#[derive(Clone, Copy, Debug)]
pub struct SpectralNormOptions {
    /// Iterations at every call in training mode.
    pub n_power_iterations: usize,
    /// Lower bound of norms, for numerical stability.
    pub eps: f64,
    /// The dimension of the outputs: 0, but 1 for transposed convolutions.
    pub dim: usize,
}

impl Default for SpectralNormOptions {
    fn default() -> SpectralNormOptions {
        SpectralNormOptions { n_power_iterations: 1, eps: 1e-12, dim: 0 }
    }
}

/// A layer whose parameter `name`, of two dimensions or more, has 1 as its largest singular value.
pub fn spectral_norm<L: Module>(
    layer: L,
    name: &str,
    options: SpectralNormOptions,
) -> Result<Parametrized<L, SpectralNorm>> {
    let SpectralNormOptions { n_power_iterations, eps, dim } = options;
    Parametrized::new(layer, name, |weight| {
        if weight.ndim() < 2 || dim >= weight.ndim() || n_power_iterations == 0 {
            let shape = weight.shape();
            let message =
                format!("expected a matrix or more and at least one iteration, found {shape:?} and {options:?}");
            return Err(Error::argument("spectral_norm", message));
        }
        let matrix = SpectralNorm::matrix(weight, dim)?;
        let start = |n: usize| {
            let t = ops::new_empty(&matrix, &[n.into()], None, None)?;
            init::normal_(&t, 0.0, 1.0)?;
            normalized(&t, eps).map(Buffer::new)
        };
        let (u, v) = (start(matrix.shape()[0])?, start(matrix.shape()[1])?);
        let norm = SpectralNorm {
            original: Parameter::try_new(weight.try_deep_copy()?)?,
            vectors: SingularVectors { _u: u, _v: v, core: ModuleCore::new() },
            n_power_iterations,
            dim,
            eps,
            core: ModuleCore::new(),
        };
        norm.iterate(&matrix, 15)?;
        Ok(norm)
    })
}
