//! Where the table is not followed, and why. Every entry is a decision; an entry that matches no row is stale.

use crate::Check;
use crate::row::{Argument, Row};

/// A known difference.
pub struct Deviation {
    /// The ops, by how their name begins; empty for all.
    pub ops: &'static [&'static str],
    /// The checks that are not run; empty for all.
    pub checks: &'static [Check],
    /// The rows.
    pub rows: fn(&Row) -> bool,
    /// Why.
    pub reason: &'static str,
}

fn channels_last(row: &Row) -> bool {
    row.arguments().any(|a| matches!(a, Argument::MemoryFormat(m) if m == "channels_last"))
}

fn every(_: &Row) -> bool {
    true
}

/// All of them.
pub const DEVIATIONS: &[Deviation] = &[
    Deviation {
        ops: &[],
        checks: &[],
        rows: channels_last,
        reason: "channels-last is no memory format here: strides say it, kernels read any strides",
    },
    Deviation {
        ops: &["aten::as_strided", "aten::view.", "aten::view_as.", "aten::_unsafe_view.", "aten::set_"],
        checks: &[Check::Layouts],
        rows: every,
        reason: "means something else when the input's strides change",
    },
];

impl Deviation {
    /// Whether this check of this row is not run.
    pub fn covers(&self, check: Check, row: &Row) -> bool {
        (self.ops.is_empty() || self.ops.iter().any(|op| row.op.starts_with(op)))
            && (self.checks.is_empty() || self.checks.contains(&check))
            && (self.rows)(row)
    }
}

/// The first deviation that applies.
pub fn known(check: Check, row: &Row) -> Option<&'static Deviation> {
    DEVIATIONS.iter().find(|d| d.covers(check, row))
}
