//! Types of the schema language: base types, optionals, sized and unsized lists, custom classes.
//!
//! Guarantees that printing a parsed type gives back the text it was read from.
//! Knows nothing of C++ or Rust types; those are made from this one in `ctype`.

use std::fmt;

/// Declares [`BaseTy`] together with its spelling.
macro_rules! base_types {
    ($($variant:ident $text:literal $doc:literal)*) => {
        /// A type without parts.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
        pub enum BaseTy { $(#[doc = $doc] $variant,)* }

        impl BaseTy {
            /// The word the schema language uses.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// The base type of that spelling, if there is one.
            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($text => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

base_types! {
    Generator "Generator" "A random number generator."
    ScalarType "ScalarType" "A dtype."
    Tensor "Tensor" "A tensor."
    Int "int" "A 64-bit integer."
    DimVector "DimVector" "An owned list of sizes."
    Float "float" "A double."
    Str "str" "Text."
    Bool "bool" "A truth value."
    Layout "Layout" "Strided or one of the sparse layouts."
    Device "Device" "A device with its index."
    DeviceIndex "DeviceIndex" "The index of a device alone."
    Scalar "Scalar" "A number of any kind."
    MemoryFormat "MemoryFormat" "The order of dimensions in memory."
    QScheme "QScheme" "A quantisation scheme."
    Storage "Storage" "The memory behind a tensor."
    Stream "Stream" "A device stream."
    SymInt "SymInt" "An integer that may be symbolic."
    SymBool "SymBool" "A truth value that may be symbolic."
    GraphModule "GraphModule" "A traced program."
}

/// The type of an argument or a return. Alias annotations are kept beside it, not inside it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Type {
    /// A word.
    Base(BaseTy),
    /// `T?`
    Optional(Box<Type>),
    /// `T[]` or `T[N]`; a size of zero is never stored.
    List(Box<Type>, Option<u64>),
    /// `__torch__.torch.classes.NAME`
    Custom(String),
}

/// What every custom class name begins with.
pub(super) const CUSTOM_PREFIX: &str = "__torch__.torch.classes.";

impl Type {
    /// Plain `Tensor`.
    pub const TENSOR: Type = Type::Base(BaseTy::Tensor);

    /// The base type at the bottom of optionals and lists; `None` for a custom class.
    pub fn innermost(&self) -> Option<BaseTy> {
        match self {
            Type::Base(base) => Some(*base),
            Type::Optional(elem) | Type::List(elem, _) => elem.innermost(),
            Type::Custom(_) => None,
        }
    }

    /// `Tensor` under any number of optionals and lists.
    pub fn is_tensor_like(&self) -> bool {
        self.innermost() == Some(BaseTy::Tensor)
    }

    /// `SymInt` under any number of optionals and lists.
    pub fn is_symint_like(&self) -> bool {
        self.innermost() == Some(BaseTy::SymInt)
    }

    /// The list inside, looking through optionals: element type and size.
    pub fn as_list(&self) -> Option<(&Type, Option<u64>)> {
        match self {
            Type::List(elem, size) => Some((elem, *size)),
            Type::Optional(elem) => elem.as_list(),
            _ => None,
        }
    }

    /// True for `T?` and for anything that holds an optional below lists.
    pub fn is_nullable(&self) -> bool {
        match self {
            Type::Optional(_) => true,
            Type::List(elem, _) => elem.is_nullable(),
            _ => false,
        }
    }

    /// True when this is exactly the given base type.
    pub fn is_base(&self, base: BaseTy) -> bool {
        *self == Type::Base(base)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Base(base) => f.write_str(base.as_str()),
            Type::Optional(elem) => write!(f, "{elem}?"),
            Type::List(elem, Some(size)) => write!(f, "{elem}[{size}]"),
            Type::List(elem, None) => write!(f, "{elem}[]"),
            Type::Custom(name) => write!(f, "{CUSTOM_PREFIX}{name}"),
        }
    }
}
