//! `firebrand viz`: draws a program as an HTML page.

use crate::program_file;
use crate::refusal::{Done, Refusal};
use firebrand::graph::LoadOptions;
use firebrand::io::check_outputs;
use std::path::PathBuf;

/// Arguments of `firebrand viz`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Exported program, or a graph in text format
    #[arg(value_name = "MODEL.pt2")]
    model: PathBuf,
    /// Write the page to this file (`-`: standard output)
    #[arg(short, long, value_name = "OUT.html", value_parser = crate::program_file::output)]
    output: PathBuf,
}

/// Writes the page; unsupported ops are drawn like any other.
pub(crate) fn run(options: &Options) -> Done {
    check_outputs([&options.output])?;
    let (program, _) = program_file::read(&options.model, &LoadOptions::structure())?;
    let title = options.model.file_name().unwrap_or_default().to_string_lossy();
    let page = firebrand::viz::program_html(&title, &program);
    firebrand::io::write_text(&options.output, &page).map_err(Refusal::because)
}
