//! `Debug` for types that print only their name.

/// Implements `Debug` for types that hold closures, or whose fields are not informative: `[generics] Type<..> => "Name";`.
#[doc(hidden)]
#[macro_export]
macro_rules! opaque_debug {
    ($([$($generics:tt)*] $t:ty => $name:literal;)*) => {$(
        impl<$($generics)*> std::fmt::Debug for $t {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct($name).finish_non_exhaustive()
            }
        }
    )*};
}

opaque_debug! {
    [] crate::Flat<'_> => "Flat";
    [] crate::mapped::MappedFile => "MappedFile";
    [] crate::mapped::PrivatePages => "PrivatePages";
    [] crate::mapped::Fork => "Fork";
    [T] crate::shared::Weak<T> => "Weak";
    [] crate::pointwise::Builder => "Builder";
}
