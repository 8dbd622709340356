//! The page in `web/`: built, served, and used in a headless Chromium as people use it, by `web_driver.mjs`: it trains, draws,
//! drops a file, and looks at the result in light and dark, on a desk and on a phone.

use super::environment::must;
use super::viewer::browser;
use super::wasm::need_node;
use crate::Outcome;
use std::process::Command;

const DRIVER: &str = "xtask/src/conformance/web_driver.mjs";
const SCRATCH: &str = "target/conformance/web";

/// Builds the page and drives it.
pub(super) fn run() -> Outcome {
    need_node()?;
    let browser = browser()?;
    let built = crate::web::build()?;
    let root = crate::root();
    let scratch = root.join(SCRATCH);
    std::fs::create_dir_all(&scratch).map_err(|e| format!("{SCRATCH}: {e}"))?;
    let mut driver = Command::new("node");
    driver.current_dir(&root).arg(DRIVER).arg(&browser).arg("web").arg("golden/programs").arg(SCRATCH);
    must(&mut driver)?;
    Ok(format!("{built}; look at the pictures in {SCRATCH}"))
}
