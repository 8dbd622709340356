//! `firebrand completions SHELL` and `firebrand man DIR`: completion scripts and man pages, generated from the clap definitions
//! that parse the command line.

use crate::refusal::{Done, Refusal};
use clap::Command;
use firebrand::io::write_atomic;
use std::io::Write;
use std::path::Path;

/// Prints a completion script.
pub(crate) fn completions(shell: clap_complete::Shell, mut command: Command) -> Done {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "firebrand", &mut script);
    Ok(std::io::stdout().lock().write_all(&script)?)
}

/// Writes a page for every command: `firebrand.1`, `firebrand-train.1`, …
pub(crate) fn man(folder: &Path, command: Command) -> Done {
    if folder.exists() && !folder.is_dir() {
        return Err(Refusal::because(format!("{}: expected a directory, found a file", folder.display())));
    }
    std::fs::create_dir_all(folder).map_err(|e| Refusal::because(format!("{}: {e}", folder.display())))?;
    pages(folder, command.disable_help_subcommand(true), "firebrand")
}

fn pages(folder: &Path, command: Command, name: &str) -> Done {
    let mut page = Vec::new();
    // The page of a subcommand has the full name, such as `firebrand-runs-list`.
    clap_mangen::Man::new(command.clone().display_name(name)).title(name).render(&mut page)?;
    write_atomic(folder.join(format!("{name}.1")), |out| Ok(out.write_all(&page)?))?;
    command.get_subcommands().try_for_each(|c| pages(folder, c.clone(), &format!("{name}-{}", c.get_name())))
}
