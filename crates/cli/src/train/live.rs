//! Progress of a run on standard error: a view that is redrawn in place on a terminal (bar, rate, loss curve, memory, and a
//! line for every epoch above it), and plain lines elsewhere.

use crate::refusal::counted;
use firebrand::prelude::*;
use firebrand::train::{Callback, Metrics, Progress, Step};
use std::cell::RefCell;
use std::io::{IsTerminal, Write};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Time between two redraws: fast enough for the eye, too slow to cost anything.
const FRAME: Duration = Duration::from_millis(100);
/// Rows of the loss curve.
const ROWS: usize = 4;

/// Shows the progress of a run.
#[derive(Clone)]
pub(crate) struct Live(Rc<RefCell<View>>);

struct View {
    shown: Shown,
    epochs: usize,
    steps: u64,
    batch: usize,
    accumulate: usize,
    samples: usize,
    /// The step the run began or resumed at, and when.
    first: u64,
    began: Instant,
    epoch_began: Instant,
    drawn: Option<Instant>,
    /// Lines on the terminal that belong to the view.
    lines: usize,
    losses: Vec<f64>,
    last: Option<Step>,
}

#[derive(Clone, Copy, PartialEq)]
enum Shown {
    Nothing,
    Lines,
    Terminal { color: bool },
}

/// `0.0421`, or `1.2e-5`.
pub(crate) fn short(v: f64) -> String {
    if v == 0.0 || (1e-3..1e5).contains(&v.abs()) { format!("{v:.4}") } else { format!("{v:.2e}") }
}

/// A metric formatted for display: fractions as percentages.
pub(crate) fn metric_text(name: &str, v: f64) -> String {
    let share = ["accuracy", "f1", "precision", "recall"].iter().any(|m| name.ends_with(m));
    if share { format!("{:.2}%", 100.0 * v) } else { short(v) }
}

/// The name of a metric where space is short: `val_top5_accuracy` is `top5`.
pub(crate) fn metric_label(name: &str) -> &str {
    match name {
        "train_loss" => "loss",
        "val_loss" => "val loss",
        other => {
            let name = other.strip_prefix("val_").unwrap_or(other);
            name.strip_suffix("_accuracy").unwrap_or(name)
        }
    }
}

fn clock(seconds: f64) -> String {
    let s = seconds.max(0.0).round() as u64;
    match s {
        0..3600 => format!("{}:{:02}", s / 60, s % 60),
        _ => format!("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60),
    }
}

/// `12.3 MB`.
pub(crate) fn bytes(n: usize) -> String {
    let n = n as f64;
    let (value, unit) = match n {
        n if n >= 1e9 => (n / 1e9, "GB"),
        n if n >= 1e6 => (n / 1e6, "MB"),
        n if n >= 1e3 => (n / 1e3, "kB"),
        n => return format!("{n:.0} B"),
    };
    format!("{value:.1} {unit}")
}

/// A curve in braille dots, `width` characters by [`ROWS`], from the first value to the last; large ranges on a log scale.
pub(crate) fn curve(values: &[f64], width: usize) -> Vec<String> {
    let values: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    if values.is_empty() || width == 0 {
        return vec![String::new(); ROWS];
    }
    // Each column of dots is the mean of its share of the values.
    let columns = (2 * width).min(values.len());
    let mean = |k: usize| {
        let (from, to) =
            (k * values.len() / columns, ((k + 1) * values.len() / columns).max(k * values.len() / columns + 1));
        values[from..to].iter().sum::<f64>() / (to - from) as f64
    };
    let mut points: Vec<f64> = (0..columns).map(mean).collect();
    let (low, high) =
        (points.iter().copied().fold(f64::MAX, f64::min), points.iter().copied().fold(f64::MIN, f64::max));
    if low > 0.0 && high / low > 20.0 {
        points.iter_mut().for_each(|p| *p = p.ln());
    }
    let (low, high) =
        (points.iter().copied().fold(f64::MAX, f64::min), points.iter().copied().fold(f64::MIN, f64::max));
    let height = (4 * ROWS - 1) as f64;
    let mut cells = vec![vec![0u32; width]; ROWS];
    for (x, p) in points.iter().enumerate() {
        let share = if high > low { (p - low) / (high - low) } else { 0.0 };
        let y = (height * (1.0 - share)).round() as usize;
        // Bits of a braille cell, by column and row.
        const BITS: [[u32; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];
        cells[y / 4][x / 2] |= BITS[x % 2][y % 4];
    }
    let cell = |bits: &u32| char::from_u32(0x2800 + bits).unwrap_or(' ');
    cells.iter().map(|row| row.iter().map(cell).collect::<String>()).collect()
}

impl Live {
    /// For a run of this many steps and epochs; `quiet` shows nothing.
    pub(crate) fn new(quiet: bool, steps: u64, epochs: usize, batch: usize, accumulate: usize, samples: usize) -> Live {
        let terminal = std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|t| t != "dumb");
        let shown = match (quiet, terminal) {
            (true, _) => Shown::Nothing,
            (_, true) => Shown::Terminal { color: std::env::var_os("NO_COLOR").is_none() },
            _ => Shown::Lines,
        };
        let now = Instant::now();
        Live(Rc::new(RefCell::new(View {
            shown,
            epochs,
            steps,
            batch,
            accumulate,
            samples,
            first: 0,
            began: now,
            epoch_began: now,
            drawn: None,
            lines: 0,
            losses: Vec::new(),
            last: None,
        })))
    }

    /// Clears the view; the epochs' lines stay.
    pub(crate) fn finish(&self) {
        let mut view = self.0.borrow_mut();
        let erase = view.erase();
        // A terminal that has gone away is not a reason to fail.
        let _ = std::io::stderr().write_all(erase.as_bytes());
    }
}

impl View {
    /// From the first column: a terminal shows the Ctrl-C that it got.
    fn erase(&mut self) -> String {
        let text = if self.lines > 0 { format!("\r\x1b[{}A\x1b[J", self.lines) } else { String::new() };
        self.lines = 0;
        text
    }

    fn rate(&self) -> f64 {
        let done = self.last.map_or(0, |s| s.step.saturating_sub(self.first)) as f64;
        done / self.began.elapsed().as_secs_f64().max(1e-9)
    }

    fn draw(&mut self) {
        let Shown::Terminal { color } = self.shown else { return };
        let Some(step) = self.last else { return };
        let width = console::Term::stderr().size_checked().map_or(80, |(_, w)| usize::from(w)).clamp(20, 120) - 1;
        let paint =
            |code: &str, text: &str| if color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() };
        let rate = self.rate();
        let left = (self.steps.saturating_sub(step.step)) as f64 / rate.max(1e-9);
        let memory = firebrand::memory_stats();
        let bar_width = 24.min(width / 3);
        let done = (bar_width as f64 * step.step as f64 / self.steps.max(1) as f64).round() as usize;
        let bar =
            paint("36", &"━".repeat(done.min(bar_width))) + &paint("2", &"╌".repeat(bar_width - done.min(bar_width)));
        let samples = rate * (self.batch * self.accumulate) as f64;
        // Lengths are counted without colors, so each line is cut before it is painted.
        let cut = |text: String| text.chars().take(width).collect::<String>();
        let head = cut(format!("epoch {}/{}  ", step.epoch, self.epochs));
        let tail: String = format!("  {}/{} steps  {samples:.0} samples/s  ETA {}", step.step, self.steps, clock(left))
            .chars()
            .take(width.saturating_sub(head.chars().count() + bar_width))
            .collect();
        let norm = step.grad_norm.map_or(String::new(), |n| format!("  gradient norm {}", short(n)));
        let facts = cut(format!(
            "loss {}  learning rate {:.2e}{norm}  memory {} (peak {})",
            short(step.loss),
            step.lr,
            bytes(memory.live),
            bytes(memory.peak),
        ));
        let mut lines = vec![format!("{}{bar}{tail}", paint("1", &head)), facts];
        let (high, low) =
            self.losses.iter().filter(|v| v.is_finite()).fold((f64::MIN, f64::MAX), |(h, l), v| (h.max(*v), l.min(*v)));
        for (k, row) in curve(&self.losses, width.saturating_sub(10)).into_iter().enumerate() {
            let mark = match k {
                0 => short(high),
                k if k + 1 == ROWS => short(low),
                _ => String::new(),
            };
            lines.push(format!("{} {}", paint("2", &format!("{mark:>8}")), paint("35", &row)));
        }
        let text = self.erase() + &lines.join("\n") + "\n";
        self.lines = lines.len();
        let _ = std::io::stderr().write_all(text.as_bytes());
        self.drawn = Some(Instant::now());
    }
}

impl Callback for Live {
    fn begin(&mut self, progress: &Progress) -> Result<()> {
        let mut view = self.0.borrow_mut();
        view.first = progress.step;
        (view.began, view.epoch_began) = (Instant::now(), Instant::now());
        if progress.step > 0 && view.shown != Shown::Nothing {
            match view.epochs - progress.epoch.min(view.epochs) {
                0 => eprintln!("resumed at step {}: {} done", progress.step, counted(view.epochs, "epoch")),
                _ => eprintln!("resumed at step {}, in epoch {}", progress.step, progress.epoch + 1),
            }
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        let mut view = self.0.borrow_mut();
        view.last = Some(*step);
        view.losses.push(step.loss);
        // A long run keeps every other value of the past.
        if view.losses.len() > 8192 {
            view.losses = view.losses.chunks(2).map(|c| c.iter().sum::<f64>() / c.len() as f64).collect();
        }
        if view.drawn.is_none_or(|t| t.elapsed() >= FRAME) {
            view.draw();
        }
        Ok(())
    }

    fn epoch(&mut self, epoch: usize, history: &[Metrics]) -> Result<()> {
        let mut view = self.0.borrow_mut();
        let seconds = view.epoch_began.elapsed().as_secs_f64();
        view.epoch_began = Instant::now();
        let Some(metrics) = history.last().filter(|_| view.shown != Shown::Nothing) else { return Ok(()) };
        let shown: Vec<String> = metrics
            .iter()
            .filter(|(name, _)| *name != "lr")
            .map(|(name, v)| format!("{} {}", metric_label(name), metric_text(name, *v)))
            .collect();
        let width = view.epochs.to_string().len();
        let line = format!(
            "epoch {epoch:>width$}/{}  {}  {:.0} samples/s",
            view.epochs,
            shown.join("  "),
            view.samples as f64 / seconds
        );
        let text = view.erase() + &line + "\n";
        let _ = std::io::stderr().write_all(text.as_bytes());
        if epoch < view.epochs {
            view.draw();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_fall_from_left_to_right() {
        let values: Vec<f64> = (0..32).map(|k| 32.0 - k as f64).collect();
        let rows = curve(&values, 8);
        assert_eq!(rows.len(), ROWS);
        assert!(rows.iter().all(|r| r.chars().count() == 8));
        let dots = |r: &str| r.chars().position(|c| c != '\u{2800}');
        assert_eq!((dots(&rows[0]), dots(&rows[ROWS - 1])), (Some(0), Some(7)), "{rows:?}");
        assert_eq!(curve(&[f64::NAN], 4), vec![String::new(); ROWS]);
        assert_eq!((clock(75.0), clock(3700.0)), ("1:15".into(), "1:01:40".into()));
        assert_eq!((short(0.5), short(1e-6)), ("0.5000".into(), "1.00e-6".into()));
    }
}
