//! The folder of a run: `config.json`, `metrics.jsonl`, `metrics.csv`, `report.html`, each whole or absent.

use super::{Config, Metrics};
use crate::refusal::{Done, Refusal};
use firebrand::io::write_text;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Where runs are numbered when no folder is named.
const RUNS: &str = "runs";

/// An existing folder that belongs to this run.
pub(crate) struct RunFolder(PathBuf);

fn refused(path: &Path, e: std::io::Error) -> Refusal {
    Refusal::because(format!("{}: {e}", path.display()))
}

/// A fresh folder with the next number; making it reserves the number against runs that start at the same time.
fn numbered(under: &Path) -> Done<PathBuf> {
    fs::create_dir_all(under).map_err(|e| refused(under, e))?;
    let entries = fs::read_dir(under).map_err(|e| refused(under, e))?;
    let taken = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u32>().ok()).max().unwrap_or(0);
    for number in taken.saturating_add(1).. {
        let path = under.join(format!("{number:04}"));
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(refused(&path, e)),
        }
    }
    Err(Refusal::because(format!("{}: no number is left", under.display())))
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

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes everything.
    pub(crate) fn write(&self, config: &Config, metrics: &[Metrics], html: &str) -> Done {
        let json = |v: Result<String, serde_json::Error>| v.map_err(Refusal::because);
        write_text(self.0.join("config.json"), &(json(serde_json::to_string_pretty(config))? + "\n"))?;
        let mut lines = String::new();
        let mut table = String::from("epoch,train_loss,test_loss,test_accuracy,samples_per_second,seconds\n");
        for m in metrics {
            lines += &(json(serde_json::to_string(m))? + "\n");
            let Metrics { epoch, train_loss, test_loss, test_accuracy, samples_per_second, seconds } = m;
            table += &format!("{epoch},{train_loss},{test_loss},{test_accuracy},{samples_per_second},{seconds}\n");
        }
        write_text(self.0.join("metrics.jsonl"), &lines)?;
        write_text(self.0.join("metrics.csv"), &table)?;
        Ok(write_text(self.0.join("report.html"), html)?)
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
