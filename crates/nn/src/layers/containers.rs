//! Containers: modules in sequence, by index, by name.

use firebrand_core::module::{Forward, Module, ModuleCore, ModuleVisitor, fmt_module};
use firebrand_core::{Result, Tensor};
use indexmap::IndexMap;
use std::ops::Index;

/// Any layer from one tensor to one tensor.
pub type AnyLayer = Box<dyn Forward<Tensor, Output = Tensor>>;

/// Layers that run in order; [`sequential!`](crate::sequential) makes one. Its children are named `0`, `1`, ….
#[derive(Default)]
pub struct Sequential {
    layers: Vec<AnyLayer>,
    core: ModuleCore,
}

impl Sequential {
    /// An empty container, which is the identity.
    pub fn new() -> Sequential {
        Sequential::default()
    }

    /// Appends a layer.
    pub fn then(mut self, layer: impl Forward<Tensor, Output = Tensor> + 'static) -> Sequential {
        self.layers.push(Box::new(layer));
        self
    }

    /// The layers.
    pub fn layers(&self) -> &[AnyLayer] {
        &self.layers
    }
}

impl std::fmt::Debug for Sequential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        fmt_module(self, f)
    }
}

impl Module for Sequential {
    fn core(&self) -> &ModuleCore {
        &self.core
    }
    fn visit<'a>(&'a self, visitor: &mut dyn ModuleVisitor<'a>) {
        for (k, layer) in self.layers.iter().enumerate() {
            visitor.module(&k.to_string(), layer.as_module());
        }
    }
}

impl Forward for Sequential {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for layer in &self.layers {
            x = layer.try_call(&x)?;
        }
        Ok(x)
    }
}

/// Layers that run in order: `sequential![Linear::new(2, 8), ReLU::new(), Linear::new(8, 1)]`.
#[macro_export]
macro_rules! sequential {
    ($($layer:expr),* $(,)?) => {
        $crate::layers::Sequential::new()$(.then($layer))*
    };
}

/// Modules by index. A `Vec` of modules as a field does the same without adding a node to the tree.
pub struct ModuleList<M> {
    modules: Vec<M>,
    core: ModuleCore,
}

impl<M: Module> ModuleList<M> {
    /// A container of these modules.
    pub fn new(modules: impl IntoIterator<Item = M>) -> ModuleList<M> {
        ModuleList { modules: modules.into_iter().collect(), core: ModuleCore::new() }
    }
}

impl<M> std::ops::Deref for ModuleList<M> {
    type Target = [M];
    fn deref(&self) -> &[M] {
        &self.modules
    }
}

impl<M: Module> std::fmt::Debug for ModuleList<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        fmt_module(self, f)
    }
}

impl<M: Module> Module for ModuleList<M> {
    fn core(&self) -> &ModuleCore {
        &self.core
    }
    fn visit<'a>(&'a self, visitor: &mut dyn ModuleVisitor<'a>) {
        for (k, module) in self.modules.iter().enumerate() {
            visitor.module(&k.to_string(), module.as_module());
        }
    }
}

/// Modules by name, in the order they were given.
pub struct ModuleDict<M> {
    modules: IndexMap<String, M>,
    core: ModuleCore,
}

impl<M: Module> ModuleDict<M> {
    /// A container of these modules.
    pub fn new<S: Into<String>>(modules: impl IntoIterator<Item = (S, M)>) -> ModuleDict<M> {
        let modules = modules.into_iter().map(|(name, m)| (name.into(), m)).collect();
        ModuleDict { modules, core: ModuleCore::new() }
    }

    /// The module with this name.
    pub fn get(&self, name: &str) -> Option<&M> {
        self.modules.get(name)
    }

    /// Names and modules.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &M)> {
        self.modules.iter().map(|(name, m)| (name.as_str(), m))
    }
}

impl<M> Index<&str> for ModuleDict<M> {
    type Output = M;
    /// # Panics
    /// If there is no module with this name.
    fn index(&self, name: &str) -> &M {
        &self.modules[name]
    }
}

impl<M: Module> std::fmt::Debug for ModuleDict<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        fmt_module(self, f)
    }
}

impl<M: Module> Module for ModuleDict<M> {
    fn core(&self) -> &ModuleCore {
        &self.core
    }
    fn visit<'a>(&'a self, visitor: &mut dyn ModuleVisitor<'a>) {
        for (name, module) in &self.modules {
            visitor.module(name, module.as_module());
        }
    }
}
