//! The folder of a run: `config.json`, `metrics.jsonl`, `metrics.csv`, `checkpoint.safetensors`, `report.html`, each
//! whole or absent, and a TensorBoard event file. All but the report are there, up to date, after every epoch.

use super::Config;
use crate::refusal::{Done, Refusal};
use firebrand::io::{Output, read_text, write_text};
use firebrand::prelude::*;
use firebrand::train::{Callback, EventWriter, Metrics, Step};
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Where numbered runs go if no folder is named.
const RUNS: &str = "runs";

/// An existing folder that belongs to this run.
#[derive(Clone)]
pub(crate) struct RunFolder(PathBuf);

fn refused(path: &Path, e: impl std::fmt::Display) -> Refusal {
    Refusal::because(format!("{}: {e}", path.display()))
}

/// The highest number under a folder, 0 if there is none.
fn last_number(under: &Path) -> Done<u32> {
    let entries = fs::read_dir(under).map_err(|e| refused(under, e))?;
    Ok(entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u32>().ok()).max().unwrap_or(0))
}

/// A new folder with the next number; creating it reserves the number against concurrent runs.
fn numbered(under: &Path) -> Done<PathBuf> {
    fs::create_dir_all(under).map_err(|e| refused(under, e))?;
    for number in last_number(under)?.saturating_add(1).. {
        let path = under.join(format!("{number:04}"));
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(refused(&path, e)),
        }
    }
    Err(refused(under, "no run number is left"))
}

impl RunFolder {
    /// The named folder, or the next number under `runs/`.
    pub(crate) fn make(out: Option<&Path>) -> Done<RunFolder> {
        match out {
            None => numbered(Path::new(RUNS)).map(RunFolder),
            Some(path) => {
                fs::create_dir_all(path).map_err(|e| refused(path, e))?;
                Ok(RunFolder(path.to_path_buf()))
            }
        }
    }

    /// The named folder, or the last number under `runs/`, of a run that was begun.
    pub(crate) fn existing(out: Option<&Path>) -> Done<RunFolder> {
        match out {
            Some(path) => Ok(RunFolder(path.to_path_buf())),
            None => Ok(RunFolder(Path::new(RUNS).join(format!("{:04}", last_number(Path::new(RUNS))?)))),
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Where the checkpoint is.
    pub(crate) fn checkpoint(&self) -> PathBuf {
        self.0.join("checkpoint.safetensors")
    }

    /// The settings of the run.
    pub(crate) fn config(&self) -> Done<Config> {
        let path = self.0.join("config.json");
        let text = read_text(&path)?;
        serde_json::from_str(&text).map_err(|e| refused(&path, e))
    }

    /// Writes the report without making it visible yet.
    pub(crate) fn stage_report(&self, html: &str) -> Done<Output> {
        Ok(Output::write(self.0.join("report.html"), |out| Ok(out.write_all(html.as_bytes())?))?)
    }
}

/// Keeps the folder up to date while a model trains.
pub(crate) struct Writer {
    folder: RunFolder,
    config: Config,
    events: Option<EventWriter>,
}

impl Writer {
    pub(crate) fn new(folder: &RunFolder, config: &Config) -> Writer {
        Writer { folder: folder.clone(), config: config.clone(), events: None }
    }

    fn config(&self) -> Result<()> {
        let text = serde_json::to_string_pretty(&self.config).map_err(Error::user)? + "\n";
        write_text(self.folder.path().join("config.json"), &text).map_err(Error::user)
    }

    /// The event file, created on first use.
    fn events(&mut self) -> Result<&mut EventWriter> {
        match &mut self.events {
            Some(e) => Ok(e),
            none => Ok(none.insert(EventWriter::new(self.folder.path())?)),
        }
    }
}

impl Callback for Writer {
    fn step(&mut self, step: &Step) -> Result<()> {
        if step.step == 1 || self.events.is_none() {
            self.config()?;
        }
        self.events()?.scalar("loss/batch", step.step, step.loss)?;
        self.events()?.scalar("lr", step.step, step.lr)
    }

    fn epoch(&mut self, epoch: usize, history: &[Metrics]) -> Result<()> {
        let Some(last) = history.last() else { return Ok(()) };
        for (name, value) in last {
            self.events()?.scalar(name, epoch as u64, *value)?;
        }
        let mut table = format!("epoch,{}\n", last.keys().cloned().collect::<Vec<_>>().join(","));
        let mut lines = String::new();
        for (k, metrics) in history.iter().enumerate() {
            let mut line = Metrics::from_iter([("epoch".to_string(), (k + 1) as f64)]);
            line.extend(metrics.clone());
            lines += &(serde_json::to_string(&line).map_err(Error::user)? + "\n");
            let values: Vec<String> = metrics.values().map(f64::to_string).collect();
            table += &format!("{},{}\n", k + 1, values.join(","));
        }
        write_text(self.folder.path().join("metrics.jsonl"), &lines).map_err(Error::user)?;
        write_text(self.folder.path().join("metrics.csv"), &table).map_err(Error::user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_each_other() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("0041")).expect("writable");
        fs::create_dir(folder.path().join("notes")).expect("writable");
        for expected in ["0042", "0043"] {
            assert_eq!(numbered(folder.path()).expect("writable"), folder.path().join(expected));
        }
    }
}
