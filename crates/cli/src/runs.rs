//! `firebrand runs`: lists, compares and diffs the folders of training runs.

use crate::page;
use crate::program_file;
use crate::refusal::{Done, Refusal, counted, say};
use crate::train::config::Settings;
use crate::train::live::metric_text;
use crate::train::run_folder::{Facts, RUNS, RunFolder};
use clap::Subcommand;
use firebrand::io::{check_outputs, plain, write_text};
use firebrand::train::Metrics;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Commands on run folders.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the runs in a directory with their last metrics
    List {
        /// Directory of runs
        #[arg(value_name = "DIR", default_value = RUNS)]
        folder: PathBuf,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Write one page with the curves, metrics and settings of several runs
    Compare {
        /// Directories of the runs
        #[arg(value_name = "RUN", required = true, num_args = 2..)]
        runs: Vec<PathBuf>,
        /// Write the page to this file (`-`: standard output)
        #[arg(short, long, value_name = "OUT.html", value_parser = program_file::output)]
        output: PathBuf,
    },
    /// Show the settings, environment and results in which two runs differ
    Diff {
        /// Directory of the first run
        #[arg(value_name = "RUN")]
        first: PathBuf,
        /// Directory of the run to compare it with
        #[arg(value_name = "OTHER")]
        second: PathBuf,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}

/// A run, read from its folder.
struct Run {
    name: String,
    settings: Settings,
    facts: Facts,
    history: Vec<Metrics>,
    finished: bool,
}

impl Run {
    fn read(path: &Path) -> Done<Run> {
        let folder = RunFolder::at(path);
        if !folder.file("run.toml").is_file() {
            let message = format!("{}: not a run directory (run.toml is missing)", plain(&path.display().to_string()));
            return Err(Refusal::because(message));
        }
        Ok(Run {
            name: path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned()),
            settings: Settings::read(&folder.file("run.toml"), &crate::train_command())?,
            facts: folder.facts()?,
            history: folder.history()?,
            finished: folder.file("report.html").is_file(),
        })
    }

    /// The last value of every metric.
    fn last(&self) -> Metrics {
        self.history.last().cloned().unwrap_or_default()
    }
}

/// Runs a command.
pub(crate) fn run(command: &Command) -> Done {
    match command {
        Command::List { folder, json } => list(folder, *json),
        Command::Compare { runs, output } => compare(runs, output),
        Command::Diff { first, second, json } => diff(first, second, *json),
    }
}

fn list(folder: &Path, as_json: bool) -> Done {
    let entries = std::fs::read_dir(folder).map_err(|e| {
        Refusal::because(format!("{}: {e}; expected a directory of runs", plain(&folder.display().to_string())))
    })?;
    let mut paths: Vec<PathBuf> =
        entries.filter_map(|e| Some(e.ok()?.path())).filter(|p| p.join("run.toml").is_file()).collect();
    paths.sort();
    let runs = paths.iter().map(|p| Run::read(p)).collect::<Done<Vec<_>>>()?;
    if as_json {
        let one = |r: &Run| {
            json!({
                "name": r.name, "finished": r.finished, "epochs": r.history.len(), "metrics": r.last(), "facts": r.facts,
                "settings": r.settings.iter().collect::<indexmap::IndexMap<_, _>>(),
            })
        };
        let value = json!({"schema": "firebrand.runs/1", "runs": runs.iter().map(one).collect::<Vec<_>>()});
        return Ok(say!("{}", serde_json::to_string_pretty(&value).map_err(Refusal::because)?)?);
    }
    if runs.is_empty() {
        return Ok(say!("no runs in {}", folder.display())?);
    }
    let width = runs.iter().map(|r| r.name.chars().count()).max().unwrap_or(4);
    for r in &runs {
        let metrics: Vec<String> =
            r.last().iter().filter(|(n, _)| *n != "lr").map(|(n, v)| format!("{n} {}", metric_text(n, *v))).collect();
        let state = if r.finished { "" } else { "  (unfinished)" };
        let epochs = counted(r.history.len(), "epoch");
        say!("{:<width$}  {epochs:>10}  {}{state}", plain(&r.name), metrics.join("  "))?;
    }
    Ok(())
}

fn compare(paths: &[PathBuf], output: &Path) -> Done {
    check_outputs([output])?;
    let runs = paths.iter().map(|p| Run::read(p)).collect::<Done<Vec<_>>>()?;
    // Folders may share a name.
    let names: Vec<String> = runs
        .iter()
        .zip(paths)
        .map(|(r, p)| {
            if runs.iter().filter(|o| o.name == r.name).count() > 1 { p.display().to_string() } else { r.name.clone() }
        })
        .collect();
    let histories: Vec<(String, &[Metrics])> = names.iter().cloned().zip(runs.iter().map(|r| &r.history[..])).collect();
    let mut metrics: Vec<String> = Vec::new();
    for name in runs.iter().flat_map(|r| r.last().into_keys().collect::<Vec<_>>()).filter(|n| n != "lr") {
        if !metrics.contains(&name) {
            metrics.push(name);
        }
    }
    let head: Vec<&str> = ["run", "epochs"].into_iter().chain(metrics.iter().map(String::as_str)).collect();
    let row = |(name, r): (&String, &Run)| {
        let last = r.last();
        let values = metrics.iter().map(|m| last.get(m).map_or(String::new(), |v| metric_text(m, *v)));
        [name.clone(), r.history.len().to_string()].into_iter().chain(values).collect::<Vec<_>>()
    };
    let rows: Vec<Vec<String>> = names.iter().zip(&runs).map(row).collect();
    let mut keys: Vec<String> = Vec::new();
    for r in &runs[1..] {
        for (name, ..) in runs[0].settings.differences(&r.settings) {
            if !keys.contains(&name) {
                keys.push(name);
            }
        }
    }
    let value = |r: &Run, key: &str| r.settings.iter().find(|(n, _)| *n == key).map_or(String::new(), |(_, v)| v);
    let settings: Vec<Vec<String>> =
        keys.iter().map(|k| [k.clone()].into_iter().chain(runs.iter().map(|r| value(r, k))).collect()).collect();
    let settings_head: Vec<&str> = ["option"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let mut main = format!("<h1>{} runs</h1>", runs.len());
    main += &format!("<section class='row'>{}</section>", page::metric_charts(&histories));
    main += &page::section("Metrics of the last epoch", "", &page::table(&head, &rows, true));
    let lead =
        if settings.is_empty() { "The runs have the same settings." } else { "Options that differ between the runs." };
    let body = if settings.is_empty() { String::new() } else { page::table(&settings_head, &settings, false) };
    main += &page::section("Settings", lead, &body);
    write_text(output, &page::page(&format!("firebrand: {} runs", runs.len()), &main))?;
    // The page itself may have gone to standard output.
    if program_file::is_stdout(output) { Ok(()) } else { Ok(say!("{}", output.display())?) }
}

fn diff(first: &Path, second: &Path, as_json: bool) -> Done {
    let (a, b) = (Run::read(first)?, Run::read(second)?);
    let settings = a.settings.differences(&b.settings);
    let facts = [
        ("firebrand", a.facts.version.clone(), b.facts.version.clone()),
        ("model", a.facts.model_checksum.clone(), b.facts.model_checksum.clone()),
        ("data", a.facts.data_checksum.clone(), b.facts.data_checksum.clone()),
        ("trainable", a.facts.trainable.to_string(), b.facts.trainable.to_string()),
        ("threads", a.facts.threads.to_string(), b.facts.threads.to_string()),
        ("cpu", a.facts.cpu.clone(), b.facts.cpu.clone()),
    ];
    let facts: Vec<_> = facts.into_iter().filter(|(_, x, y)| x != y).collect();
    let (x, y) = (a.last(), b.last());
    let names: indexmap::IndexSet<&String> = x.keys().chain(y.keys()).collect();
    let of = |m: &Metrics, n: &str| m.get(n).copied();
    let results: Vec<(&String, Option<f64>, Option<f64>)> =
        names.into_iter().map(|n| (n, of(&x, n), of(&y, n))).filter(|(_, p, q)| p != q).collect();
    if as_json {
        let pairs = |list: &[(String, String, String)]| -> serde_json::Map<_, _> {
            list.iter().map(|(n, p, q)| (n.clone(), json!([p, q]))).collect()
        };
        let facts: Vec<_> = facts.iter().map(|(n, p, q)| (n.to_string(), p.clone(), q.clone())).collect();
        let metrics: serde_json::Map<_, _> = results.iter().map(|(n, p, q)| (n.to_string(), json!([p, q]))).collect();
        let value = json!({"schema": "firebrand.runs_diff/1", "settings": pairs(&settings), "facts": pairs(&facts), "metrics": metrics});
        return Ok(say!("{}", serde_json::to_string_pretty(&value).map_err(Refusal::because)?)?);
    }
    let shown = |v: &str| if v.is_empty() { "not set".to_string() } else { plain(v).into_owned() };
    for (name, p, q) in &settings {
        say!("--{name}: {} -> {}", shown(p), shown(q))?;
    }
    for (name, p, q) in &facts {
        say!("{name}: {} -> {}", shown(p), shown(q))?;
    }
    for (name, p, q) in &results {
        let text = |v: &Option<f64>| v.map_or("none".into(), |v| metric_text(name, v));
        say!("{name}: {} -> {}", text(p), text(q))?;
    }
    if settings.is_empty() && facts.is_empty() && results.is_empty() {
        say!("the runs are identical")?;
    }
    Ok(())
}
