//! What a build costs and weighs: generated lines, sizes of the shipped files, and on request the time of fresh builds.
//!
//! Files are built as users build them: the program with the release profile, the C library with `small`. Sizes are those
//! of stripped files. Fresh builds go to a folder of their own, which is removed first and afterwards.

use crate::Outcome;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

const GENERATED: &str = "crates/core/src/ops/generated";
/// A user's first program: everything the façade has by default.
const HELLO: &str = "use firebrand::prelude::*;

fn main() {
    let x = Tensor::new(&[1.0f64, 2.0, 3.0]).requires_grad_();
    (&x * &x).sum().backward();
    println!(\"{:?}\", x.grad().expect(\"x is a leaf\").to_vec::<f64>());
}
";

fn cargo(target: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(crate::root()).env("CARGO_TARGET_DIR", target);
    command
}

fn must(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?}: {status}")),
        Err(e) => Err(format!("{:?}: {e}", command.get_program())),
    }
}

fn generated_lines() -> Result<usize, String> {
    let folder = crate::root().join(GENERATED);
    let entries = std::fs::read_dir(&folder).map_err(|e| format!("{GENERATED}: {e}"))?;
    let mut lines = 0;
    for entry in entries {
        let path = entry.map_err(|e| format!("{GENERATED}: {e}"))?.path();
        lines += std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?.lines().count();
    }
    Ok(lines)
}

/// Megabytes of a file without symbols; as it is where there is no `strip`.
fn stripped(file: &Path) -> Result<f64, String> {
    let copy = file.with_extension("stripped");
    let read = |path: &Path| std::fs::metadata(path).map(|m| m.len()).map_err(|e| format!("{}: {e}", path.display()));
    std::fs::copy(file, &copy).map_err(|e| format!("{}: {e}", file.display()))?;
    // The file counts as it is if there is no such program.
    let _ = Command::new("strip").arg(&copy).status();
    let size = read(&copy)?;
    std::fs::remove_file(&copy).map_err(|e| format!("{}: {e}", copy.display()))?;
    Ok(size as f64 / 1e6)
}

/// Seconds of processor time that the children of this process have used; none where the system does not say.
fn children_cpu() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // Behind the name, which may hold anything: fields 16 and 17 of proc(5), in ticks of 10 ms.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |k: usize| fields.get(k)?.parse::<f64>().ok();
    Some((ticks(13)? + ticks(14)?) / 100.0)
}

/// A row of the table: what it took.
fn timed(what: &str, run: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    let (before, began) = (children_cpu(), Instant::now());
    run()?;
    let cpu = children_cpu().zip(before).map_or("?".to_owned(), |(after, before)| format!("{:.0}", after - before));
    println!("{what:<52} {cpu:>6} s CPU  {:>6.1} s wall", began.elapsed().as_secs_f64());
    Ok(())
}

fn hello(folder: &Path) -> Result<PathBuf, String> {
    let manifest = format!(
        "[package]\nname = \"hello\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\nfirebrand = {{ path = {:?} }}\n\n[workspace]\n",
        crate::root().join("crates/firebrand")
    );
    let write = |path: PathBuf, text: &str| std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()));
    std::fs::create_dir_all(folder.join("src")).map_err(|e| format!("{}: {e}", folder.display()))?;
    write(folder.join("Cargo.toml"), &manifest)?;
    write(folder.join("src/main.rs"), HELLO)?;
    // The versions of this workspace, so that nothing is resolved anew.
    std::fs::copy(crate::root().join("Cargo.lock"), folder.join("Cargo.lock"))
        .map_err(|e| format!("Cargo.lock: {e}"))?;
    Ok(folder.join("src/main.rs"))
}

fn builds(target: &Path) -> Result<(), String> {
    let scratch = target.join("sizes");
    let _ = std::fs::remove_dir_all(&scratch);
    let release = scratch.join("release");
    timed("fresh build of the program, release", || must(&mut cargo(&release, &["build", "--quiet", "--release"])))?;
    let folder = scratch.join("hello");
    let main = hello(&folder)?;
    let build = || must(cargo(&folder.join("target"), &["build", "--quiet"]).current_dir(&folder));
    timed("fresh build of a first program, debug", build)?;
    std::fs::write(&main, HELLO.replace("3.0]", "4.0]")).map_err(|e| format!("{}: {e}", main.display()))?;
    timed("the same after a change of one line", build)?;
    std::fs::remove_dir_all(&scratch).map_err(|e| format!("{}: {e}", scratch.display()))
}

/// Prints the table; with `fresh` also the times of fresh builds, which take minutes.
pub(crate) fn run(fresh: bool) -> Outcome {
    let target = crate::target();
    println!("{:<52} {:>6} lines", GENERATED, generated_lines()?);
    if fresh {
        builds(&target)?;
    }
    must(&mut cargo(&target, &["build", "--quiet", "--release"]))?;
    println!("{:<52} {:>6.1} MB", "program, release, stripped", stripped(&target.join("release/firebrand"))?);
    must(&mut cargo(&target, &["build", "--quiet", "--profile", "small", "-p", "firebrand-cli"]))?;
    println!("{:<52} {:>6.1} MB", "program, small, stripped", stripped(&target.join("small/firebrand"))?);
    c_library()
}

/// The C library as it is shipped, with all features and with none, stripped and compressed; an error if the one without
/// features is larger than it may be.
pub(crate) fn c_library() -> Outcome {
    const MOST: (f64, f64) = (8.0, 3.0);
    let target = crate::target();
    let library = format!("{}firebrand_c{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let mut outcome = Ok(String::new());
    for (features, flags) in [("all features", &[][..]), ("no features", &["--no-default-features"])] {
        must(crate::c_library::small(flags).env("CARGO_TARGET_DIR", &target))?;
        // The profile strips.
        let (plain, zipped) = crate::web::sizes(&target.join("small").join(&library))?;
        let compressed = zipped.map_or(String::new(), |size| format!("{size:>6.2} MB compressed"));
        println!("{:<52} {plain:>6.2} MB  {compressed}", format!("{library}, small, {features}"));
        if !flags.is_empty() && (plain > MOST.0 || zipped.is_some_and(|size| size > MOST.1)) {
            let (most, most_zipped) = MOST;
            outcome = Err(format!("{library} is larger than {most} MB, or {most_zipped} MB compressed"));
        }
    }
    outcome
}
