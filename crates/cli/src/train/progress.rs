//! Progress of a run: a bar on a terminal, one plain line an epoch elsewhere.

use super::Metrics;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::io::IsTerminal;

const TEMPLATE: &str = "{msg}  {bar:24.cyan/dim} {pos}/{len} steps  {rate}  ETA {eta}";

/// Shows how far a run is.
pub(crate) struct Progress {
    /// Absent when nobody watches.
    bar: Option<ProgressBar>,
    epochs: u32,
}

impl Progress {
    /// Progress over so many steps. The bar goes to standard error, so that output stays clean.
    pub(crate) fn new(steps: usize, epochs: u32) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(steps as u64);
            let style = ProgressStyle::with_template(TEMPLATE).expect("a valid template").progress_chars("━━╌");
            // Writing into a terminal's line cannot fail in a way worth handling.
            bar.set_style(style.with_key("rate", |state: &ProgressState, out: &mut dyn Write| {
                let _ = write!(out, "{:.0}/s", state.per_sec());
            }));
            bar
        });
        Progress { bar, epochs }
    }

    /// One step was done.
    pub(crate) fn step(&self, epoch: u32, loss: f64) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("epoch {epoch}/{}  loss {loss:.4}", self.epochs));
            bar.inc(1);
        }
    }

    /// One epoch was done.
    pub(crate) fn epoch(&self, m: &Metrics) {
        if self.bar.is_none() {
            let left = m.seconds / f64::from(m.epoch) * f64::from(self.epochs - m.epoch);
            eprintln!(
                "epoch {:>3}/{}  loss {:.4}  test accuracy {:.2}%  {:.0} samples/s  {left:.0} s left",
                m.epoch,
                self.epochs,
                m.train_loss,
                100.0 * m.test_accuracy,
                m.samples_per_second,
            );
        }
    }

    /// Everything was done.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish();
        }
    }

    /// Leaves the bar as it stands.
    pub(crate) fn abandon(&self) {
        if let Some(bar) = &self.bar {
            bar.abandon();
        }
    }
}
