//! `cargo xtask conformance mpi`: data parallelism on the MPI libraries of this machine.
//!
//! The example `data_parallel` is run by the launcher of each, on 2, 3 and 4 ranks, and must end with the weights that as many
//! threads end with, bit for bit. A rank that is killed must end the job, and a launcher that does not belong to the library must
//! be refused. `train` has the same for `firebrand train`, `replicas` trains many models on it. A machine without MPI has proven nothing, and this says so.

mod replicas;
mod train;

use super::environment::must;
use crate::{Outcome, root};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Launchers by their names in Debian, where both can be installed, with what they need to start more ranks than cores.
const LAUNCHERS: [Launcher; 2] =
    [("Open MPI", "mpirun.openmpi", &["--oversubscribe"]), ("MPICH", "mpiexec.mpich", &[])];

/// What a launcher is called, its program, and what it needs.
type Launcher = (&'static str, &'static str, &'static [&'static str]);

/// How long a job may take to end after one of its ranks was killed.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// How long ranks may live on when the launcher has ended. MPICH's ends first and lets its helper kill them a few milliseconds later.
const GONE_WITHIN: Duration = Duration::from_secs(1);

/// What can be checked on its own.
const PARTS: [&str; 5] = ["worlds", "bytes", "kills", "failures", "replicas"];

pub(super) fn run(parts: &[&str]) -> Outcome {
    if let Some(unknown) = parts.iter().find(|p| !PARTS.contains(p)) {
        return Err(format!("{unknown}: expected some of {}", PARTS.join(", ")));
    }
    let wanted = |part: &str| parts.is_empty() || parts.contains(&part);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    must(
        Command::new(cargo)
            .args([
                "build",
                "--quiet",
                "--release",
                "-p",
                "firebrand",
                "-p",
                "firebrand-cli",
                "--example",
                "data_parallel",
                "--bins",
            ])
            .current_dir(root()),
    )?;
    let found: Vec<_> =
        LAUNCHERS.iter().filter(|(_, program, _)| launcher(program, &[]).arg("--version").output().is_ok()).collect();
    if found.is_empty() {
        return Err("not run: no MPI is installed; `apt-get install openmpi-bin mpich` has both".into());
    }
    let mut report = Vec::new();
    if wanted("worlds") {
        worlds(&found, &mut report)?;
    }
    for launcher in &found {
        report.extend(train::run(launcher, &wanted)?);
        if wanted("replicas") {
            report.push(replicas::run(launcher)?);
        }
    }
    let missing: Vec<_> = LAUNCHERS.iter().filter(|l| !found.contains(l)).map(|(name, ..)| *name).collect();
    if !missing.is_empty() {
        report.push(format!("not run: {}", missing.join(", ")));
    }
    Ok(report.join("\n"))
}

/// The example on every library, a rank of it that is killed, and a launcher with the library of another.
fn worlds(found: &[&Launcher], report: &mut Vec<String>) -> Result<(), String> {
    let example = crate::target().join("release/examples/data_parallel");
    for ranks in [2, 3, 4] {
        let expected = weights(&output(Command::new(&example).args(["--threads", &ranks.to_string()]))?)?;
        for (name, program, more) in found {
            let said = output(launcher(program, more).args(["-n", &ranks.to_string()]).arg(&example))?;
            let weights = weights(&said)?;
            if weights != expected {
                return Err(format!("{name}, {ranks} ranks: weights {weights}, threads give {expected}"));
            }
            report.push(said.trim().to_string());
        }
    }
    for (name, program, more) in found {
        let took = kill_one(launcher(program, more).args(["-n", "2"]).arg(&example), &example)?;
        report.push(format!("{name}: a killed rank ends the job after {:.1} s", took.as_secs_f64()));
    }
    if let [_, (name, program, more)] = found {
        // The library of the other launcher.
        let wrong = launcher(program, more)
            .args(["-n", "2"])
            .arg(crate::target().join("release/firebrand"))
            .arg("dist-info")
            .env("FIREBRAND_MPI", "libmpi.so.40")
            .output();
        let wrong = wrong.map_err(|e| format!("{program}: {e}"))?;
        let text = String::from_utf8_lossy(&wrong.stderr);
        if wrong.status.success() || !text.contains("belong to different MPI installations") {
            return Err(format!("{name} with the library of Open MPI was not refused: {text}"));
        }
        report.push(format!("{name} with the library of Open MPI is refused"));
    }
    Ok(())
}

fn launcher(program: &str, more: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(more).env("FIREBRAND_NUM_THREADS", "1");
    // Open MPI refuses to run as root, as builds in containers do, unless it is told twice.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command
}

fn output(command: &mut Command) -> Result<String, String> {
    let Output { status, stdout, stderr } = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if !status.success() {
        return Err(format!("{command:?}: {status}\n{}", String::from_utf8_lossy(&stderr)));
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

/// The fingerprint that the example prints.
fn weights(said: &str) -> Result<String, String> {
    let word = said.split_whitespace().last().ok_or("the example printed nothing")?;
    Ok(word.to_string())
}

/// Kills one rank of a job while it trains; how long the job lived on.
fn kill_one(command: &mut Command, example: &Path) -> Result<Duration, String> {
    let mut job: Child =
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(|e| format!("{command:?}: {e}"))?;
    let began = Instant::now();
    let victim = loop {
        if let [_, last] = processes(example)?[..] {
            break last;
        }
        if began.elapsed() > Duration::from_secs(20) || job.try_wait().map_err(|e| e.to_string())?.is_some() {
            return Err(format!("{command:?}: its two ranks were not seen"));
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    must(Command::new("kill").args(["-9", &victim.to_string()]))?;
    let killed = Instant::now();
    loop {
        if let Some(status) = job.try_wait().map_err(|e| e.to_string())? {
            if status.success() {
                return Err(format!("{command:?}: a rank was killed, and the job ended well"));
            }
            break;
        }
        if killed.elapsed() > ENDS_WITHIN {
            let _ = job.kill(); // the failure is what counts
            return Err(format!("{command:?}: a rank was killed, and the job went on for {ENDS_WITHIN:?}"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let took = killed.elapsed();
    gone(example).map_err(|e| format!("{command:?}: {e}"))?;
    Ok(took)
}

/// Waits until no rank of a program is left.
fn gone(program: &Path) -> Result<(), String> {
    let ended = Instant::now();
    loop {
        match processes(program)?.len() {
            0 => return Ok(()),
            n if ended.elapsed() > GONE_WITHIN => {
                return Err(format!("{n} ranks are left {GONE_WITHIN:?} after the job has ended"));
            }
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Running processes of a program.
fn processes(program: &Path) -> Result<Vec<u32>, String> {
    let program = program.canonicalize().map_err(|e| format!("{}: {e}", program.display()))?;
    let of = |entry: std::fs::DirEntry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let runs: PathBuf = std::fs::read_link(entry.path().join("exe")).ok()?;
        (runs == program).then_some(number)
    };
    let entries = std::fs::read_dir("/proc").map_err(|e| format!("/proc: {e}"))?;
    let mut list: Vec<u32> = entries.flatten().filter_map(of).collect();
    list.sort_unstable();
    Ok(list)
}
