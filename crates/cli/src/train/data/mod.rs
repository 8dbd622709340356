//! Samples from files: arrays (`.npz`, `.safetensors`), tables (`.csv`, `.parquet`), folders of images, texts; each as batches of
//! the program's inputs and labels. Everything that can be found wrong is found before the first step. What the samples are is
//! the business of a [`Source`]; which of them are used, in which part, is that of [`Samples`].

mod arrays;
mod images;
mod table;
#[cfg(feature = "text")]
mod texts;

use super::subject::InputSpec;
use crate::program::{TARGET, read_rows};
use crate::refusal::{Done, Refusal};
use arrays::Arrays;
use firebrand::data::{Collate, Dataset, Transform, Transforms};
use firebrand::io::npz::Tensors;
use firebrand::io::{Memory, Rows, plain, read_safetensors_with};
use firebrand::prelude::*;
use firebrand::random::{Generator, with_generator};
use firebrand::{ops, random};
use images::Images;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where samples come from.
#[derive(Clone, clap::Args)]
pub(crate) struct DataOptions {
    /// Samples: arrays named after the program's inputs and `__target__` (.npz, .safetensors), a table (.csv, .parquet), a directory of images by class, or texts (.jsonl, .txt)
    #[arg(long, value_name = "D", help_heading = "Data")]
    pub(crate) data: Option<PathBuf>,
    /// The array, column or field with the labels [default: __target__; of texts, completion]
    #[arg(long, value_name = "NAME", help_heading = "Data", default_value = TARGET, hide_default_value = true)]
    pub(crate) target: String,
    /// Image transform: resize=256, center_crop=224, random_crop=32:4, random_resized_crop=224, flip, vertical_flip, grayscale or normalize=imagenet; may be repeated, applied in order
    #[arg(long, value_name = "T", help_heading = "Data", action = clap::ArgAction::Append, value_parser = |t: &str| t.parse::<Transform>().map_err(|e| e.to_string()))]
    pub(crate) transform: Vec<Transform>,
    #[cfg(feature = "text")]
    #[command(flatten)]
    pub(crate) text: texts::TextOptions,
}

/// Some samples: the program's inputs in order, labels, and which samples they are.
#[derive(Clone)]
pub(crate) struct Batch {
    pub(crate) inputs: Vec<Tensor>,
    pub(crate) target: Option<Tensor>,
    pub(crate) index: Vec<usize>,
}

impl Collate for Batch {
    fn collate(samples: Vec<Batch>) -> Result<Batch> {
        let inputs = samples.first().map_or(0, |s| s.inputs.len());
        let column = |k: usize| Tensor::collate(samples.iter().map(|s| s.inputs[k].clone()).collect());
        let targets: Option<Vec<Tensor>> = samples.iter().map(|s| s.target.clone()).collect();
        Ok(Batch {
            inputs: (0..inputs).map(column).collect::<Result<_>>()?,
            target: targets.map(Tensor::collate).transpose()?,
            index: samples.iter().flat_map(|s| s.index.iter().copied()).collect(),
        })
    }
}

/// Samples by their number in a file.
trait Source: Send + Sync {
    /// How many there are.
    fn len(&self) -> usize;

    /// Several as a batch.
    fn batch(&self, rows: &[usize]) -> Result<Batch>;

    /// The labels of these samples, where they are at hand.
    fn labels(&self, rows: &[usize]) -> Done<Option<Tensor>>;

    /// What a sample is called.
    fn name(&self, row: usize) -> String;

    /// Adds what identifies all samples.
    fn fingerprint(&self, hash: &mut Fnv) -> Done;

    /// The first of these samples with a number that is not finite among its inputs, where they are at hand, and the number.
    fn first_not_finite(&self, _rows: &[usize]) -> Done<Option<(usize, f64)>> {
        Ok(None)
    }

    /// The same samples without random transforms, if these have any.
    fn for_evaluation(&self) -> Option<Arc<dyn Source>> {
        None
    }

    /// The largest token, if the samples are texts and their labels tokens.
    fn largest_token(&self) -> Option<i64> {
        None
    }
}

/// Samples of a program.
#[derive(Clone)]
pub(crate) struct Samples {
    source: Arc<dyn Source>,
    /// Which of the source's samples, in order.
    rows: Vec<usize>,
    /// Names of the classes, where the data has them.
    pub(crate) classes: Option<Vec<String>>,
    /// Notes for the user about conversions made to fit the program.
    pub(crate) notes: Vec<String>,
}

impl Dataset for Samples {
    type Sample = Batch;

    fn len(&self) -> usize {
        self.rows.len()
    }

    fn get(&self, index: usize) -> Result<Batch> {
        let one = self.source.batch(&[self.rows[index]])?;
        let only = |t: &Tensor| ops::select(t, 0, 0.into());
        Ok(Batch {
            inputs: one.inputs.iter().map(only).collect::<Result<_>>()?,
            target: one.target.as_ref().map(only).transpose()?,
            index: one.index,
        })
    }

    fn batch(&self, indices: &[usize]) -> Result<Batch> {
        self.source.batch(&indices.iter().map(|&i| self.rows[i]).collect::<Vec<_>>())
    }
}

fn named(path: &Path, e: impl std::fmt::Display) -> Refusal {
    Refusal::because(format!("{}: {e}", plain(&path.display().to_string())))
}

fn list(names: &[&str]) -> String {
    names.iter().map(|n| format!("`{}`", plain(n))).collect::<Vec<_>>().join(", ")
}

impl Samples {
    fn new(source: impl Source + 'static, classes: Option<Vec<String>>, notes: Vec<String>) -> Samples {
        let rows = (0..source.len()).collect();
        Samples { source: Arc::new(source), rows, classes, notes }
    }

    /// Arrays that are in memory.
    pub(crate) fn of_arrays(inputs: Vec<Tensor>, target: Option<Tensor>, classes: Option<Vec<String>>) -> Samples {
        Samples::new(Arrays::new(inputs, target), classes, Vec::new())
    }

    /// Reads samples for a program with these inputs. `labels` says whether the loss needs any.
    pub(crate) fn read(path: &Path, options: &DataOptions, inputs: &[InputSpec], labels: bool) -> Done<Samples> {
        let transforms = Transforms::new(options.transform.clone()).map_err(Refusal::from)?;
        if path.is_dir() {
            if options.target != TARGET {
                return Err(named(
                    path,
                    "--target: the labels of images are the names of their directories; leave it out",
                ));
            }
            #[cfg(feature = "text")]
            if options.text.tokenizer.is_some() {
                return Err(named(path, "--tokenizer is for texts, and this is a directory of images"));
            }
            return Images::read(path, transforms, inputs);
        }
        if !transforms.list.is_empty() {
            return Err(named(path, "--transform is for directories of images"));
        }
        let ending = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
        #[cfg(feature = "text")]
        if options.text.tokenizer.is_some() {
            return texts::Texts::read(path, options, inputs);
        }
        let in_memory = |tensors: Tensors| tensors.into_iter().map(|(name, t)| (name, Rows::new(t))).collect();
        let arrays = match ending.as_str() {
            "csv" | "parquet" => in_memory(table::read(path, &ending, options, inputs, labels)?),
            "safetensors" => in_memory(read_safetensors_with(path, Memory::Mapped)?),
            "jsonl" | "txt" if cfg!(feature = "text") => {
                return Err(named(path, "texts need the tokenizer of the model: add --tokenizer tokenizer.json"));
            }
            "jsonl" | "txt" => {
                return Err(named(path, "this build reads no texts; build it with --features text"));
            }
            _ => read_rows(path)?,
        };
        Arrays::fitted(path, arrays, options, inputs, labels)
    }

    /// A random split into training and validation samples; `share` is the fraction for validation.
    pub(crate) fn split(self, share: f64, seed: u64) -> Done<(Samples, Samples)> {
        let n = self.rows.len();
        let held = ((n as f64 * share).round() as usize).clamp(usize::from(n > 1), n.saturating_sub(1));
        if held == 0 {
            return Err(Refusal::because(format!("--val-split {share}: {n} samples cannot be split")));
        }
        let order =
            with_generator(Generator::new(seed), || ops::randperm(n.into(), None, None))?.try_to_vec::<i64>()?;
        let pick = |part: &[i64]| {
            let mut rows: Vec<usize> = part.iter().map(|&i| self.rows[i as usize]).collect();
            rows.sort_unstable();
            rows
        };
        let (val, train) = order.split_at(held);
        let val = Samples { rows: pick(val), notes: Vec::new(), ..self.clone() }.for_evaluation();
        Ok((Samples { rows: pick(train), ..self }, val))
    }

    /// The same samples without random transforms.
    pub(crate) fn for_evaluation(mut self) -> Samples {
        if let Some(plain) = self.source.for_evaluation() {
            self.source = plain;
        }
        self
    }

    /// The labels of all samples, if they are in memory.
    pub(crate) fn labels(&self) -> Done<Option<Tensor>> {
        self.source.labels(&self.rows)
    }

    /// The largest token, if the samples are texts.
    pub(crate) fn largest_token(&self) -> Option<i64> {
        self.source.largest_token()
    }

    /// The first sample with a non-finite value among its inputs, if they are in memory: its index in its file, and the
    /// and the number.
    pub(crate) fn first_not_finite(&self) -> Done<Option<(usize, f64)>> {
        self.source.first_not_finite(&self.rows)
    }

    /// The index of a sample in its file, by position among these samples.
    pub(crate) fn row(&self, position: usize) -> usize {
        self.rows[position]
    }

    /// A name for a sample, by its index in its file.
    pub(crate) fn name(&self, row: usize) -> String {
        self.source.name(row)
    }

    /// A fingerprint of the samples: their count and a checksum. Image files are identified by name and size.
    pub(crate) fn fingerprint(&self) -> Done<u64> {
        use std::hash::Hasher;
        let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
        self.source.fingerprint(&mut hash)?;
        self.rows.iter().for_each(|r| hash.write(&r.to_le_bytes()));
        Ok(hash.finish())
    }
}

/// FNV-1a over words: a checksum that is the same in every build.
pub(in crate::train) struct Fnv(pub(in crate::train) u64);

impl std::hash::Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = (self.0 ^ u64::from_le_bytes(word)).wrapping_mul(0x0100_0000_01b3).rotate_left(29);
        }
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

struct Hashed<'a>(&'a mut Fnv);

impl std::io::Write for Hashed<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        std::hash::Hasher::write(self.0, bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Seeds every random generator.
pub(super) fn seed(seed: u64) {
    random::manual_seed(seed);
}
