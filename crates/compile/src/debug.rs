//! Types that print only their name, and options, which name their backend.

use std::fmt::{Debug, Formatter, Result};

firebrand_core::opaque_debug! {
    [] crate::joint::AotExecutable => "AotExecutable";
    [] crate::backend::EagerRunner<'_> => "EagerRunner";
    [] crate::backend::Recorder => "Recorder";
    [] crate::backend::Counter => "Counter";
    [] crate::backend::Call => "Call";
    [] crate::backend::HookSlot => "HookSlot";
    [] crate::backward::Guard => "Guard";
    [] crate::backward::CompiledBackward => "CompiledBackward";
    [B] crate::tools::Checked<B> => "Checked";
    [M, I, O] crate::CompiledModule<M, I, O> => "CompiledModule";
    [I, O] crate::Compiled<I, O> => "Compiled";
    [T] crate::Shared<T> => "Shared";
    [I, F] crate::Disabled<I, F> => "Disabled";
}

impl Debug for crate::Options {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let mut shown = f.debug_struct("Options");
        shown.field("backend", &self.backend.name()).field("fullgraph", &self.fullgraph);
        shown.field("dynamic", &self.dynamic).field("cache_limit", &self.cache_limit).finish_non_exhaustive()
    }
}

impl Debug for crate::backward::Options {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let mut shown = f.debug_struct("Options");
        shown.field("backend", &self.backend.name()).field("dynamic", &self.dynamic);
        shown.field("dynamic_graphs", &self.dynamic_graphs);
        shown.field("fullgraph", &self.fullgraph).field("cache_limit", &self.cache_limit).finish()
    }
}

impl Debug for crate::joint::AotOptions {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let mut shown = f.debug_struct("AotOptions");
        shown.field("name", &self.name).field("inner", &self.inner.name());
        shown.field("partition", &self.partition).field("decompose", &self.decompose).finish()
    }
}

impl Debug for crate::joint::Aot {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("Aot").finish_non_exhaustive()
    }
}
