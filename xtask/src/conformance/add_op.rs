//! Adds an op exactly as `schema/README.md` shows it, in a scratch copy of the workspace, and runs its test: the text
//! that people follow is the text that is proved.
//!
//! Every code block of the README whose opening line names a file is appended to that file. The copy lives in the
//! target folder and keeps unchanged files as they are, so that a second run builds little.

use crate::{Outcome, codegen, root};
use std::fs;
use std::path::Path;
use std::process::Command;

const README: &str = "schema/README.md";
const SCRATCH: &str = "target/conformance/add-op";

/// Copies, appends, generates, builds, tests.
pub(super) fn run() -> Outcome {
    let (root, scratch) = (root(), root().join(SCRATCH));
    let readme = fs::read_to_string(root.join(README)).map_err(|e| format!("{README}: {e}"))?;
    let pieces = pieces(&readme);
    if pieces.is_empty() {
        return Err(format!("{README} has no code block that names a file"));
    }
    copy(&root, &scratch, &|path| {
        let text = fs::read(path)?;
        let name = path.strip_prefix(&root).unwrap_or(path);
        let added = pieces.iter().filter(|(file, _)| Path::new(file) == name);
        Ok(added.fold(text, |text, (_, piece)| [text, b"\n".to_vec(), piece.clone().into_bytes()].concat()))
    })
    .map_err(|e| format!("{SCRATCH}: {e}"))?;
    let mut tests = Vec::new();
    for (file, piece) in &pieces {
        println!("{file}: {} lines", piece.lines().count());
        if let Some(test) = file.strip_prefix("crates/core/tests/").and_then(|f| f.strip_suffix(".rs")) {
            put(&scratch.join(file), piece.as_bytes()).map_err(|e| format!("{file}: {e}"))?;
            tests.push(test);
        }
    }
    println!("{}", codegen::write(&scratch)?);
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["test", "--quiet", "--offline", "--package", "firebrand-core"]).current_dir(&scratch);
    // Not the workspace's own: cargo would take its crates for those of the copy.
    command.env("CARGO_TARGET_DIR", scratch.join("target"));
    command.args(tests.iter().flat_map(|test| ["--test", test]));
    match command.status() {
        Ok(status) if status.success() => Ok(format!("{README} adds an op that works")),
        Ok(status) => Err(format!("the op of {README} does not work in {SCRATCH}: {status}")),
        Err(e) => Err(format!("cargo: {e}")),
    }
}

/// Code blocks that name a file, with the name, in order. Their indentation is that of the fence.
fn pieces(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let fence = line.trim_start();
        let Some((_, file)) = fence.strip_prefix("```").and_then(|rest| rest.split_once(' ')) else { continue };
        let indent = line.len() - fence.len();
        let block = lines.by_ref().take_while(|line| line.trim() != "```");
        let piece = block.map(|line| format!("{}\n", line.get(indent..).unwrap_or_default())).collect();
        found.push((file.to_owned(), piece));
    }
    found
}

/// Copies a folder without what builds and version control put there; `content` gives the text of each file.
fn copy(from: &Path, to: &Path, content: &dyn Fn(&Path) -> std::io::Result<Vec<u8>>) -> std::io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        if name == "target" || name == ".git" {
            continue;
        }
        match path.is_dir() {
            true => copy(&path, &to.join(name), content)?,
            false => put(&to.join(name), &content(&path)?)?,
        }
    }
    Ok(())
}

/// Writes a file unless it is so already.
fn put(path: &Path, content: &[u8]) -> std::io::Result<()> {
    if fs::read(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, content)
}
