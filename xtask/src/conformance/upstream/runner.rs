//! Runs upstream's tests in processes of their own and says what came of each; knows nothing of what was expected.
//!
//! A process that hangs or dies takes one test with it, never the class; one that dies before its first test takes the class, so
//! that the run always ends.

use crate::conformance::json;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

/// How long a process may be without a word: no test begins, and no instance of one ends.
const PATIENCE: Duration = Duration::from_secs(180);
/// How long all instances of one test may take together.
const LIMIT: Duration = Duration::from_secs(600);

/// `path::Class::test`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Test {
    pub(super) file: String,
    pub(super) class: String,
    pub(super) name: String,
}

impl Test {
    pub(super) fn parse(line: &str) -> Option<Test> {
        let mut parts = line.split("::");
        let test = Test { file: parts.next()?.into(), class: parts.next()?.into(), name: parts.next()?.into() };
        parts.next().is_none().then_some(test)
    }

    pub(super) fn id(&self) -> String {
        format!("{}::{}::{}", self.file, self.class, self.name)
    }
}

/// What came of a test: one of `pass fail error timeout skip oracle-fails`, and why.
#[derive(Clone)]
pub(super) struct Verdict {
    pub(super) outcome: String,
    pub(super) message: String,
}

impl Verdict {
    fn new(outcome: &str, message: impl Into<String>) -> Verdict {
        Verdict { outcome: outcome.into(), message: message.into() }
    }
}

pub(super) type Verdicts = BTreeMap<Test, Verdict>;

/// How often there is each outcome.
pub(super) fn tally<'a>(verdicts: impl Iterator<Item = &'a Verdict>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for verdict in verdicts {
        *counts.entry(&verdict.outcome).or_default() += 1;
    }
    let list: Vec<String> = counts.iter().map(|(outcome, n)| format!("{outcome} {n}")).collect();
    list.join(", ")
}

/// What stands for `torch`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Oracle,
    Firebrand,
    /// Firebrand, every backward pass compiled.
    CompiledBackward,
}

pub(super) struct Runner {
    pub(super) python: PathBuf,
    /// `crates/python/conformance`.
    pub(super) folder: PathBuf,
    /// What has the package `firebrand`.
    pub(super) package: PathBuf,
    pub(super) source: PathBuf,
    /// The command `firebrand`, if tests ask its code generator.
    pub(super) codegen: Option<PathBuf>,
}

impl Runner {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.python);
        command.env("FIREBRAND_UPSTREAM", &self.source).env("PYTHONDONTWRITEBYTECODE", "1").env_remove("PYTHONPATH");
        if let Some(codegen) = &self.codegen {
            command.env("FIREBRAND_CODEGEN", codegen);
        }
        command.arg(self.folder.join("run_class.py"));
        command
    }

    /// All tests of these files as they stand in the source.
    pub(super) fn definitions(&self, files: &BTreeSet<&str>) -> Result<Vec<Test>, String> {
        let files = files.iter().filter(|f| self.source.join(f).is_file());
        let output = self.command().arg("--list").arg(&self.source).args(files).output();
        let output = output.map_err(|e| format!("{}: {e}", self.python.display()))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let mut tests: Vec<Test> = String::from_utf8_lossy(&output.stdout).lines().filter_map(Test::parse).collect();
        tests.sort();
        tests.dedup();
        Ok(tests)
    }

    /// Runs tests class by class, as many classes at a time as there are cores; prints a line about each class as soon as it is
    /// through, and `done` sees it.
    pub(super) fn all(
        &self,
        tests: &[Test],
        side: Side,
        done: impl Fn(&Verdicts) -> Result<(), String> + Sync,
    ) -> Result<Verdicts, String> {
        let mut classes: BTreeMap<(&str, &str), Vec<&Test>> = BTreeMap::new();
        for test in tests {
            classes.entry((&test.file, &test.class)).or_default().push(test);
        }
        let mut classes: Vec<Vec<&Test>> = classes.into_values().collect();
        classes.sort_by_key(Vec::len); // the largest is taken first
        let (number, through) = (classes.len(), AtomicUsize::new(0));
        let queue = Mutex::new(classes);
        let found = Mutex::new(Verdicts::new());
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            let work = || -> Result<(), String> {
                loop {
                    let Some(class) = queue.lock().map_err(|e| e.to_string())?.pop() else { return Ok(()) };
                    let began = Instant::now();
                    let verdicts = self.class(&class, side)?;
                    let through = through.fetch_add(1, Ordering::Relaxed) + 1;
                    let (name, seconds) = (format!("{} {}", class[0].file, class[0].class), began.elapsed().as_secs());
                    println!("[{through}/{number}] {name}: {} ({seconds} s)", tally(verdicts.values()));
                    let mut found = found.lock().map_err(|e| e.to_string())?;
                    done(&verdicts)?;
                    found.extend(verdicts);
                }
            };
            let handles: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            handles.into_iter().try_for_each(|h| h.join().map_err(|_| "a worker panicked".to_string())?)
        })?;
        found.into_inner().map_err(|e| e.to_string())
    }

    /// Runs the tests of one class, in a new process after each that ends it.
    fn class(&self, tests: &[&Test], side: Side) -> Result<Verdicts, String> {
        let mut found = Verdicts::new();
        let mut rest: Vec<&Test> = tests.to_vec();
        while let Some(first) = rest.first().copied() {
            let end = self.process(&rest, side)?;
            let (began, named) = (!end.verdicts.is_empty(), |name| Test { name, ..first.clone() });
            found.extend(end.verdicts.into_iter().map(|(name, verdict)| (named(name), verdict)));
            rest.retain(|t| !found.contains_key(*t));
            if !began {
                let none =
                    |t: &&Test| ((*t).clone(), Verdict::new(end.how, format!("before the first test: {}", end.why)));
                found.extend(rest.drain(..).map(|t| none(&t)));
            }
        }
        Ok(found)
    }

    /// One process: what it finished, and the test that ended it.
    fn process(&self, tests: &[&Test], side: Side) -> Result<End, String> {
        let first = tests[0];
        let mut command = self.command();
        if side == Side::Oracle {
            command.env("FIREBRAND_ORACLE", "1").env("OMP_NUM_THREADS", "1"); // a process per core
        } else {
            let path = [self.folder.join("shim"), self.package.clone()];
            command.env("PYTHONPATH", std::env::join_paths(path).map_err(|e| e.to_string())?);
        }
        if side == Side::CompiledBackward {
            command.env("FIREBRAND_COMPILED_BACKWARD", "1");
        }
        command.arg(self.source.join(&first.file)).arg(&first.class);
        own_group(&mut command);
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.map_err(|e| format!("{}: {e}", self.python.display()))?;
        let names: String = tests.iter().map(|t| format!("{}\n", t.name)).collect();
        if let Some(mut stdin) = child.stdin.take() {
            // A process that died is noticed below.
            let _ = stdin.write_all(names.as_bytes());
        }
        let last_words = child.stderr.take().map(|stderr| std::thread::spawn(move || last_line(stderr)));
        let stdout = child.stdout.take().ok_or("a process without output")?;
        let (send, events) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        let (mut end, running) = follow(&events);
        if end.how == "timeout" {
            kill_group(&mut child);
        }
        let status = child.wait().map_err(|e| e.to_string())?;
        if end.how == "error" {
            let words = last_words.and_then(|t| t.join().ok()).unwrap_or_default();
            end.why = format!("the process ended: {status}: {words}");
        }
        if let Some(name) = running {
            end.verdicts.push((name, Verdict::new(end.how, &*end.why)));
        }
        Ok(end)
    }
}

/// How a process ended.
struct End {
    verdicts: Vec<(String, Verdict)>,
    how: &'static str,
    why: String,
}

/// Reads events until the process ends or takes too long; also gives the test that was under way then.
fn follow(events: &mpsc::Receiver<String>) -> (End, Option<String>) {
    let (mut verdicts, mut running) = (Vec::new(), None);
    let mut began = Instant::now();
    let (how, why) = loop {
        let line = match events.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                break ("timeout", format!("no progress for {} s", PATIENCE.as_secs()));
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break ("error", String::new()),
        };
        if let Some(name) = json::field(&line, "begin") {
            (running, began) = (Some(name), Instant::now());
        } else if let Some(name) = json::field(&line, "end") {
            let field = |key| json::field(&line, key).unwrap_or_default();
            verdicts.push((name, Verdict { outcome: field("outcome"), message: field("message") }));
            running = None;
        } else if running.is_some() && began.elapsed() > LIMIT {
            break ("timeout", format!("not through after {} s", LIMIT.as_secs()));
        }
    };
    (End { verdicts, how, why }, running)
}

/// The last line that is not empty; reads to the end, so that the process never waits for a reader.
fn last_line(from: impl Read) -> String {
    let lines = BufReader::new(from).split(b'\n').map_while(Result::ok);
    let texts = lines.map(|l| String::from_utf8_lossy(&l).trim().to_string()).filter(|l| !l.is_empty());
    texts.last().unwrap_or_default().chars().take(500).collect()
}

/// Tests start processes too: a process and what it started can be killed together.
#[cfg(unix)]
fn own_group(command: &mut Command) {
    std::os::unix::process::CommandExt::process_group(command, 0);
}

#[cfg(not(unix))]
fn own_group(_: &mut Command) {}

fn kill_group(child: &mut Child) {
    if cfg!(unix) {
        let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).status();
    }
    let _ = child.kill();
}
