//! Expr: sizes and other numbers as expressions over symbols.
//!
//! The text form is the printed constructor tree that archives hold: `Add(Symbol('s0', integer=True), Integer(1))`.
//! It is parsed to a tree of bounded depth and never evaluated as code. Printing a parsed expression gives the same
//! text back. Nothing is simplified: two expressions are equal when they print the same.

use super::Name;
use crate::error::{Error, Result};
use std::fmt;
use std::sync::Arc;

/// How deep expressions may nest.
const MAX_DEPTH: usize = 128;

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// A symbol such as `s0` (a size of an input) or `u0` (a number known only at run time), with its assumptions.
    Symbol(Name, Arc<[(Name, bool)]>),
    /// An integer.
    Int(i64),
    /// A fraction.
    Rational(i64, i64),
    /// A float as written, and its precision in bits.
    Float(Name, u32),
    /// A bool.
    Bool(bool),
    /// `oo`, `-oo`, `int_oo` or `-int_oo`.
    Infinity {
        /// Whether it is the largest integer rather than the largest number.
        integer: bool,
        /// Whether it is the smallest.
        negative: bool,
    },
    /// A function of others.
    Call(Head, Arc<[Expr]>),
}

macro_rules! heads {
    ($($name:ident),* $(,)?) => {
        /// The functions in expressions, by their names in archives.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum Head { $($name),* }

        impl Head {
            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $(Head::$name => stringify!($name)),* }
            }

            /// The one with this name.
            pub fn from_name(name: &str) -> Option<Head> {
                match name { $(stringify!($name) => Some(Head::$name),)* _ => None }
            }
        }
    };
}
heads!(
    Add,
    Mul,
    Pow,
    Max,
    Min,
    Mod,
    PythonMod,
    FloorDiv,
    CeilDiv,
    IntTrueDiv,
    FloatTrueDiv,
    PowByNatural,
    FloatPow,
    LShift,
    RShift,
    ToFloat,
    FloorToInt,
    CeilToInt,
    TruncToInt,
    TruncToFloat,
    RoundToInt,
    RoundDecimal,
    Where,
    Piecewise,
    ExprCondPair,
    ModularIndexing,
    CleanDiv,
    Identity,
    IsNonOverlappingAndDenseIndicator,
    Equality,
    Unequality,
    GreaterThan,
    LessThan,
    StrictGreaterThan,
    StrictLessThan,
    And,
    Or,
    Not,
);

impl Expr {
    /// A symbol that stands for a size: a positive integer.
    pub fn size_symbol(name: &str) -> Expr {
        Expr::Symbol(name.into(), [("positive".into(), true), ("integer".into(), true)].into())
    }

    /// A function of others.
    pub fn call(head: Head, args: impl IntoIterator<Item = Expr>) -> Expr {
        Expr::Call(head, args.into_iter().collect())
    }

    /// From the printed constructor tree.
    pub fn parse(text: &str) -> Result<Expr> {
        let mut parser = Parser { text, at: 0 };
        let expr = parser.expr(0)?;
        parser.blank();
        if parser.at < text.len() { Err(parser.wrong("the end of the expression")) } else { Ok(expr) }
    }

    /// The name, if it is a bare symbol.
    pub fn symbol(&self) -> Option<&str> {
        match self {
            Expr::Symbol(name, _) => Some(name),
            _ => None,
        }
    }

    /// Visits every symbol in it, including repetitions.
    pub fn for_each_symbol<'a>(&'a self, see: &mut impl FnMut(&'a str)) {
        match self {
            Expr::Symbol(name, _) => see(name),
            Expr::Call(_, args) => args.iter().for_each(|a| a.for_each_symbol(see)),
            _ => {}
        }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expr::Symbol(name, assumptions) => {
                write!(f, "Symbol('{name}'")?;
                for (key, holds) in assumptions.iter() {
                    write!(f, ", {key}={}", if *holds { "True" } else { "False" })?;
                }
                f.write_str(")")
            }
            Expr::Int(i) => write!(f, "Integer({i})"),
            Expr::Rational(p, q) => write!(f, "Rational({p}, {q})"),
            Expr::Float(text, precision) => write!(f, "Float('{text}', precision={precision})"),
            Expr::Bool(b) => write!(f, "{b}"),
            Expr::Infinity { integer, negative } => {
                write!(f, "{}{}oo", if *negative { "-" } else { "" }, if *integer { "int_" } else { "" })
            }
            Expr::Call(head, args) => {
                write!(f, "{}(", head.name())?;
                for (i, arg) in args.iter().enumerate() {
                    write!(f, "{}{arg}", if i > 0 { ", " } else { "" })?;
                }
                f.write_str(")")
            }
        }
    }
}

/// Reads the constructor tree; positions are bytes.
struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn wrong(&self, expected: &str) -> Error {
        let found: String = self.text[self.at..].chars().take(20).collect();
        Error::Expression { position: self.at, expected: expected.to_string(), found }
    }

    fn blank(&mut self) {
        self.at = self.text.len() - self.text[self.at..].trim_start().len();
    }

    fn eat(&mut self, c: char) -> bool {
        self.blank();
        let found = self.text[self.at..].starts_with(c);
        if found {
            self.at += c.len_utf8();
        }
        found
    }

    fn expect(&mut self, c: char) -> Result<()> {
        if self.eat(c) { Ok(()) } else { Err(self.wrong(&format!("'{c}'"))) }
    }

    fn take(&mut self, accept: impl Fn(char) -> bool) -> &'a str {
        self.blank();
        let rest = &self.text[self.at..];
        let end = rest.find(|c| !accept(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn word(&mut self) -> &'a str {
        self.take(|c| c.is_ascii_alphanumeric() || c == '_')
    }

    fn integer(&mut self) -> Result<i64> {
        let begin = self.at;
        let negative = self.eat('-');
        let digits = self.take(|c| c.is_ascii_digit());
        let value = format!("{}{digits}", if negative { "-" } else { "" }).parse();
        value.map_err(|_| {
            self.at = begin;
            self.wrong("an integer of 64 bits")
        })
    }

    fn quoted(&mut self) -> Result<&'a str> {
        self.expect('\'')?;
        let rest = &self.text[self.at..];
        let end = rest.find('\'').ok_or_else(|| self.wrong("a closing quote"))?;
        if rest[..end].contains('\\') {
            return Err(self.wrong("a name without backslashes"));
        }
        self.at += end + 1;
        Ok(&rest[..end])
    }

    fn expr(&mut self, depth: usize) -> Result<Expr> {
        if depth > MAX_DEPTH {
            return Err(self.wrong(&format!("at most {MAX_DEPTH} levels")));
        }
        let begin = self.at;
        let negative = self.eat('-');
        match (self.word(), negative) {
            ("oo", negative) => Ok(Expr::Infinity { integer: false, negative }),
            ("int_oo", negative) => Ok(Expr::Infinity { integer: true, negative }),
            ("true", false) => Ok(Expr::Bool(true)),
            ("false", false) => Ok(Expr::Bool(false)),
            ("Symbol", false) => self.symbol(),
            ("Integer", false) => self.within(|p| Ok(Expr::Int(p.integer()?))),
            ("Rational", false) => self.within(|p| {
                let over = p.integer()?;
                p.expect(',')?;
                Ok(Expr::Rational(over, p.integer()?))
            }),
            ("Float", false) => self.within(|p| {
                let text: Name = p.quoted()?.into();
                p.expect(',')?;
                if p.word() != "precision" {
                    return Err(p.wrong("precision=…"));
                }
                p.expect('=')?;
                let bits = p.integer()?;
                let bits = u32::try_from(bits).map_err(|_| p.wrong("a precision in bits"))?;
                Ok(Expr::Float(text, bits))
            }),
            (name, false) if Head::from_name(name).is_some() => {
                let head = Head::from_name(name).expect("just looked up");
                self.within(|p| {
                    let mut args = Vec::new();
                    while !p.text[p.at..].trim_start().starts_with(')') {
                        if !args.is_empty() {
                            p.expect(',')?;
                        }
                        args.push(p.expr(depth + 1)?);
                    }
                    Ok(Expr::Call(head, args.into()))
                })
            }
            _ => {
                self.at = begin;
                Err(self.wrong("a symbol, number or known function"))
            }
        }
    }

    fn within(&mut self, inner: impl FnOnce(&mut Self) -> Result<Expr>) -> Result<Expr> {
        self.expect('(')?;
        let expr = inner(self)?;
        self.expect(')')?;
        Ok(expr)
    }

    fn symbol(&mut self) -> Result<Expr> {
        self.within(|p| {
            let name: Name = p.quoted()?.into();
            if name.chars().any(char::is_control) {
                return Err(p.wrong("a name without control characters"));
            }
            let mut assumptions: Vec<(Name, bool)> = Vec::new();
            while p.eat(',') {
                let key: Name = p.word().into();
                p.expect('=')?;
                match p.word() {
                    "True" => assumptions.push((key, true)),
                    "False" => assumptions.push((key, false)),
                    _ => return Err(p.wrong("True or False")),
                }
            }
            Ok(Expr::Symbol(name, assumptions.into()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_what_it_read() {
        for text in [
            "Symbol('s77', positive=True, integer=True)",
            "Add(Mul(Integer(-2), Symbol('u0')), Rational(1, 2), Float('0.5', precision=53))",
            "Max(int_oo, -oo)",
            "Piecewise(ExprCondPair(Integer(1), true), ExprCondPair(Integer(2), false))",
        ] {
            assert_eq!(Expr::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        for text in ["", "exec('x')", "Integer(1", "Integer(99999999999999999999)", "Symbol('a', b=c)", "Integer(1) x"]
        {
            assert!(Expr::parse(text).is_err(), "{text}");
        }
        let deep = "Not(".repeat(200) + "true" + &")".repeat(200);
        assert!(Expr::parse(&deep).unwrap_err().to_string().contains("128 levels"));
    }
}
