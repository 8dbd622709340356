//! PyTorch's own test files on firebrand: `cargo xtask conformance upstream --source DIR`.
//!
//! DIR is a source tree of PyTorch 2.6; nothing of it is copied. Each class of each file runs in a process of its own, in which a
//! test-only package called `torch` (crates/python/conformance) stands for firebrand. A test that makes no progress is killed
//! and counted as `timeout`, one that ends the process as `error`; the rest of its class goes on in a new process.
//! Before that, the same tests run on PyTorch itself, and those it fails are `oracle-fails`: they say nothing about firebrand.
//! Every test has an expectation in crates/python/conformance/expected.txt: `pass`, or the reason why not. The run fails if a test
//! that is expected to pass does not; a test that passes unexpectedly is reported, so that the file stays true.

use super::environment::environment;
use super::json;
use super::python;
use crate::Outcome;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

/// The files, below the source tree.
const FILES: &[&str] = &[
    "test/test_autograd.py",
    "test/autograd/test_functional.py",
    "test/autograd/test_complex.py",
    "test/autograd/test_logging.py",
    "test/dynamo/test_hooks.py",
    "test/inductor/test_compiled_autograd.py",
    "test/export/test_passes.py",
    "test/export/test_serialize.py",
    "test/functorch/test_eager_transforms.py",
    "test/functorch/test_vmap.py",
    "test/test_optim.py",
    "test/nn/test_convolution.py",
    "test/nn/test_dropout.py",
    "test/nn/test_embedding.py",
    "test/nn/test_init.py",
    "test/nn/test_lazy_modules.py",
    "test/nn/test_load_state_dict.py",
    "test/nn/test_module_hooks.py",
    "test/nn/test_multihead_attention.py",
    "test/nn/test_packed_sequence.py",
    "test/nn/test_parametrization.py",
    "test/nn/test_pooling.py",
    "tools/test/test_codegen.py",
    "tools/test/test_codegen_model.py",
];

/// How long one test may take without a word.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is asked for.
#[derive(Default)]
struct Options<'a> {
    source: Option<&'a str>,
    tests: Option<&'a str>,
    json: Option<&'a str>,
    venv: Option<&'a str>,
}

/// `path::Class::test`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Test {
    file: String,
    class: String,
    name: String,
}

impl Test {
    fn parse(line: &str) -> Option<Test> {
        let mut parts = line.split("::");
        let test = Test { file: parts.next()?.into(), class: parts.next()?.into(), name: parts.next()?.into() };
        parts.next().is_none().then_some(test)
    }

    fn id(&self) -> String {
        format!("{}::{}::{}", self.file, self.class, self.name)
    }
}

/// What came of a test: one of `pass fail error timeout skip oracle-fails`, and why.
#[derive(Clone)]
struct Verdict {
    outcome: String,
    message: String,
}

type Verdicts = BTreeMap<Test, Verdict>;

/// Runs the check.
pub(super) fn run(arguments: &[&str]) -> Outcome {
    let options = parse(arguments)?;
    let source = Path::new(options.source.ok_or("expected --source DIR, a source tree of PyTorch 2.6")?);
    let source = source.canonicalize().map_err(|e| format!("{}: {e}", source.display()))?;
    let root = crate::root();
    python::build(&root)?;
    let runner = Runner {
        python: environment(options.venv, &["numpy", "pytest", "expecttest", "hypothesis", "scipy"])?
            .join("bin/python"),
        folder: root.join("crates/python/conformance"),
        package: root.join("crates/python/python"),
        source,
    };
    let mut tests = runner.definitions()?;
    if let Some(path) = options.tests {
        let wanted = std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
        let lines = wanted.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
        let wanted: Vec<Test> = lines
            .map(|l| Test::parse(l).ok_or_else(|| format!("{path}: expected path::Class::test, found {l:?}")))
            .collect::<Result<_, _>>()?;
        if let Some(unknown) = wanted.iter().find(|t| !tests.contains(t)) {
            return Err(format!("{path}: the source tree has no test {}", unknown.id()));
        }
        tests.retain(|t| wanted.contains(t));
    }
    println!("{} tests on PyTorch", tests.len());
    let oracle = runner.calibrate(&tests)?;
    println!("{} tests on firebrand", tests.len());
    let mut verdicts = runner.all(&tests, true)?;
    for (test, verdict) in &mut verdicts {
        if let Some(failed) = oracle.get(test).filter(|v| !matches!(&*v.outcome, "pass" | "skip")) {
            *verdict = Verdict { outcome: "oracle-fails".into(), message: failed.message.clone() };
        }
    }
    if let Some(path) = options.json {
        std::fs::write(path, report(&verdicts)).map_err(|e| format!("{path}: {e}"))?;
    }
    compare(&verdicts, &runner.folder.join("expected.txt"))
}

fn parse<'a>(arguments: &[&'a str]) -> Result<Options<'a>, String> {
    let mut options = Options::default();
    let mut rest = arguments.iter();
    while let Some(&word) = rest.next() {
        let place = match word {
            "--source" => &mut options.source,
            "--tests" => &mut options.tests,
            "--json" => &mut options.json,
            "--venv" => &mut options.venv,
            other => {
                return Err(format!(
                    "upstream: unknown argument {other:?}; expected --source, --tests, --json or --venv"
                ));
            }
        };
        *place = Some(rest.next().ok_or_else(|| format!("upstream: {word} needs a value"))?);
    }
    Ok(options)
}

/// The list of records that the check promises.
fn report(verdicts: &Verdicts) -> String {
    let mut text = String::from("[\n");
    for (k, (test, verdict)) in verdicts.iter().enumerate() {
        let comma = if k + 1 < verdicts.len() { "," } else { "" };
        let fields = [
            ("file", &test.file),
            ("class", &test.class),
            ("test", &test.name),
            ("outcome", &verdict.outcome),
            ("message", &verdict.message),
        ];
        let fields: Vec<String> = fields.iter().map(|(k, v)| format!("\"{k}\": {}", json::quoted(v))).collect();
        let _ = writeln!(text, "{{{}}}{comma}", fields.join(", "));
    }
    text + "]\n"
}

/// Prints the counts by file, and compares each test with its expectation.
fn compare(verdicts: &Verdicts, path: &Path) -> Outcome {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let lines = text.lines().filter(|l| !l.starts_with('#') && !l.is_empty());
    let expected: BTreeMap<&str, &str> = lines.filter_map(|l| l.split_once('\t')).collect();
    let mut files: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    let (mut broken, mut surprises) = (Vec::new(), Vec::new());
    for (test, verdict) in verdicts {
        *files.entry(&test.file).or_default().entry(&verdict.outcome).or_default() += 1;
        let id = test.id();
        match (expected.get(&*id).copied(), &*verdict.outcome) {
            (_, "oracle-fails") | (Some("pass"), "pass") => {}
            (Some("pass"), outcome) => broken.push(format!("{id}: {outcome}: {}", verdict.message)),
            (_, "pass") => surprises.push(id),
            (Some(_), _) => {}
            (None, outcome) => broken.push(format!("{id}: {outcome}, and has no expectation: {}", verdict.message)),
        }
    }
    for (file, outcomes) in &files {
        let list: Vec<String> = outcomes.iter().map(|(outcome, n)| format!("{outcome} {n}")).collect();
        println!("{file}: {}", list.join(", "));
    }
    for id in &surprises {
        println!("passes, though not expected to: {id}");
    }
    if broken.is_empty() {
        return Ok(format!("{} tests are as expected, {} better", verdicts.len() - surprises.len(), surprises.len()));
    }
    Err(format!("{} tests are not as expected:\n  {}", broken.len(), broken.join("\n  ")))
}

struct Runner {
    python: PathBuf,
    folder: PathBuf,
    package: PathBuf,
    source: PathBuf,
}

impl Runner {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.python);
        command.env("FIREBRAND_UPSTREAM", &self.source).env("PYTHONDONTWRITEBYTECODE", "1").env_remove("PYTHONPATH");
        command.arg(self.folder.join("run_class.py"));
        command
    }

    /// All tests as they stand in the source.
    fn definitions(&self) -> Result<Vec<Test>, String> {
        let files = FILES.iter().filter(|f| self.source.join(f).is_file());
        let output = self.command().arg("--list").arg(&self.source).args(files).output();
        let output = output.map_err(|e| format!("{}: {e}", self.python.display()))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let mut tests: Vec<Test> = String::from_utf8_lossy(&output.stdout).lines().filter_map(Test::parse).collect();
        if tests.is_empty() {
            return Err(format!("{}: no test files in it; is it a source tree of PyTorch 2.6?", self.source.display()));
        }
        tests.sort();
        tests.dedup();
        Ok(tests)
    }

    /// What PyTorch itself says. That does not change, so it is kept in the target folder.
    fn calibrate(&self, tests: &[Test]) -> Result<Verdicts, String> {
        let cache = crate::root().join("target/upstream-calibration.txt");
        let text = std::fs::read_to_string(&cache).unwrap_or_default();
        let mut known = Verdicts::new();
        for line in text.lines() {
            let mut parts = line.splitn(3, '\t');
            if let (Some(test), Some(outcome)) = (parts.next().and_then(Test::parse), parts.next()) {
                let message = parts.next().unwrap_or_default().to_string();
                known.insert(test, Verdict { outcome: outcome.to_string(), message });
            }
        }
        let missing: Vec<Test> = tests.iter().filter(|t| !known.contains_key(*t)).cloned().collect();
        known.extend(self.all(&missing, false)?);
        let mut text = String::new();
        for (test, verdict) in &known {
            let _ =
                writeln!(text, "{}\t{}\t{}", test.id(), verdict.outcome, verdict.message.replace(['\t', '\n'], " "));
        }
        std::fs::write(&cache, text).map_err(|e| format!("{}: {e}", cache.display()))?;
        Ok(known)
    }

    /// Runs tests class by class, as many classes at a time as there are cores.
    fn all(&self, tests: &[Test], ours: bool) -> Result<Verdicts, String> {
        let mut classes: BTreeMap<(&str, &str), Vec<&Test>> = BTreeMap::new();
        for test in tests {
            classes.entry((&test.file, &test.class)).or_default().push(test);
        }
        let queue = Mutex::new(classes.into_values().collect::<Vec<_>>());
        let found = Mutex::new(Verdicts::new());
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            let work = || -> Result<(), String> {
                loop {
                    let Some(class) = queue.lock().map_err(|e| e.to_string())?.pop() else { return Ok(()) };
                    let verdicts = self.class(&class, ours)?;
                    found.lock().map_err(|e| e.to_string())?.extend(verdicts);
                }
            };
            let handles: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            handles.into_iter().try_for_each(|h| h.join().map_err(|_| "a worker panicked".to_string())?)
        })?;
        found.into_inner().map_err(|e| e.to_string())
    }

    /// Runs the tests of one class, in a new process after each that ends it.
    fn class(&self, tests: &[&Test], ours: bool) -> Result<Verdicts, String> {
        let mut found = Verdicts::new();
        let mut rest: Vec<&Test> = tests.to_vec();
        while let Some(first) = rest.first().copied() {
            let (verdicts, stuck) = self.process(&rest, ours)?;
            let before = found.len();
            for (name, verdict) in verdicts {
                found.insert(Test { name, ..first.clone() }, verdict);
            }
            if let Some((name, verdict)) = stuck {
                found.insert(Test { name, ..first.clone() }, verdict);
            }
            if found.len() == before {
                let verdict =
                    Verdict { outcome: "error".into(), message: "the process ended before its first test".into() };
                found.insert(first.clone(), verdict);
            }
            rest.retain(|t| !found.contains_key(*t));
        }
        Ok(found)
    }

    /// One process: what it finished, and the test it did not.
    #[allow(clippy::type_complexity)]
    fn process(
        &self,
        tests: &[&Test],
        ours: bool,
    ) -> Result<(Vec<(String, Verdict)>, Option<(String, Verdict)>), String> {
        let first = tests[0];
        let mut command = self.command();
        if !ours {
            command.env("FIREBRAND_ORACLE", "1");
        }
        if ours {
            let path =
                std::env::join_paths([self.folder.join("shim"), self.package.clone()]).map_err(|e| e.to_string())?;
            command.env("PYTHONPATH", path);
        }
        command.arg(self.source.join(&first.file)).arg(&first.class);
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = spawned.map_err(|e| format!("{}: {e}", self.python.display()))?;
        let names: String = tests.iter().map(|t| format!("{}\n", t.name)).collect();
        if let Some(mut stdin) = child.stdin.take() {
            // A process that died is noticed below.
            let _ = stdin.write_all(names.as_bytes());
        }
        let stdout = child.stdout.take().ok_or("a process without output")?;
        let (send, receive) = mpsc::channel();
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        let (mut finished, mut running) = (Vec::new(), None);
        let ended = loop {
            match receive.recv_timeout(PATIENCE) {
                Ok(line) => {
                    if let Some(name) = json::field(&line, "begin") {
                        running = Some(name);
                    } else if let Some(name) = json::field(&line, "end") {
                        let outcome = json::field(&line, "outcome").unwrap_or_default();
                        let message = json::field(&line, "message").unwrap_or_default();
                        finished.push((name, Verdict { outcome, message }));
                        running = None;
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let _ = child.kill();
                    let _ = child.wait();
                    break "timeout";
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break "error",
            }
        };
        let status = child.wait().map_err(|e| e.to_string())?;
        let _ = reader.join();
        let stuck = running.map(|name| {
            let message = match ended {
                "timeout" => format!("no progress for {} s", PATIENCE.as_secs()),
                _ => format!("the process ended: {status}"),
            };
            (name, Verdict { outcome: ended.to_string(), message })
        });
        Ok((finished, stuck))
    }
}
