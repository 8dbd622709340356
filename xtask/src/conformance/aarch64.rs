//! 64-bit ARM: the tests of `kernels`, `core`, `graph` and `nn`, cross-compiled, under QEMU's user mode. Tests that cannot run
//! there are listed with reasons in `aarch64_excluded.txt`. Nothing is installed; what is missing is named.

use super::cross::{self, Program, need_program, need_target};
use crate::Outcome;
use std::process::Command;
use std::time::Instant;

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64";
/// Where Debian's cross compiler keeps the libraries of the target.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";
/// The crates whose tests run.
const TESTED: [&str; 4] = ["firebrand-kernels", "firebrand-core", "firebrand-graph", "firebrand-nn"];
const EXCLUDED: &str = include_str!("aarch64_excluded.txt");

/// How the tests of a program ended.
#[derive(Default)]
struct Counts {
    passed: usize,
    ignored: usize,
    excluded: usize,
}

/// The counts in "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; …".
fn counts(said: &str) -> Option<Counts> {
    let line = said.lines().rev().find_map(|l| l.strip_prefix("test result: "))?;
    let number = |what: &str| {
        let before = line.split(what).next()?.trim_end();
        before.rsplit(' ').next()?.parse::<usize>().ok()
    };
    Some(Counts { passed: number(" passed")?, ignored: number(" ignored")?, excluded: number(" filtered out")? })
}

/// Runs one program; what went wrong is the error.
fn run_tests(program: &Program, skipped: &[&str]) -> Result<Counts, String> {
    let name = &program.name;
    let mut emulator = Command::new(EMULATOR);
    emulator.args(["-L", LIBRARIES]).arg(&program.path).arg("--exact").current_dir(&program.package);
    // For tests that start themselves anew: the system would not know that a program needs the emulator.
    emulator.env("FIREBRAND_TEST_RUNNER", format!("{EMULATOR} -L {LIBRARIES}"));
    skipped.iter().for_each(|test| _ = emulator.args(["--skip", test]));
    let began = Instant::now();
    let output = emulator.output().map_err(|e| format!("{EMULATOR}: {e}"))?;
    let seconds = began.elapsed().as_secs_f64();
    let said = String::from_utf8_lossy(&output.stdout);
    let found = counts(&said);
    match found {
        Some(found) if output.status.success() => {
            if found.excluded != skipped.len() {
                return Err(format!("{name}: a test in aarch64_excluded.txt does not exist"));
            }
            let Counts { passed, ignored, excluded, .. } = found;
            println!("{name:<28} {passed:>5} passed {ignored:>4} ignored {excluded:>4} excluded {seconds:>7.1} s");
            Ok(found)
        }
        _ => {
            // From the first failure's output on, or all there is of a program that crashed.
            let from = said.find("\nfailures:\n").unwrap_or(0);
            Err(format!("{name}: {}\n{}{}", output.status, &said[from..], String::from_utf8_lossy(&output.stderr)))
        }
    }
}

/// Builds and runs. With names, only those programs.
pub(super) fn run(only: &[&str]) -> Outcome {
    need_target(TARGET)?;
    need_program(LINKER, "Debian and Ubuntu have it in gcc-aarch64-linux-gnu")?;
    need_program(EMULATOR, "Debian and Ubuntu have it in qemu-user")?;
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--no-run"]).args(cross::programs(only)).current_dir(crate::root());
    cargo.args(TESTED.iter().flat_map(|p| ["-p", p]));
    cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER);
    // Emulation makes slow code very slow.
    cargo.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1").env("CARGO_PROFILE_DEV_DEBUG", "none");
    let programs = cross::build(cargo, TARGET)?;
    let excluded = cross::excluded(EXCLUDED, "aarch64_excluded.txt")?;
    let (mut sum, mut failures) = (Counts::default(), Vec::new());
    for program in programs.iter().filter(|p| only.is_empty() || only.contains(&p.name.as_str())) {
        let skipped = excluded.get(program.name.as_str()).map_or(&[][..], Vec::as_slice);
        match run_tests(program, skipped) {
            Ok(c) => {
                sum.passed += c.passed;
                sum.ignored += c.ignored;
                sum.excluded += c.excluded;
            }
            Err(e) => failures.push(e),
        }
    }
    let Counts { passed, ignored, excluded, .. } = sum;
    if !failures.is_empty() {
        return Err(format!(
            "{} programs failed; {passed} tests passed in others:\n{}",
            failures.len(),
            failures.join("\n")
        ));
    }
    Ok(format!("{passed} tests pass on {TARGET} under emulation, {excluded} excluded, {ignored} ignored"))
}

#[cfg(test)]
mod tests {
    use super::counts;

    #[test]
    fn the_last_line_of_a_test_program_is_read() {
        let said = "running 6 tests\ntest result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 2 filtered out; finished in 0.1s\n";
        let found = counts(said).expect("a result");
        assert_eq!((found.passed, found.ignored, found.excluded), (3, 0, 2));
        assert!(counts("Segmentation fault").is_none());
    }
}
