//! Token sequences as arrays for training a language model: packed end to end, or one per row and padded.
//!
//! Labels are the tokens shifted by one, so that the logits at a position are compared with the next token; positions that nothing is
//! learned from (prompts, padding) have the label [`IGNORED`], which cross entropy ignores. Tokenization is not part of
//! this module.

use firebrand_core::{Error, Result, Tensor};

/// The label of positions that are ignored.
pub const IGNORED: i64 = -100;

/// One text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenSequence {
    /// Its tokens.
    pub tokens: Vec<i64>,
    /// Number of leading tokens (the prompt) that are not learned.
    pub prompt: usize,
}

/// Rows of one length.
#[derive(Clone, Debug)]
pub struct TokenRows {
    /// `[rows, length]` tokens.
    pub input_ids: Tensor,
    /// `[rows, length]`: 1 where there is a token, 0 where there is padding.
    pub attention_mask: Tensor,
    /// `[rows, length]`: the next token, or [`IGNORED`].
    pub labels: Tensor,
    /// Number of tokens that did not fit and were dropped.
    pub dropped: usize,
}

impl TokenRows {
    fn new(rows: usize, length: usize, [ids, mask, labels]: [&[i64]; 3], dropped: usize) -> Result<TokenRows> {
        if rows == 0 {
            let message = format!("the texts have too few tokens for one row of {length}");
            return Err(Error::argument("TokenRows", message));
        }
        let tensor = |values: &[i64]| Tensor::try_from_slice(values, [rows, length]);
        Ok(TokenRows { input_ids: tensor(ids)?, attention_mask: tensor(mask)?, labels: tensor(labels)?, dropped })
    }
}

fn check(length: usize) -> Result<()> {
    if length == 0 {
        return Err(Error::argument("TokenRows", "the length must be at least 1"));
    }
    Ok(())
}

/// All texts end to end, each followed by `separator`, cut into rows of `length`; the remainder is dropped.
pub fn pack(texts: &[TokenSequence], length: usize, separator: Option<i64>) -> Result<TokenRows> {
    check(length)?;
    // A token and whether it is learned.
    let mut all: Vec<(i64, bool)> = Vec::new();
    for text in texts {
        all.extend(text.tokens.iter().enumerate().map(|(i, &t)| (t, i >= text.prompt)));
        all.extend(separator.map(|s| (s, true)));
    }
    // Each row needs the token behind its last.
    let rows = all.len().saturating_sub(1) / length;
    let used = rows * length;
    let ids: Vec<i64> = all.iter().take(used).map(|(t, _)| *t).collect();
    let labels: Vec<i64> =
        all.iter().skip(1).take(used).map(|(t, learned)| if *learned { *t } else { IGNORED }).collect();
    TokenRows::new(rows, length, [&ids, &vec![1; used], &labels], all.len() - used)
}

/// One text per row, padded at its end or truncated to `length`. Texts of fewer than two tokens are dropped: nothing can be learned from them.
pub fn pad(texts: &[TokenSequence], length: usize, padding: i64) -> Result<TokenRows> {
    check(length)?;
    let (mut ids, mut mask, mut labels) = (Vec::new(), Vec::new(), Vec::new());
    let (mut rows, mut dropped) = (0, 0);
    for text in texts {
        let n = text.tokens.len();
        if n < 2 {
            dropped += n;
            continue;
        }
        let kept = length.min(n);
        dropped += n.saturating_sub(length + 1);
        rows += 1;
        for i in 0..length {
            ids.push(if i < kept { text.tokens[i] } else { padding });
            mask.push(i64::from(i < kept));
            labels.push(if i + 1 < n && i < kept && i + 1 >= text.prompt { text.tokens[i + 1] } else { IGNORED });
        }
    }
    TokenRows::new(rows, length, [&ids, &mask, &labels], dropped)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts() -> Vec<TokenSequence> {
        vec![
            TokenSequence { tokens: vec![1, 2, 3, 4], prompt: 2 },
            TokenSequence { tokens: vec![5, 6, 7], prompt: 0 },
            TokenSequence { tokens: vec![8], prompt: 0 },
        ]
    }

    #[test]
    fn packed_rows_go_on_where_the_last_ended() {
        let rows = pack(&texts(), 4, Some(9)).expect("enough tokens");
        assert_eq!(rows.input_ids.to_vec::<i64>(), [1, 2, 3, 4, 9, 5, 6, 7]);
        assert_eq!(rows.labels.to_vec::<i64>(), [IGNORED, 3, 4, 9, 5, 6, 7, 9]);
        assert_eq!((rows.attention_mask.sum().item::<i64>(), rows.dropped), (8, 3));
        assert!(pack(&texts(), 40, Some(9)).is_err(), "less than one row");
        assert!(pack(&texts(), 0, None).is_err());
    }

    #[test]
    fn padded_rows_hold_one_text_each() {
        let rows = pad(&texts(), 3, 0).expect("two texts");
        assert_eq!(rows.input_ids.to_vec::<i64>(), [1, 2, 3, 5, 6, 7]);
        assert_eq!(rows.labels.to_vec::<i64>(), [IGNORED, 3, 4, 6, 7, IGNORED]);
        assert_eq!(rows.dropped, 1);
        let wide = pad(&texts(), 5, 0).expect("two texts");
        assert_eq!(wide.input_ids.to_vec::<i64>(), [1, 2, 3, 4, 0, 5, 6, 7, 0, 0]);
        assert_eq!(wide.attention_mask.to_vec::<i64>(), [1, 1, 1, 1, 0, 1, 1, 1, 0, 0]);
        assert_eq!(wide.labels.to_vec::<i64>(), [IGNORED, 3, 4, IGNORED, IGNORED, 6, 7, IGNORED, IGNORED, IGNORED]);
    }
}
