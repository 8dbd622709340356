//! The files of samples, which checks apply to a row, and how a check is run.

use crate::check::{Check, Counts};
use crate::{call, derivatives, deviations, results, row, transforms};
use call::{Outcome, Place};
use firebrand_core::dispatch::{Op, Tags};
use firebrand_core::func::Batching;
use row::{Argument, Row};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

/// One file of the table.
pub struct Family {
    /// `pointwise`.
    pub name: &'static str,
    text: &'static str,
    rows: OnceLock<Vec<Row>>,
}

firebrand_core::opaque_debug! { [] Family => "Family"; }

macro_rules! families {
    ($($name:literal),* $(,)?) => {
        /// Every file.
        pub static FAMILIES: [Family; [$($name),*].len()] = [$(Family {
            name: $name,
            text: include_str!(concat!("../samples/", $name, ".json")),
            rows: OnceLock::new(),
        }),*];
    };
}
families!(
    "beyond",
    "complex",
    "conv_pool",
    "creation",
    "database",
    "extra",
    "fft",
    "index",
    "linalg",
    "lists",
    "matmul",
    "named",
    "norm_loss",
    "pointwise",
    "reduce",
    "special",
    "view"
);

impl Family {
    /// The family of this name.
    pub fn named(name: &str) -> Option<&'static Family> {
        FAMILIES.iter().find(|f| f.name == name)
    }

    /// Its rows.
    pub fn rows(&self) -> &[Row] {
        self.rows.get_or_init(|| row::read(self.text))
    }
}

impl Check {
    /// Whether the check makes sense for this row.
    pub fn applies(self, op: Op, row: &Row) -> bool {
        if deviations::known(self, row).is_some() {
            return false;
        }
        if row.error || self == Check::Refusal {
            return row.error && self == Check::Refusal;
        }
        let tag = |tag: Tags| op.has(tag);
        let all_tensors = || row.out.iter().all(|o| matches!(o, Argument::Tensor(_)));
        let smooth = || row.grads.is_some() && !row.has("no_gradcheck");
        // A few samples an op are enough for rules that do not look at numbers.
        let few =
            |n: usize| row.is_base() && row.sample < n && !row.has("random") && !tag(Tags::NONDETERMINISTIC_SEEDED);
        match self {
            Check::Forward => true,
            Check::Refusal => false,
            Check::Inplace => {
                in_place_form(op).is_some_and(|f| !f.has(Tags::INPLACE_VIEW))
                    && matches!(row.args.first(), Some(Argument::Tensor(_)))
                    && row.out.len() == 1
                    && all_tensors()
            }
            Check::Out => op.info().out.is_some() && !row.out.is_empty() && all_tensors(),
            Check::Meta => {
                !tag(Tags::DATA_DEPENDENT_OUTPUT)
                    && !tag(Tags::DYNAMIC_OUTPUT_SHAPE)
                    && row.out.iter().all(|o| matches!(o, Argument::Tensor(_) | Argument::None))
            }
            Check::Layouts => {
                row.is_base()
                    && !row.has("random")
                    && row.tensors().all(|t| t.strides.is_none())
                    && row.tensors().any(|t| t.shape.iter().product::<usize>() > 1)
            }
            Check::Threads => row.is_base() && row.sample < 2 && !row.has("random") && row.tensors().next().is_some(),
            Check::Gradients => row.grads.is_some(),
            Check::Gradcheck => smooth(),
            Check::Gradgradcheck => smooth() && !row.has("no_gradgradcheck") && !row.has("no_double_backward"),
            Check::ForwardMode => smooth() && !row.has("no_forward_ad"),
            Check::Vmap => few(4) && op.batching() != Batching::Refused && row.tensors().next().is_some(),
            Check::BatchedGradients => few(3) && row.grads.is_some(),
            Check::Transforms => few(2) && smooth() && op.batching() != Batching::Refused,
        }
    }

    /// Runs the check; a panic is a failure.
    pub fn run(self, op: Op, row: &Row) -> Outcome {
        let check = || match self {
            Check::Forward => results::forward(op, row, Place::AsListed),
            Check::Inplace => results::inplace(op, row),
            Check::Out => results::out(op, row),
            Check::Refusal => results::refusal(op, row),
            Check::Meta => results::meta(op, row),
            Check::Layouts => results::layouts(op, row),
            Check::Threads => results::threads(op, row),
            Check::Gradients => results::gradients(op, row, Place::AsListed),
            Check::Gradcheck => derivatives::first(op, row),
            Check::Gradgradcheck => derivatives::second(op, row),
            Check::ForwardMode => derivatives::forward_mode(op, row),
            Check::Vmap => transforms::mapped(op, row),
            Check::BatchedGradients => transforms::batched_gradients(op, row),
            Check::Transforms => transforms::pairs(op, row),
        };
        catch_unwind(AssertUnwindSafe(check)).unwrap_or_else(|p| {
            let text = p.downcast_ref::<String>().map(String::as_str).or(p.downcast_ref::<&str>().copied());
            Err(format!("panicked: {}", text.unwrap_or("without a message")))
        })
    }
}

/// The form that writes its first argument and hands it back, which lists do not.
pub fn in_place_form(op: Op) -> Option<Op> {
    op.info().in_place.filter(|form| form.schema().returns_written)
}

/// For every op of the program with rows in the table (or whose functional form has), how many rows drive each check.
/// In-place and out= forms are counted with the rows they are derived from.
pub fn coverage() -> BTreeMap<&'static str, Counts> {
    let mut all: BTreeMap<&'static str, Counts> = BTreeMap::new();
    for row in FAMILIES.iter().flat_map(Family::rows) {
        let Some(op) = Op::from_name(&row.op) else { continue };
        for (k, check) in Check::ALL.into_iter().enumerate() {
            let counted = match check {
                Check::Inplace => in_place_form(op),
                Check::Out => op.info().out,
                _ => Some(op),
            };
            if let Some(counted) = counted
                && check.applies(op, row)
            {
                all.entry(counted.name()).or_default()[k] += 1;
            }
        }
    }
    all
}

/// [`coverage`] as `coverage.txt` has it.
pub fn coverage_text() -> String {
    let line = |(name, counts): (&str, Counts)| {
        let counts = counts.iter().map(|n| format!(" {n}")).collect::<String>();
        format!("{name}{counts}\n")
    };
    coverage().into_iter().map(line).collect()
}
