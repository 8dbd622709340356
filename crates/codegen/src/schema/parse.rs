//! Reading schemas from text.
//!
//! Guarantees: every piece is printed again and compared with what was read, so text that could be read
//! two ways is refused ([`Kind::Roundtrip`]), and a schema that comes out obeys the invariants of the
//! language. The first problem in reading order is the one reported.

use super::types::CUSTOM_PREFIX;
use super::{Annotation, Argument, Arguments, BaseTy, FunctionSchema, Return, TensorOptions, Type};
use crate::error::{Kind, Refusal};
use std::fmt::{self, Write};
use std::str::FromStr;

pub(super) type Result<T> = std::result::Result<T, Refusal>;

pub(super) fn fail<T>(kind: Kind, message: impl Into<String>) -> Result<T> {
    Err(Refusal::new(kind, message))
}

/// Compares what is printed with a text, without storing it.
struct Expect<'a> {
    rest: &'a str,
}

impl fmt::Write for Expect<'_> {
    fn write_str(&mut self, printed: &str) -> fmt::Result {
        self.rest = self.rest.strip_prefix(printed).ok_or(fmt::Error)?;
        Ok(())
    }
}

/// Refuses text that the parsed value would print differently.
pub(super) fn check_roundtrip<T: fmt::Display>(value: T, text: &str) -> Result<T> {
    let mut expect = Expect { rest: text };
    if write!(expect, "{value}").is_ok() && expect.rest.is_empty() {
        return Ok(value);
    }
    fail(Kind::Roundtrip, format!("`{text}` would print as `{value}`"))
}

impl FromStr for Type {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self> {
        // Iterative from the right, so that a long run of suffixes cannot exhaust the stack.
        let mut suffixes = Vec::new();
        let mut rest = text;
        loop {
            if let Some(inner) = rest.strip_suffix('?').filter(|inner| !inner.is_empty()) {
                suffixes.push(None);
                rest = inner;
            } else if let Some((inner, digits)) = split_list_suffix(rest) {
                suffixes.push(Some(digits));
                rest = inner;
            } else {
                break;
            }
        }
        if suffixes.len() > MAX_TYPE_DEPTH {
            return fail(Kind::TypeUnknown, format!("type `{text}` is nested too deeply"));
        }
        let mut ty = if let Some(name) = rest.strip_prefix(CUSTOM_PREFIX).filter(|n| is_dotted_name(n)) {
            Type::Custom(name.to_owned())
        } else if let Some(base) = BaseTy::from_word(rest) {
            Type::Base(base)
        } else {
            return fail(Kind::TypeUnknown, format!("`{rest}` is not a type of the schema language"));
        };
        for suffix in suffixes.into_iter().rev() {
            ty = match suffix {
                None => Type::Optional(Box::new(ty)),
                Some("") => Type::List(Box::new(ty), None),
                // A size of zero or with leading zeros fails the round trip below.
                Some(digits) => Type::List(Box::new(ty), digits.parse().ok().filter(|n| *n > 0)),
            };
        }
        check_roundtrip(ty, text)
    }
}

/// Deeper types have no meaning and would only cost stack.
const MAX_TYPE_DEPTH: usize = 16;

/// Splits `T[N]` into `T` and the digits of `N`.
fn split_list_suffix(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_suffix(']')?;
    let open = inner.rfind('[')?;
    let digits = &inner[open + 1..];
    (open > 0 && digits.bytes().all(|b| b.is_ascii_digit())).then_some((&inner[..open], digits))
}

fn is_dotted_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'.')
}

impl FromStr for Annotation {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self> {
        let syntax = || fail(Kind::AliasSyntax, format!("`({text})` is not an alias annotation"));
        let (before, after) = match text.split_once(" -> ") {
            Some((before, after)) => (before, Some(after)),
            None => (text, None),
        };
        let is_write = before.ends_with('!');
        let Some(mut alias_set) = letters(before.strip_suffix('!').unwrap_or(before)) else { return syntax() };
        let alias_set_after = match after {
            None => Vec::new(),
            Some("*") => vec!['*'],
            Some(set) => match letters(set) {
                Some(set) => set,
                None => return syntax(),
            },
        };
        if is_write && alias_set.len() > 1 {
            return fail(Kind::AliasMutableSet, format!("`({text})`: a set of several letters cannot be mutable"));
        }
        if alias_set.len() > 1 && alias_set_after.len() > 1 {
            return fail(
                Kind::AliasBothSets,
                format!("`({text})`: only one side of the arrow may have several letters"),
            );
        }
        // A set holds at most two letters before the arrow; more of them fail the round trip.
        if alias_set.len() > 2 {
            alias_set.drain(1..alias_set.len() - 1);
        }
        check_roundtrip(Annotation { alias_set, is_write, alias_set_after }, text)
    }
}

/// `a|b|c` as its letters.
fn letters(text: &str) -> Option<Vec<char>> {
    text.split('|')
        .map(|part| match part.as_bytes() {
            [letter] if letter.is_ascii_lowercase() => Some(char::from(*letter)),
            _ => None,
        })
        .collect()
}

/// Reads a type that may carry an annotation directly after `Tensor`.
fn parse_annotated(text: &str) -> Result<(Type, Option<Annotation>)> {
    let annotated = text.strip_prefix("Tensor(").and_then(|rest| rest.rfind(')').map(|end| rest.split_at(end)));
    let Some((annotation, suffix)) = annotated.filter(|(annotation, _)| !annotation.is_empty()) else {
        return Ok((text.parse()?, None));
    };
    let ty = match &suffix[1..] {
        "" => Type::TENSOR,
        "?" => Type::Optional(Box::new(Type::TENSOR)),
        "[]" => Type::List(Box::new(Type::TENSOR), None),
        other => {
            return fail(
                Kind::AliasPosition,
                format!("`{text}`: an annotation may be followed by nothing, `?` or `[]`, not by `{other}`"),
            );
        }
    };
    Ok((ty, Some(annotation.parse()?)))
}

impl FromStr for Argument {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self> {
        let shape = || fail(Kind::ArgNoSpace, format!("argument `{text}` is not of the form `type name`"));
        if !text.contains(' ') {
            return shape();
        }
        let mut halves = text.split('=');
        let declared = halves.next().unwrap_or_default();
        let default = halves.next();
        if halves.next().is_some() {
            return fail(Kind::ArgTwoEquals, format!("argument `{text}` has more than one `=`"));
        }
        let Some((ty, name)) = declared.rsplit_once(' ') else { return shape() };
        let (ty, annotation) = parse_annotated(ty)?;
        let default = default.filter(|d| !d.is_empty()).map(str::to_owned);
        check_roundtrip(Argument { name: name.to_owned(), ty, default, annotation }, text)
    }
}

impl FromStr for Return {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self> {
        let (ty, name) = match text.rsplit_once(' ') {
            Some((ty, name)) => (ty, Some(name.to_owned())),
            None => (text, None),
        };
        let (ty, annotation) = parse_annotated(ty)?;
        check_roundtrip(Return { name, ty, annotation }, text)
    }
}

fn parse_returns(text: &str) -> Result<Vec<Return>> {
    if text == "()" {
        return Ok(Vec::new());
    }
    let inner = text.strip_prefix('(').and_then(|t| t.strip_suffix(')')).unwrap_or(text);
    inner.split(", ").map(str::parse).collect()
}

impl FromStr for Arguments {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self> {
        let mut positional = Vec::new();
        let mut kwarg_only = Vec::new();
        let mut out: Vec<Argument> = Vec::new();
        let mut after_star = false;
        // Nothing between two commas counts as nothing; the round trip of the schema refuses it.
        for item in text.split(", ").filter(|item| !item.is_empty()) {
            if item == "*" {
                if after_star {
                    return fail(Kind::StarTwice, format!("`*` occurs twice in `({text})`"));
                }
                after_star = true;
                continue;
            }
            let argument: Argument = item.parse()?;
            match (after_star, argument.is_write(), out.is_empty()) {
                (false, _, _) => positional.push(argument),
                (true, true, _) => out.push(argument),
                (true, false, true) => kwarg_only.push(argument),
                (true, false, false) => {
                    return fail(Kind::ArgAfterOut, format!("`{argument}` follows an out argument but is not mutable"));
                }
            }
        }
        let arguments = group(positional, kwarg_only, out)?;
        if let Some(a) = arguments.pre_self_positional.iter().find(|a| a.is_write()) {
            return fail(Kind::MutableBeforeSelf, format!("`{a}` is mutable and comes before `self`"));
        }
        Ok(arguments)
    }
}

/// Puts arguments into their groups.
fn group(mut positional: Vec<Argument>, kwarg_only: Vec<Argument>, out: Vec<Argument>) -> Result<Arguments> {
    let mut arguments = Arguments { out, ..Arguments::default() };
    if let Some(at) = positional.iter().position(|a| a.name == "self") {
        arguments.post_self_positional = positional.split_off(at + 1);
        arguments.self_arg = positional.pop();
        arguments.pre_self_positional = positional;
    } else {
        arguments.post_self_positional = positional;
    }
    let mut rest = kwarg_only.as_slice();
    while let [first, tail @ ..] = rest {
        if let Some((options, tail)) = take_tensor_options(rest) {
            if arguments.tensor_options.replace(options).is_some() {
                return fail(Kind::Roundtrip, "tensor options occur twice");
            }
            rest = tail;
            continue;
        }
        match arguments.tensor_options {
            None => arguments.pre_tensor_options_kwarg_only.push(first.clone()),
            Some(_) => arguments.post_tensor_options_kwarg_only.push(first.clone()),
        }
        rest = tail;
    }
    Ok(arguments)
}

/// The tensor-options group at the head of a list, if there is one.
fn take_tensor_options(list: &[Argument]) -> Option<(TensorOptions, &[Argument])> {
    let [dtype, layout, device, pin_memory, rest @ ..] = list else { return None };
    let is = |a: &Argument, name: &str, base: BaseTy| {
        a.name == name && a.ty.innermost() == Some(base) && a.ty.as_list().is_none() && nesting(&a.ty) < 2
    };
    let fits = is(dtype, "dtype", BaseTy::ScalarType)
        && is(layout, "layout", BaseTy::Layout)
        && is(device, "device", BaseTy::Device)
        && is(pin_memory, "pin_memory", BaseTy::Bool);
    fits.then(|| {
        let options = TensorOptions {
            dtype: dtype.clone(),
            layout: layout.clone(),
            device: device.clone(),
            pin_memory: pin_memory.clone(),
        };
        (options, rest)
    })
}

fn nesting(ty: &Type) -> usize {
    match ty {
        Type::Optional(elem) | Type::List(elem, _) => 1 + nesting(elem),
        Type::Base(_) | Type::Custom(_) => 0,
    }
}

impl FromStr for FunctionSchema {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self> {
        let Some((name, arguments, returns)) = split_schema(text) else {
            return fail(Kind::SchemaSyntax, format!("`{text}` is not of the form `name(arguments) -> returns`"));
        };
        let schema =
            FunctionSchema { name: name.parse()?, arguments: arguments.parse()?, returns: parse_returns(returns)? };
        schema.check()?;
        check_roundtrip(schema, text)
    }
}

/// Splits at the first parenthesis after a name and at the last `) -> `.
fn split_schema(text: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = text.trim_start_matches('(').split_once('(')?;
    let (arguments, returns) = rest.rsplit_once(") -> ")?;
    (!text.contains('\n')).then_some((name, arguments, returns))
}
