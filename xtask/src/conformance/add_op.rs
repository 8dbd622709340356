//! Adds ops exactly as `schema/README.md` shows them, in a scratch copy of the workspace, and runs their tests: the text
//! that people follow is the text that is proved, and so is the number of files it touches.
//!
//! Every code block of the README whose opening line names a file is appended to that file, or put before the first line
//! that holds the text it names. The copy lives in the target folder and keeps unchanged files as they are, so that a second
//! run builds little.

use crate::{Outcome, codegen, root};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

const README: &str = "schema/README.md";
/// How many files each op of the README may touch, in its order: a pointwise one, and one with rules of its own.
const LIMITS: [usize; 2] = [3, 6];
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
        let added: Vec<&Piece> = pieces.iter().filter(|piece| Path::new(&piece.file) == name).collect();
        if added.is_empty() {
            return Ok(text);
        }
        let text = String::from_utf8(text).map_err(std::io::Error::other)?;
        added.into_iter().try_fold(text, |text, piece| piece.put_into(&text)).map(String::into_bytes)
    })
    .map_err(|e| format!("{SCRATCH}: {e}"))?;
    let (mut tests, mut touched) = (Vec::new(), BTreeSet::new());
    for piece in &pieces {
        let file = &piece.file;
        println!("{file}: {} lines", piece.text.lines().count());
        touched.insert(file);
        let test = file.strip_prefix("crates/").and_then(|f| f.strip_suffix(".rs")?.split_once("/tests/"));
        if let Some((package, test)) = test {
            put(&scratch.join(file), piece.text.as_bytes()).map_err(|e| format!("{file}: {e}"))?;
            // The test is the last file of an op.
            let limit = *LIMITS.get(tests.len()).unwrap_or(&usize::MAX);
            if touched.len() > limit {
                return Err(format!("adding the op of {file} touches {} files; {limit} are enough", touched.len()));
            }
            println!("{} files for {test}", touched.len());
            touched.clear();
            tests.push((format!("firebrand-{package}"), test));
        }
    }
    println!("{}", codegen::write(&scratch)?);
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["test", "--quiet", "--offline"]).current_dir(&scratch);
    // Not the workspace's own: cargo would take its crates for those of the copy.
    command.env("CARGO_TARGET_DIR", scratch.join("target"));
    command.args(tests.iter().flat_map(|(package, test)| ["--package", package, "--test", test]));
    match command.status() {
        Ok(status) if status.success() => Ok(format!("{README} adds {} ops that work", tests.len())),
        Ok(status) => Err(format!("an op of {README} does not work in {SCRATCH}: {status}")),
        Err(e) => Err(format!("cargo: {e}")),
    }
}

/// A code block that names a file.
struct Piece {
    file: String,
    /// It goes before the first line that holds this; without it, to the end.
    before: Option<String>,
    text: String,
}

impl Piece {
    fn put_into(&self, text: &str) -> std::io::Result<String> {
        let Some(before) = &self.before else { return Ok(format!("{text}\n{}", self.text)) };
        let missing = || std::io::Error::other(format!("{} has no line with `{before}`", self.file));
        let at = text.find(before.as_str()).ok_or_else(missing)?;
        let line = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        Ok(format!("{}{}{}", &text[..line], self.text, &text[line..]))
    }
}

/// Code blocks that name a file, in order. Their indentation is that of the fence.
fn pieces(text: &str) -> Vec<Piece> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let fence = line.trim_start();
        let Some((_, place)) = fence.strip_prefix("```").and_then(|rest| rest.split_once(' ')) else { continue };
        let (file, before) = match place.split_once(" before ") {
            Some((file, before)) => (file, Some(before.to_owned())),
            None => (place, None),
        };
        let indent = line.len() - fence.len();
        let block = lines.by_ref().take_while(|line| line.trim() != "```");
        let text = block.map(|line| format!("{}\n", line.get(indent..).unwrap_or_default())).collect();
        found.push(Piece { file: file.to_owned(), before, text });
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
