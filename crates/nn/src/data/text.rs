//! Token sequences as rows that a language model trains on: packed end to end, or one a row and padded.
//!
//! Labels are the tokens shifted by one, so that the logits at a position are compared with the next token; positions that nothing is
//! learned from (prompts, padding) have the label [`IGNORED`], which cross entropy leaves out. Rows are made when they are asked
//! for: a dataset holds its tokens once, however long its rows are. Where tokens come from is somebody else's business.

use super::{Collate, Dataset};
use firebrand_core::{Error, Result, Tensor};

/// The label of positions that are ignored.
pub const IGNORED: i64 = -100;

/// One text: its tokens, and which of them are learned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenSequence {
    tokens: Vec<i64>,
    learned: Vec<bool>,
}

impl TokenSequence {
    /// A text without tokens.
    pub fn new() -> TokenSequence {
        TokenSequence::default()
    }

    /// Adds tokens that are learned.
    #[must_use]
    pub fn learned(self, tokens: &[i64]) -> TokenSequence {
        self.with(tokens, true)
    }

    /// Adds tokens that are given (a prompt): they are read, not learned.
    #[must_use]
    pub fn given(self, tokens: &[i64]) -> TokenSequence {
        self.with(tokens, false)
    }

    fn with(mut self, tokens: &[i64], learned: bool) -> TokenSequence {
        self.tokens.extend_from_slice(tokens);
        self.learned.resize(self.tokens.len(), learned);
        self
    }

    /// The tokens.
    pub fn tokens(&self) -> &[i64] {
        &self.tokens
    }
}

/// Rows of one length: one row as a sample (tensors of one dimension), several as a batch.
#[derive(Clone, Debug)]
pub struct TokenRows {
    /// Tokens, with padding behind them.
    pub input_ids: Tensor,
    /// 1 where there is a token, 0 where there is padding.
    pub attention_mask: Tensor,
    /// The next token, or [`IGNORED`].
    pub labels: Tensor,
    /// The token itself, or [`IGNORED`]: for models that shift labels themselves, as those of transformers do.
    pub unshifted_labels: Tensor,
}

impl Collate for TokenRows {
    fn collate(samples: Vec<TokenRows>) -> Result<TokenRows> {
        let column = |f: fn(&TokenRows) -> &Tensor| Tensor::collate(samples.iter().map(|r| f(r).clone()).collect());
        Ok(TokenRows {
            input_ids: column(|r| &r.input_ids)?,
            attention_mask: column(|r| &r.attention_mask)?,
            labels: column(|r| &r.labels)?,
            unshifted_labels: column(|r| &r.unshifted_labels)?,
        })
    }
}

/// Texts in rows of one length.
///
/// ```
/// # mod firebrand { pub use firebrand_core::*; pub use firebrand_nn::{data, optim, train}; pub use firebrand_nn as nn; }
/// use firebrand::data::Dataset;
/// use firebrand::data::text::{IGNORED, TokenDataset, TokenSequence};
///
/// let question = TokenSequence::new().given(&[5, 6]).learned(&[7, 1]);
/// let rows = TokenDataset::padded(&[question], 5, 0)?.get(0)?;
/// assert_eq!(rows.input_ids.to_vec::<i64>(), [5, 6, 7, 1, 0]);
/// assert_eq!(rows.labels.to_vec::<i64>(), [IGNORED, 7, 1, IGNORED, IGNORED]);
/// # Ok::<(), firebrand::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TokenDataset {
    /// All texts end to end.
    all: TokenSequence,
    /// Where the text of each row is; empty for packed rows, which follow each other.
    places: Vec<Place>,
    rows: usize,
    length: usize,
    padding: i64,
    dropped: usize,
}

/// The text of a padded row.
#[derive(Clone, Copy, Debug)]
struct Place {
    start: usize,
    end: usize,
    /// Its number among the texts.
    text: usize,
}

impl TokenDataset {
    /// All texts end to end, each followed by `separator`, cut into rows of `length`; the remainder is dropped.
    pub fn packed(texts: &[TokenSequence], length: usize, separator: Option<i64>) -> Result<TokenDataset> {
        let mut all = TokenSequence::new();
        for text in texts {
            all.tokens.extend_from_slice(&text.tokens);
            all.learned.extend_from_slice(&text.learned);
            all = all.learned(separator.as_slice());
        }
        // Each row needs the token behind its last.
        let rows = all.tokens.len().saturating_sub(1).checked_div(length).unwrap_or(0);
        let dropped = all.tokens.len() - rows * length;
        TokenDataset { all, places: Vec::new(), rows, length, padding: 0, dropped }.checked()
    }

    /// One text per row, padded at its end or truncated to `length`. Texts of fewer than two tokens are dropped: nothing can be learned from them.
    pub fn padded(texts: &[TokenSequence], length: usize, padding: i64) -> Result<TokenDataset> {
        let (mut all, mut places, mut dropped) = (TokenSequence::new(), Vec::new(), 0);
        for (number, text) in texts.iter().enumerate() {
            // The last label may be the token behind the row.
            let kept = text.tokens.len().min(length.saturating_add(1));
            dropped += text.tokens.len() - kept;
            if kept < 2 {
                dropped += kept;
                continue;
            }
            let start = all.tokens.len();
            all.tokens.extend_from_slice(&text.tokens[..kept]);
            all.learned.extend_from_slice(&text.learned[..kept]);
            places.push(Place { start, end: start + kept, text: number });
        }
        TokenDataset { all, rows: places.len(), places, length, padding, dropped }.checked()
    }

    fn checked(self) -> Result<TokenDataset> {
        let refuse = |message: String| Err(Error::argument("TokenDataset", message));
        if self.length == 0 {
            return refuse("the length must be at least 1".into());
        }
        if self.rows == 0 {
            return refuse(format!("the texts have too few tokens for one row of {}", self.length));
        }
        Ok(self)
    }

    /// Number of tokens that did not fit and were dropped.
    pub fn dropped(&self) -> usize {
        self.dropped
    }

    /// All tokens, including those after the last full row.
    pub fn tokens(&self) -> &[i64] {
        &self.all.tokens
    }

    /// Which of [`TokenDataset::tokens`] are learned.
    pub fn learned(&self) -> &[bool] {
        &self.all.learned
    }

    /// Tokens in a row.
    pub fn row_length(&self) -> usize {
        self.length
    }

    /// The index of the text in a row, if rows hold one text each.
    pub fn text(&self, row: usize) -> Option<usize> {
        self.places.get(row).map(|p| p.text)
    }

    /// The tokens of a row, without padding.
    pub fn row(&self, row: usize) -> &[i64] {
        let (start, end) = self.place(row);
        &self.all.tokens[start..end.min(start + self.length)]
    }

    /// Where the tokens of a row are, with the one behind it.
    fn place(&self, row: usize) -> (usize, usize) {
        match self.places.get(row) {
            Some(p) => (p.start, p.end),
            None => (row * self.length, (row + 1) * self.length + 1),
        }
    }

    /// Rows as tensors of these sizes.
    fn make(&self, rows: &[usize], sizes: &[usize]) -> Result<TokenRows> {
        let count = rows.len() * self.length;
        let (mut ids, mut mask) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let (mut labels, mut unshifted) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for &row in rows {
            let (start, end) = self.place(row);
            let label = |at: usize| if at < end && self.all.learned[at] { self.all.tokens[at] } else { IGNORED };
            for at in start..start + self.length {
                let there = at < end;
                ids.push(if there { self.all.tokens[at] } else { self.padding });
                mask.push(i64::from(there));
                labels.push(if there { label(at + 1) } else { IGNORED });
                unshifted.push(label(at));
            }
        }
        let tensor = |values: Vec<i64>| Tensor::try_from_vec(values, sizes);
        Ok(TokenRows {
            input_ids: tensor(ids)?,
            attention_mask: tensor(mask)?,
            labels: tensor(labels)?,
            unshifted_labels: tensor(unshifted)?,
        })
    }
}

impl Dataset for TokenDataset {
    type Sample = TokenRows;
    fn len(&self) -> usize {
        self.rows
    }
    fn get(&self, index: usize) -> Result<TokenRows> {
        self.make(&[index], &[self.length])
    }
    fn batch(&self, indices: &[usize]) -> Result<TokenRows> {
        self.make(indices, &[indices.len(), self.length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts() -> Vec<TokenSequence> {
        vec![
            TokenSequence::new().given(&[1, 2]).learned(&[3, 4]),
            TokenSequence::new().learned(&[5, 6, 7]),
            TokenSequence::new().learned(&[8]),
        ]
    }

    fn all(rows: &TokenDataset) -> TokenRows {
        rows.batch(&(0..rows.len()).collect::<Vec<_>>()).expect("all rows")
    }

    #[test]
    fn packed_rows_go_on_where_the_last_ended() {
        let set = TokenDataset::packed(&texts(), 4, Some(9)).expect("enough tokens");
        let rows = all(&set);
        assert_eq!(rows.input_ids.to_vec::<i64>(), [1, 2, 3, 4, 9, 5, 6, 7]);
        assert_eq!(rows.labels.to_vec::<i64>(), [IGNORED, 3, 4, 9, 5, 6, 7, 9]);
        assert_eq!(rows.unshifted_labels.to_vec::<i64>(), [IGNORED, IGNORED, 3, 4, 9, 5, 6, 7]);
        assert_eq!((rows.attention_mask.sum().item::<i64>(), set.dropped()), (8, 3));
        assert_eq!((set.row(1), set.text(1)), (&[9, 5, 6, 7][..], None));
        assert!(TokenDataset::packed(&texts(), 40, Some(9)).is_err(), "less than one row");
        assert!(TokenDataset::packed(&texts(), 0, None).is_err());
    }

    #[test]
    fn padded_rows_hold_one_text_each() {
        let set = TokenDataset::padded(&texts(), 3, 0).expect("two texts");
        let rows = all(&set);
        assert_eq!(rows.input_ids.to_vec::<i64>(), [1, 2, 3, 5, 6, 7]);
        assert_eq!(rows.labels.to_vec::<i64>(), [IGNORED, 3, 4, 6, 7, IGNORED]);
        assert_eq!((set.dropped(), set.row(0)), (1, &[1, 2, 3][..]));
        assert_eq!((set.text(0), set.text(1), set.text(2)), (Some(0), Some(1), None));
        let set = TokenDataset::padded(&texts(), 5, 0).expect("two texts");
        let wide = all(&set);
        assert_eq!(wide.input_ids.to_vec::<i64>(), [1, 2, 3, 4, 0, 5, 6, 7, 0, 0]);
        assert_eq!(wide.attention_mask.to_vec::<i64>(), [1, 1, 1, 1, 0, 1, 1, 1, 0, 0]);
        assert_eq!(wide.labels.to_vec::<i64>(), [IGNORED, 3, 4, IGNORED, IGNORED, 6, 7, IGNORED, IGNORED, IGNORED]);
        assert_eq!(wide.unshifted_labels.to_vec::<i64>(), [IGNORED, IGNORED, 3, 4, IGNORED, 5, 6, 7, IGNORED, IGNORED]);
        let stacked = TokenRows::collate(vec![set.get(0).expect("a row"), set.get(1).expect("a row")]).expect("rows");
        assert_eq!(stacked.labels.to_vec::<i64>(), wide.labels.to_vec::<i64>());
        assert!(TokenDataset::padded(&texts(), 0, 0).is_err());
    }
}
