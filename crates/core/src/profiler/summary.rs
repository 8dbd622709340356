//! Summaries of a profile: events of one name taken together, and a table of them.

use super::{EventKind, Profile, Work};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::Write;
use std::time::Duration;

/// All events of one name in one direction.
#[derive(Clone, Debug)]
pub struct Average {
    /// `aten::mm`, or the label.
    pub name: String,
    /// What they stand for.
    pub kind: EventKind,
    /// Whether backward passes ran them.
    pub backward: bool,
    /// How many there were.
    pub calls: usize,
    /// The time of all of them.
    pub duration: Duration,
    /// What all of them had to do at least.
    pub work: Work,
}

/// What a table is sorted by, largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// Time.
    Time,
    /// Number of calls.
    Calls,
    /// Bytes read and written.
    Bytes,
}

impl Profile {
    /// Events of one name and direction taken together, the longest first.
    pub fn averages(&self) -> Vec<Average> {
        let mut rows: Vec<Average> = Vec::new();
        let mut places = HashMap::new();
        for event in &self.events {
            let place = *places.entry((&event.name, event.kind, event.backward)).or_insert_with(|| {
                let (name, kind, backward) = (event.name.to_string(), event.kind, event.backward);
                rows.push(Average { name, kind, backward, calls: 0, duration: Duration::ZERO, work: Work::default() });
                rows.len() - 1
            });
            let row = &mut rows[place];
            row.calls += 1;
            row.duration += event.duration;
            row.work += event.work;
        }
        rows.sort_by_key(|a| Reverse(a.duration));
        rows
    }

    /// What all kernels had to do at least.
    pub fn work(&self) -> Work {
        self.events.iter().map(|e| e.work).sum()
    }

    /// The time spent in kernels; the rest went into everything around them.
    pub fn in_kernels(&self) -> Duration {
        self.events.iter().filter(|e| e.kind != EventKind::Function).map(|e| e.duration).sum()
    }

    /// The first `rows` names as text: kernels, then labels, whose times contain those of the kernels within.
    pub fn table(&self, order: Order, rows: usize) -> String {
        let (labels, mut kernels): (Vec<_>, Vec<_>) =
            self.averages().into_iter().partition(|a| a.kind == EventKind::Function);
        match order {
            Order::Time => {}
            Order::Calls => kernels.sort_by_key(|a| Reverse(a.calls)),
            Order::Bytes => kernels.sort_by_key(|a| Reverse(a.work.bytes)),
        }
        let whole = self.duration.as_secs_f64().max(f64::MIN_POSITIVE);
        let mut text = format!(
            "{:<44} {:>8} {:>8} {:>11} {:>10} {:>9} {:>8}\n",
            "name", "pass", "calls", "total ms", "share", "GFLOP/s", "GB/s"
        );
        let hidden = kernels.len().saturating_sub(rows);
        for a in kernels.iter().take(rows).chain(labels.iter().take(rows)) {
            let seconds = a.duration.as_secs_f64().max(f64::MIN_POSITIVE);
            let rate = |n: u64| if n == 0 { String::new() } else { format!("{:.1}", n as f64 / seconds / 1e9) };
            let _ = writeln!(
                text,
                "{:<44} {:>8} {:>8} {:>11.3} {:>9.1}% {:>9} {:>8}",
                shortened(&a.name, 44),
                if a.backward { "backward" } else { "forward" },
                a.calls,
                seconds * 1e3,
                100.0 * seconds / whole,
                rate(a.work.flops),
                rate(a.work.bytes),
            );
        }
        if hidden > 0 {
            let _ = writeln!(text, "… and {hidden} more");
        }
        let inside = self.in_kernels();
        let _ = writeln!(
            text,
            "kernels {:.3} ms of {:.3} ms; the rest is the work around them",
            inside.as_secs_f64() * 1e3,
            self.duration.as_secs_f64() * 1e3
        );
        text
    }
}

/// The text, or as much of it as fits, with an ellipsis.
fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_string();
    }
    text.chars().take(width - 1).chain(['…']).collect()
}
