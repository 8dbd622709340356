//! Compiled modules: called, trained and saved like the module itself.
//!
//! Parameters and buffers are inputs of the graph, so training, loading a state dictionary or replacing a buffer needs no
//! new compilation. Training mode and hooks are guarded. The names of the state dictionary stay as they are.

use crate::error::Result;
use crate::front::compiled::{Compiled, compile_with};
use crate::front::options::Options;
use firebrand_core::module::{Forward, Module, ModuleCore, ModuleVisitor, TensorTree};
use std::sync::Arc;

/// A module whose calls are compiled.
pub struct CompiledModule<M, I, O> {
    module: Arc<M>,
    call: Compiled<I, O>,
}

/// Compiles the calls of a module, hooks included.
pub fn compile_module<M, I>(module: Arc<M>, options: Options) -> CompiledModule<M, I, M::Output>
where
    I: TensorTree,
    M: Forward<I>,
    M::Output: TensorTree + Send + Sync,
{
    let inner = module.clone();
    let options = Options { name: options.name.clone().or_else(|| Some(module.name().to_string())), ..options };
    CompiledModule { call: compile_with(move |input: &I| inner.try_call(input), options), module }
}

impl<M, I: TensorTree, O: TensorTree + Send + Sync> CompiledModule<M, I, O> {
    /// Calls the module.
    ///
    /// # Panics
    /// If it fails.
    #[track_caller]
    pub fn call(&self, input: &I) -> O {
        self.call.call(input)
    }

    /// Calls the module.
    pub fn try_call(&self, input: &I) -> Result<O> {
        self.call.try_call(input)
    }

    /// The module itself.
    pub fn module(&self) -> &Arc<M> {
        &self.module
    }

    /// The compiled function behind it.
    pub fn compiled(&self) -> &Compiled<I, O> {
        &self.call
    }
}

impl<M: Module, I: 'static, O: Send + Sync + 'static> Module for CompiledModule<M, I, O> {
    fn core(&self) -> &ModuleCore {
        self.module.core()
    }

    fn visit<'a>(&'a self, visitor: &mut dyn ModuleVisitor<'a>) {
        self.module.visit(visitor)
    }

    fn name(&self) -> &'static str {
        self.module.name()
    }
}
