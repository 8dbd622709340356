//! What PyTorch itself makes of its tests: `crates/python/conformance/oracle.txt`, outcomes by test.
//!
//! They are facts of one release of PyTorch and one text of each test file, so they are committed and nobody needs to ask again. A
//! file whose text is another is asked about anew, class by class, and what PyTorch answers is kept as soon as a class is through: a
//! run that was cut off goes on where it was. Tests that firebrand skips are not asked about.

use super::runner::{Runner, Side, Test, Verdict, Verdicts};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

/// The known outcomes.
pub(super) struct Oracle {
    path: PathBuf,
    /// The release that gave them.
    release: String,
    /// Digests of the test files.
    files: BTreeMap<String, String>,
    known: Verdicts,
}

impl Oracle {
    /// What is known of the tests as they stand in the runner's source tree.
    pub(super) fn read(runner: &Runner) -> Result<Oracle, String> {
        let path = runner.folder.join("oracle.txt");
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut oracle = Oracle { path, release: String::new(), files: BTreeMap::new(), known: Verdicts::new() };
        for line in text.lines() {
            let mut parts = line.splitn(3, '\t');
            match (parts.next(), parts.next(), parts.next().unwrap_or_default()) {
                (Some("release"), Some(release), _) => oracle.release = release.to_string(),
                (Some("file"), Some(file), digest) => {
                    oracle.files.insert(file.to_string(), digest.to_string());
                }
                (Some(id), Some(outcome), message) => {
                    let test = Test::parse(id).ok_or_else(|| format!("oracle.txt: not a test: {id:?}"))?;
                    oracle.known.insert(test, Verdict { outcome: outcome.into(), message: message.into() });
                }
                _ => {}
            }
        }
        Ok(oracle)
    }

    /// Asks PyTorch about those tests that nothing is known of; about all of them if it is asked `anew`.
    pub(super) fn complete(&mut self, runner: &Runner, tests: &[Test], anew: bool) -> Result<(), String> {
        let mut stale: BTreeMap<String, String> = BTreeMap::new();
        for file in tests.iter().map(|t| &t.file) {
            if !stale.contains_key(file) {
                let digest = digest(&std::fs::read(runner.source.join(file)).map_err(|e| format!("{file}: {e}"))?);
                stale.insert(file.clone(), digest);
            }
        }
        stale.retain(|file, digest| self.files.get(file) != Some(digest));
        self.known.retain(|test, _| !stale.contains_key(&test.file));
        self.files.extend(stale);
        if anew {
            self.known.retain(|test, _| tests.binary_search(test).is_err());
        }
        let missing: Vec<Test> = tests.iter().filter(|t| !self.known.contains_key(*t)).cloned().collect();
        if missing.is_empty() {
            println!("PyTorch {} on them: known", self.release);
            return Ok(());
        }
        let release = release(runner)?;
        if release != self.release && !self.known.is_empty() {
            let (path, known) = (self.path.display(), &self.release);
            if !anew {
                let text = format!("the environment has PyTorch {release}, and {path} is of {known}");
                return Err(format!("{text}: install that, or ask about all tests with --recalibrate"));
            }
            self.known.clear();
        }
        self.release = release;
        println!("{} tests on PyTorch {}", missing.len(), self.release);
        let oracle = Mutex::new(self);
        runner
            .all(&missing, Side::Oracle, |verdicts| {
                let mut oracle = oracle.lock().map_err(|e| e.to_string())?;
                oracle.known.extend(verdicts.iter().map(|(t, v)| (t.clone(), v.clone())));
                oracle.write()
            })
            .map(drop)
    }

    /// The message with which PyTorch fails a test.
    pub(super) fn failure(&self, test: &Test) -> Option<&str> {
        self.known.get(test).filter(|v| !matches!(&*v.outcome, "pass" | "skip")).map(|v| &*v.message)
    }

    fn write(&self) -> Result<(), String> {
        let mut text = String::from(
            "# What PyTorch itself gives on its tests. Written by `cargo xtask conformance upstream`; not edited by hand.\n",
        );
        let _ = writeln!(text, "release\t{}", self.release);
        for (file, digest) in &self.files {
            let _ = writeln!(text, "file\t{file}\t{digest}");
        }
        for (test, verdict) in &self.known {
            let line = format!("{}\t{}\t{}", test.id(), verdict.outcome, verdict.message.replace(['\t', '\n'], " "));
            let _ = writeln!(text, "{}", line.trim_end());
        }
        std::fs::write(&self.path, text).map_err(|e| format!("{}: {e}", self.path.display()))
    }
}

/// The release of PyTorch in the environment, without importing it.
fn release(runner: &Runner) -> Result<String, String> {
    let question = "import importlib.metadata as m; print(m.version('torch'))";
    let output = Command::new(&runner.python).args(["-c", question]).output();
    let output = output.map_err(|e| format!("{}: {e}", runner.python.display()))?;
    let release = String::from_utf8_lossy(&output.stdout).trim().to_string();
    if release.is_empty() { Err(format!("{}: no PyTorch in it", runner.python.display())) } else { Ok(release) }
}

/// Tells one text of a file from another (FNV-1a).
fn digest(text: &[u8]) -> String {
    let hash = text
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{hash:016x}")
}
