//! A directory of images by class, as the program's one input takes them.

use super::{Batch, Fnv, Samples, Source, named};
use crate::refusal::Done;
use crate::train::subject::InputSpec;
use firebrand::data::{Collate, Dataset, ImageFolder, Transform, Transforms};
use firebrand::prelude::*;
use std::path::Path;
use std::sync::Arc;

/// Images of a folder, transformed.
#[derive(Clone)]
pub(super) struct Images {
    folder: Arc<ImageFolder>,
    transforms: Transforms,
    /// The shape of a sample.
    shape: Vec<usize>,
}

impl Images {
    pub(super) fn read(path: &Path, mut transforms: Transforms, inputs: &[InputSpec]) -> Done<Samples> {
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
        let folder = Arc::new(ImageFolder::new(path)?.with_channels(channels));
        let classes = Some(folder.classes().to_vec());
        Ok(Samples::new(Images { folder, transforms, shape }, classes, notes))
    }

    fn sample(&self, row: usize) -> Result<Batch> {
        let image = self.transforms.apply(&self.folder.pixels(row)?)?;
        if image.numel() != self.shape.iter().product::<usize>() {
            return Err(Error::user(format!(
                "{}: the image is {:?} after the transforms, expected {:?}; add --transform resize=HxW",
                self.folder.path(row).display(),
                image.shape(),
                self.shape,
            )));
        }
        let sizes: Vec<i64> = self.shape.iter().map(|&n| n as i64).collect();
        let target = Some(Tensor::scalar(self.folder.class(row)));
        Ok(Batch { inputs: vec![image.try_reshape(sizes)?], target, index: vec![row] })
    }
}

impl Source for Images {
    fn len(&self) -> usize {
        self.folder.len()
    }

    fn batch(&self, rows: &[usize]) -> Result<Batch> {
        Collate::collate(rows.iter().map(|&row| self.sample(row)).collect::<Result<Vec<_>>>()?)
    }

    fn labels(&self, rows: &[usize]) -> Done<Option<Tensor>> {
        Ok(Some(Tensor::new(&rows.iter().map(|&i| self.folder.class(i)).collect::<Vec<i64>>())))
    }

    fn name(&self, row: usize) -> String {
        self.folder.path(row).display().to_string()
    }

    fn fingerprint(&self, hash: &mut Fnv) -> Done {
        use std::hash::Hasher;
        for i in 0..self.folder.len() {
            let path = self.folder.path(i);
            hash.write(path.file_name().unwrap_or_default().as_encoded_bytes());
            hash.write(&std::fs::metadata(path).map_or(0, |m| m.len()).to_le_bytes());
        }
        Ok(())
    }

    fn for_evaluation(&self) -> Option<Arc<dyn Source>> {
        Some(Arc::new(Images { transforms: self.transforms.evaluation(), ..self.clone() }))
    }
}
