//! The folder of a run: `run.toml` (settings), `run.json` (facts), `metrics.jsonl`, `metrics.csv`, `checkpoint.safetensors`,
//! `best.safetensors`, the model, `report.html`, each complete or absent, and TensorBoard event files. All but the model and the
//! report are up to date after every epoch. A folder belongs to one run.

use super::config::{FILE, Settings};
use crate::refusal::{Done, Refusal};
use firebrand::io::{Output, plain, read_text, write_text};
use firebrand::prelude::*;
use firebrand::train::{Callback, EventWriter, Metrics, Progress, Step};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Where numbered runs go if no folder is named.
pub(crate) const RUNS: &str = "runs";
/// The version of `run.json`.
pub(crate) const SCHEMA: &str = "firebrand.run/1";

/// Information about a run and its environment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// [`SCHEMA`].
    pub(crate) schema: String,
    /// Version of this program.
    pub(crate) version: String,
    pub(crate) model: String,
    pub(crate) data: String,
    pub(crate) train_samples: usize,
    pub(crate) val_samples: usize,
    pub(crate) batch_size: usize,
    pub(crate) steps_per_epoch: usize,
    /// Parts of a step that are computed on their own; 1 for a run of one process that was asked for no more.
    #[serde(default = "one")]
    pub(crate) shards: usize,
    /// Number of elements of all parameters, and of the trainable ones.
    pub(crate) parameters: usize,
    pub(crate) trainable: usize,
    /// A description of the optimizer's parameter groups.
    pub(crate) groups: Vec<String>,
    pub(crate) threads: usize,
    pub(crate) cpu: String,
    /// Checksums: a run is resumed with the same program and data only.
    pub(crate) model_checksum: String,
    pub(crate) data_checksum: String,
}

fn one() -> usize {
    1
}

/// The folder of a run.
#[derive(Clone)]
pub(crate) struct RunFolder(PathBuf);

fn refused(path: &Path, e: impl std::fmt::Display) -> Refusal {
    Refusal::because(format!("{}: {e}", plain(&path.display().to_string())))
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

/// Whether a name in a folder is one that a run writes.
fn of_a_run(name: &str) -> bool {
    const NAMES: [&str; 8] = [
        FILE,
        "run.json",
        "metrics.jsonl",
        "metrics.csv",
        "checkpoint.safetensors",
        "best.safetensors",
        "report.html",
        "model.safetensors",
    ];
    NAMES.contains(&name) || name.starts_with("events.out.tfevents.")
}

impl RunFolder {
    /// Returns an error if the folder holds another run, before any work is done.
    pub(crate) fn check_unused(path: &Path) -> Done {
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(refused(path, e)),
        };
        let name = |e: std::io::Result<fs::DirEntry>| e.ok()?.file_name().into_string().ok();
        match entries.filter_map(name).find(|n| of_a_run(n)) {
            Some(found) => Err(refused(
                path,
                format!("already holds a run ({found}); continue it with --resume, or choose another directory"),
            )),
            None => Ok(()),
        }
    }

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
        let path = match out {
            Some(path) => path.to_path_buf(),
            None => match last_number(Path::new(RUNS)) {
                Ok(n) if n > 0 => Path::new(RUNS).join(format!("{n:04}")),
                _ => return Err(Refusal::because("there is no run under runs/ to resume; name one with --out DIR")),
            },
        };
        if !path.join(FILE).is_file() {
            return Err(refused(
                &path,
                format!("there is no run to resume here ({FILE} is missing); start it without --resume"),
            ));
        }
        Ok(RunFolder(path))
    }

    /// Removes partial files that a killed run left behind.
    pub(crate) fn clean(&self) {
        let unfinished = |name: &str| {
            let rest = name.strip_prefix('.').and_then(|n| n.strip_suffix(".tmp")).and_then(|n| n.rsplit_once('.'));
            rest.is_some_and(|(file, random)| random.len() == 16 && (of_a_run(file) || file == "model.pt2"))
        };
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        for entry in entries.filter(|e| e.file_name().to_str().is_some_and(unfinished)) {
            // A file that cannot be removed does no harm.
            let _ = fs::remove_file(entry.path());
        }
    }

    /// Removes what a run wrote that failed before its first checkpoint, so that the corrected command can use the folder; the
    /// folder too if nothing else is in it.
    pub(crate) fn abandon(&self) {
        if self.checkpoint().exists() {
            return;
        }
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        for entry in entries.filter(|e| e.file_name().to_str().is_some_and(of_a_run)) {
            // What cannot be removed is refused by name when the folder is used again.
            let _ = fs::remove_file(entry.path());
        }
        let _ = fs::remove_dir(&self.0);
    }

    /// A folder with a run, for reading.
    pub(crate) fn at(path: &Path) -> RunFolder {
        RunFolder(path.to_path_buf())
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// A file in it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Where the checkpoint is.
    pub(crate) fn checkpoint(&self) -> PathBuf {
        self.file("checkpoint.safetensors")
    }

    /// The facts of the run.
    pub(crate) fn facts(&self) -> Done<Facts> {
        let path = self.file("run.json");
        let facts: Facts = serde_json::from_str(&read_text(&path)?).map_err(|e| refused(&path, e))?;
        if facts.schema != SCHEMA {
            return Err(refused(
                &path,
                format!("expected {SCHEMA}, found {}; it was written by another version", facts.schema),
            ));
        }
        Ok(facts)
    }

    /// The metrics of all complete epochs.
    pub(crate) fn history(&self) -> Done<Vec<Metrics>> {
        let path = self.file("metrics.jsonl");
        if !path.exists() {
            return Ok(Vec::new());
        }
        let number = |v: &serde_json::Value| v.as_f64().unwrap_or(f64::NAN);
        let line = |text: &str| -> Done<Metrics> {
            let line: serde_json::Map<String, serde_json::Value> =
                serde_json::from_str(text).map_err(|e| refused(&path, e))?;
            Ok(line.iter().filter(|(k, _)| *k != "epoch").map(|(k, v)| (k.clone(), number(v))).collect())
        };
        read_text(&path)?.lines().map(line).collect()
    }

    /// Writes settings and facts: from here on the folder can be resumed.
    pub(crate) fn begin(&self, settings: &Settings, command: &clap::Command, facts: &Facts) -> Done {
        let text = serde_json::to_string_pretty(facts).map_err(Refusal::because)? + "\n";
        write_text(self.file("run.json"), &text)?;
        // Last, because it marks the folder as one to resume.
        Ok(write_text(self.file(FILE), &settings.to_toml(command))?)
    }

    /// Writes the report without making it visible yet.
    pub(crate) fn stage_report(&self, html: &str) -> Done<Output> {
        Ok(Output::write(self.file("report.html"), |out| Ok(out.write_all(html.as_bytes())?))?)
    }
}

/// Keeps the folder up to date while a model trains.
pub(crate) struct Writer {
    folder: RunFolder,
    events: EventWriter,
    /// Steps so far: the step that epoch metrics have in event files, so that a restart also discards those.
    step: u64,
}

impl Writer {
    pub(crate) fn new(folder: &RunFolder) -> Result<Writer> {
        Ok(Writer { folder: folder.clone(), events: EventWriter::new(folder.path())?, step: 0 })
    }

    fn tables(&self, history: &[Metrics]) -> Result<()> {
        let Some(last) = history.last() else { return Ok(()) };
        let mut table = format!("epoch,{}\n", last.keys().cloned().collect::<Vec<_>>().join(","));
        let mut lines = String::new();
        for (k, metrics) in history.iter().enumerate() {
            let mut line = serde_json::Map::new();
            line.insert("epoch".into(), (k + 1).into());
            line.extend(metrics.iter().map(|(name, v)| (name.clone(), (*v).into())));
            lines += &(serde_json::to_string(&line).map_err(Error::user)? + "\n");
            let values: Vec<String> = metrics.values().map(f64::to_string).collect();
            table += &format!("{},{}\n", k + 1, values.join(","));
        }
        write_text(self.folder.file("metrics.jsonl"), &lines).map_err(Error::user)?;
        write_text(self.folder.file("metrics.csv"), &table).map_err(Error::user)
    }
}

impl Callback for Writer {
    fn begin(&mut self, progress: &Progress) -> Result<()> {
        // Discard what an interrupted run wrote after its checkpoint.
        self.events.restart(progress.step + 1)?;
        self.step = progress.step;
        self.tables(&progress.history)
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        self.step = step.step;
        self.events.scalar("batch/loss", step.step, step.loss)?;
        if let Some(norm) = step.grad_norm {
            self.events.scalar("batch/grad_norm", step.step, norm)?;
        }
        self.events.scalar("batch/lr", step.step, step.lr)
    }

    fn epoch(&mut self, _: usize, history: &[Metrics]) -> Result<()> {
        let Some(last) = history.last() else { return Ok(()) };
        for (name, value) in last {
            self.events.scalar(&format!("epoch/{name}"), self.step, *value)?;
        }
        self.tables(history)
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

    #[test]
    fn a_folder_belongs_to_one_run() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("notes.txt"), "").expect("writable");
        assert!(RunFolder::check_unused(folder.path()).is_ok());
        assert!(RunFolder::check_unused(&folder.path().join("new")).is_ok());
        fs::write(folder.path().join("metrics.csv"), "").expect("writable");
        assert!(RunFolder::check_unused(folder.path()).is_err());
        fs::write(folder.path().join(".metrics.csv.0123456789abcdef.tmp"), "").expect("writable");
        RunFolder::at(folder.path()).clean();
        let mut left: Vec<_> =
            fs::read_dir(folder.path()).expect("readable").flatten().map(|e| e.file_name()).collect();
        left.sort();
        assert_eq!(left, ["metrics.csv", "notes.txt"]);
        RunFolder::at(folder.path()).abandon();
        assert!(RunFolder::check_unused(folder.path()).is_ok() && folder.path().join("notes.txt").exists());
        fs::write(folder.path().join("checkpoint.safetensors"), "").expect("writable");
        RunFolder::at(folder.path()).abandon();
        assert!(RunFolder::check_unused(folder.path()).is_err(), "a run with a checkpoint stays");
    }
}
