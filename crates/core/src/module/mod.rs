//! Modules: objects that own parameters, buffers and other modules, and can be called.
//!
//! [`Module`] is the tree, independent of what the module computes: names, parameters, buffers, training mode, state
//! dictionaries. [`Forward`] is the computation, and calling it runs the hooks. Layers are in another crate; this one
//! only defines what a module is. A module is shared and changed through `&self`, as a tensor is.

mod backward_hooks;
mod call;
mod erased;
mod field;
mod hooks;
mod parameter;
mod repr;
mod state_dict;
mod walk;

pub use crate::tree::TensorTree;
pub use call::Forward;
pub use field::{ModuleField, ModuleVisitor};
pub use firebrand_derive::Module;
pub use hooks::{
    HookOptions, ModuleCore, ModuleHookResult, ModuleHooks, ModuleInfo, ModuleWatch, register_module_forward_hook,
    register_module_forward_pre_hook, register_module_full_backward_hook, register_module_full_backward_pre_hook,
};
pub use parameter::{Buffer, Parameter};
#[doc(hidden)]
pub use repr::fmt_module;
pub use repr::{ExtraRepr, PythonRepr};
pub use state_dict::{IncompatibleKeys, StateDict};

use crate::{DType, Device, Result, Tensor};
use field::Members;
use std::any::Any;
use std::sync::Arc;

/// A node of the module tree. [`derive@Module`] writes the two required methods:
///
/// ```
/// # use firebrand_core as firebrand;
/// use firebrand::module::{Forward, Module, ModuleCore, Parameter};
/// use firebrand::{DType, Result, Tensor};
///
/// #[derive(Module)]
/// struct Linear {
///     weight: Parameter,
///     bias: Option<Parameter>,
///     core: ModuleCore,
/// }
///
/// impl Forward for Linear {
///     type Output = Tensor;
///     fn forward(&self, x: &Tensor) -> Result<Tensor> {
///         let y = x.matmul(&self.weight.t());
///         Ok(match &self.bias {
///             Some(b) => y + &**b,
///             None => y,
///         })
///     }
/// }
///
/// #[derive(Module)]
/// struct Net {
///     fc1: Linear,
///     fc2: Linear,
///     core: ModuleCore,
/// }
///
/// impl Forward for Net {
///     type Output = Tensor;
///     fn forward(&self, x: &Tensor) -> Result<Tensor> {
///         Ok(self.fc2.call(&self.fc1.call(x).relu()))
///     }
/// }
///
/// let linear = |i: i64, o: i64| Linear {
///     weight: Parameter::new(Tensor::ones([o, i], DType::F32)),
///     bias: Some(Parameter::new(Tensor::zeros([o], DType::F32))),
///     core: ModuleCore::new(),
/// };
/// let net = Net { fc1: linear(3, 4), fc2: linear(4, 2), core: ModuleCore::new() };
/// let y = net.call(&Tensor::ones([1, 3], DType::F32));
/// assert_eq!(y.to_vec::<f32>(), [12.0, 12.0]);
/// let names: Vec<String> = net.named_parameters().into_iter().map(|(n, _)| n).collect();
/// assert_eq!(names, ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]);
/// ```
pub trait Module: Any + AsModule + Send + Sync {
    /// The module's identity, training flag and hooks.
    fn core(&self) -> &ModuleCore;

    /// Visits the module's own parameters, buffers and children, by name and in the order they were declared.
    fn visit<'a>(&'a self, visitor: &mut dyn ModuleVisitor<'a>);

    /// The type's name without path and type arguments: `Linear`.
    fn name(&self) -> &'static str {
        walk::short_name(std::any::type_name::<Self>())
    }

    /// The arguments shown when the module is printed: `in_features=3, out_features=4, bias=True`. [`ExtraRepr`] writes
    /// them; a derived module names a function that does with `#[module(extra_repr = Self::arguments)]`.
    fn extra_repr(&self) -> String {
        String::new()
    }

    /// The module a smart pointer points to.
    #[doc(hidden)]
    fn pointee(&self) -> Option<&dyn Module> {
        None
    }

    // ---- the tree
    // Every module type has all of these in its table of methods, so they only say which function to call.

    /// This module (with an empty name) and all its submodules, parents first; one that occurs twice is listed once.
    fn named_modules(&self) -> Vec<(String, &dyn Module)> {
        walk::named_modules(self.as_module())
    }

    /// The direct children of this module.
    fn named_children(&self) -> Vec<(String, &dyn Module)> {
        Members::of(self.as_module()).modules
    }

    /// All parameters with their path, own ones first; one that is shared is listed once, under its first name.
    fn named_parameters(&self) -> Vec<(String, Parameter)> {
        walk::named_parameters(self.as_module())
    }

    /// All parameters, each once.
    fn parameters(&self) -> Vec<Parameter> {
        walk::parameters(self.as_module())
    }

    /// All buffers with their path, each once.
    fn named_buffers(&self) -> Vec<(String, Tensor)> {
        walk::named_buffers(self.as_module())
    }

    /// All buffers, each once.
    fn buffers(&self) -> Vec<Tensor> {
        walk::buffers(self.as_module())
    }

    /// Calls `f` with every submodule and then with this module, children first.
    fn apply(&self, f: &mut dyn FnMut(&dyn Module)) {
        walk::apply(self.as_module(), f)
    }

    // ---- modes and gradients

    /// Puts this module and all its submodules in training mode.
    fn train(&self) {
        self.set_training(true)
    }

    /// Puts this module and all its submodules in evaluation mode: dropout is off, normalization uses running statistics.
    fn eval(&self) {
        self.set_training(false)
    }

    /// Sets the training mode of this module and all its submodules.
    fn set_training(&self, on: bool) {
        walk::set_training(self.as_module(), on)
    }

    /// Whether the module is in training mode, as new modules are.
    fn is_training(&self) -> bool {
        self.core().is_training()
    }

    /// Clears the gradients of all parameters.
    fn zero_grad(&self) {
        walk::zero_grad(self.as_module())
    }

    /// Sets whether the parameters require grad; turning it off freezes the module.
    ///
    /// # Panics
    /// If turned on while parameters are not floating point.
    #[track_caller]
    fn requires_grad_(&self, on: bool) {
        walk::set_requires_grad(self.as_module(), on)
    }

    // ---- conversions

    /// Converts floating point parameters (with their gradients) and buffers to another dtype, in place.
    fn to_dtype(&self, dtype: DType) -> Result<()> {
        walk::to_dtype(self.as_module(), dtype)
    }

    /// Moves parameters (with their gradients) and buffers to another device, in place.
    fn to_device(&self, device: Device) -> Result<()> {
        walk::to_device(self.as_module(), device)
    }

    // ---- state

    /// All parameters and persistent buffers by path, detached but sharing memory. A shared parameter appears under
    /// each of its names.
    fn state_dict(&self) -> StateDict {
        state_dict::collect(self.as_module())
    }

    /// Copies values into parameters and buffers. With `strict` the names must agree exactly; without, the differences
    /// are returned. On error, nothing is copied.
    fn load_state_dict(&self, state: &StateDict, strict: bool) -> Result<IncompatibleKeys> {
        state_dict::load(self.as_module(), state, strict)
    }
}

/// A module as a trait object; implemented for every module.
pub trait AsModule {
    /// This module, without smart pointers around it.
    fn as_module(&self) -> &dyn Module;
}

impl<M: Module> AsModule for M {
    fn as_module(&self) -> &dyn Module {
        self.pointee().unwrap_or(self)
    }
}

impl dyn Module {
    /// Downcasts this module to `M`.
    pub fn downcast_ref<M: Module>(&self) -> Option<&M> {
        (self as &dyn Any).downcast_ref()
    }
}

/// The tree, as PyTorch prints it.
impl std::fmt::Debug for dyn Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        fmt_module(self, f)
    }
}

macro_rules! pointer {
    ($($pointer:ident),*) => {$(
        impl<M: Module + ?Sized> Module for $pointer<M> {
            fn core(&self) -> &ModuleCore {
                (**self).core()
            }
            fn visit<'a>(&'a self, visitor: &mut dyn ModuleVisitor<'a>) {
                (**self).visit(visitor)
            }
            fn name(&self) -> &'static str {
                (**self).name()
            }
            fn extra_repr(&self) -> String {
                (**self).extra_repr()
            }
            fn pointee(&self) -> Option<&dyn Module> {
                Some((**self).as_module())
            }
        }

        impl<I: TensorTree, M: Forward<I> + ?Sized> Forward<I> for $pointer<M> {
            type Output = M::Output;
            fn forward(&self, input: &I) -> Result<M::Output> {
                (**self).forward(input)
            }
        }
    )*};
}
pointer!(Box, Arc);
