//! Pieces of Rust text that several generated files share: parameter lists, calls, boxed values, formatting.

use super::derive::Differentiation;
use super::op::{Arg, Op, Returns};
use super::types::Ty;
use crate::native::Form;
use crate::schema::SchemaKind;

/// An op with its derivative: what every file is made from.
pub(super) struct Plan<'a> {
    pub(super) op: &'a Op,
    pub(super) differentiation: Differentiation,
}

impl Plan<'_> {
    /// Whether it hands `self` back.
    pub(super) fn returns_self(&self) -> bool {
        self.op.native.kind() == SchemaKind::Inplace && self.op.returns == Returns::Tensor
    }

    /// Parameters of the typed function; `'a` on what is handed back.
    pub(super) fn parameters(&self) -> String {
        join(self.typed_parameters().map(|(a, ty)| format!("{}: {ty}", a.ident)))
    }

    /// The types of [`Plan::parameters`].
    pub(super) fn parameter_types(&self) -> String {
        join(self.typed_parameters().map(|(_, ty)| ty))
    }

    fn typed_parameters(&self) -> impl Iterator<Item = (&Arg, String)> {
        let back = |a: &Arg| self.returns_self() && a.name == "self";
        let ty = move |a: &Arg| if back(a) { "&'a Tensor".to_owned() } else { a.ty.typed() };
        let outs = self.op.outs.iter().map(|a| (a, "&'a Tensor".to_owned()));
        self.op.args().map(move |a| (a, ty(a))).chain(outs)
    }

    /// `<'a>` if the parameters need it.
    pub(super) fn generics(&self) -> &'static str {
        if self.returns_self() || !self.op.outs.is_empty() { "<'a>" } else { "" }
    }

    /// What the typed function returns, inside `Result`.
    pub(super) fn return_type(&self) -> String {
        let tuple = |n: usize, item: &str| format!("({})", vec![item; n].join(", "));
        match (&self.op.returns, self.op.outs.len()) {
            _ if self.returns_self() => "&'a Tensor".into(),
            (_, 1) => "&'a Tensor".into(),
            (_, n) if n > 1 => tuple(n, "&'a Tensor"),
            (Returns::Nothing, _) => "()".into(),
            (Returns::Tensor, _) => "Tensor".into(),
            (Returns::Tensors(names), _) => tuple(names.len(), "Tensor"),
            (Returns::List, _) => "Vec<Tensor>".into(),
            (Returns::Mixed(parts), _) => {
                let part = |ty: &Ty| if *ty == Ty::Tensors { "Vec<Tensor>" } else { "Tensor" };
                format!("({})", join(parts.iter().map(|ty| part(ty).to_owned())))
            }
            (Returns::Value(ty), _) => ty.typed(),
        }
    }

    /// The arguments, to pass them on.
    pub(super) fn arguments(&self) -> String {
        join(self.op.args().chain(&self.op.outs).map(|a| a.ident.clone()))
    }

    /// The arguments as `Lent`, one per argument of the schema.
    pub(super) fn lent_arguments(&self) -> String {
        join(self.op.all_args.iter().chain(&self.op.outs).map(|a| a.ty.lent(&a.ident)))
    }

    /// Statements that leave for `dispatch::{door}`, whose result is generic, and return what comes back.
    pub(super) fn leave(&self, door: &str) -> String {
        let call = format!("Op::{}, &[{}])", self.op.constant(), self.lent_arguments());
        match self.handed_back() {
            Some(back) => format!("dispatch::{}{call}?; return Ok({back});", door.replacen('(', "::<()>(", 1)),
            None => format!("return dispatch::{door}{call};"),
        }
    }

    /// The arguments that the op hands back, as one value.
    pub(super) fn handed_back(&self) -> Option<String> {
        match self.op.outs.as_slice() {
            _ if self.returns_self() => Some("self_".to_owned()),
            [] => None,
            [only] => Some(only.ident.clone()),
            several => Some(format!("({})", join(several.iter().map(|a| a.ident.clone())))),
        }
    }

    /// A list of every tensor argument, as `&[&Tensor]`.
    pub(super) fn tensor_inputs(&self) -> String {
        let tensors: Vec<Arg> = self.op.args().filter(|a| a.ty.is_tensor()).cloned().collect();
        self.tensor_inputs_of(&tensors)
    }

    /// As [`Plan::tensor_inputs`], of some arguments.
    pub(super) fn tensor_inputs_of(&self, tensors: &[Arg]) -> String {
        if tensors.iter().all(|a| a.ty == Ty::Tensor) {
            return format!("&[{}]", join(tensors.iter().map(|a| a.ident.clone())));
        }
        let mut text = String::from("&std::iter::empty::<&Tensor>()");
        for a in tensors {
            text += &match a.ty {
                Ty::Tensor => format!(".chain([{}])", a.ident),
                Ty::OptTensors => format!(".chain({}.iter().flatten())", a.ident),
                _ => format!(".chain({})", a.ident),
            };
        }
        text + ".collect::<Vec<_>>()"
    }

    /// Whether operands are on different devices, as an expression; none if there are no two operands.
    pub(super) fn mixed_devices(&self) -> Option<String> {
        let tensors: Vec<&Arg> = self.op.args().chain(&self.op.outs).filter(|a| a.ty.is_tensor()).collect();
        if let [] | [Arg { ty: Ty::Tensor | Ty::OptTensor, .. }] = tensors.as_slice() {
            return None;
        }
        let bit = |a: &Arg| match a.ty {
            Ty::OptTensor => format!("devices::of_opt({})", a.ident),
            Ty::Tensors => format!("devices::of_list({})", a.ident),
            Ty::OptTensors => format!("devices::of_opts({})", a.ident),
            _ => format!("devices::of({})", a.ident),
        };
        Some(format!("{} == devices::MIXED", tensors.into_iter().map(bit).collect::<Vec<_>>().join(" | ")))
    }

    /// A statement that returns an error in a build without the feature that the op belongs to. It comes first, so that such a build
    /// has nothing else of the op: what is behind it is never compiled.
    pub(super) fn present(&self) -> String {
        self.op.rust.record.feature.map_or(String::new(), |feature| {
            format!(
                "if !cfg!(feature = {feature:?}) {{ return dispatch::left_out({:?}, {feature:?}); }}",
                self.op.base()
            )
        })
    }

    /// Doc comment with the op's schema, below what its entry says of it.
    pub(super) fn doc(&self) -> String {
        let form = match self.op.rust.form {
            Form::Declared => "",
            Form::Inplace => " In-place form.",
            Form::Out => " `out=` form.",
        };
        let sentence = self.op.rust.record.doc.as_ref().map_or(String::new(), |doc| format!("/// {doc}{form}\n///\n"));
        let needed =
            self.op.rust.record.feature.map_or(String::new(), |feature| {
                format!("\n///\n/// Refuses in a build without the feature `{feature}`.")
            });
        format!("{sentence}/// `aten::{}`{needed}", self.op.native.text)
    }

    /// The example of the op's entry as a documentation test, below [`Plan::doc`]; imports are not shown.
    pub(super) fn example(&self) -> String {
        let Some(example) = &self.op.rust.record.example else { return String::new() };
        let lines: String = example.lines().map(|line| format!("/// {line}\n")).collect();
        format!(
            "\n///\n/// ```\n/// # use firebrand_core::{{DType, Tensor, ops}};\n{lines}/// # Ok::<(), firebrand_core::Error>(())\n/// ```"
        )
    }
}

/// Joined with commas.
pub(super) fn join(items: impl IntoIterator<Item = String>) -> String {
    items.into_iter().collect::<Vec<_>>().join(", ")
}

/// An expression as text.
pub(super) fn expr(e: &syn::Expr) -> String {
    quote::quote!(#e).to_string()
}

/// One file: a head, then items, each formatted, with blank lines between.
pub(super) fn file(about: &str, uses: &str, items: &[String]) -> String {
    let mut text =
        format!("//! {about}\n//!\n//! Generated by `cargo xtask codegen` from `schema/`; do not edit.\n\n{uses}");
    for item in items {
        text.push('\n');
        text += &format_item(item);
    }
    text
}

/// Formats items. Text that does not parse is returned as it is, so that the compiler shows what is wrong with it.
fn format_item(item: &str) -> String {
    match syn::parse_file(item) {
        // Arguments of macros are printed token by token.
        Ok(file) => prettyplease::unparse(&file).replace(") ?", ")?"),
        Err(e) => {
            format!("compile_error!({:?});\n{item}\n", format!("the generator wrote text that does not parse: {e}"))
        }
    }
}

/// `mod.rs`.
pub(super) fn module() -> String {
    let modules = [
        ("below", "pub(crate) "),
        ("boxed", "pub(crate) "),
        ("forward", "pub(crate) "),
        ("functions", "pub "),
        ("methods", ""),
        ("nodes", "pub(crate) "),
        ("schema", "pub "),
    ];
    let mut text = String::from(
        "//! What `cargo xtask codegen` makes from `schema/ops.yaml` and `schema/derivatives.yaml`; do not edit.\n\
         // Each file imports whatever some op may need, and text is written to be uniform rather than short;\n\
         // names of arguments are ATen's.\n\
         #![allow(unused_imports, unused_variables, non_snake_case, non_upper_case_globals, clippy::all)]\n\n",
    );
    for (name, visibility) in modules {
        text += &format!("#[rustfmt::skip]\n{visibility}mod {name};\n");
    }
    text
}
