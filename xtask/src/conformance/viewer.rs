//! Pages in a real browser, a headless Chromium: those of `firebrand viz`, driven by `viewer_driver.js` with the events that
//! people cause (typing, keys, clicks, the wheel), and those of training runs, whose layout `report_driver.js` examines on a
//! desk and on a phone. All are photographed; the pictures are for people to look at.

use super::environment::must;
use crate::Outcome;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const DRIVER: &str = include_str!("viewer_driver.js");
const REPORT_DRIVER: &str = include_str!("report_driver.js");
/// Windows of a desk and of a phone.
const WINDOWS: [(&str, &str); 2] = [("wide", "1000,2600"), ("narrow", "500,2600")];
const SCRATCH: &str = "target/conformance/viewer";
/// Programs that differ in what a page must show: modules in modules, branches, a state, no modules.
const PROGRAMS: [&str; 4] = ["transformer_encoder", "cond_hop", "convnet", "setgrad_nested"];
/// The page of a hundred thousand nodes.
const LARGE: &str = "large";
/// Under these names a browser is looked for, unless `CHROMIUM` names one.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Writes pages, drives them, takes pictures.
pub(super) fn run() -> Outcome {
    let root = crate::root();
    let scratch = root.join(SCRATCH);
    fs::create_dir_all(&scratch).map_err(|e| format!("{SCRATCH}: {e}"))?;
    let browser = browser()?;
    must(Command::new(env!("CARGO")).current_dir(&root).args([
        "build",
        "--quiet",
        "--release",
        "-p",
        "firebrand-cli",
    ]))?;
    let firebrand = |arguments: &[&str]| {
        must(Command::new(crate::target().join("release/firebrand")).current_dir(&scratch).args(arguments))
    };
    for name in PROGRAMS {
        let model = root.join("golden/programs").join(name).join("model.pt2");
        firebrand(&["viz", &model.to_string_lossy(), "-o", &format!("{name}.html")])?;
    }
    // Layers without modules, a thousand and so many that a page cannot hold them all, and the history of a training run.
    for (name, layers) in [("chain", 1000), (LARGE, 50_000)] {
        fs::write(scratch.join(format!("{name}.fb")), chain(layers)).map_err(|e| format!("{name}.fb: {e}"))?;
        firebrand(&["viz", &format!("{name}.fb"), "-o", &format!("{name}.html")])?;
    }
    for (run, lr) in [("run", "3e-3"), ("other", "1e-3")] {
        if scratch.join(run).exists() {
            fs::remove_dir_all(scratch.join(run)).map_err(|e| format!("{SCRATCH}/{run}: {e}"))?;
        }
        firebrand(&["train", "--epochs", "3", "--lr", lr, "--out", run])?;
    }
    fs::rename(scratch.join("run/report.html"), scratch.join("report.html"))
        .map_err(|e| format!("report.html: {e}"))?;
    firebrand(&["runs", "compare", "run", "other", "-o", "runs.html"])?;

    let mut checks = 0;
    for name in PROGRAMS.into_iter().chain(["chain"]) {
        checks += drive(&browser, &scratch, name, DRIVER, "1280,860")?;
        for (theme, dark) in [("light", false), ("dark", true)] {
            photograph(&browser, &scratch, name, &format!("{name}.{theme}"), dark, "1280,860")?;
        }
    }
    let start = Instant::now();
    checks += drive(&browser, &scratch, LARGE, DRIVER, "1280,860")?;
    let seconds = start.elapsed().as_secs_f64();
    for page in ["report", "runs"] {
        for (window, size) in WINDOWS {
            checks += drive(&browser, &scratch, page, REPORT_DRIVER, size)?;
            photograph(&browser, &scratch, page, &format!("{page}.{window}"), window == "narrow", size)?;
        }
    }
    Ok(format!(
        "{checks} checks hold; 100,000 nodes took the browser {seconds:.1} s; look at the pictures in {SCRATCH}"
    ))
}

pub(super) fn browser() -> Result<String, String> {
    let named = std::env::var("CHROMIUM").into_iter();
    let mut names = named.chain(BROWSERS.map(String::from));
    let answers = |name: &String| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    names.find(answers).ok_or_else(|| "no browser found; install Chromium or set CHROMIUM".to_string())
}

/// A page without a display; `sandbox` is off because containers have none.
fn headless(browser: &str) -> Command {
    let mut command = Command::new(browser);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=4000"]);
    command
}

/// Runs the driver in a copy of a page; returns how much it checked.
fn drive(browser: &str, scratch: &Path, name: &str, driver: &str, size: &str) -> Result<usize, String> {
    let page = fs::read_to_string(scratch.join(format!("{name}.html"))).map_err(|e| format!("{name}.html: {e}"))?;
    let driven = scratch.join(format!("{name}.driven.html"));
    // At the very end, where all that the page has is there.
    let text = format!("{page}<script>\n{driver}</script>\n");
    fs::write(&driven, text).map_err(|e| format!("{}: {e}", driven.display()))?;
    let mut command = headless(browser);
    command.args([&format!("--window-size={size}"), "--dump-dom"]).arg(format!("file://{}", absolute(&driven)?));
    let output = command.output().map_err(|e| format!("{browser}: {e}"))?;
    let document = String::from_utf8_lossy(&output.stdout);
    let attribute = |key: &str| {
        let (_, rest) = document.split_once(&format!("{key}=\""))?;
        Some(rest.split_once('"')?.0.to_string())
    };
    match (attribute("data-passed").and_then(|n| n.parse().ok()), attribute("data-failed")) {
        (Some(passed), None) => Ok(passed),
        (_, Some(failed)) => Err(format!("{name}: {failed}")),
        (None, None) => Err(format!("{name}: the page's script did not run to its end")),
    }
}

fn photograph(browser: &str, scratch: &Path, page: &str, picture: &str, dark: bool, size: &str) -> Result<(), String> {
    let mut command = headless(browser);
    command.arg(format!("--window-size={size}"));
    if dark {
        command.arg("--blink-settings=preferredColorScheme=0");
    }
    command.arg(format!("--screenshot={}", absolute(scratch)? + &format!("/{picture}.png")));
    command.arg(format!("file://{}/{page}.html", absolute(scratch)?));
    let output = command.output().map_err(|e| format!("{browser}: {e}"))?;
    if output.status.success() { Ok(()) } else { Err(format!("{picture}: {}", output.status)) }
}

fn absolute(path: &Path) -> Result<String, String> {
    let path = path.canonicalize().map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(path.to_string_lossy().into_owned())
}

/// A program of so many layers with a value that skips one, as text.
fn chain(layers: usize) -> String {
    let mut text = String::from("graph {\n  %x0 = placeholder\n  %y0 = aten.relu.default(%x0)\n");
    for i in 1..=layers {
        text += &format!("  %x{i} = aten.tanh.default(%y{})\n  %y{i} = aten.add.Tensor(%x{i}, %x{})\n", i - 1, i - 1);
    }
    text + &format!("  return (%y{layers},)\n}}\n")
}
