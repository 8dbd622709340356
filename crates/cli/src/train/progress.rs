//! Progress of a run: a bar on a terminal, one plain line per epoch elsewhere.

use firebrand::prelude::*;
use firebrand::train::{Callback, Metrics, Step};
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Instant;

const TEMPLATE: &str = "{msg}  {bar:24.cyan/dim} {pos}/{len} steps  {rate}  ETA {eta}";

/// Shows the progress of a run.
#[derive(Clone)]
pub(crate) struct Progress {
    /// Absent if standard error is not a terminal.
    bar: Option<ProgressBar>,
    epochs: usize,
    samples: usize,
    epoch_began: Instant,
}

impl Progress {
    /// Progress over this many steps. The bar goes to standard error, so that standard output stays clean.
    pub(crate) fn new(steps: usize, epochs: usize, samples: usize) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(steps as u64);
            let style = ProgressStyle::with_template(TEMPLATE).expect("a valid template").progress_chars("━━╌");
            // Writing into a terminal's line cannot fail in a way worth handling.
            bar.set_style(style.with_key("rate", |state: &ProgressState, out: &mut dyn Write| {
                let _ = write!(out, "{:.0}/s", state.per_sec());
            }));
            bar
        });
        Progress { bar, epochs, samples, epoch_began: Instant::now() }
    }

    /// Starts the bar at this step, for a resumed run.
    pub(crate) fn start_at(&self, step: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(step);
        }
    }

    /// Leaves the bar as it stands.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.abandon();
        }
    }
}

impl Callback for Progress {
    fn step(&mut self, step: &Step) -> Result<()> {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("epoch {}/{}  loss {:.4}", step.epoch, self.epochs, step.loss));
            bar.set_position(step.step);
        }
        Ok(())
    }

    fn epoch(&mut self, epoch: usize, history: &[Metrics]) -> Result<()> {
        let seconds = self.epoch_began.elapsed().as_secs_f64();
        self.epoch_began = Instant::now();
        if self.bar.is_some() {
            return Ok(());
        }
        let of = |name: &str| history.last().and_then(|m| m.get(name)).copied();
        let tested = of("test_accuracy").map_or(String::new(), |a| format!("  test accuracy {:.2}%", 100.0 * a));
        eprintln!(
            "epoch {epoch:>3}/{}  loss {:.4}{tested}  {:.0} samples/s  {:.0} s left",
            self.epochs,
            of("train_loss").unwrap_or(f64::NAN),
            self.samples as f64 / seconds,
            seconds * (self.epochs - epoch) as f64,
        );
        Ok(())
    }
}
