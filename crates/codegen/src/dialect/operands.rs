//! Whether a Rust formula can be an expression at all, without a parser of Rust: brackets match, and operands and
//! operators take turns. What passes may still be refused by the compiler; what is refused here is not an expression.

use crate::formula::tokens::{Lexed, TokenKind};

/// What may come next.
#[derive(Clone, Copy, PartialEq)]
enum Due {
    Operand,
    /// An operand, or the end of a list or block.
    OperandOrEnd,
    Operator,
    Either,
}

/// What is wrong, and at which byte.
pub(super) fn check(formula: &str) -> Result<(), (String, usize)> {
    let lexed = Lexed::new(formula);
    let mut open: Vec<(char, usize)> = Vec::new();
    let mut due = Due::Operand;
    let mut at = 0;
    while at < lexed.tokens.len() {
        let (token, word) = (&lexed.tokens[at], lexed.word(Some(at)));
        let here = token.range.start;
        let wrong = |expected: &str| Err((format!("expected {expected}, found `{word}`"), here));
        let operand_due = matches!(due, Due::Operand | Due::OperandOrEnd);
        // The second character of `<=`, `==`, `&&` and their like.
        let joined =
            at > 0 && lexed.tokens[at - 1].range.end == here && "<>=!+-*/%^&|".contains(lexed.word(Some(at - 1)));
        due = match (token.kind, word) {
            (TokenKind::Ident, "if" | "match" | "else" | "return" | "move" | "mut" | "let" | "in") => Due::Operand,
            (TokenKind::Ident, "as") if operand_due => return wrong("an operand"),
            (TokenKind::Ident, "as") => Due::Operand,
            (TokenKind::Ident | TokenKind::Number | TokenKind::Literal, _) => match due {
                Due::Operator => return wrong("an operator"),
                _ => Due::Operator,
            },
            (_, "(" | "[" | "{") => {
                open.push((word.chars().next().unwrap_or('('), here));
                Due::OperandOrEnd
            }
            (_, ")" | "]" | "}") => {
                let pair =
                    matches!((open.pop(), word), (Some(('(', _)), ")") | (Some(('[', _)), "]") | (Some(('{', _)), "}"));
                if !pair {
                    return wrong("its opening bracket before");
                }
                if due == Due::Operand {
                    return wrong("an operand");
                }
                Due::Operator
            }
            (_, "," | ";") if operand_due || open.is_empty() => return wrong("an expression"),
            (_, "," | ";") => Due::OperandOrEnd,
            (_, "." | "::") if lexed.word(Some(at + 1)) == "." => {
                // A range, whose ends may be left out.
                at += 1;
                Due::Either
            }
            (_, "::") if lexed.word(Some(at + 1)) == "<" => {
                at += (at..lexed.tokens.len()).position(|k| lexed.word(Some(k)) == ">").unwrap_or(1);
                Due::Operator
            }
            (_, ".") if operand_due => return wrong("an operand"),
            (_, "." | "::" | ":" | "->") => Due::Operand,
            (_, "?") if operand_due => return wrong("an operand"),
            (_, "?") => Due::Operator,
            (_, "|") if operand_due => {
                // The parameters of a closure.
                at += 1 + (at + 1..lexed.tokens.len()).position(|k| lexed.word(Some(k)) == "|").unwrap_or(0);
                Due::Operand
            }
            (_, "&" | "*" | "-" | "!" | "|") => Due::Operand,
            (_, "+" | "/" | "%" | "^" | "<" | ">" | "=") if operand_due && !joined => return wrong("an operand"),
            (_, "+" | "/" | "%" | "^" | "<" | ">" | "=") => Due::Operand,
            (_, "'") => due,
            _ => return wrong("Rust"),
        };
        at += 1;
    }
    if let Some((bracket, here)) = open.pop() {
        return Err((format!("`{bracket}` is never closed"), here));
    }
    match due {
        Due::Operand | Due::OperandOrEnd => Err(("expected an operand".into(), formula.trim_end().len())),
        Due::Operator | Due::Either => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn what_is_an_expression_passes() {
        for formula in [
            "grad",
            "grad * 2.0",
            "-grad / (x - 1)?",
            "&formulas::f(grad, &[1, 2], [true; 2])?",
            "if a <= b && !c { grad } else { x.clone() }",
            "list.iter().map(|t| t.sum()).collect::<Vec<_>>()",
            "x[..]",
            "x as f64 * 2.0",
            "(grad, other)",
            "f(&x[1..], vec![0; 2])",
        ] {
            assert_eq!(check(formula), Ok(()), "{formula}");
        }
    }

    #[test]
    fn what_is_none_is_refused_where_it_breaks() {
        for (formula, at) in [
            ("grad * (2.0", 7),
            ("grad *", 6),
            ("grad other", 5),
            ("grad)", 4),
            ("(grad]", 5),
            ("grad, other", 4),
            ("f(grad,, x)", 7),
            ("grad * / 2", 7),
            ("grad @ 2", 5),
            ("", 0),
        ] {
            assert_eq!(check(formula).map_err(|(_, at)| at), Err(at), "{formula}");
        }
    }
}
