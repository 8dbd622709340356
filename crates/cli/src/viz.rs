//! `firebrand viz`: a program as a page to look at.

use crate::program_file;
use crate::refusal::{Done, Refusal};
use firebrand::graph::LoadOptions;
use firebrand::io::check_outputs;
use std::path::PathBuf;

/// Arguments of `firebrand viz`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The exported program, or a graph in text form
    #[arg(value_name = "MODEL.pt2")]
    model: PathBuf,
    /// The page
    #[arg(short, long, value_name = "OUT.html")]
    output: PathBuf,
}

/// Writes the page; ops that cannot be run are drawn like any other.
pub(crate) fn run(options: &Options) -> Done {
    check_outputs([&options.output])?;
    let (program, _) = program_file::read(&options.model, &LoadOptions::structure())?;
    let title = options.model.file_name().unwrap_or_default().to_string_lossy();
    let page = firebrand::viz::program_html(&title, &program);
    firebrand::io::write_text(&options.output, &page).map_err(Refusal::because)
}
