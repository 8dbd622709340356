//! Padding layers: before and after the last one, two or three dimensions.

use firebrand_core::module::{ExtraRepr, Forward, Module, ModuleCore};
use firebrand_core::{Result, SymInt, Tensor, ops};

macro_rules! constant_padding {
    ($($name:ident $n:literal)*) => {$(
        /// Pads with one value. Sizes are given before and after each dimension, the last one first; negative ones crop.
        #[derive(Module)]
        #[module(extra_repr = Self::arguments)]
        pub struct $name {
            #[module(skip)]
            sizes: [SymInt; $n],
            value: f64,
            core: ModuleCore,
        }

        impl $name {
            /// Pads by these sizes, with this value.
            pub fn new(sizes: [i64; $n], value: f64) -> $name {
                $name { sizes: sizes.map(SymInt::from), value, core: ModuleCore::new() }
            }

            fn arguments(&self) -> String {
                ExtraRepr::new().field("padding", self.sizes.map(|n| n.hint())).field("value", self.value).finish()
            }
        }

        impl Forward for $name {
            type Output = Tensor;
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                ops::pad(x, &self.sizes, "constant", Some(self.value))
            }
        }
    )*};
}
constant_padding!(ConstantPad1d 2 ConstantPad2d 4 ConstantPad3d 6);

macro_rules! padding {
    ($($doc:literal $name:ident $n:literal $mode:literal)*) => {$(
        #[doc = $doc]
        #[doc = "Sizes are given before and after each dimension, the last one first; negative ones crop."]
        #[derive(Module)]
        #[module(extra_repr = Self::arguments)]
        pub struct $name {
            #[module(skip)]
            sizes: [SymInt; $n],
            core: ModuleCore,
        }

        impl $name {
            /// Pads by these sizes.
            pub fn new(sizes: [i64; $n]) -> $name {
                $name { sizes: sizes.map(SymInt::from), core: ModuleCore::new() }
            }

            fn arguments(&self) -> String {
                ExtraRepr::new().value(self.sizes.map(|n| n.hint())).finish()
            }
        }

        impl Forward for $name {
            type Output = Tensor;
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                ops::pad(x, &self.sizes, $mode, None)
            }
        }
    )*};
}
padding! {
    "Pads with zeros." ZeroPad1d 2 "constant"
    "Pads with zeros." ZeroPad2d 4 "constant"
    "Pads with zeros." ZeroPad3d 6 "constant"
    "Pads with the input reflected at its edge." ReflectionPad1d 2 "reflect"
    "Pads with the input reflected at its edge." ReflectionPad2d 4 "reflect"
    "Pads with the input reflected at its edge." ReflectionPad3d 6 "reflect"
    "Pads with the edge value." ReplicationPad1d 2 "replicate"
    "Pads with the edge value." ReplicationPad2d 4 "replicate"
    "Pads with the edge value." ReplicationPad3d 6 "replicate"
    "Pads with the opposite side of the input." CircularPad1d 2 "circular"
    "Pads with the opposite side of the input." CircularPad2d 4 "circular"
    "Pads with the opposite side of the input." CircularPad3d 6 "circular"
}
