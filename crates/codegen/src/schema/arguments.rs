//! Arguments and returns of a schema, their alias annotations, and the groups arguments fall into.
//!
//! Guarantees that the groups are disjoint and that their concatenation is schema order.
//! Does not check what a schema as a whole must obey; that is `parse`.

use super::types::Type;
use std::fmt;

/// `(a!)`, `(a -> *)`: which storage an argument or return shares, and whether it is written.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Annotation {
    /// Letters before the arrow, one or two.
    pub alias_set: Vec<char>,
    /// Whether the argument is written to.
    pub is_write: bool,
    /// Letters after the arrow, or the wildcard `*` alone; empty without an arrow.
    pub alias_set_after: Vec<char>,
}

impl Annotation {
    /// The annotation `(letter!)`.
    pub fn mutable(letter: char) -> Self {
        Annotation { alias_set: vec![letter], is_write: true, alias_set_after: Vec::new() }
    }

    /// Whether the set after the arrow is the wildcard.
    pub fn is_wildcard_after(&self) -> bool {
        self.alias_set_after == ['*']
    }
}

fn write_letters(f: &mut fmt::Formatter<'_>, letters: &[char]) -> fmt::Result {
    for (i, letter) in letters.iter().enumerate() {
        write!(f, "{}{letter}", if i > 0 { "|" } else { "" })?;
    }
    Ok(())
}

impl fmt::Display for Annotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_letters(f, &self.alias_set)?;
        if self.is_write {
            f.write_str("!")?;
        }
        if !self.alias_set_after.is_empty() {
            f.write_str(" -> ")?;
            write_letters(f, &self.alias_set_after)?;
        }
        Ok(())
    }
}

/// Prints a type with its annotation put back where it was read: directly after `Tensor`.
fn write_annotated(f: &mut fmt::Formatter<'_>, ty: &Type, annotation: Option<&Annotation>) -> fmt::Result {
    match (annotation, ty) {
        (None, _) => write!(f, "{ty}"),
        (Some(a), Type::Optional(_)) => write!(f, "Tensor({a})?"),
        (Some(a), Type::List(..)) => write!(f, "Tensor({a})[]"),
        (Some(a), _) => write!(f, "Tensor({a})"),
    }
}

/// One argument.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Argument {
    /// Its name.
    pub name: String,
    /// Its type, without the annotation.
    pub ty: Type,
    /// The text of its default.
    pub default: Option<String>,
    /// Its alias annotation.
    pub annotation: Option<Annotation>,
}

impl Argument {
    /// Whether the operator writes to it.
    pub fn is_write(&self) -> bool {
        self.annotation.as_ref().is_some_and(|a| a.is_write)
    }
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_annotated(f, &self.ty, self.annotation.as_ref())?;
        write!(f, " {}", self.name)?;
        match &self.default {
            Some(default) => write!(f, "={default}"),
            None => Ok(()),
        }
    }
}

/// One return.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Return {
    /// Its name, if it was given one.
    pub name: Option<String>,
    /// Its type, without the annotation.
    pub ty: Type,
    /// Its alias annotation.
    pub annotation: Option<Annotation>,
}

impl Return {
    /// Whether it is a written argument handed back.
    pub fn is_write(&self) -> bool {
        self.annotation.as_ref().is_some_and(|a| a.is_write)
    }
}

impl fmt::Display for Return {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_annotated(f, &self.ty, self.annotation.as_ref())?;
        match &self.name {
            Some(name) => write!(f, " {name}"),
            None => Ok(()),
        }
    }
}

/// The four keyword-only arguments that together say what a new tensor looks like.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TensorOptions {
    /// `dtype`
    pub dtype: Argument,
    /// `layout`
    pub layout: Argument,
    /// `device`
    pub device: Argument,
    /// `pin_memory`
    pub pin_memory: Argument,
}

impl TensorOptions {
    /// The four, in schema order.
    pub fn all(&self) -> [&Argument; 4] {
        [&self.dtype, &self.layout, &self.device, &self.pin_memory]
    }
}

/// All arguments of a schema, by group. Fields are in schema order.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Arguments {
    /// Positional arguments before `self`; empty without `self`.
    pub pre_self_positional: Vec<Argument>,
    /// The first positional argument called `self`.
    pub self_arg: Option<Argument>,
    /// Positional arguments after `self`, or all of them without `self`.
    pub post_self_positional: Vec<Argument>,
    /// Keyword-only arguments before tensor options, or all of them without tensor options.
    pub pre_tensor_options_kwarg_only: Vec<Argument>,
    /// The tensor-options group.
    pub tensor_options: Option<TensorOptions>,
    /// Keyword-only arguments after tensor options.
    pub post_tensor_options_kwarg_only: Vec<Argument>,
    /// Mutable keyword-only arguments.
    pub out: Vec<Argument>,
}

impl Arguments {
    /// Positional arguments.
    pub fn flat_positional(&self) -> impl Iterator<Item = &Argument> {
        self.pre_self_positional.iter().chain(&self.self_arg).chain(&self.post_self_positional)
    }

    /// Keyword-only arguments, tensor options as four, without out arguments.
    pub fn flat_kwarg_only(&self) -> impl Iterator<Item = &Argument> {
        self.pre_tensor_options_kwarg_only
            .iter()
            .chain(self.tensor_options.iter().flat_map(TensorOptions::all))
            .chain(&self.post_tensor_options_kwarg_only)
    }

    /// Every argument that is not an out argument.
    pub fn flat_non_out(&self) -> impl Iterator<Item = &Argument> {
        self.flat_positional().chain(self.flat_kwarg_only())
    }

    /// Every argument, out arguments last.
    pub fn flat_all(&self) -> impl Iterator<Item = &Argument> {
        self.flat_non_out().chain(&self.out)
    }

    /// Whether some argument that is not an out argument holds symbolic integers.
    pub fn has_symint(&self) -> bool {
        self.flat_non_out().any(|a| a.ty.is_symint_like())
    }

    /// Whether some argument that is not an out argument is tensor-like.
    pub fn has_tensor(&self) -> bool {
        self.flat_non_out().any(|a| a.ty.is_tensor_like())
    }
}

impl fmt::Display for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        let mut item = |f: &mut fmt::Formatter<'_>, item: &dyn fmt::Display| {
            let separator = if std::mem::take(&mut first) { "" } else { ", " };
            write!(f, "{separator}{item}")
        };
        for argument in self.flat_positional() {
            item(f, argument)?;
        }
        for (i, argument) in self.flat_kwarg_only().chain(&self.out).enumerate() {
            if i == 0 {
                item(f, &"*")?;
            }
            item(f, argument)?;
        }
        Ok(())
    }
}
