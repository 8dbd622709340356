//! Einstein summation: labels to dimensions, then one batched matrix product per pair of operands.
//!
//! Every operand is seen with one dimension per label, in the order of the output and then of the labels summed over; a
//! label that an operand lacks has size 1. Operands are contracted from left to right, or as `path` says.

use crate::ops::formulas::sym;
use crate::{Error, Result, Tensor, ops};

const OP: &str = "einsum";

/// What one dimension of an operand is called.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    /// All dimensions without a letter.
    Ellipsis,
    Letter(u8),
}

fn refuse(message: String) -> Error {
    Error::argument(OP, message)
}

fn labels(term: &str) -> Result<Vec<Label>> {
    let mut out = Vec::new();
    let mut rest = term.as_bytes();
    while let Some((&c, tail)) = rest.split_first() {
        let (label, tail) = match (c, tail) {
            (b'.', [b'.', b'.', tail @ ..]) if !out.contains(&Label::Ellipsis) => (Label::Ellipsis, tail),
            (c, tail) if c.is_ascii_alphabetic() => (Label::Letter(c), tail),
            _ => return Err(refuse(format!("expected letters and at most one `...` in `{term}`"))),
        };
        out.push(label);
        rest = tail;
    }
    Ok(out)
}

/// The labels of the operands and of the result; without `->`, those that occur once, in alphabetical order.
fn parse(equation: &str) -> Result<(Vec<Vec<Label>>, Vec<Label>)> {
    let text: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (left, right) = match text.split_once("->") {
        Some((l, r)) => (l, Some(r)),
        None => (text.as_str(), None),
    };
    let operands = left.split(',').map(labels).collect::<Result<Vec<_>>>()?;
    let all: Vec<Label> = operands.iter().flatten().copied().collect();
    let count = |l: &Label| all.iter().filter(|x| *x == l).count();
    let output = match right {
        Some(r) => labels(r)?,
        None => {
            let mut once: Vec<Label> = all.iter().copied().filter(|l| *l == Label::Ellipsis || count(l) == 1).collect();
            once.sort_unstable();
            once.dedup();
            once
        }
    };
    for (k, l) in output.iter().enumerate() {
        if output[..k].contains(l) || (*l != Label::Ellipsis && count(l) == 0) {
            return Err(refuse(format!("each label of the result occurs once there and in an operand: `{equation}`")));
        }
    }
    Ok((operands, output))
}

pub(crate) fn einsum(equation: &str, tensors: &[Tensor], path: Option<&[i64]>) -> Result<Tensor> {
    let (operands, output) = parse(equation)?;
    if operands.len() != tensors.len() {
        let (n, m) = (operands.len(), tensors.len());
        return Err(refuse(format!("`{equation}` names {n} operands, {m} are given")));
    }
    // How many dimensions the ellipsis stands for.
    let mut hidden = 0;
    for (names, t) in operands.iter().zip(tensors) {
        let letters = names.iter().filter(|l| **l != Label::Ellipsis).count();
        let open = letters != names.len();
        if letters > t.ndim() || (letters < t.ndim() && !open) {
            return Err(refuse(format!("an operand of `{equation}` has {letters} labels for shape {:?}", t.shape())));
        }
        hidden = hidden.max(if open { t.ndim() - letters } else { 0 });
    }
    // Labels by position: those of the output, then those summed over.
    let mut order = output;
    let mut summed: Vec<Label> = operands.iter().flatten().copied().filter(|l| !order.contains(l)).collect();
    summed.sort_unstable();
    summed.dedup();
    let width = |l: &Label| if *l == Label::Ellipsis { hidden } else { 1 };
    let kept: usize = order.iter().map(width).sum();
    order.append(&mut summed);
    let total: usize = order.iter().map(width).sum();
    let position = |l: Label| order.iter().take_while(|x| **x != l).map(width).sum::<usize>();

    let mut items = Vec::with_capacity(tensors.len());
    for (names, t) in operands.iter().zip(tensors) {
        let mut at = Vec::with_capacity(t.ndim());
        for &l in names {
            let n = if l == Label::Ellipsis { t.ndim() + 1 - names.len() } else { 1 };
            // A shorter ellipsis is aligned with the end of the longest.
            let first = position(l) + width(&l) - n;
            at.extend(first..first + n);
        }
        items.push(arrange(t.clone(), at, total)?);
    }
    for d in 0..total {
        let mut sizes = items.iter().map(|t| t.shape()[d]).filter(|&n| n != 1);
        let first = sizes.next();
        if let Some(other) = sizes.find(|&n| Some(n) != first) {
            let n = first.unwrap_or(1);
            return Err(refuse(format!("a label of `{equation}` stands for sizes {n} and {other}")));
        }
    }
    let mut steps = path.unwrap_or_default().chunks(2);
    while items.len() > 1 {
        let (i, j) = match (path, steps.next()) {
            (None, _) => (0, 1),
            (Some(_), Some(&[i, j])) if i != j && [i, j].iter().all(|&k| (k as usize) < items.len()) => {
                (i.min(j) as usize, i.max(j) as usize)
            }
            _ => return Err(refuse(format!("expected a path of pairs of different operands, found {path:?}"))),
        };
        let (b, a) = (items.remove(j), items.remove(i));
        let sum: Vec<bool> = (0..total).map(|d| d >= kept && items.iter().all(|t| t.shape()[d] == 1)).collect();
        let result = contract(a, b, &sum)?;
        // From left to right, the result stays on the left.
        items.insert(if path.is_none() { 0 } else { items.len() }, result);
    }
    let last = items.pop().ok_or_else(|| refuse("expected at least one operand".to_string()))?;
    let rest: Vec<i64> = (kept..total).map(|d| d as i64).collect();
    if rest.is_empty() { Ok(last) } else { ops::sum_dim(&last, Some(&rest), false, None) }
}

/// An operand whose dimensions stand at positions `at`, with all `total` dimensions in order. A position that occurs
/// twice is a diagonal.
fn arrange(mut t: Tensor, mut at: Vec<usize>, total: usize) -> Result<Tensor> {
    while let Some((i, j)) = (0..at.len()).find_map(|j| (0..j).find(|&i| at[i] == at[j]).map(|i| (i, j))) {
        if t.shape()[i] != t.shape()[j] {
            let (n, m) = (t.shape()[i], t.shape()[j]);
            return Err(refuse(format!("a label that occurs twice in an operand stands for sizes {n} and {m}")));
        }
        t = ops::diagonal(&t, 0, i as i64, j as i64)?;
        let p = at.remove(j);
        at.remove(i);
        at.push(p);
    }
    for p in 0..total {
        if !at.contains(&p) {
            t = ops::unsqueeze(&t, -1)?;
            at.push(p);
        }
    }
    let dims: Vec<i64> = (0..total).map(|p| at.iter().position(|&q| q == p).expect("all positions") as i64).collect();
    if dims.is_sorted() { Ok(t) } else { ops::permute(&t, &dims) }
}

/// The product of two operands, summed over some dimensions, which keep size 1.
fn contract(mut a: Tensor, mut b: Tensor, sum: &[bool]) -> Result<Tensor> {
    let total = sum.len();
    // Dimensions by what becomes of them: in both and kept, in both and summed, of `a` alone, the rest.
    let (mut both, mut inner, mut left, mut right) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (d, &sum) in sum.iter().enumerate() {
        match (a.shape()[d] != 1, b.shape()[d] != 1, sum) {
            (true, true, true) => inner.push(d),
            (true, true, false) => both.push(d),
            (true, false, true) => a = ops::sum_dim(&a, Some(&[d as i64]), true, None)?,
            (false, true, true) => b = ops::sum_dim(&b, Some(&[d as i64]), true, None)?,
            (true, false, false) => left.push(d),
            _ => {}
        }
    }
    right.extend((0..total).filter(|d| ![&both, &inner, &left].iter().any(|list| list.contains(d))));
    if inner.is_empty() {
        return ops::mul(&a, &b);
    }
    let size = |t: &Tensor, dims: &[usize]| dims.iter().map(|&d| t.shape()[d]).product::<usize>();
    let matrices = |t: &Tensor, groups: [&[usize]; 4]| -> Result<Tensor> {
        let dims: Vec<i64> = groups.concat().iter().map(|&d| d as i64).collect();
        let sizes = sym(&[size(t, groups[0]), size(t, groups[1]), size(t, groups[2])]);
        ops::reshape(&ops::permute(t, &dims)?, &sizes)
    };
    let product =
        ops::bmm(&matrices(&a, [&both, &left, &inner, &right])?, &matrices(&b, [&both, &inner, &right, &left])?)?;
    let order = [&both[..], &left, &right, &inner].concat();
    let sizes: Vec<usize> = order
        .iter()
        .map(|d| {
            if inner.contains(d) {
                1
            } else if right.contains(d) {
                b.shape()[*d]
            } else {
                a.shape()[*d]
            }
        })
        .collect();
    let product = ops::reshape(&product, &sym(&sizes))?;
    let back: Vec<i64> =
        (0..total).map(|d| order.iter().position(|&o| o == d).expect("all dimensions") as i64).collect();
    if back.is_sorted() { Ok(product) } else { ops::permute(&product, &back) }
}
