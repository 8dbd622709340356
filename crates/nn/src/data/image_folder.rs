//! Images in folders: `root/class/image.png`. Classes are numbered in the order of their names.

use super::{Dataset, read_png, read_pnm};
use firebrand_core::{Error, Result, Tensor, ops};
use std::path::{Path, PathBuf};

/// PNG, PGM and PPM images by class: an f32 image `[channels, height, width]` from 0 to 1, and an i64 class index.
pub struct ImageFolder {
    classes: Vec<String>,
    samples: Vec<(PathBuf, i64)>,
}

/// Reads an image, if the name is that of one.
type Reader = fn(&Path) -> Result<Tensor>;

fn reader(path: &Path) -> Option<Reader> {
    match path.extension()?.to_ascii_lowercase().to_str()? {
        "png" => Some(|path| read_png(path)),
        "pgm" | "ppm" => Some(|path| read_pnm(path)),
        _ => None,
    }
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>> {
    let refused = |e: std::io::Error| Error::user(format!("{}: {e}", folder.display()));
    let entries = std::fs::read_dir(folder).map_err(refused)?;
    let mut paths = entries.map(|e| e.map(|e| e.path())).collect::<std::io::Result<Vec<_>>>().map_err(refused)?;
    paths.sort();
    Ok(paths)
}

impl ImageFolder {
    /// All `.png`, `.pgm` and `.ppm` files in the folders below `root`.
    pub fn new(root: impl AsRef<Path>) -> Result<ImageFolder> {
        let root = root.as_ref();
        let mut found = ImageFolder { classes: Vec::new(), samples: Vec::new() };
        for folder in sorted(root)?.into_iter().filter(|p| p.is_dir()) {
            let class = found.classes.len() as i64;
            found.classes.push(folder.file_name().unwrap_or_default().to_string_lossy().into_owned());
            let images = sorted(&folder)?.into_iter().filter(|p| reader(p).is_some());
            found.samples.extend(images.map(|p| (p, class)));
        }
        if found.samples.is_empty() {
            let message = format!("{}: expected folders of .png, .pgm or .ppm images, found none", root.display());
            return Err(Error::argument("ImageFolder", message));
        }
        Ok(found)
    }

    /// Names of the classes, by index.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }
}

impl Dataset for ImageFolder {
    type Sample = [Tensor; 2];
    fn len(&self) -> usize {
        self.samples.len()
    }
    fn get(&self, index: usize) -> Result<[Tensor; 2]> {
        let (path, class) = &self.samples[index];
        let read = reader(path).expect("only names of images were kept");
        let image = ops::div_scalar(&read(path)?, 255.0.into())?;
        Ok([image, Tensor::scalar(*class)])
    }
}
