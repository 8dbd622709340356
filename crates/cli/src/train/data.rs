//! Samples from files: arrays (`.npz`, `.safetensors`), tables (`.csv`), folders of images; each as batches of the program's
//! inputs and labels. Everything that can be validated is validated before the first step.

use super::config::nearest;
use super::subject::InputSpec;
use crate::program::{TARGET, read_arrays};
use crate::refusal::{Done, Refusal};
use firebrand::data::{Collate, CsvOptions, Dataset, ImageFolder, Transform, Transforms, read_csv};
use firebrand::io::npz::Tensors;
use firebrand::io::{Memory, plain, read_safetensors_with};
use firebrand::prelude::*;
use firebrand::random::{Generator, with_generator};
use firebrand::{ops, random};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where samples come from.
#[derive(Clone, clap::Args)]
pub(crate) struct DataOptions {
    /// Samples: arrays named after the program's inputs and `__target__` (.npz, .safetensors), a table (.csv), or a directory of images by class
    #[arg(long, value_name = "D", help_heading = "Data")]
    pub(crate) data: Option<PathBuf>,
    /// Name of the array or column with the labels
    #[arg(long, value_name = "NAME", help_heading = "Data", default_value = TARGET)]
    pub(crate) target: String,
    /// Image transform: resize=256, center_crop=224, random_crop=32:4, random_resized_crop=224, flip, vertical_flip, grayscale or normalize=imagenet; may be repeated, applied in order
    #[arg(long, value_name = "T", help_heading = "Data", action = clap::ArgAction::Append, value_parser = |t: &str| t.parse::<Transform>().map_err(|e| e.to_string()))]
    pub(crate) transform: Vec<Transform>,
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

enum Source {
    /// Rows of tensors.
    Arrays { inputs: Vec<Tensor>, target: Option<Tensor> },
    /// Image files, transformed into what the program's only input expects.
    Images { folder: ImageFolder, shape: Vec<usize> },
}

/// Samples of a program.
#[derive(Clone)]
pub(crate) struct Samples {
    source: Arc<Source>,
    /// Which of the source's samples, in order.
    rows: Vec<usize>,
    transforms: Transforms,
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
        let row = self.rows[index];
        match &*self.source {
            Source::Arrays { inputs, target } => {
                let select = |t: &Tensor| ops::select(t, 0, row.into());
                Ok(Batch {
                    inputs: inputs.iter().map(select).collect::<Result<_>>()?,
                    target: target.as_ref().map(select).transpose()?,
                    index: vec![row],
                })
            }
            Source::Images { folder, shape } => {
                let (pixels, class) = (folder.pixels(row)?, folder.class(row));
                let image = self.transforms.apply(&pixels)?;
                let sizes: Vec<i64> = shape.iter().map(|&n| n as i64).collect();
                let fitted = if image.numel() == shape.iter().product::<usize>() {
                    Some(image.try_reshape(sizes)?)
                } else {
                    None
                };
                let input = fitted.ok_or_else(|| {
                    let message = format!(
                        "{}: the image is {:?} after the transforms, expected {shape:?}; add --transform resize=HxW",
                        folder.path(row).display(),
                        image.shape(),
                    );
                    Error::user(message)
                })?;
                Ok(Batch { inputs: vec![input], target: Some(Tensor::scalar(class)), index: vec![row] })
            }
        }
    }

    fn batch(&self, indices: &[usize]) -> Result<Batch> {
        let Source::Arrays { inputs, target } = &*self.source else {
            return Collate::collate(indices.iter().map(|&i| self.get(i)).collect::<Result<Vec<_>>>()?);
        };
        let index: Vec<usize> = indices.iter().map(|&i| self.rows[i]).collect();
        let rows = Tensor::new(&index.iter().map(|&i| i as i64).collect::<Vec<i64>>());
        let select = |t: &Tensor| ops::index_select(t, 0, &rows);
        Ok(Batch {
            inputs: inputs.iter().map(select).collect::<Result<_>>()?,
            target: target.as_ref().map(select).transpose()?,
            index,
        })
    }
}

fn named(path: &Path, e: impl std::fmt::Display) -> Refusal {
    Refusal::because(format!("{}: {e}", plain(&path.display().to_string())))
}

fn list(names: &[&str]) -> String {
    names.iter().map(|n| format!("`{}`", plain(n))).collect::<Vec<_>>().join(", ")
}

impl Samples {
    /// Arrays that are in memory.
    pub(crate) fn of_arrays(inputs: Vec<Tensor>, target: Option<Tensor>, classes: Option<Vec<String>>) -> Samples {
        let len = inputs.first().and_then(|t| t.shape().first().copied()).unwrap_or(0);
        Samples {
            source: Arc::new(Source::Arrays { inputs, target }),
            rows: (0..len).collect(),
            transforms: Transforms::default(),
            classes,
            notes: Vec::new(),
        }
    }

    /// Reads samples for a program with these inputs. `labels` says whether the loss needs any.
    pub(crate) fn read(path: &Path, options: &DataOptions, inputs: &[InputSpec], labels: bool) -> Done<Samples> {
        let transforms = Transforms::new(options.transform.clone()).map_err(Refusal::from)?;
        if path.is_dir() {
            return Samples::read_images(path, transforms, inputs);
        }
        if !transforms.list.is_empty() {
            return Err(named(path, "--transform is for directories of images"));
        }
        let ending = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
        let arrays = match ending.as_str() {
            "csv" => columns(path, options, inputs, labels)?,
            "safetensors" => read_safetensors_with(path, Memory::Mapped)?,
            _ => read_arrays(path)?,
        };
        Samples::from_arrays(path, arrays, options, inputs, labels)
    }

    fn from_arrays(
        path: &Path,
        mut arrays: Tensors,
        options: &DataOptions,
        inputs: &[InputSpec],
        labels: bool,
    ) -> Done<Samples> {
        let found: Vec<String> = arrays.keys().cloned().collect();
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        let target = arrays.shift_remove(&options.target);
        if target.is_none() && labels {
            let message = format!(
                "no labels: this loss needs an array `{}` (or name another one with --target); the file holds {}",
                plain(&options.target),
                list(&found)
            );
            return Err(named(path, message));
        }
        let mut notes = Vec::new();
        let mut columns = Vec::new();
        for input in inputs {
            let Some(t) = arrays.shift_remove(&input.name) else {
                let near =
                    nearest(&input.name, &found).map_or(String::new(), |n| format!("; did you mean `{}`?", plain(n)));
                let message = format!(
                    "no array `{}` for the program's input of that name; the file holds {}{near}",
                    plain(&input.name),
                    list(&found)
                );
                return Err(named(path, message));
            };
            columns.push(input.fit(&t, &mut notes).map_err(|e| named(path, e))?);
        }
        if let Some(extra) = arrays.keys().next() {
            let names: Vec<&str> = inputs.iter().map(|i| i.name.as_str()).collect();
            let message = format!("the program has no input `{}`; it has {}", plain(extra), list(&names));
            return Err(named(path, message));
        }
        let rows = |t: &Tensor| t.shape().first().copied().unwrap_or(0);
        let samples = columns.first().or(target.as_ref()).map_or(0, rows);
        let all = inputs
            .iter()
            .map(|i| i.name.as_str())
            .zip(&columns)
            .chain(target.as_ref().map(|t| (options.target.as_str(), t)));
        for (name, t) in all {
            if rows(t) != samples {
                let first = inputs.first().map_or("", |i| i.name.as_str());
                let message = format!("`{}` has {} samples, `{}` has {samples}", plain(name), rows(t), plain(first));
                return Err(named(path, message));
            }
        }
        if samples == 0 {
            return Err(named(path, "no samples"));
        }
        Ok(Samples { notes, ..Samples::of_arrays(columns, target, None) })
    }

    fn read_images(path: &Path, mut transforms: Transforms, inputs: &[InputSpec]) -> Done<Samples> {
        let [input] = inputs else {
            let message =
                format!("a directory of images needs a program with one input, this one has {}", inputs.len());
            return Err(named(path, message));
        };
        if input.dtype != DType::F32 {
            return Err(named(path, format!("images are float32, the program expects {}", input.dtype)));
        }
        let shape =
            input.sample_shape().ok_or_else(|| named(path, "the program's input has no fixed size per sample"))?;
        let channels = match shape.as_slice() {
            [c @ (1 | 3), _, _] => *c,
            // Flattened images: gray unless there are three of them.
            [n] if n % 3 == 0 && ((n / 3) as f64).sqrt().fract() == 0.0 => 3,
            [_] | [_, _] => 1,
            _ => {
                return Err(named(
                    path,
                    format!("the program expects samples of shape {shape:?}, which is not an image"),
                ));
            }
        };
        let mut notes = Vec::new();
        let resizes = |t: &Transform| {
            !matches!(
                t,
                Transform::Normalize { .. } | Transform::Grayscale | Transform::Flip(_) | Transform::VerticalFlip(_)
            )
        };
        // Without a transform that sets the size, images are resized to fit.
        if let (&[_, height, width], false) = (shape.as_slice(), transforms.list.iter().any(resizes)) {
            transforms.list.insert(0, Transform::Resize([height, width]));
            notes.push(format!("images are resized to {height}x{width}; use --transform to change this"));
        }
        let folder = ImageFolder::new(path)?.with_channels(channels);
        let classes = Some(folder.classes().to_vec());
        let rows = (0..folder.len()).collect();
        Ok(Samples { source: Arc::new(Source::Images { folder, shape }), rows, transforms, classes, notes })
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
        self.transforms = self.transforms.evaluation();
        self
    }

    /// The labels of all samples, if they are in memory.
    pub(crate) fn labels(&self) -> Done<Option<Tensor>> {
        match &*self.source {
            Source::Arrays { target: None, .. } => Ok(None),
            Source::Arrays { target: Some(t), .. } => {
                let rows = Tensor::new(&self.rows.iter().map(|&i| i as i64).collect::<Vec<i64>>());
                Ok(Some(ops::index_select(t, 0, &rows)?))
            }
            Source::Images { folder, .. } => {
                Ok(Some(Tensor::new(&self.rows.iter().map(|&i| folder.class(i)).collect::<Vec<i64>>())))
            }
        }
    }

    /// The first sample with a non-finite value among its inputs, if they are in memory: its index in its file, and the
    /// value.
    pub(crate) fn first_not_finite(&self) -> Done<Option<(usize, f64)>> {
        let Source::Arrays { inputs, .. } = &*self.source else { return Ok(None) };
        for t in inputs.iter().filter(|t| t.is_floating_point()) {
            let values = t.try_to_dtype(DType::F64)?.try_to_vec::<f64>()?;
            let width = (values.len() / t.shape()[0].max(1)).max(1);
            let bad = |row: &&usize| values[**row * width..][..width].iter().any(|v| !v.is_finite());
            if let Some(&row) = self.rows.iter().find(bad) {
                let value = values[row * width..][..width].iter().copied().find(|v| !v.is_finite());
                return Ok(value.map(|v| (row, v)));
            }
        }
        Ok(None)
    }

    /// The index of a sample in its file, by position among these samples.
    pub(crate) fn row(&self, position: usize) -> usize {
        self.rows[position]
    }

    /// A name for a sample, by its index in its file.
    pub(crate) fn name(&self, row: usize) -> String {
        match &*self.source {
            Source::Arrays { .. } => format!("sample {row}"),
            Source::Images { folder, .. } => folder.path(row).display().to_string(),
        }
    }

    /// A fingerprint of the samples: their count and a checksum. Image files are identified by name and size.
    pub(crate) fn fingerprint(&self) -> Done<u64> {
        use std::hash::Hasher;
        let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
        match &*self.source {
            Source::Arrays { inputs, target } => {
                for t in inputs.iter().chain(target) {
                    firebrand::io::npy::write(&mut Hashed(&mut hash), t)?;
                }
            }
            Source::Images { folder, .. } => {
                for i in 0..folder.len() {
                    let path = folder.path(i);
                    hash.write(path.file_name().unwrap_or_default().as_encoded_bytes());
                    hash.write(&std::fs::metadata(path).map_or(0, |m| m.len()).to_le_bytes());
                }
            }
        }
        self.rows.iter().for_each(|r| hash.write(&r.to_le_bytes()));
        Ok(hash.finish())
    }
}

/// FNV-1a over words: a checksum that is the same in every build.
pub(super) struct Fnv(pub(super) u64);

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

/// The columns of a table as arrays: `x` or `x.0`, `x.1`, … for an input `x`; for a program with one input, all columns that
/// are not the label.
fn columns(path: &Path, options: &DataOptions, inputs: &[InputSpec], labels: bool) -> Done<Tensors> {
    let (names, table) = read_csv(path, &CsvOptions::default())?;
    let mut arrays = Tensors::new();
    let column = |k: usize| table.try_narrow(1, k, 1)?.try_squeeze_dim(1);
    let position = |name: &str| names.iter().position(|n| n == name);
    let target = position(&options.target);
    if labels && target.is_none() {
        let found: Vec<&str> = names.iter().map(String::as_str).collect();
        let message =
            format!("no column `{}`; choose the label column with --target: {}", plain(&options.target), list(&found));
        return Err(named(path, message));
    }
    if let Some(k) = target {
        let values: Tensor = column(k)?;
        let whole = values.try_to_vec::<f64>()?.iter().all(|v| v.fract() == 0.0 && v.abs() < 9e15);
        // Integers are class indices; regression losses convert them back.
        arrays.insert(options.target.clone(), if whole { values.try_to_dtype(DType::I64)? } else { values });
    }
    for input in inputs {
        let prefix = format!("{}.", input.name);
        let own: Vec<usize> = match position(&input.name) {
            Some(k) => vec![k],
            None => (0..names.len()).filter(|k| names[*k].starts_with(&prefix)).collect(),
        };
        let scalar = input.sizes.len() == 1;
        let own = match (own.is_empty(), inputs.len()) {
            (true, 1) => (0..names.len()).filter(|k| Some(*k) != target).collect(),
            _ => own,
        };
        let parts = own.iter().map(|&k| column(k)).collect::<Result<Vec<Tensor>>>()?;
        if parts.is_empty() {
            continue;
        }
        let t = if scalar && parts.len() == 1 { parts[0].clone() } else { ops::stack(&parts, 1)? };
        arrays.insert(input.name.clone(), t.try_to_dtype(input.dtype)?);
    }
    Ok(arrays)
}

/// Seeds every random generator.
pub(super) fn seed(seed: u64) {
    random::manual_seed(seed);
}
