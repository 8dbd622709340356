//! `firebrand train` under a launcher: the built-in model, which has batch norm and dropout, in four shards.
//!
//! Every number of ranks ends with the bytes of one process; a run of which a rank is killed at twenty moments ends within seconds
//! each time, and, resumed with half the ranks, with the same bytes; a rank that stands still, or whose loss is not finite,
//! ends the job with a reason.

use super::{ENDS_WITHIN, Launcher, launcher, processes};
use crate::root;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How often a run is killed.
const KILLS: usize = 20;
/// What a run leaves behind that must not differ.
const RESULTS: [&str; 4] = ["model.safetensors", "checkpoint.safetensors", "metrics.jsonl", "best.safetensors"];
const SETTINGS: [&str; 7] = ["--accumulate", "2", "--clip", "1", "--checkpoint-every", "2", "--quiet"];
const EPOCHS: &str = "6";

/// How a job ended.
struct Ended {
    took: Duration,
    status: ExitStatus,
    said: String,
}

struct Proof<'a> {
    launcher: &'a Launcher,
    program: PathBuf,
    folder: PathBuf,
}

pub(super) fn run(found: &Launcher, wanted: &dyn Fn(&str) -> bool) -> Result<Vec<String>, String> {
    let folder = std::env::temp_dir().join(format!("firebrand-mpi-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let proof = Proof { launcher: found, program: crate::target().join("release/firebrand"), folder };
    let report = proof.all(wanted);
    // What is left is small, and the next run makes its own.
    let _ = std::fs::remove_dir_all(&proof.folder);
    report
}

impl Proof<'_> {
    fn all(&self, wanted: &dyn Fn(&str) -> bool) -> Result<Vec<String>, String> {
        let mut report = Vec::new();
        if !["bytes", "kills", "failures"].into_iter().any(wanted) {
            return Ok(report);
        }
        let name = self.launcher.0;
        let whole = self.folder.join("whole");
        self.done(
            Command::new(&self.program)
                .args(["train", "--epochs", EPOCHS, "--shards", "4", "--out"])
                .arg(&whole)
                .args(SETTINGS),
        )?;
        if wanted("bytes") {
            for (ranks, zero) in [(1, "0"), (2, "0"), (4, "0"), (2, "1"), (4, "1")] {
                let out = self.folder.join(format!("{ranks}-{zero}"));
                self.done(self.train(ranks, &out, EPOCHS).args(["--zero", zero]))?;
                self.same(&out, &whole, &format!("{ranks} ranks, --zero {zero}"))?;
            }
            report.push(format!("{name}: --shards 4 on 1, 2 and 4 ranks, --zero 0 and 1, ends with the same bytes"));
        }
        if wanted("kills") {
            report.push(self.killed(&whole)?);
        }
        if wanted("failures") {
            report.push(self.stopped()?);
            report.push(self.not_finite()?);
            report.push(self.full_disk(&whole)?);
        }
        Ok(report)
    }

    fn launch(&self, ranks: usize) -> Command {
        let (_, program, more) = self.launcher;
        let mut command = launcher(program, more);
        command.args(["-n", &ranks.to_string()]).arg(&self.program);
        command
    }

    fn train(&self, ranks: usize, out: &Path, epochs: &str) -> Command {
        let mut command = self.launch(ranks);
        command.args(["train", "--epochs", epochs, "--shards", "4", "--out"]).arg(out).args(SETTINGS);
        command
    }

    fn done(&self, command: &mut Command) -> Result<(), String> {
        super::output(command).map(drop)
    }

    fn same(&self, found: &Path, expected: &Path, when: &str) -> Result<(), String> {
        for name in RESULTS {
            let read = |folder: &Path| std::fs::read(folder.join(name)).map_err(|e| format!("{when}: {name}: {e}"));
            if read(found)? != read(expected)? {
                return Err(format!("{}, {when}: {name} differs", self.launcher.0));
            }
        }
        Ok(())
    }

    fn spawn(&self, command: &mut Command) -> Result<Child, String> {
        let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().map_err(|e| format!("{command:?}: {e}"))
    }

    /// Waits for the end of a job whose rank was hurt, and of its ranks.
    fn end_of(&self, mut job: Child, within: Duration, what: &str) -> Result<Ended, String> {
        let began = Instant::now();
        let name = self.launcher.0;
        let status = loop {
            if let Some(status) = job.try_wait().map_err(|e| e.to_string())? {
                break status;
            }
            if began.elapsed() > within {
                let _ = job.kill(); // the failure is what counts
                return Err(format!("{name}: {what}, and the job went on for {within:?}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let (took, mut said) = (began.elapsed(), String::new());
        if let Some(mut errors) = job.stderr.take() {
            let _ = std::io::Read::read_to_string(&mut errors, &mut said); // what can be read helps
        }
        super::gone(&self.program).map_err(|e| format!("{name}: {what}: {e}"))?;
        Ok(Ended { took, status, said })
    }

    /// Like `end_of`, of a job that must end with exit code 3; how long that took, and what it said.
    fn ends(&self, job: Child, within: Duration, what: &str) -> Result<(Duration, String), String> {
        let Ended { took, status, said } = self.end_of(job, within, what)?;
        match status.code() {
            Some(3) => Ok((took, said)),
            _ => Err(format!("{}: {what}: expected exit code 3, found {status}: {said}", self.launcher.0)),
        }
    }

    /// The ranks of a job, once they are all there.
    fn ranks(&self, job: &mut Child, count: usize) -> Result<Vec<u32>, String> {
        let began = Instant::now();
        loop {
            let found = processes(&self.program)?;
            if found.len() == count {
                return Ok(found);
            }
            if began.elapsed() > Duration::from_secs(20) || job.try_wait().map_err(|e| e.to_string())?.is_some() {
                return Err(format!("{}: {count} ranks were not seen", self.launcher.0));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Kills a rank of four at one moment after another, and goes on with two and four ranks in turns.
    fn killed(&self, whole: &Path) -> Result<String, String> {
        let out = self.folder.join("killed");
        let (mut random, mut worst, mut kills) = (0x2545_f491_4f6c_dd1du64, Duration::ZERO, 0);
        while kills < KILLS {
            let ranks = if kills.is_multiple_of(2) { 4 } else { 2 };
            let mut command = self.train(ranks, &out, EPOCHS);
            if out.join("run.toml").exists() {
                command.arg("--resume");
            }
            let mut job = self.spawn(&mut command)?;
            let found = self.ranks(&mut job, ranks)?;
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (moment, victim) =
                (Duration::from_micros((random >> 33) % 1_500_000), found[(random >> 20) as usize % ranks]);
            let began = Instant::now();
            while began.elapsed() < moment && job.try_wait().map_err(|e| e.to_string())?.is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
            if job.try_wait().map_err(|e| e.to_string())?.is_some() {
                // It came to its end: begin again, there are moments left.
                self.same(&out, whole, &format!("after {kills} kills"))?;
                std::fs::remove_dir_all(&out).map_err(|e| e.to_string())?;
                continue;
            }
            if !Command::new("kill").args(["-9", &victim.to_string()]).status().is_ok_and(|s| s.success()) {
                continue;
            }
            let Ended { took, status, .. } = self.end_of(job, ENDS_WITHIN, "a rank was killed")?;
            if status.success() {
                // The rank had done all its work: the results must be complete, and it counts as a run that came to its end.
                self.same(&out, whole, &format!("after {kills} kills, the last of which came too late"))?;
                std::fs::remove_dir_all(&out).map_err(|e| e.to_string())?;
                continue;
            }
            kills += 1;
            worst = worst.max(took);
        }
        let mut command = self.train(2, &out, EPOCHS);
        if out.join("run.toml").exists() {
            command.arg("--resume");
        }
        self.done(&mut command)?;
        self.same(&out, whole, "after all kills")?;
        let seconds = worst.as_secs_f64();
        Ok(format!(
            "{}: killed at {KILLS} moments, each job ended within {seconds:.1} s, and resumed to the same bytes",
            self.launcher.0
        ))
    }

    /// A rank that stands still ends the job after the time-out.
    fn stopped(&self) -> Result<String, String> {
        let mut command = self.train(2, &self.folder.join("stopped"), "10000");
        let mut job = self.spawn(command.args(["--timeout", "3"]))?;
        let found = self.ranks(&mut job, 2)?;
        let metrics = self.folder.join("stopped/metrics.csv");
        while !metrics.exists() {
            if job.try_wait().map_err(|e| e.to_string())?.is_some() {
                return Err(format!("{}: the run ended early", self.launcher.0));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        super::must(Command::new("kill").args(["-STOP", &found[1].to_string()]))?;
        let (took, said) = self.ends(job, Duration::from_secs(6), "a rank stood still")?;
        if !said.contains("waited") || !said.contains("step ") {
            return Err(format!("{}: the reason is missing: {said}", self.launcher.0));
        }
        Ok(format!(
            "{}: a rank that stands still ends the job after {:.1} s (time-out 3 s)",
            self.launcher.0,
            took.as_secs_f64()
        ))
    }

    /// A loss that is not finite on one rank is named with rank and step.
    fn not_finite(&self) -> Result<String, String> {
        let data = self.folder.join("nan.csv");
        let rows: String =
            (0..16).map(|i| format!("{i},1,2,3,4,{},{}\n", if i == 15 { "nan" } else { "5" }, i % 4)).collect();
        std::fs::write(&data, format!("a,b,c,d,e,f,label\n{rows}")).map_err(|e| e.to_string())?;
        let mut command = self.launch(2);
        command.arg("train").arg(root().join("golden/train/classes.pt2")).arg("--data").arg(&data);
        command.args(["--target", "label", "--loss", "cross_entropy", "--batch-size", "16", "--quiet", "-o"]);
        let job = self.spawn(command.arg(self.folder.join("nan.pt2")))?;
        let (_, said) = self.ends(job, Duration::from_secs(20), "a loss was not finite")?;
        if !said.contains("error: rank ") || !said.contains(", step 1: ") || !said.contains("NaN") {
            return Err(format!("{}: the reason is missing: {said}", self.launcher.0));
        }
        Ok(format!("{}: a loss that is not finite is named with rank and step", self.launcher.0))
    }

    /// A disk that is full ends the job and leaves the checkpoint that was there; with room again, the run goes on from it.
    fn full_disk(&self, whole: &Path) -> Result<String, String> {
        let (name, disk) = (self.launcher.0, self.folder.join("disk"));
        std::fs::create_dir_all(&disk).map_err(|e| format!("{}: {e}", disk.display()))?;
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"]).arg(&disk).output();
        if !mount.is_ok_and(|m| m.status.success()) {
            return Ok(format!("{name}: a full disk: not run, mounting a small file system needs root"));
        }
        let told = self.on_full_disk(&disk, whole);
        // Nothing runs there any more; if it fails, the next line says that something is left.
        let _ = Command::new("umount").arg(&disk).status();
        told
    }

    fn on_full_disk(&self, disk: &Path, whole: &Path) -> Result<String, String> {
        let (name, out, filler) = (self.launcher.0, disk.join("run"), disk.join("filler"));
        let checkpoint = out.join("checkpoint.safetensors");
        let mut job = self.spawn(&mut self.train(2, &out, EPOCHS))?;
        while !checkpoint.exists() {
            if job.try_wait().map_err(|e| e.to_string())?.is_some() {
                return Err(format!("{name}: the run ended before its first checkpoint"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // As much as there is room for, which is less than was asked for.
        let _ = std::fs::write(&filler, vec![0; 17 << 20]);
        let before = std::fs::read(&checkpoint).map_err(|e| e.to_string())?;
        let (_, said) = self.ends(job, Duration::from_secs(20), "the disk was full")?;
        if !said.contains("error: rank 0 on ") || !said.contains(", step ") {
            return Err(format!("{name}: the reason is missing: {said}"));
        }
        if std::fs::read(&checkpoint).map_err(|e| e.to_string())? != before {
            return Err(format!("{name}: the checkpoint changed on a full disk"));
        }
        std::fs::remove_file(&filler).map_err(|e| e.to_string())?;
        self.done(self.train(2, &out, EPOCHS).arg("--resume"))?;
        self.same(&out, whole, "resumed after a full disk")?;
        Ok(format!("{name}: a full disk ends the job, the checkpoint stays, and the run resumes to the same bytes"))
    }
}
