//! Parameters by index and by name, as members of a module.

use firebrand_core::Tensor;
use firebrand_core::module::{Module, ModuleCore, ModuleVisitor, Parameter};
use indexmap::IndexMap;
use std::ops::{Deref, Index};

/// Parameters by index; they are named `0`, `1`, ….
#[derive(Debug, Default)]
pub struct ParameterList {
    parameters: Vec<Parameter>,
    core: ModuleCore,
}

impl ParameterList {
    /// These tensors as parameters.
    ///
    /// # Panics
    /// If one of them is not floating point.
    #[track_caller]
    pub fn new(tensors: impl IntoIterator<Item = Tensor>) -> ParameterList {
        tensors.into_iter().map(Parameter::new).collect()
    }
}

impl FromIterator<Parameter> for ParameterList {
    fn from_iter<I: IntoIterator<Item = Parameter>>(parameters: I) -> ParameterList {
        ParameterList { parameters: parameters.into_iter().collect(), core: ModuleCore::new() }
    }
}

impl Deref for ParameterList {
    type Target = [Parameter];
    fn deref(&self) -> &[Parameter] {
        &self.parameters
    }
}

impl Module for ParameterList {
    fn core(&self) -> &ModuleCore {
        &self.core
    }
    fn visit<'a>(&'a self, visitor: &mut dyn ModuleVisitor<'a>) {
        for (k, p) in self.parameters.iter().enumerate() {
            visitor.parameter(&k.to_string(), p);
        }
    }
}

/// Parameters by name, in the order they were given.
#[derive(Debug, Default)]
pub struct ParameterDict {
    parameters: IndexMap<String, Parameter>,
    core: ModuleCore,
}

impl ParameterDict {
    /// These tensors as parameters.
    ///
    /// # Panics
    /// If one of them is not floating point.
    #[track_caller]
    pub fn new<S: Into<String>>(tensors: impl IntoIterator<Item = (S, Tensor)>) -> ParameterDict {
        tensors.into_iter().map(|(name, t)| (name.into(), Parameter::new(t))).collect()
    }

    /// The parameter with this name.
    pub fn get(&self, name: &str) -> Option<&Parameter> {
        self.parameters.get(name)
    }

    /// Names and parameters.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Parameter)> {
        self.parameters.iter().map(|(name, p)| (name.as_str(), p))
    }
}

impl FromIterator<(String, Parameter)> for ParameterDict {
    fn from_iter<I: IntoIterator<Item = (String, Parameter)>>(parameters: I) -> ParameterDict {
        ParameterDict { parameters: parameters.into_iter().collect(), core: ModuleCore::new() }
    }
}

impl Index<&str> for ParameterDict {
    type Output = Parameter;
    /// # Panics
    /// If there is no parameter with this name.
    fn index(&self, name: &str) -> &Parameter {
        &self.parameters[name]
    }
}

impl Module for ParameterDict {
    fn core(&self) -> &ModuleCore {
        &self.core
    }
    fn visit<'a>(&'a self, visitor: &mut dyn ModuleVisitor<'a>) {
        for (name, p) in &self.parameters {
            visitor.parameter(name, p);
        }
    }
}
