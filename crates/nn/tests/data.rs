//! Data sets and loaders: PyTorch's order (`golden/nn/loader.json`), workers, files.

use firebrand_core::random::{Generator, with_generator};
use firebrand_core::{DType, Error, Result, Tensor};
use firebrand_nn::data::*;
use serde_json::{Value, json};
use std::sync::Arc;

fn golden() -> Value {
    serde_json::from_str(include_str!("../../../golden/nn/loader.json")).expect("committed JSON")
}

fn numbers(n: usize) -> TensorDataset<1> {
    TensorDataset::new([Tensor::arange(0, n as i64, 1, DType::I64)]).expect("rows")
}

fn pass<D: Dataset<Sample = [Tensor; 1]>>(loader: &DataLoader<D>, first: usize) -> Vec<Vec<i64>> {
    loader.iter_from(first).map(|b| b.map(|[x]| x.to_vec::<i64>())).collect::<Result<_>>().expect("batches")
}

#[test]
fn the_order_is_pytorchs() {
    for num_workers in [0, 1, 3] {
        with_generator(Generator::new(0), || {
            let options = LoaderOptions { shuffle: true, num_workers, ..LoaderOptions::new(4) };
            let loader = DataLoader::new(numbers(10), options);
            let passes: Vec<_> = (0..3).map(|_| pass(&loader, 0)).collect();
            assert_eq!(json!(passes), golden()["passes"], "{num_workers} workers");
        });
    }
    with_generator(Generator::new(0), || {
        let parts = random_split(numbers(10), &[0.5, 0.25, 0.25]).expect("shares");
        let all = |p: Subset<_>| pass(&DataLoader::new(p, LoaderOptions::new(10)), 0).concat();
        assert_eq!(json!(parts.into_iter().map(all).collect::<Vec<_>>()), golden()["split"]);
    });
    with_generator(Generator::new(0), || {
        pass(&DataLoader::new(numbers(10), LoaderOptions::new(4)), 0);
        let next = Tensor::rand([1], DType::F32).item::<f32>();
        assert_eq!(json!(next as f64), golden()["next_draw_after_an_ordered_pass"]);
    });
}

#[test]
fn a_pass_is_continued_in_the_middle() {
    let run = |first| {
        with_generator(Generator::new(3), || {
            pass(&DataLoader::new(numbers(10), LoaderOptions { shuffle: true, ..LoaderOptions::new(3) }), first)
        })
    };
    assert_eq!(run(2), run(0)[2..]);
    let dropping = DataLoader::new(numbers(10), LoaderOptions { drop_last: true, ..LoaderOptions::new(3) });
    assert_eq!((dropping.len(), pass(&dropping, 0).len()), (3, 3));
}

/// Errors and panics of a data set reach the reader; a pass that is left early lets its workers go.
#[test]
fn failures_of_workers_are_seen() {
    let failing =
        Map::new(
            numbers(4),
            |[x]: [Tensor; 1]| {
                if x.item::<i64>() == 2 { Err(Error::argument("sample", "broken")) } else { Ok([x]) }
            },
        );
    let options = LoaderOptions { num_workers: 2, ..LoaderOptions::new(1) };
    let outcomes: Vec<bool> = DataLoader::new(failing, options).iter().map(|b| b.is_ok()).collect();
    assert_eq!(outcomes, [true, true, false, true]);
    let panicking = Map::new(numbers(4), |[x]: [Tensor; 1]| {
        assert!(x.item::<i64>() != 1, "a bug in a data set");
        Ok([x])
    });
    let errors: Vec<String> =
        DataLoader::new(panicking, options).iter().filter_map(|b| b.err().map(|e| e.to_string())).collect();
    assert!(
        !errors.is_empty() && errors.iter().all(|e| e.contains("a data worker ended without its batch")),
        "{errors:?}"
    );
    let left_early = DataLoader::new(numbers(1000), options);
    assert!(left_early.iter().next().expect("a batch").is_ok());
}

/// Random numbers of a batch come from a stream of its own, however many workers there are.
#[test]
fn workers_draw_reproducibly() {
    let run = |num_workers| {
        with_generator(Generator::new(5), || {
            let noisy = Map::new(numbers(12), |_| Ok(Tensor::rand([1], DType::F32)));
            let loader = DataLoader::new(noisy, LoaderOptions { num_workers, ..LoaderOptions::new(3) });
            loader.iter().map(|b| b.map(|t| t.to_vec::<f32>())).collect::<Result<Vec<_>>>().expect("batches")
        })
    };
    assert_eq!(run(2), run(3));
    assert_ne!(run(2)[0], run(2)[1]);
}

#[test]
fn sets_refuse_what_does_not_fit() {
    let (a, b) = (Tensor::zeros([2, 3], DType::F32), Tensor::zeros([3], DType::F32));
    let error = TensorDataset::new([a, b]).expect_err("different rows").to_string();
    assert!(error.contains("[2, 3], [3]"), "{error}");
    let error = Subset::new(Arc::new(numbers(3)), vec![0, 3]).expect_err("index 3 of 3").to_string();
    assert!(error.contains("no sample 3: the dataset has 3"), "{error}");
    let error = random_split(numbers(3), &[0.5, 0.6]).expect_err("more than all").to_string();
    assert!(error.starts_with("random_split: ") && error.contains("[0.5, 0.6]"), "{error}");
}

#[test]
fn idx_files() -> Result<()> {
    let mut bytes = vec![0, 0, 0x08, 2, 0, 0, 0, 2, 0, 0, 0, 3];
    bytes.extend([1, 2, 3, 4, 5, 6]);
    let t = parse_idx(&bytes)?;
    assert_eq!((t.dtype(), t.shape(), t.to_vec::<u8>()), (DType::U8, &[2, 3][..], vec![1, 2, 3, 4, 5, 6]));
    let floats = [&[0, 0, 0x0D, 1, 0, 0, 0, 1][..], &1.5f32.to_be_bytes()].concat();
    assert_eq!(parse_idx(&floats)?.to_vec::<f32>(), [1.5]);
    // Cut anywhere, or with sizes that overflow, a file is refused.
    assert!((0..bytes.len()).all(|n| parse_idx(&bytes[..n]).is_err()));
    assert!(parse_idx(&[&[0, 0, 0x0E, 3][..], &[255; 12]].concat()).is_err());
    let sizes = |dims: u8| [&[0, 0, 0x08, dims][..], &[0, 0, 0, 1].repeat(dims.into()), &[7]].concat();
    assert_eq!(parse_idx(&sizes(64))?.ndim(), 64);
    assert!(
        parse_idx(&sizes(65)).is_err() && parse_idx(&sizes(255)).is_err(),
        "more dimensions than a tensor can have"
    );
    Ok(())
}

/// As MNIST is published: compressed.
#[test]
fn compressed_idx_files() {
    use std::io::Write;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("labels.idx.gz");
    let mut file = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    file.write_all(&[0, 0, 0x08, 1, 0, 0, 0, 3, 7, 8, 9]).expect("memory");
    let bytes = file.finish().expect("memory");
    std::fs::write(&path, &bytes).expect("writable");
    assert_eq!(read_idx(&path).expect("labels").to_vec::<u8>(), [7, 8, 9]);
    std::fs::write(&path, &bytes[..bytes.len() / 2]).expect("writable");
    let error = read_idx(&path).expect_err("cut").to_string();
    assert!(error.contains("labels.idx.gz") && error.contains("damaged"), "{error}");
}

/// A palette that is cut in the middle of a color, or has more alphas than colors, is refused.
#[test]
fn png_palettes_are_whole() {
    let file: &[u8] = include_bytes!("../../../golden/nn/palette.png");
    let at = file.windows(4).position(|w| w == b"PLTE").expect("it has a palette") - 4;
    let chunk = |name: &[u8; 4], data: &[u8]| {
        let body = [name, data].concat();
        let mut crc = !0u32;
        for byte in &body {
            crc = (0..8).fold(crc ^ u32::from(*byte), |c, _| (c >> 1) ^ (0xedb8_8320 & (c & 1).wrapping_neg()));
        }
        [&(data.len() as u32).to_be_bytes()[..], &body, &(!crc).to_be_bytes()].concat()
    };
    let length = u32::from_be_bytes(file[at..at + 4].try_into().expect("four bytes")) as usize;
    let (palette, rest) = (&file[at + 8..at + 8 + length], &file[at + 12 + length..]);
    let with = |chunks: &[Vec<u8>]| [&file[..at], &chunks.concat(), rest].concat();
    parse_png(&with(&[chunk(b"PLTE", palette)])).expect("rebuilt as it was");
    for wrong in [with(&[chunk(b"PLTE", &palette[..4])]), with(&[chunk(b"PLTE", palette), chunk(b"tRNS", &[7; 200])])] {
        let message = parse_png(&wrong).unwrap_err().to_string();
        assert!(message.contains("palette") || message.contains("tRNS"), "{message}");
    }
}

/// Grey, colour, with a palette and with alpha, as PIL wrote them (`golden/nn/images.py`).
#[test]
fn png_images() -> Result<()> {
    let grey: &[u8] = include_bytes!("../../../golden/nn/grey.png");
    let colours = [0, 60, 120, 180, 240, 255, 9, 8, 7, 6, 5, 4u8];
    let planes: Vec<u8> = (0..3).flat_map(|c| (0..4).map(move |i| colours[3 * i + c])).collect();
    let t = parse_png(grey)?;
    assert_eq!((t.dtype(), t.shape(), t.to_vec::<u8>()), (DType::U8, &[1, 2, 2][..], vec![0, 60, 120, 255]));
    let all: [&[u8]; 3] = [
        include_bytes!("../../../golden/nn/rgb.png"),
        include_bytes!("../../../golden/nn/rgba.png"),
        include_bytes!("../../../golden/nn/palette.png"),
    ];
    for file in all {
        let t = parse_png(file)?;
        assert_eq!((t.shape(), t.to_vec::<u8>()), (&[3, 2, 2][..], planes.clone()));
    }
    assert!((0..grey.len() - 12).all(|n| parse_png(&grey[..n]).is_err()), "cut anywhere before its end, it is refused");
    Ok(())
}

/// Every kind of JPEG, as Pillow reads it (`golden/nn/jpeg.py`): decoders may round differently, by little.
#[test]
fn jpeg_images() -> Result<()> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/nn/jpeg");
    let text = std::fs::read_to_string(folder.join("pixels.json")).expect("golden data");
    let all: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).expect("JSON");
    assert_eq!(all.len(), 5);
    for (name, golden) in &all {
        let t = read_jpeg(folder.join(format!("{name}.jpg")))?;
        let numbers = |v: &serde_json::Value| -> Vec<i64> {
            v.as_array().expect("a list").iter().map(|n| n.as_i64().expect("a number")).collect()
        };
        assert_eq!(t.shape().iter().map(|&n| n as i64).collect::<Vec<_>>(), numbers(&golden["shape"]), "{name}");
        let off: Vec<i64> =
            t.to_vec::<u8>().iter().zip(numbers(&golden["pixels"])).map(|(a, b)| (i64::from(*a) - b).abs()).collect();
        let (worst, mean) = (off.iter().max().expect("pixels"), off.iter().sum::<i64>() as f64 / off.len() as f64);
        assert!(*worst <= 4 && mean < 0.5, "{name}: off by {worst}, {mean} in the mean");
    }
    let bytes = |name: &str| std::fs::read(folder.join(name)).expect("golden data");
    let refused = |bytes: &[u8]| parse_jpeg(bytes).expect_err("refused").to_string();
    assert!(refused(&bytes("cmyk.jpg")).contains("CMYK; convert the image to RGB"));
    assert!(refused(b"\xff\xd8\xff\xd9").starts_with("read_jpeg: "));
    // A frame that claims 65,535 by 65,535 pixels.
    let mut huge = bytes("color.jpg");
    let frame = huge.windows(2).position(|w| w == [0xff, 0xc0]).expect("a baseline frame");
    huge[frame + 5..frame + 9].fill(0xff);
    assert!(refused(&huge).contains("memory"), "{}", refused(&huge));
    Ok(())
}

/// The numbers of a Parquet file are those of the same table as text; what is no number is refused by name.
#[cfg(feature = "parquet")]
#[test]
fn parquet_tables() -> Result<()> {
    use firebrand_nn::data::{parse_parquet, read_csv, read_parquet};
    let at = |name: &str| std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/nn").join(name);
    let (names, table) = read_parquet(at("table.parquet"))?;
    let (expected_names, expected) = read_csv(at("table.csv"), &CsvOptions::default())?;
    assert_eq!((&names, table.shape()), (&expected_names, expected.shape()));
    let bits = |t: &Tensor| -> Vec<String> { t.to_vec::<f64>().iter().map(f64::to_string).collect() };
    assert_eq!(bits(&table), bits(&expected));
    let error = read_parquet(at("texts.parquet")).expect_err("texts").to_string();
    assert!(error.contains("column `name`: expected numbers"), "{error}");
    let bytes = std::fs::read(at("table.parquet")).expect("golden data");
    for n in (0..bytes.len()).step_by(7) {
        assert!(parse_parquet(&bytes[..n]).is_err(), "cut at {n}");
    }
    Ok(())
}

#[test]
fn csv_tables() -> Result<()> {
    let (names, t) = parse_csv("a, \"b\"\n1,2\n\n3,\n", &CsvOptions::default())?;
    assert_eq!(names, ["a", "b"]);
    assert_eq!(t.shape(), [2, 2]);
    assert!(t.to_vec::<f64>()[3].is_nan());
    let refused = |text| parse_csv(text, &CsvOptions::default()).expect_err("refused").to_string();
    assert!(refused("a,b\n1,2\n3\n").contains("line 3: expected 2 fields, found 1"));
    assert!(refused("a\nx\n").contains("expected a number, found `x`"));
    Ok(())
}

#[test]
fn folders_of_images() {
    let folder = tempfile::tempdir().expect("a folder");
    for (class, grey) in [("cat", 0u8), ("dog", 255)] {
        std::fs::create_dir(folder.path().join(class)).expect("writable");
        let image = [b"P5\n# made by a test\n2 1\n255\n".as_slice(), &[grey, 51]].concat();
        std::fs::write(folder.path().join(class).join("1.pgm"), image).expect("writable");
    }
    let set = ImageFolder::new(folder.path()).expect("two classes");
    std::fs::write(folder.path().join("dog/2.PNG"), include_bytes!("../../../golden/nn/grey.png")).expect("writable");
    let with_png = ImageFolder::new(folder.path()).expect("two classes");
    assert_eq!((with_png.len(), with_png.get(2).expect("an image")[0].shape()), (3, &[1, 2, 2][..]));
    assert_eq!((set.classes(), set.len()), (&["cat".to_string(), "dog".to_string()][..], 2));
    let [x, y] = set.batch(&[0, 1]).expect("images");
    assert_eq!(
        (x.shape(), x.to_vec::<f32>(), y.to_vec::<i64>()),
        (&[2, 1, 1, 2][..], vec![0.0, 0.2, 1.0, 0.2], vec![0, 1])
    );
    for bad in ["P6\n2 2\n255\n123", "P6\n99999999999 99999999999\n255\n"] {
        let error = parse_pnm(bad.as_bytes()).expect_err(bad).to_string();
        assert!(error.starts_with("read_pnm: "), "{bad:?}: {error}");
    }
    let error = ImageFolder::new(folder.path().join("cat")).expect_err("no classes").to_string();
    assert!(error.contains("expected folders of .jpg, .png, .pgm or .ppm images"), "{error}");
}

/// Workers allocate what the reader frees: however many batches pass, they do it in the same memory.
#[test]
fn memory_stays_flat_while_workers_make_batches() {
    let rows = TensorDataset::new([Tensor::zeros([4096, 256], DType::F32)]).expect("rows");
    let options = LoaderOptions { num_workers: 2, ..LoaderOptions::new(16) };
    let loader = DataLoader::new(rows, options);
    let passes = |n: usize| {
        (0..n).flat_map(|_| loader.iter()).for_each(|b| drop(b.expect("a batch")));
        firebrand_core::memory_stats().reserved
    };
    let warm = passes(2);
    // 5,120 batches of 16 KiB: 80 MiB that are made by one thread and let go by another.
    let after = passes(20);
    assert!(after < warm + (16 << 20), "{warm} bytes after two passes, {after} after twenty more");
}

/// Headers that claim more than the file justifies are refused before anything is made of them.
#[test]
fn claims_of_headers_are_compared_with_the_file() {
    let png = |width: u32, height: u32| {
        let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
        let ihdr = [&b"IHDR"[..], &width.to_be_bytes(), &height.to_be_bytes(), &[8, 2, 0, 0, 0]].concat();
        for chunk in [&ihdr[..], b"IDAT\x78\x9c\x03\0\0\0\0\x01"] {
            bytes.extend((chunk.len() as u32 - 4).to_be_bytes());
            bytes.extend(chunk);
            bytes.extend(crc(chunk).to_be_bytes());
        }
        bytes
    };
    // A gibibyte and more, in a hundred bytes.
    for (width, height) in [(20_000, 20_000), (1 << 30, 1), (i32::MAX as u32, i32::MAX as u32)] {
        let message = parse_png(&png(width, height)).expect_err("too large").to_string();
        assert!(message.contains("memory") || message.contains("limit") || message.contains("large"), "{message}");
    }
    let mut idx = vec![0, 0, 8, 65];
    idx.extend([0, 0, 0, 1].repeat(65));
    idx.push(7);
    assert!(parse_idx(&idx).expect_err("65 dimensions").to_string().contains("65 dimensions"));
    // 256 MiB of zeros, packed.
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::Write::write_all(&mut packed, &[0, 0, 8, 1, 16, 0, 0, 0]).expect("memory");
    for _ in 0..256 {
        std::io::Write::write_all(&mut packed, &vec![0; 1 << 20]).expect("memory");
    }
    let packed = packed.finish().expect("memory");
    assert!(parse_idx(&packed).expect_err("a bomb").to_string().contains("memory"));
    let names = ",".repeat(1 << 22);
    let error = parse_csv(&names, &CsvOptions::default()).expect_err("four million empty names").to_string();
    assert!(error.starts_with("read_csv: "), "{error}");
}

/// The checksum of PNG chunks.
fn crc(bytes: &[u8]) -> u32 {
    let step = |c: u32, _| if c & 1 == 1 { c >> 1 ^ 0xedb8_8320 } else { c >> 1 };
    !bytes.iter().fold(!0u32, |c, &b| (0..8).fold(c ^ u32::from(b), step))
}

/// The image that `golden/nn/transforms.py` makes.
fn pattern([channels, height, width]: [usize; 3]) -> Tensor {
    let pixel = |c: usize, y: usize, x: usize| ((x * 37 + y * 91 + c * 53 + (x * y * (c + 3)) % 29 * 5) % 256) as u8;
    let mut pixels = Vec::new();
    for c in 0..channels {
        (0..height).for_each(|y| pixels.extend((0..width).map(|x| pixel(c, y, x))));
    }
    Tensor::from_slice(&pixels, [channels, height, width])
}

/// Pixels, crops, flips and random draws are torchvision's (`golden/nn/transforms.json`).
#[test]
fn transforms_are_torchvisions() -> Result<()> {
    let golden: Value =
        serde_json::from_str(include_str!("../../../golden/nn/transforms.json")).expect("committed JSON");
    for case in golden["cases"].as_array().expect("cases") {
        let names: Vec<&str> =
            case["transforms"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
        let label = names.join(", ");
        let chain = Transforms::new(names.iter().map(|n| n.parse()).collect::<Result<_>>()?)?;
        let size: Vec<usize> = serde_json::from_value(case["image"].clone()).expect("three numbers");
        let image = pattern(size.try_into().expect("three numbers"));
        with_generator(Generator::new(0), || {
            for (k, expected) in case["results"].as_array().expect("results").iter().enumerate() {
                let found = chain.apply(&image)?;
                let shape: Vec<usize> = serde_json::from_value(expected["shape"].clone()).expect("a shape");
                assert_eq!(found.shape(), shape, "{label}, {k}");
                let values: Vec<f32> = serde_json::from_value(expected["values"].clone()).expect("numbers");
                for (a, b) in found.to_vec::<f32>().iter().zip(&values) {
                    assert!((a - b).abs() < 2e-6, "{label}, {k}: {a} instead of {b}");
                }
            }
            Ok::<(), Error>(())
        })?;
    }
    Ok(())
}

#[test]
fn wrong_transforms_are_refused() {
    let refusal = |text: &str| text.parse::<Transform>().expect_err(text).to_string();
    for (text, reason) in [
        ("rotate=90", "unknown transform `rotate`"),
        ("resize", "expected resize=224 or resize=224x320"),
        ("resize=0", "found `resize=0`"),
        ("flip=2", "expected flip or flip=0.5"),
        ("normalize=1,2/3", "means and standard deviations"),
        ("normalize=0/0", "means and standard deviations"),
        ("random_crop=8:x", "random_crop=32:4"),
    ] {
        assert!(refusal(text).contains(reason), "{text}: {}", refusal(text));
    }
    let list = ["normalize=imagenet", "flip"].map(|t| t.parse().expect("a transform")).to_vec();
    assert!(Transforms::new(list).is_err(), "normalizing comes last");
    let chain = |text: &str| Transforms::new(vec![text.parse().expect("a transform")]).expect("one transform");
    assert!(chain("normalize=imagenet").apply(&pattern([1, 2, 2])).is_err(), "three means for one channel");
    assert!(chain("random_crop=9").apply(&pattern([1, 4, 4])).is_err(), "a crop larger than the image");
    let plain = Transforms::new(["random_resized_crop=7", "flip"].map(|t| t.parse().expect("a transform")).to_vec());
    assert_eq!(
        plain.expect("a chain").evaluation().list,
        [Transform::ResizeEdge(8), Transform::CenterCrop([7, 7])],
        "without chance"
    );
}

/// Samples of as many tensors as a file has columns: one batch per column, and samples of different widths are refused.
#[test]
fn samples_of_any_number_of_tensors_are_collated() {
    let sample = |n: usize, v: f32| -> Vec<Tensor> { (0..n).map(|k| Tensor::new(&[v + k as f32])).collect() };
    let batch = Vec::<Tensor>::collate(vec![sample(3, 0.0), sample(3, 10.0)]).expect("equal widths");
    let values: Vec<Vec<f32>> = batch.iter().map(|t| t.to_vec()).collect();
    assert_eq!(values, [[0.0, 10.0], [1.0, 11.0], [2.0, 12.0]]);
    assert_eq!(batch[0].shape(), [2, 1]);
    let error = Vec::<Tensor>::collate(vec![sample(3, 0.0), sample(2, 0.0)]).expect_err("different widths").to_string();
    assert!(error.contains("samples of 3 tensors, found one of 2"), "{error}");
}
