//! Which modules of a crate depend on each other in circles. A circle cannot be read, tested or moved in parts, so the
//! ones there are stand in a list: a module that joins one, or leaves one without being taken off the list, is an error.
//!
//! Dependence is what paths say (`crate::`, `super::` and names that the root re-exports), between the top-level modules
//! of a crate and between the parts of its larger folders. Generated files and test modules are not looked at.

use crate::Outcome;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Folders of sources, and the modules in them that are known to be tied together.
const KNOTS: &[(&str, &[&str])] = &[
    // A tensor holds its node and a node holds tensors: what is left here is that circle and what it takes to close it. A size
    // that a hook keeps asks the capture it is from for its value.
    (
        "crates/core/src",
        &[
            "autograd", "capture", "dispatch", "func", "fusion", "library", "module", "number", "ops", "profiler",
            "races", "record", "schema", "state", "sym", "tensor", "tree",
        ],
    ),
    ("crates/compile/src", &[]),
    ("crates/compile/src/front", &[]),
    ("crates/nn/src", &[]),
    ("crates/io/src", &[]),
];

/// Module, and the modules it names with the path that does.
type Edges = BTreeMap<String, BTreeMap<String, String>>;

fn sources(folder: &Path, into: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && path.file_name().is_some_and(|n| n != "generated") {
            sources(&path, into)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
    Ok(())
}

/// The code without comments and test modules.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    text.lines().map(|l| l.split("//").next().unwrap_or(l)).collect::<Vec<_>>().join("\n")
}

/// The first names behind every occurrence of `prefix`, also of the paths in a group.
fn names_behind(text: &str, prefix: &str) -> Vec<String> {
    let name = |s: &str| s.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut found = Vec::new();
    for (at, _) in text.match_indices(prefix) {
        let rest = &text[at + prefix.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            found.push(name(rest));
            continue;
        };
        let (mut depth, mut start) = (0, 0);
        for (i, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                ',' | '}' if depth == 0 => {
                    found.push(name(&group[start..i]));
                    start = i + 1;
                    if c == '}' {
                        break;
                    }
                }
                '}' => depth -= 1,
                _ => {}
            }
        }
    }
    found
}

/// What the root re-exports, by name: `pub use tensor::{Spec, Tensor}`.
fn exported(root: &str, modules: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for module in modules {
        for visibility in ["pub", "pub(crate)"] {
            let prefix = format!("{visibility} use {module}::");
            names.extend(names_behind(root, &prefix).into_iter().map(|name| (name, module.clone())));
        }
    }
    names
}

fn edges(folder: &Path) -> std::io::Result<Edges> {
    let mut files = Vec::new();
    sources(folder, &mut files)?;
    let below = |f: &Path| f.strip_prefix(folder).unwrap_or(f).with_extension("").components().count();
    let module = |f: &Path| {
        let first = f.strip_prefix(folder).ok()?.components().next()?;
        Some(Path::new(&first).with_extension("").to_string_lossy().into_owned())
    };
    let is_root = |m: &String| matches!(m.as_str(), "lib" | "main" | "mod");
    let modules: BTreeSet<String> = files.iter().filter_map(|f| module(f)).filter(|m| !is_root(m)).collect();
    let root = ["lib.rs", "main.rs", "mod.rs"].iter().find_map(|f| std::fs::read_to_string(folder.join(f)).ok());
    let exported = exported(&code(&root.unwrap_or_default()), &modules);
    // The path of the folder itself: `crate::`, or `crate::front::`.
    let inside = folder.iter().skip_while(|c| *c != "src").skip(1);
    let prefix = inside.fold(String::from("crate::"), |path, c| format!("{path}{}::", c.to_string_lossy()));
    let mut edges = Edges::new();
    for file in &files {
        let Some(from) = module(file).filter(|m| !is_root(m)) else { continue };
        let text = code(&std::fs::read_to_string(file)?);
        let depth = below(file) - usize::from(file.file_name().is_some_and(|n| n == "mod.rs"));
        for prefix in [prefix.clone(), "super::".repeat(depth)] {
            for name in names_behind(&text, &prefix) {
                let to = if modules.contains(&name) { Some(&name) } else { exported.get(&name) };
                if let Some(to) = to.filter(|to| **to != from) {
                    let path = format!("{}: {prefix}{name}", file.strip_prefix(folder).unwrap_or(file).display());
                    edges.entry(from.clone()).or_default().entry(to.clone()).or_insert(path);
                }
            }
        }
    }
    Ok(edges)
}

fn reached(edges: &Edges, from: &str) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut waiting = vec![from];
    while let Some(module) = waiting.pop() {
        for to in edges.get(module).into_iter().flat_map(BTreeMap::keys) {
            if seen.insert(to.clone()) {
                waiting.push(to);
            }
        }
    }
    seen
}

/// Compares the circles of every folder with the list.
pub(crate) fn check() -> Outcome {
    let mut wrong = String::new();
    for (folder, known) in KNOTS {
        let edges = edges(&crate::root().join(folder)).map_err(|e| format!("{folder}: {e}"))?;
        let tied: BTreeSet<&str> =
            edges.keys().filter(|m| reached(&edges, m).contains(*m)).map(String::as_str).collect();
        let known: BTreeSet<&str> = known.iter().copied().collect();
        for module in tied.difference(&known) {
            let back = edges[*module].iter().filter(|(to, _)| reached(&edges, to).contains(*module));
            let paths: Vec<&str> = back.map(|(_, path)| path.as_str()).collect();
            wrong += &format!("\n{folder}: {module} depends on itself through {}", paths.join("; "));
        }
        for module in known.difference(&tied) {
            wrong +=
                &format!("\n{folder}: {module} is no longer part of a circle; take it off the list in {}", file!());
        }
    }
    if wrong.is_empty() { Ok(String::new()) } else { Err(wrong) }
}
