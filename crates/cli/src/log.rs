//! Prints the libraries' `tracing` events to standard error: warnings by default, more with `--verbose` or `RUST_LOG`,
//! only errors with `--quiet`.

use crate::refusal::printable;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Levels by target prefix; the longest matching prefix wins.
struct Log {
    levels: Vec<(String, LevelFilter)>,
    spans: AtomicU64,
}

/// Parses `RUST_LOG`: `debug`, or `warn,firebrand::compile=debug`. Invalid directives are ignored.
fn parse(text: &str) -> Vec<(String, LevelFilter)> {
    let one = |part: &str| {
        let part = part.trim();
        match part.split_once('=') {
            Some((target, level)) => Some((target.trim().to_string(), level.trim().parse().ok()?)),
            None => match part.parse::<LevelFilter>() {
                Ok(level) => Some((String::new(), level)),
                Err(_) if part.is_empty() => None,
                Err(_) => Some((part.to_string(), LevelFilter::TRACE)),
            },
        }
    };
    text.split(',').filter_map(one).collect()
}

impl Log {
    fn level(&self, target: &str) -> LevelFilter {
        let fits = self.levels.iter().filter(|(prefix, _)| target.starts_with(prefix.as_str()));
        fits.max_by_key(|(prefix, _)| prefix.len()).map_or(LevelFilter::OFF, |(_, level)| *level)
    }
}

/// Installs the subscriber. `RUST_LOG` takes precedence over the two flags.
pub(crate) fn start(quiet: bool, verbose: u8) {
    let level = match (quiet, verbose) {
        (true, _) => LevelFilter::ERROR,
        (_, 0) => LevelFilter::WARN,
        (_, 1) => LevelFilter::INFO,
        (_, 2) => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let mut levels = vec![(String::new(), level)];
    levels.extend(std::env::var("RUST_LOG").map(|text| parse(&text)).unwrap_or_default());
    // This only fails if a subscriber is already installed; nothing else in this program installs one.
    let _ = tracing::subscriber::set_global_default(Log { levels, spans: AtomicU64::new(1) });
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level(metadata.target())
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(self.spans.fetch_add(1, Relaxed))
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let metadata = event.metadata();
        let level = match *metadata.level() {
            tracing::Level::ERROR => "error",
            tracing::Level::WARN => "warning",
            tracing::Level::INFO => "info",
            tracing::Level::DEBUG => "debug",
            tracing::Level::TRACE => "trace",
        };
        match metadata.target() {
            "firebrand" => eprintln!("{level}: {}", printable(&text.0)),
            target => eprintln!("{level}: {target}: {}", printable(&text.0)),
        }
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_target_decides() {
        let mut levels = vec![(String::new(), LevelFilter::WARN)];
        levels.extend(parse("info, firebrand::compile=debug,firebrand::compile::joint=off,other"));
        let log = Log { levels, spans: AtomicU64::new(1) };
        for (target, level) in [
            ("x", LevelFilter::INFO),
            ("firebrand::compile", LevelFilter::DEBUG),
            ("firebrand::compile::joint", LevelFilter::OFF),
            ("other::part", LevelFilter::TRACE),
        ] {
            assert_eq!(log.level(target), level, "{target}");
        }
    }
}
