//! Chores that need Python: comparing with the peers, and regenerating reference data. No build or test needs them.

use crate::Outcome;
use std::process::Command;

/// Scripts that write reference data. (`golden/generator.py` prints it, and only on some machines.)
const GOLDEN: [&str; 3] = ["golden/make_digits.py", "golden/make_npy.py", "golden/make_opinfo.py"];

fn python(arguments: &[&str]) -> Outcome {
    let program = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_string());
    let status = Command::new(&program).args(arguments).current_dir(crate::root()).status();
    match status.map_err(|e| format!("{program}: {e} (set PYTHON to another interpreter)"))? {
        s if s.success() => Ok(String::new()),
        s => Err(format!("{program} {}: {s}", arguments.join(" "))),
    }
}

/// Runs the comparison with the peers; see `bench/README.md` for its arguments.
pub(crate) fn bench(arguments: &[&str]) -> Outcome {
    python(&[&["bench/compare.py"], arguments].concat())
}

/// Regenerates reference data; `PYTHON` must have PyTorch, NumPy and scikit-learn.
pub(crate) fn golden() -> Outcome {
    for script in GOLDEN {
        println!("{script}");
        python(&[script])?;
    }
    Ok("done; `git diff --stat golden` shows what changed".to_string())
}

/// Builds the extension and runs the package's tests with Python alone, against stored results. Skipped, and says so, where there is no
/// Python that the stable ABI is for.
pub(crate) fn check() -> Outcome {
    let program = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_string());
    let version = Command::new(&program).args(["-c", "import sys; sys.exit(sys.version_info < (3, 11))"]).output();
    if !version.is_ok_and(|v| v.status.success()) {
        return Ok(format!("skipped: {program} is absent or older than 3.11"));
    }
    crate::check::libraries()?;
    crate::conformance::python::place(&crate::root())?;
    let tests = Command::new(&program).arg("crates/python/tests/plain.py").current_dir(crate::root()).output();
    let tests = tests.map_err(|e| format!("{program}: {e}"))?;
    let said = String::from_utf8_lossy(&tests.stdout).trim().to_string();
    if tests.status.success() { Ok(said) } else { Err(format!("{}{said}", String::from_utf8_lossy(&tests.stderr))) }
}
