//! Writing archives that `torch.export.load` accepts, in the structure of PyTorch's writer.

use super::payload::{self, Payload, Role};
use super::schema::{self, MAJOR, MINOR};
use super::{signature, write};
use crate::error::{Error, Result};
use crate::program::{Constant, ExportedProgram};
use firebrand_io::{ArchiveWriter, Output};
use std::io::Write;
use std::path::Path;

/// The release whose format is written.
const TORCH_VERSION: &str = "2.15.0";
/// The op set of that release.
const ATEN_OPSET: i64 = 10;
/// The one model of an archive.
const MODEL: &str = "model";

/// How a program is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct SaveOptions {
    /// Whether to write source positions; they contain paths of the machine that exported the program.
    pub keep_stack_traces: bool,
}

impl ExportedProgram {
    /// Writes a `.pt2` file atomically. Equal programs give equal bytes.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.save_with(path, SaveOptions::default())
    }

    /// Like [`ExportedProgram::save`], with options.
    pub fn save_with(&self, path: impl AsRef<Path>, options: SaveOptions) -> Result<()> {
        Ok(self.stage_with(path, options)?.commit()?)
    }

    /// Like [`ExportedProgram::save_with`], up to the point where the file appears: for programs that write several files
    /// and want all of them or none.
    pub fn stage_with(&self, path: impl AsRef<Path>, options: SaveOptions) -> Result<Output> {
        let path = path.as_ref();
        let stem = path.file_stem().and_then(|s| s.to_str()).filter(|s| !s.is_empty()).unwrap_or("archive");
        // Translated first, so that a program that cannot be written leaves no trace.
        let text = self.model_json(options)?;
        let mut refused = None;
        let written = Output::write(path, |out| {
            self.write_archive(&format!("{stem}/"), &text, out).map(drop).map_err(|e| match e {
                Error::Io(e) => e,
                other => {
                    let message = other.to_string();
                    refused = Some(other);
                    std::io::Error::other(message).into()
                }
            })
        });
        match (refused, written) {
            (Some(e), _) => Err(e),
            (None, written) => Ok(written?),
        }
    }

    /// The content of a `.pt2` file.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        self.write_archive("archive/", &self.model_json(SaveOptions::default())?, Vec::new())
    }

    fn model_json(&self, options: SaveOptions) -> Result<String> {
        let extras = self.extras.as_deref().cloned().unwrap_or_default();
        let refuse = |message: String| Error::Pt2 { entry: "signature".into(), message };
        let opset_version = match extras.opset_version.is_empty() {
            true => [("aten".to_string(), ATEN_OPSET)].into_iter().collect(),
            false => extras.opset_version,
        };
        let program = schema::Program {
            graph_module: schema::Module {
                graph: write::graph(&self.module, options.keep_stack_traces)?,
                signature: signature::write(self.signature()?).map_err(refuse)?,
                module_call_graph: signature::write_calls(&self.module_call_graph),
                metadata: extras.metadata,
                treespec_namedtuple_fields: extras.namedtuple_fields,
            },
            opset_version,
            range_constraints: self
                .range_constraints
                .iter()
                .map(|(name, r)| (name.clone(), schema::Range { min_val: r.min, max_val: r.max }))
                .collect(),
            schema_version: schema::Version { major: MAJOR, minor: MINOR },
            verifiers: vec![self.dialect.name().to_string()],
            torch_version: if extras.torch_version.is_empty() { TORCH_VERSION.into() } else { extras.torch_version },
            guards_code: self.guards_code.clone(),
            other: extras.other,
        };
        serde_json::to_string(&program).map_err(|e| Error::Value(e.to_string()))
    }

    fn write_archive<W: Write>(&self, root: &str, text: &str, out: W) -> Result<W> {
        let mut out = ArchiveWriter::new(out);
        let weights: Vec<Payload<'_>> =
            self.state_dict.iter().map(|(name, s)| (name.as_str(), &s.tensor, s.is_parameter)).collect();
        payload::write(&mut out, root, MODEL, Role::Weights, &weights)?;
        let mut constants: Vec<Payload<'_>> = Vec::new();
        for (name, constant) in &self.constants {
            match constant {
                Constant::Tensor(t) => constants.push((name, t, false)),
                Constant::CustomObj { class_fqn } => {
                    let message = format!("the constant {name} is an object of {class_fqn}, which cannot be written");
                    return Err(Error::Pt2 { entry: "constants".into(), message });
                }
            }
        }
        payload::write(&mut out, root, MODEL, Role::Constants, &constants)?;
        out.add(&format!("{root}models/{MODEL}.json"), text.as_bytes())?;
        let extras = self.extras.as_deref().cloned().unwrap_or_default();
        out.add(&format!("{root}data/sample_inputs/{MODEL}.pt"), &extras.sample_inputs)?;
        for (name, content) in &extras.files {
            out.add(&format!("{root}extra/{name}"), content)?;
        }
        for (name, content) in
            [("archive_format", "pt2"), ("archive_version", "0"), (".data/version", "6\n"), ("byteorder", "little")]
        {
            out.add(&format!("{root}{name}"), content.as_bytes())?;
        }
        let id = out.serialization_id();
        out.add(&format!("{root}.data/serialization_id"), id.as_bytes())?;
        Ok(out.finish()?)
    }
}
