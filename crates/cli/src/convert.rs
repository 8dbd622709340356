//! `firebrand convert`: converts the state of a model from one file format to another.

use crate::program::WeightOptions;
use crate::program_file;
use crate::refusal::{Done, Refusal, say};
use clap::ValueEnum;
use firebrand::DType;
use firebrand::graph::{Constant, LoadOptions};
use firebrand::io::npz::Tensors;
use firebrand::io::{
    Archive, check_outputs, open_regular, plain, read_weights, write_npz, write_safetensors, write_torch_save,
};
use std::io::Read;
use std::path::{Path, PathBuf};

/// A file format for named tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A .safetensors file
    Safetensors,
    /// A NumPy .npz archive
    Npz,
    /// A file written by torch.save
    Torch,
    /// An exported program
    Pt2,
}

/// Element types to cast to.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Precision {
    F16,
    Bf16,
    F32,
    F64,
}

impl Precision {
    fn dtype(self) -> DType {
        match self {
            Precision::F16 => DType::F16,
            Precision::Bf16 => DType::BF16,
            Precision::F32 => DType::F32,
            Precision::F64 => DType::F64,
        }
    }
}

/// Arguments of `firebrand convert`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Input: a .pt2 program, .safetensors (or the index of its shards), .npz, or a torch.save file
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// Output; the format is taken from the extension: .safetensors, .npz, .pt, .pth, .bin or .pt2
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// Format of OUT, regardless of its extension
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Load the weights into this program and write it to OUT (.pt2)
    #[arg(long, value_name = "MODEL.pt2")]
    into: Option<PathBuf>,
    /// Write the program even if some weights are missing or have different shapes; those keep their old values
    #[arg(long, requires = "into")]
    partial: bool,
    /// Cast floating-point tensors to this dtype (not for programs, whose dtypes are part of their graph)
    #[arg(long, value_name = "TYPE", conflicts_with = "into")]
    dtype: Option<Precision>,
    #[command(flatten)]
    weights: WeightOptions,
}

/// The format implied by an output's extension.
fn format_of(path: &Path) -> Done<Format> {
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
    match extension.as_str() {
        "safetensors" => Ok(Format::Safetensors),
        "npz" => Ok(Format::Npz),
        "pt" | "pth" | "bin" | "ckpt" => Ok(Format::Torch),
        "pt2" => Ok(Format::Pt2),
        _ => Err(Refusal::because(format!(
            "{}: unknown extension; expected .safetensors, .npz, .pt, .pth, .bin or .pt2, or use --format",
            plain(&path.display().to_string())
        ))),
    }
}

/// Whether a file is an exported program.
fn is_program(path: &Path) -> Done<bool> {
    let (mut file, _) = open_regular(path)?;
    let mut first = [0; 2];
    if file.read_exact(&mut first).is_err() || &first != b"PK" {
        return Ok(false);
    }
    // An npz is a zip archive too: what does not open as one of PyTorch's archives is not a program.
    Ok(Archive::open(path).is_ok_and(|a| a.names().any(|n| n.ends_with("archive_format"))))
}

/// The tensors of any file that holds a model: a program's state, or named tensors.
pub(crate) fn read_state(path: &Path, weights: WeightOptions) -> Done<Tensors> {
    if !is_program(path)? {
        return Ok(read_weights(path, weights.memory())?);
    }
    let options = LoadOptions { refuse_unsupported: false, memory: weights.memory(), ..LoadOptions::default() };
    let program = program_file::load(path, &options)?;
    let mut tensors: Tensors = program.state_dict.iter().map(|(name, s)| (name.clone(), s.tensor.detach())).collect();
    for (name, constant) in &program.constants {
        if let Constant::Tensor(t) = constant {
            tensors.entry(name.clone()).or_insert_with(|| t.detach());
        }
    }
    Ok(tensors)
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Done {
    let format = options.format.map_or_else(|| format_of(&options.output), Ok)?;
    if (format == Format::Pt2) != options.into.is_some() {
        return Err(Refusal::because(match format {
            Format::Pt2 => "weights alone are not a program: name the program they belong to with --into MODEL.pt2",
            _ => "--into needs an OUT that is a program (.pt2)",
        }));
    }
    check_outputs([&options.output])?;
    let mut tensors = read_state(&options.input, options.weights)?;
    if let Some(precision) = options.dtype {
        for t in tensors.values_mut().filter(|t| t.is_floating_point()) {
            *t = t.try_to_dtype(precision.dtype())?;
        }
    }
    let count = tensors.len();
    match (format, &options.into) {
        (Format::Pt2, Some(model)) => {
            let load =
                LoadOptions { refuse_unsupported: false, memory: options.weights.memory(), ..LoadOptions::default() };
            let program = program_file::load(model, &load)?;
            let (program, report) = program.with_weights(&tensors, options.partial).map_err(Refusal::because)?;
            program.save(&options.output).map_err(Refusal::because)?;
            say!("{}: {report}", options.output.display())?;
            return Ok(());
        }
        (Format::Safetensors, _) => write_safetensors(&options.output, &tensors)?,
        (Format::Npz, _) => write_npz(&options.output, &tensors)?,
        (Format::Torch | Format::Pt2, _) => write_torch_save(&options.output, &tensors)?,
    }
    say!("{}: {count} tensors", options.output.display())?;
    Ok(())
}
