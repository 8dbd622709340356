//! Operator declarations: what `native_functions.yaml`, or our own `ops.yaml`, says about each operator.
//!
//! [`parse`] reads, checks and completes the whole file: the list it returns holds the declared functions
//! in file order, then the generated variants. A [`NativeFunction`] is plain data and never changes. The two
//! kinds of files differ in the fields beside the schema; what is read from them is one model.

mod check;
pub mod dispatch;
mod forms;
mod kernels;
mod ours;
mod read;
mod record;
mod variants;
mod views;

pub use forms::{Row, RowKind};
pub use ours::{Form, Implementation, RustFunction};
pub use read::Precompute;
#[cfg(feature = "emit")]
pub(crate) use record::is_flag;
pub use record::{Autocast, Cost, Decomposition, Devices, Record, Training, Vmap};
pub use views::{ViewGroup, group_views};

use crate::dialect::Dialect;
use crate::error::Result;
use crate::schema::{FunctionSchema, OperatorName, SchemaKind};
use dispatch::DispatchKey;
use std::collections::BTreeSet;
use std::rc::Rc;

/// One operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NativeFunction {
    /// Its schema.
    pub func: FunctionSchema,
    /// Its schema as text, printed once.
    pub text: String,
    /// The signature it shares with its variants, made once.
    pub signature: FunctionSchema,
    /// `aten` unless the declaration says otherwise.
    pub namespace: String,
    /// Whether it can be called as a function.
    pub variant_function: bool,
    /// Whether it can be called as a method of `self`.
    pub variant_method: bool,
    /// Kernels by key.
    pub dispatch: Vec<(DispatchKey, String)>,
    /// It is a structured kernel.
    pub structured: bool,
    /// The structured operator that computes for it.
    pub structured_delegate: Option<OperatorName>,
    /// Arguments a structured kernel computes before the loop.
    pub precomputed: Option<Precompute>,
    /// Operators to generate.
    pub autogen: Vec<OperatorName>,
    /// Inner loops by ufunc key.
    pub ufunc_inner_loop: Vec<(String, String)>,
    /// Tags, with the automatic ones.
    pub tags: BTreeSet<String>,
    /// Its kernel is registered by hand.
    pub manual_kernel_registration: bool,
    /// Its C++ binding is written by hand.
    pub manual_cpp_binding: bool,
    /// Arguments that lose their default in the C++ form.
    pub cpp_no_default_args: Vec<String>,
    /// Mutable tensors become const references in C++.
    pub use_const_ref_for_mutable_tensors: bool,
    /// `device_check: NoCheck` was given.
    pub device_check: bool,
    /// Python submodule it is bound in.
    pub python_module: Option<String>,
    /// It has kernels below autograd.
    pub is_abstract: bool,
    /// Its Rust function and what implements it, if it is one of ours.
    pub rust: Option<RustFunction>,
    /// Where it was declared, from 1.
    pub line: usize,
}

impl NativeFunction {
    /// An operator of which only the schema is known; `text` is the schema as it prints.
    fn bare(func: FunctionSchema, text: String, namespace: &str, line: usize) -> Self {
        NativeFunction {
            text,
            signature: func.signature(),
            func,
            namespace: namespace.to_owned(),
            variant_function: true,
            variant_method: false,
            dispatch: Vec::new(),
            structured: false,
            structured_delegate: None,
            precomputed: None,
            autogen: Vec::new(),
            ufunc_inner_loop: Vec::new(),
            tags: BTreeSet::new(),
            manual_kernel_registration: false,
            manual_cpp_binding: false,
            cpp_no_default_args: Vec::new(),
            use_const_ref_for_mutable_tensors: false,
            device_check: false,
            python_module: None,
            is_abstract: false,
            rust: None,
            line,
        }
    }

    /// What it does with its arguments.
    pub fn kind(&self) -> SchemaKind {
        self.func.kind()
    }

    /// Whether it was made by the generator.
    pub fn is_generated(&self) -> bool {
        self.has_tag("generated")
    }

    /// Whether it has a tag.
    pub fn has_tag(&self, tag: &str) -> bool {
        self.tags.contains(tag)
    }

    /// Whether it has a kernel for a key.
    pub fn has_kernel(&self, key: DispatchKey) -> bool {
        self.dispatch.iter().any(|(k, _)| *k == key)
    }

    /// Whether it belongs to a structured group.
    pub fn part_of_structured_group(&self) -> bool {
        self.structured || self.structured_delegate.is_some()
    }

    /// Whether some output shares memory with an input that is not written.
    pub fn is_view_op(&self) -> bool {
        let aliasing = self.func.returns.iter().any(|r| r.annotation.as_ref().is_some_and(|a| !a.is_write));
        let name = &self.func.name;
        let resizes =
            name.overload_name.is_empty() && name.name.inplace && matches!(&*name.name.base, "resize" | "resize_as");
        let inplace_view = self.has_tag("inplace_view") && !resizes;
        let wildcard =
            self.func.arguments.flat_all().any(|a| a.annotation.as_ref().is_some_and(|a| a.is_wildcard_after()));
        aliasing || inplace_view || wildcard
    }

    /// Whether it is a member of the foreach family.
    pub fn is_foreach(&self) -> bool {
        self.func.base().starts_with("_foreach_")
    }
}

/// Reads declarations, checks them one by one and against each other, adds generated variants.
///
/// `tags` are the tags a declaration may have. The dialect says whose declarations they are.
pub fn parse(text: &str, tags: &[&str], dialect: Dialect) -> Result<Vec<Rc<NativeFunction>>> {
    let mut functions = read::read(text, tags, dialect)?;
    check::cross_check(&functions)?;
    match dialect {
        Dialect::Cpp => variants::add_generated(&mut functions)?,
        // The forms of our own operators were made with them.
        Dialect::Rust => ours::check_rust_names(&functions)?,
    }
    Ok(functions.into_iter().map(Rc::new).collect())
}
