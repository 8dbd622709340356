//! A field's contribution to the module tree, decided by its type.

use super::{Buffer, Module, Parameter};
use crate::{DType, Device};
use std::marker::PhantomData;

/// Sees the members of one module.
pub trait ModuleVisitor<'a> {
    /// A parameter of the module itself.
    fn parameter(&mut self, name: &str, parameter: &'a Parameter);
    /// A buffer of the module itself.
    fn buffer(&mut self, name: &str, buffer: &'a Buffer);
    /// A child.
    fn module(&mut self, name: &str, module: &'a dyn Module);
}

/// A type that a module's field may have: a parameter, a buffer, a module, several of them, or a plain value that
/// contributes nothing. Plain tensors are excluded on purpose: make it a [`Parameter`] or a [`Buffer`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a field of a module",
    label = "make it a Parameter, a Buffer or a module, or mark the field #[module(skip)]"
)]
pub trait ModuleField: Send + Sync + 'static {
    /// Shows what the field holds under `name`; members of a list get `name.0`, `name.1`, …
    fn visit<'a>(&'a self, name: &str, visitor: &mut dyn ModuleVisitor<'a>);
}

impl ModuleField for Parameter {
    fn visit<'a>(&'a self, name: &str, visitor: &mut dyn ModuleVisitor<'a>) {
        visitor.parameter(name, self)
    }
}

impl ModuleField for Buffer {
    fn visit<'a>(&'a self, name: &str, visitor: &mut dyn ModuleVisitor<'a>) {
        visitor.buffer(name, self)
    }
}

impl<M: Module> ModuleField for M {
    fn visit<'a>(&'a self, name: &str, visitor: &mut dyn ModuleVisitor<'a>) {
        visitor.module(name, self.as_module())
    }
}

impl<T: ModuleField> ModuleField for Option<T> {
    fn visit<'a>(&'a self, name: &str, visitor: &mut dyn ModuleVisitor<'a>) {
        if let Some(field) = self {
            field.visit(name, visitor)
        }
    }
}

fn visit_list<'a, T: ModuleField>(list: &'a [T], name: &str, visitor: &mut dyn ModuleVisitor<'a>) {
    for (i, field) in list.iter().enumerate() {
        field.visit(&format!("{name}.{i}"), visitor)
    }
}

impl<T: ModuleField> ModuleField for Vec<T> {
    fn visit<'a>(&'a self, name: &str, visitor: &mut dyn ModuleVisitor<'a>) {
        visit_list(self, name, visitor)
    }
}

impl<T: ModuleField, const N: usize> ModuleField for [T; N] {
    fn visit<'a>(&'a self, name: &str, visitor: &mut dyn ModuleVisitor<'a>) {
        visit_list(self, name, visitor)
    }
}

macro_rules! plain {
    ($($t:ty),* $(,)?) => {$(
        impl ModuleField for $t {
            fn visit<'a>(&'a self, _: &str, _: &mut dyn ModuleVisitor<'a>) {}
        }
    )*};
}
plain!((), bool, char, i32, i64, isize, u32, u64, usize, f32, f64, String, &'static str, DType, Device);

impl<T: Send + Sync + 'static> ModuleField for PhantomData<T> {
    fn visit<'a>(&'a self, _: &str, _: &mut dyn ModuleVisitor<'a>) {}
}

macro_rules! tuple {
    ($($t:ident $k:tt),*) => {
        impl<$($t: ModuleField),*> ModuleField for ($($t,)*) {
            fn visit<'a>(&'a self, name: &str, visitor: &mut dyn ModuleVisitor<'a>) {
                $(self.$k.visit(&format!("{name}.{}", $k), visitor);)*
            }
        }
    };
}
tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);

/// The members of one module, sorted by kind.
#[derive(Default)]
pub(super) struct Members<'a> {
    pub(super) parameters: Vec<(String, &'a Parameter)>,
    pub(super) buffers: Vec<(String, &'a Buffer)>,
    pub(super) modules: Vec<(String, &'a dyn Module)>,
}

impl<'a> Members<'a> {
    pub(super) fn of(module: &'a dyn Module) -> Members<'a> {
        let mut members = Members::default();
        module.visit(&mut members);
        members
    }
}

impl<'a> ModuleVisitor<'a> for Members<'a> {
    fn parameter(&mut self, name: &str, parameter: &'a Parameter) {
        self.parameters.push((name.to_string(), parameter));
    }
    fn buffer(&mut self, name: &str, buffer: &'a Buffer) {
        self.buffers.push((name.to_string(), buffer));
    }
    fn module(&mut self, name: &str, module: &'a dyn Module) {
        self.modules.push((name.to_string(), module.as_module()));
    }
}
