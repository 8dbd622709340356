//! Shared parts of the layers' options: structs with PyTorch's defaults, and sizes given once or per dimension.

use firebrand_core::module::PythonRepr;

/// One value for all dimensions, or one each.
pub trait PerDim<const D: usize> {
    /// One value for each dimension.
    fn per_dim(self) -> [usize; D];
}

impl<const D: usize> PerDim<D> for usize {
    fn per_dim(self) -> [usize; D] {
        [self; D]
    }
}

impl<const D: usize> PerDim<D> for [usize; D] {
    fn per_dim(self) -> [usize; D] {
        self
    }
}

/// Conversions for option setters: the option's own type, one size for all dimensions, a plain value for an `Option`.
pub trait Setting<T> {
    /// The option's value.
    fn setting(self) -> T;
}
impl<T> Setting<T> for T {
    fn setting(self) -> T {
        self
    }
}
impl<T> Setting<Option<T>> for T {
    fn setting(self) -> Option<T> {
        Some(self)
    }
}
impl<const D: usize> Setting<[usize; D]> for usize {
    fn setting(self) -> [usize; D] {
        [self; D]
    }
}
impl<const D: usize> Setting<Option<[usize; D]>> for usize {
    fn setting(self) -> Option<[usize; D]> {
        Some([self; D])
    }
}

/// A struct of public options: required ones come through `new`, the others have defaults and a method that sets them.
macro_rules! options {
    (
        $(#[$doc:meta])*
        pub struct $name:ident($($(#[$rdoc:meta])* $required:ident: $rty:ty),* $(,)?)
        { $($(#[$fdoc:meta])* $field:ident: $fty:ty = $default:expr),* $(,)? }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name {
            $($(#[$rdoc])* pub $required: $rty,)*
            $($(#[$fdoc])* pub $field: $fty,)*
        }

        impl $name {
            /// PyTorch's defaults for everything else.
            pub fn new($($required: $rty),*) -> $name {
                $name { $($required,)* $($field: $default,)* }
            }
            $(
                $(#[$fdoc])*
                #[must_use]
                pub fn $field(mut self, $field: impl $crate::layers::Setting<$fty>) -> $name {
                    self.$field = $field.setting();
                    self
                }
            )*
        }
    };
}
pub(crate) use options;

/// The layer, or a panic with the error at the caller's line: what `new` of a layer does.
#[track_caller]
pub(crate) fn built<T>(layer: firebrand_core::Result<T>) -> T {
    match layer {
        Ok(layer) => layer,
        Err(e) => e.raise(),
    }
}

/// An empty f32 tensor of these sizes, as a parameter.
pub(crate) fn parameter(sizes: &[usize]) -> firebrand_core::Result<firebrand_core::module::Parameter> {
    use firebrand_core::{DType, Device, Spec, Tensor, module::Parameter};
    Parameter::try_new(Tensor::try_empty(Spec::new(sizes, DType::F32, Device::Cpu)?)?)
}

/// A parameter filled with one value.
pub(crate) fn filled(sizes: &[usize], value: f64) -> firebrand_core::Result<firebrand_core::module::Parameter> {
    let p = parameter(sizes)?;
    crate::init::constant_(&p, value)?;
    Ok(p)
}

/// Sizes for printing: one number if all are equal.
pub(crate) struct OneOrEach<const D: usize>(pub(crate) [usize; D]);

impl<const D: usize> PythonRepr for OneOrEach<D> {
    fn python_repr(&self, out: &mut String) {
        match self.0.first() {
            Some(first) if self.0.iter().all(|n| n == first) => first.python_repr(out),
            _ => self.0.python_repr(out),
        }
    }
}

/// A word that prints without quotes.
#[derive(PartialEq)]
pub(crate) struct Word(pub(crate) &'static str);

impl PythonRepr for Word {
    fn python_repr(&self, out: &mut String) {
        out.push_str(self.0);
    }
}

/// As sizes of an op.
pub(crate) fn sizes<const D: usize>(numbers: [usize; D]) -> [firebrand_core::SymInt; D] {
    numbers.map(firebrand_core::SymInt::from)
}

/// As integers of an op.
pub(crate) fn ints<const D: usize>(numbers: [usize; D]) -> [i64; D] {
    numbers.map(|n| n as i64)
}
