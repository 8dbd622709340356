//! `#[derive(Module)]`: generates the two required methods of `firebrand_core::module::Module` from a struct's fields.
//!
//! One field must be of type `ModuleCore`. Every other field is visited under its own name. What it contributes (a parameter, a
//! buffer, a child module, nothing) depends on its type, through `ModuleField`, and not on this macro, so aliases and generics
//! work. `#[module(skip)]` leaves a field out, `#[module(rename = "…")]` gives it another name.
//! It also implements `Debug`, which prints the tree; `#[module(no_debug)]` on the struct disables that, and
//! `#[module(extra_repr = path)]` names the function that prints the module's arguments.
#![forbid(unsafe_code)]

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Field, Ident, LitStr, Member, Path, Result, Type, parse_macro_input, parse_quote};

/// Implements `Module` and `Debug` for a struct that has a field of type `ModuleCore`.
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    module(input).unwrap_or_else(|e| e.to_compile_error()).into()
}

/// Where the trait lives, as the crate that uses the macro sees it.
fn home() -> TokenStream {
    let path = |found, itself: &str| match found {
        FoundCrate::Itself => Ident::new(itself, Span::call_site()),
        FoundCrate::Name(name) => Ident::new(&name, Span::call_site()),
    };
    let name = match (crate_name("firebrand-core"), crate_name("firebrand")) {
        (Ok(found), _) => path(found, "firebrand_core"),
        (Err(_), Ok(found)) => path(found, "firebrand"),
        (Err(_), Err(_)) => path(FoundCrate::Itself, "firebrand_core"),
    };
    quote!(::#name::module)
}

/// What `#[module(..)]` says of a field.
#[derive(Default)]
struct Options {
    skip: bool,
    rename: Option<String>,
}

fn options(field: &Field) -> Result<Options> {
    let mut found = Options::default();
    for attribute in field.attrs.iter().filter(|a| a.path().is_ident("module")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("skip") {
                found.skip = true;
            } else if meta.path.is_ident("rename") {
                found.rename = Some(meta.value()?.parse::<LitStr>()?.value());
            } else {
                return Err(meta.error("expected `skip` or `rename = \"…\"`"));
            }
            Ok(())
        })?;
    }
    Ok(found)
}

/// What `#[module(..)]` says of the struct.
#[derive(Default)]
struct StructOptions {
    no_debug: bool,
    extra_repr: Option<Path>,
}

fn struct_options(input: &DeriveInput) -> Result<StructOptions> {
    let mut found = StructOptions::default();
    for attribute in input.attrs.iter().filter(|a| a.path().is_ident("module")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("no_debug") {
                found.no_debug = true;
            } else if meta.path.is_ident("extra_repr") {
                found.extra_repr = Some(meta.value()?.parse()?);
            } else {
                return Err(meta.error("expected `no_debug` or `extra_repr = function`"));
            }
            Ok(())
        })?;
    }
    Ok(found)
}

fn is_core(ty: &Type) -> bool {
    matches!(ty, Type::Path(p) if p.path.segments.last().is_some_and(|s| s.ident == "ModuleCore"))
}

/// Whether one of `names` occurs in the tokens.
fn mentions(tokens: TokenStream, names: &[Ident]) -> bool {
    tokens.into_iter().any(|t| match t {
        TokenTree::Ident(i) => names.contains(&i),
        TokenTree::Group(g) => mentions(g.stream(), names),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

fn module(mut input: DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(input.ident.span(), "Module can be derived for structs only; implement it by hand"));
    };
    let StructOptions { no_debug, extra_repr } = struct_options(&input)?;
    let home = home();
    let parameters: Vec<Ident> = input.generics.type_params().map(|p| p.ident.clone()).collect();
    let (mut core, mut visits, mut bounds) = (None, Vec::new(), Vec::new());
    for (member, field) in data.fields.members().zip(&data.fields) {
        let Options { skip, rename } = options(field)?;
        if is_core(&field.ty) {
            if core.replace(member).is_some() {
                return Err(Error::new(field.span(), "a module has one ModuleCore, this is a second"));
            }
            continue;
        }
        if skip {
            continue;
        }
        let name = rename.unwrap_or_else(|| match &member {
            Member::Named(ident) => ident.to_string().trim_start_matches("r#").to_string(),
            Member::Unnamed(index) => index.index.to_string(),
        });
        // The span of the type, so that "is no ModuleField" points at the field.
        let ty = &field.ty;
        visits.push(quote::quote_spanned!(ty.span()=> #home::ModuleField::visit(&self.#member, #name, visitor);));
        if mentions(ty.to_token_stream(), &parameters) {
            bounds.push(ty.clone());
        }
    }
    let Some(core) = core else {
        return Err(Error::new(input.ident.span(), "a module needs a field of type ModuleCore: `core: ModuleCore`"));
    };
    let clause = input.generics.make_where_clause();
    clause.predicates.extend(bounds.iter().map(|ty| -> syn::WherePredicate { parse_quote!(#ty: #home::ModuleField) }));
    let (ident, (generics, arguments, clause)) = (&input.ident, input.generics.split_for_impl());
    let extra_repr =
        extra_repr.map(|function| quote!(fn extra_repr(&self) -> ::std::string::String { #function(self) }));
    let debug = (!no_debug).then(|| {
        quote! {
            impl #generics ::core::fmt::Debug for #ident #arguments #clause {
                fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                    #home::fmt_module(#home::AsModule::as_module(self), f)
                }
            }
        }
    });
    Ok(quote! {
        #debug
        impl #generics #home::Module for #ident #arguments #clause {
            fn core(&self) -> &#home::ModuleCore {
                &self.#core
            }
            fn visit<'module>(&'module self, visitor: &mut dyn #home::ModuleVisitor<'module>) {
                let _ = &visitor;
                #(#visits)*
            }
            #extra_repr
        }
    })
}
