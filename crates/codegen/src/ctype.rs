//! C++ types as values, their spelling, and the Rust types that play the same part.
//!
//! A [`CType`] is what an argument, a return or a saved value is in the target language. The model keeps
//! C++ types for both dialects; [`CType::rust_type`] is the one place that translates them.

use std::fmt;

/// Declares [`CBase`] with its C++ and Rust spellings.
macro_rules! base_ctypes {
    ($($variant:ident $cpp:literal $rust:literal)*) => {
        /// A C++ type without parameters.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
        pub enum CBase { $(#[doc = concat!("`", $cpp, "`")] $variant,)* }

        impl CBase {
            /// The C++ spelling.
            pub fn cpp(self) -> &'static str {
                match self { $(Self::$variant => $cpp,)* }
            }

            /// The Rust type that owns such a value.
            pub fn rust(self) -> &'static str {
                match self { $(Self::$variant => $rust,)* }
            }
        }
    };
}

base_ctypes! {
    Void "void" "()"
    Bool "bool" "bool"
    Long "int64_t" "i64"
    Double "double" "f64"
    StringView "c10::string_view" "String"
    Generator "at::Generator" "Generator"
    ScalarType "at::ScalarType" "DType"
    Tensor "at::Tensor" "Tensor"
    OptionalTensorRef "at::OptionalTensorRef" "Option<Tensor>"
    TensorList "at::TensorList" "Vec<Tensor>"
    ITensorListRef "at::ITensorListRef" "Vec<Tensor>"
    IOptTensorListRef "at::IOptTensorListRef" "Vec<Option<Tensor>>"
    DimVector "at::DimVector" "Vec<i64>"
    Layout "at::Layout" "Layout"
    Device "at::Device" "Device"
    DeviceIndex "at::DeviceIndex" "i64"
    Scalar "at::Scalar" "Scalar"
    OptionalScalarRef "at::OptionalScalarRef" "Option<Scalar>"
    MemoryFormat "at::MemoryFormat" "MemoryFormat"
    QScheme "at::QScheme" "QScheme"
    Storage "at::Storage" "Storage"
    Stream "at::Stream" "Stream"
    IntArrayRef "at::IntArrayRef" "Vec<i64>"
    OptionalIntArrayRef "at::OptionalIntArrayRef" "Option<Vec<i64>>"
    OptionalSymIntArrayRef "at::OptionalSymIntArrayRef" "Option<Vec<SymInt>>"
    TensorOptions "at::TensorOptions" "TensorOptions"
    TypeAndSize "torch::autograd::generated::TypeAndSize" "TypeAndSize"
    TensorGeometry "at::TensorGeometry" "TensorGeometry"
    SymInt "c10::SymInt" "SymInt"
    SymBool "c10::SymBool" "SymBool"
    SymIntArrayRef "c10::SymIntArrayRef" "Vec<SymInt>"
    InverseReturnMode "at::functionalization::InverseReturnMode" "InverseReturnMode"
    ScalarT "scalar_t" "T"
    OpmathT "opmath_t" "T"
}

/// A C++ type.
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum CType {
    /// A plain name.
    Base(CBase),
    /// `const T &`
    ConstRef(Box<CType>),
    /// `T &`
    MutRef(Box<CType>),
    /// `::std::optional<T>`
    Optional(Box<CType>),
    /// `c10::List<T>`
    List(Box<CType>),
    /// `at::ArrayRef<T>`
    ArrayRef(Box<CType>),
    /// `::std::vector<T>`
    Vector(Box<CType>),
    /// `::std::array<T,N>`
    Array(Box<CType>, u64),
    /// `::std::tuple<T,…>`
    Tuple(Vec<CType>),
}

impl From<CBase> for CType {
    fn from(base: CBase) -> Self {
        CType::Base(base)
    }
}

impl CType {
    /// `const T &`
    pub fn const_ref(self) -> Self {
        CType::ConstRef(Box::new(self))
    }

    /// `T &`
    pub fn mut_ref(self) -> Self {
        CType::MutRef(Box::new(self))
    }

    /// `::std::optional<T>`
    pub fn optional(self) -> Self {
        CType::Optional(Box::new(self))
    }

    /// `::std::vector<T>`
    pub fn vector(self) -> Self {
        CType::Vector(Box::new(self))
    }

    /// The C++ spelling.
    pub fn cpp_type(&self) -> String {
        self.to_string()
    }

    /// The type without references, inside and out.
    pub fn remove_const_ref(&self) -> CType {
        let inner = |elem: &CType| Box::new(elem.remove_const_ref());
        match self {
            CType::Base(base) => CType::Base(*base),
            CType::ConstRef(elem) | CType::MutRef(elem) => elem.remove_const_ref(),
            CType::Optional(elem) => CType::Optional(inner(elem)),
            CType::List(elem) => CType::List(inner(elem)),
            CType::ArrayRef(elem) => CType::ArrayRef(inner(elem)),
            CType::Vector(elem) => CType::Vector(inner(elem)),
            CType::Array(elem, size) => CType::Array(inner(elem), *size),
            CType::Tuple(elems) => CType::Tuple(elems.iter().map(CType::remove_const_ref).collect()),
        }
    }

    /// The Rust type that owns such a value.
    pub fn rust_type(&self) -> String {
        match self {
            CType::Base(base) => base.rust().to_owned(),
            CType::ConstRef(elem) | CType::MutRef(elem) => elem.rust_type(),
            CType::Optional(elem) => format!("Option<{}>", elem.rust_type()),
            CType::List(elem) | CType::ArrayRef(elem) | CType::Vector(elem) => format!("Vec<{}>", elem.rust_type()),
            CType::Array(elem, size) => format!("[{}; {size}]", elem.rust_type()),
            CType::Tuple(elems) => {
                format!("({})", elems.iter().map(CType::rust_type).collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// `at::TensorList`, which a structured group spells as a list reference.
    pub fn is_tensor_list(&self) -> bool {
        match self {
            CType::Base(base) => matches!(base, CBase::TensorList),
            CType::ConstRef(elem) => **elem == CType::Base(CBase::ITensorListRef),
            _ => false,
        }
    }

    /// Any argument that is a list of tensors, optional ones included.
    pub fn is_tensor_list_like(&self) -> bool {
        let optional_tensors = || match self {
            CType::ConstRef(elem) => match &**elem {
                CType::List(elem) => **elem == CType::Base(CBase::Tensor).optional(),
                _ => false,
            },
            _ => false,
        };
        self.is_tensor_list() || optional_tensors()
    }
}

impl fmt::Display for CType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CType::Base(base) => f.write_str(base.cpp()),
            CType::ConstRef(elem) => write!(f, "const {elem} &"),
            CType::MutRef(elem) => write!(f, "{elem} &"),
            CType::Optional(elem) => write!(f, "::std::optional<{elem}>"),
            CType::List(elem) => write!(f, "c10::List<{elem}>"),
            CType::ArrayRef(elem) => write!(f, "at::ArrayRef<{elem}>"),
            CType::Vector(elem) => write!(f, "::std::vector<{elem}>"),
            CType::Array(elem, size) => write!(f, "::std::array<{elem},{size}>"),
            CType::Tuple(elems) => {
                f.write_str("::std::tuple<")?;
                for (i, elem) in elems.iter().enumerate() {
                    write!(f, "{}{elem}", if i > 0 { "," } else { "" })?;
                }
                f.write_str(">")
            }
        }
    }
}
