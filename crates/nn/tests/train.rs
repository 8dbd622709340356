//! The training loop: exact continuation (also after a kill), accumulation, early stopping, event files.

use expect_test::expect;
use firebrand_core::module::Buffer;
use firebrand_core::random::{Generator, with_generator};
use firebrand_core::{DType, Result, Tensor};
use firebrand_nn::data::{DataLoader, LoaderOptions, Subset, TensorDataset};
use firebrand_nn::layers::{BatchNorm1d, Dropout, Forward, Linear, Module, ReLU, Sequential};
use firebrand_nn::losses::{CrossEntropyLoss, Loss, MSELoss};
use firebrand_nn::optim::schedule::CosineAnnealingLR;
use firebrand_nn::optim::{AdamW, AdamWOptions, SGD, SGDOptions};
use firebrand_nn::sequential;
use firebrand_nn::train::*;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A model with state of every kind: parameters, running statistics, random numbers in its forward.
fn model() -> Sequential {
    sequential![Linear::new(3, 8), BatchNorm1d::new(8), ReLU::new(), Dropout::new(0.2), Linear::new(8, 1)]
}

fn loader(num_workers: usize) -> Result<DataLoader<TensorDataset<2>>> {
    let x = Tensor::randn([50, 3], DType::F32);
    let y = x.sum_dim(1, true).sin();
    let options = LoaderOptions { shuffle: true, num_workers, ..LoaderOptions::new(4) };
    Ok(DataLoader::new(TensorDataset::new([x, y])?, options))
}

struct StopAt(u64, Arc<AtomicBool>);

impl Callback for StopAt {
    fn step(&mut self, step: &Step) -> Result<()> {
        if step.step == self.0 {
            self.1.store(true, Relaxed);
        }
        Ok(())
    }
}

/// A run to the end or to a step; all tensors of the model at the end.
fn run(checkpoint: Option<PathBuf>, stop_at: Option<u64>, every: Option<u64>) -> Result<(Finish, Vec<Vec<u32>>)> {
    run_with(checkpoint, stop_at, every, u64::MAX)
}

/// Like [`run`], with checkpoints in files of at most so many bytes.
fn run_with(
    checkpoint: Option<PathBuf>,
    stop_at: Option<u64>,
    every: Option<u64>,
    checkpoint_part_bytes: u64,
) -> Result<(Finish, Vec<Vec<u32>>)> {
    with_generator(Generator::new(0), || {
        let (model, loader) = (model(), loader(1)?);
        let stop = Arc::new(AtomicBool::new(false));
        let options = TrainOptions {
            epochs: 5,
            accumulate: 2,
            clip_norm: Some(1.0),
            autocast: Some(DType::BF16),
            ema: Some(0.9),
            best: checkpoint.as_ref().map(|path| path.with_file_name("best.safetensors")),
            schedule_every_step: true,
            checkpoint,
            checkpoint_every: every,
            checkpoint_part_bytes,
            stop: stop.clone(),
            ..Default::default()
        };
        let optimizer = AdamW::new(model.parameters(), AdamWOptions { lr: 0.01, ..Default::default() })?;
        let mut trainer = Trainer::new(&model, optimizer, options)
            .schedule(CosineAnnealingLR { t_max: 40, eta_min: 0.0 })
            .watch(StopAt(stop_at.unwrap_or(u64::MAX), stop));
        trainer.resume()?;
        let validate = || {
            let loss = MSELoss::new()
                .loss(&model.try_call(&Tensor::ones([4, 3], DType::F32))?, &Tensor::ones([4, 1], DType::F32))?;
            Ok(Metrics::from_iter([("loss".to_string(), loss.try_item::<f32>()?.into())]))
        };
        let finish = trainer.fit(&loader, |[x, y]| MSELoss::new().loss(&model.try_call(x)?, y), validate)?;
        let bits = |t: &Tensor| t.to_dtype(DType::F32).to_vec::<f32>().iter().map(|v| v.to_bits()).collect();
        let mut end: Vec<Vec<u32>> = model.state_dict().values().map(bits).collect();
        let losses = trainer.progress().history.iter().flat_map(|m| m.values().map(|v| v.to_bits() as u32));
        end.push(losses.collect());
        // The average is part of the state too.
        trainer.swap_average()?;
        end.extend(model.state_dict().values().map(bits));
        Ok((finish, end))
    })
}

#[test]
fn a_stopped_run_continues_exactly() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let (finish, expected) = run(None, None, None)?;
    assert_eq!(finish, Finish::Done);
    let path = folder.path().join("run.safetensors");
    // Within an epoch, then within another one, then to the end.
    assert_eq!(run(Some(path.clone()), Some(3), None)?.0, Finish::Stopped);
    assert_eq!(run(Some(path.clone()), Some(17), None)?.0, Finish::Stopped);
    assert_eq!(run(Some(path), None, None)?, (Finish::Done, expected));
    Ok(())
}

/// A checkpoint in parts resumes as one in a single file does, keeps no part that it does not name, and is refused by name if one is missing.
#[test]
fn checkpoints_in_parts() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let (_, expected) = run(None, None, None)?;
    let path = folder.path().join("run.safetensors");
    let parts = || {
        let mut names: Vec<String> = std::fs::read_dir(folder.path())
            .expect("a folder")
            .map(|e| e.expect("an entry").file_name().into_string().expect("plain text"))
            .filter(|name| name.starts_with("run-"))
            .collect();
        names.sort();
        names
    };
    assert_eq!(run_with(Some(path.clone()), Some(3), None, 100)?.0, Finish::Stopped);
    let first = parts();
    assert!(first.len() > 3, "{first:?}");
    // What a killed run left behind goes with the next checkpoint.
    std::fs::write(folder.path().join("run-1-00099-of-00099.safetensors"), b"half").expect("room");
    assert_eq!(run_with(Some(path.clone()), Some(17), None, 100)?.0, Finish::Stopped);
    let second = parts();
    assert!(second.len() == first.len() && second.iter().all(|name| !first.contains(name)), "{first:?}, {second:?}");
    let gone = folder.path().join(&second[1]);
    let aside = folder.path().join("aside");
    std::fs::rename(&gone, &aside).expect("room");
    let error = run_with(Some(path.clone()), None, None, 100).expect_err("a part is missing").to_string();
    assert!(error.contains(&second[1]), "{error}");
    std::fs::rename(&aside, &gone).expect("room");
    // From parts to one file.
    assert_eq!(run(Some(path), None, None)?, (Finish::Done, expected));
    assert_eq!(parts(), [""; 0]);
    Ok(())
}

/// Products run in bf16, parameters and their gradients stay f32, and the model learns.
#[test]
fn mixed_precision() -> Result<()> {
    with_generator(Generator::new(0), || {
        let (model, loader) = (sequential![Linear::new(3, 16), ReLU::new(), Linear::new(16, 1)], loader(0)?);
        let optimizer = AdamW::new(model.parameters(), AdamWOptions { lr: 0.01, ..Default::default() })?;
        let options = TrainOptions { epochs: 20, autocast: Some(DType::BF16), ..Default::default() };
        let mut trainer = Trainer::new(&model, optimizer, options);
        let loss = |[x, y]: &[Tensor; 2]| {
            let out = model.try_call(x)?;
            assert_eq!(out.dtype(), DType::BF16, "linear layers are on autocast's list");
            let loss = MSELoss::new().loss(&out, y)?;
            assert_eq!(loss.dtype(), DType::F32, "losses are not");
            Ok(loss)
        };
        let validate = || {
            assert_eq!(model.try_call(&Tensor::ones([1, 3], DType::F32))?.dtype(), DType::BF16);
            Ok(Metrics::new())
        };
        assert_eq!(trainer.fit(&loader, loss, validate)?, Finish::Done);
        let losses: Vec<f64> = trainer.progress().history.iter().map(|m| m["train_loss"]).collect();
        assert!(losses[19] < 0.5 * losses[0], "{losses:?}");
        assert!(model.parameters().iter().all(|p| p.dtype() == DType::F32));
        Ok(())
    })
}

const CHILD: &str = "FIREBRAND_TRAIN_TEST_CHILD";

/// Not a test of its own: what the killed process runs, for ever.
#[test]
fn child() {
    let Ok(path) = std::env::var(CHILD) else { return };
    loop {
        run(Some(Path::new(&path).into()), None, Some(1)).expect("a run");
        std::fs::remove_file(&path).expect("its checkpoint");
    }
}

/// A process that trains and writes checkpoints to `path` without end.
fn trainee(path: &Path) -> std::process::Child {
    // `FIREBRAND_TEST_RUNNER`: the emulator under which this program runs, if it does.
    let runner = std::env::var("FIREBRAND_TEST_RUNNER").unwrap_or_default();
    let program = std::env::current_exe().expect("this test").display().to_string();
    let mut words = runner.split_whitespace().chain([&*program]);
    let mut command = Command::new(words.next().expect("a program at least"));
    command.args(words).args(["child", "--exact", "--nocapture"]).env(CHILD, path).stdout(Stdio::null());
    command.spawn().expect("a process")
}

/// Files beside the checkpoint that a writer has not finished.
fn unfinished(path: &Path) -> Vec<PathBuf> {
    let folder = std::fs::read_dir(path.parent().expect("a folder")).expect("a folder");
    let temporary = |p: &PathBuf| p.extension().is_some_and(|e| e == "tmp");
    folder.map(|entry| entry.expect("a file").path()).filter(temporary).collect()
}

#[test]
fn a_killed_run_leaves_a_whole_checkpoint_and_continues_exactly() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.safetensors");
    let (_, expected) = run(None, None, None)?;
    // As soon as there is a checkpoint, and then while one is being written: a kill that hits leaves what was unfinished.
    let mut hits = 0;
    for attempt in 0..200 {
        let while_writing = attempt >= 2;
        let mut child = trainee(&path);
        while !path.exists() || (while_writing && unfinished(&path).is_empty()) {
            std::thread::yield_now();
        }
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        let left = unfinished(&path);
        left.iter().for_each(|file| std::fs::remove_file(file).expect("nobody writes it any more"));
        let of_checkpoint = |p: &&PathBuf| p.to_string_lossy().contains("run.safetensors");
        let left: Vec<&PathBuf> = left.iter().filter(of_checkpoint).collect();
        hits += usize::from(while_writing && !left.is_empty());
        // It may have been between two runs; then this one starts anew.
        assert_eq!(run(Some(path.clone()), None, None)?, (Finish::Done, expected.clone()));
        std::fs::remove_file(&path).expect("the checkpoint of a finished run");
        let _ = std::fs::remove_file(path.with_file_name("best.safetensors"));
        if hits == 3 {
            return Ok(());
        }
    }
    panic!("no kill hit a writer in 200 attempts")
}

/// Averaged gradients of small batches are those of the large one.
#[test]
fn accumulation_is_a_larger_batch() -> Result<()> {
    let fit = |batch_size, accumulate| {
        with_generator(Generator::new(0), || {
            let model = Linear::new(3, 1);
            model.to_dtype(DType::F64)?;
            let x = Tensor::randn([8, 3], DType::F64);
            let set = TensorDataset::new([x.clone(), x.sum_dim(1, true)])?;
            let optimizer = SGD::new(model.parameters(), SGDOptions { lr: 0.1, ..Default::default() })?;
            let options = TrainOptions { epochs: 3, accumulate, ..Default::default() };
            let loader = DataLoader::new(set, LoaderOptions::new(batch_size));
            Trainer::new(&model, optimizer, options).fit(
                &loader,
                |[x, y]| MSELoss::new().loss(&model.try_call(x)?, y),
                || Ok(Metrics::new()),
            )?;
            Ok::<_, firebrand_core::Error>(model.weight.to_vec::<f64>())
        })
    };
    let (small, large) = (fit(2, 4)?, fit(8, 1)?);
    assert!(small.iter().zip(&large).all(|(a, b)| (a - b).abs() < 1e-12), "{small:?} {large:?}");
    Ok(())
}

/// Batches weigh by the labels they count, also the last and smaller ones; a batch in which no label counts changes nothing.
#[test]
fn accumulation_counts_labels() -> Result<()> {
    let fit = |batch_size, accumulate, drop: bool| {
        with_generator(Generator::new(0), || {
            let model = Linear::new(3, 4);
            model.to_dtype(DType::F64)?;
            let x = Tensor::randn([22, 3], DType::F64);
            // Samples 6 and 7 are the fourth batch of two, in which nothing counts.
            let labels: Vec<i64> = (0..22).map(|i| if i % 5 == 0 || i == 6 || i == 7 { -100 } else { i % 4 }).collect();
            let rows: Vec<i64> = (0..22).filter(|i| !drop || (*i != 6 && *i != 7)).collect();
            let set = TensorDataset::new([x, Tensor::new(&labels)])?;
            let set = Subset::new(Arc::new(set), rows.iter().map(|&i| i as usize).collect())?;
            let weight = Tensor::new(&[1.0, 0.25, 2.0, 1.5]);
            let mut criterion = CrossEntropyLoss::new();
            criterion.weight = Some(Buffer::new(weight.clone()));
            let optimizer = SGD::new(model.parameters(), SGDOptions { lr: 0.3, momentum: 0.9, ..Default::default() })?;
            let options = TrainOptions { epochs: 3, accumulate, clip_norm: Some(0.4), ..Default::default() };
            let loader = DataLoader::new(set, LoaderOptions::new(batch_size));
            let mut trainer = Trainer::new(&model, optimizer, options);
            let loss = |[x, y]: &[Tensor; 2]| {
                let weights = weight.to_vec::<f64>();
                let count = y.to_vec::<i64>().iter().filter(|l| **l >= 0).map(|&l| weights[l as usize]).sum();
                Ok(BatchLoss { mean: criterion.loss(&model.try_call(x)?, y)?, count })
            };
            trainer.fit(&loader, loss, || Ok(Metrics::new()))?;
            let losses: Vec<f64> = trainer.progress().history.iter().map(|m| m["train_loss"]).collect();
            Ok::<_, firebrand_core::Error>([model.weight.to_vec::<f64>(), losses].concat())
        })
    };
    let same = |a: &[f64], b: &[f64]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
    // 22 samples: three steps of eight, the last of six; four batches of two, or one of eight.
    let (small, large) = (fit(2, 4, false)?, fit(8, 1, false)?);
    assert!(same(&small, &large), "{small:?} {large:?}");
    // A batch without labels is as good as no batch: the same labels are in each step.
    let (with, without) = (fit(2, 11, false)?, fit(2, 10, true)?);
    assert!(same(&with, &without), "{with:?} {without:?}");
    Ok(())
}

/// The state at the best epoch is kept, of the average if there is one; runs that had enough stay ended.
#[test]
fn the_best_epoch_is_kept() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let best = folder.path().join("best.safetensors");
    with_generator(Generator::new(0), || {
        let (model, loader) = (Linear::new(3, 1), loader(0)?);
        let options = |epochs| TrainOptions {
            epochs,
            ema: Some(0.5),
            best: Some(best.clone()),
            patience: Some(1),
            checkpoint: Some(folder.path().join("run.safetensors")),
            checkpoint_frozen: false,
            ..Default::default()
        };
        let sgd = || SGD::new(model.parameters(), SGDOptions { lr: 0.01, ..Default::default() });
        let mut trainer = Trainer::new(&model, sgd()?, options(9));
        let mut losses = [3.0, f64::NAN, 1.0, 2.0, 2.0].into_iter();
        let mut seen = Vec::new();
        let finish = trainer.fit(
            &loader,
            |[x, y]| MSELoss::new().loss(&model.try_call(x)?, y),
            || {
                seen.push(model.weight.to_vec::<f32>());
                Ok(Metrics::from_iter([("loss".to_string(), losses.next().expect("five epochs at most"))]))
            },
        )?;
        assert_eq!(
            (finish, trainer.progress().best_epoch, trainer.progress().best),
            (Finish::Early, Some(3), Some(1.0))
        );
        let kept = firebrand_io::read_safetensors(&best).expect("it was written");
        assert_eq!(kept["weight"].to_vec::<f32>(), seen[2], "the average that was validated in epoch 3");
        assert_ne!(model.weight.to_vec::<f32>(), seen[4], "the model goes on with its own weights");
        // The same run again, NaN among its metrics: it had enough, however many epochs there are.
        let mut again = Trainer::new(&model, sgd()?, options(20));
        assert!(again.resume()?);
        assert!(again.progress().history[1]["loss"].is_nan());
        let finish = again.fit(&loader, |[x, y]| MSELoss::new().loss(&model.try_call(x)?, y), || Ok(Metrics::new()))?;
        assert_eq!((finish, again.progress().epoch), (Finish::Early, 5));
        Ok(())
    })
}

/// A run that is stopped in its validation does it again when it is resumed.
#[test]
fn validation_is_interrupted() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let fit = |interrupt: bool| {
        with_generator(Generator::new(0), || {
            let (model, loader) = (Linear::new(3, 1), loader(0)?);
            let sgd = SGD::new(model.parameters(), SGDOptions { lr: 0.01, ..Default::default() })?;
            let stop = Arc::new(AtomicBool::new(false));
            let checkpoint = interrupt.then(|| folder.path().join("run.safetensors"));
            let options = TrainOptions { epochs: 2, checkpoint, stop: stop.clone(), ..Default::default() };
            let mut trainer = Trainer::new(&model, sgd, options);
            trainer.resume()?;
            let first = trainer.progress().step == 0;
            let finish = trainer.fit(
                &loader,
                |[x, y]| MSELoss::new().loss(&model.try_call(x)?, y),
                || {
                    if interrupt && first {
                        stop.store(true, Relaxed);
                        return Err(firebrand_core::Error::user("stopped"));
                    }
                    Ok(Metrics::from_iter([("loss".to_string(), 1.0)]))
                },
            )?;
            Ok::<_, firebrand_core::Error>((finish, model.weight.to_vec::<f32>(), trainer.progress().history.clone()))
        })
    };
    let whole = fit(false)?;
    assert_eq!(fit(true)?.0, Finish::Stopped);
    assert_eq!(fit(true)?, whole);
    Ok(())
}

#[test]
fn a_run_ends_early_and_a_bad_loss_is_an_error() -> Result<()> {
    with_generator(Generator::new(0), || {
        let (model, loader) = (Linear::new(3, 1), loader(0)?);
        let options = || TrainOptions { epochs: 50, patience: Some(2), ..Default::default() };
        let sgd = |lr| SGD::new(model.parameters(), SGDOptions { lr, ..Default::default() });
        let mut trainer = Trainer::new(&model, sgd(0.01)?, options());
        let mut losses = [3.0, 1.0, 2.0, 2.0, 2.0].into_iter();
        let finish = trainer.fit(
            &loader,
            |[x, y]| MSELoss::new().loss(&model.try_call(x)?, y),
            || Ok(Metrics::from_iter([("loss".to_string(), losses.next().expect("five epochs at most"))])),
        )?;
        assert_eq!((finish, trainer.progress().history.len()), (Finish::Early, 5));
        let diverging = Trainer::new(&model, sgd(1e9)?, options()).fit(
            &loader,
            |[x, y]| MSELoss::new().loss(&model.try_call(x)?, y),
            || Ok(Metrics::new()),
        );
        let error = diverging.expect_err("it diverges").to_string();
        assert!(error.contains("try a smaller learning rate"), "{error}");
        Ok(())
    })
}

/// The rate falls when the watched metric stands still; a run that is continued remembers for how long it has.
#[test]
fn the_rate_falls_on_a_plateau() -> Result<()> {
    use firebrand_nn::optim::schedule::PlateauOptions;
    struct Rates(Arc<std::sync::Mutex<Vec<f64>>>);
    impl Callback for Rates {
        fn step(&mut self, step: &Step) -> Result<()> {
            let mut rates = self.0.lock().expect("no panic");
            if rates.len() < step.epoch {
                rates.push(step.lr);
            }
            Ok(())
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let rates = Arc::new(std::sync::Mutex::new(Vec::new()));
    for epochs in [3, 6] {
        with_generator(Generator::new(0), || {
            let (model, loader) = (Linear::new(3, 1), loader(0)?);
            let sgd = SGD::new(model.parameters(), SGDOptions { lr: 0.08, ..Default::default() })?;
            let checkpoint = Some(folder.path().join("run.safetensors"));
            let options = TrainOptions { epochs, checkpoint, ..Default::default() };
            let plateau = PlateauOptions { factor: 0.5, patience: 1, ..Default::default() };
            let mut trainer = Trainer::new(&model, sgd, options).reduce_on_plateau(plateau).watch(Rates(rates.clone()));
            trainer.resume()?;
            trainer.fit(
                &loader,
                |[x, y]| MSELoss::new().loss(&model.try_call(x)?, y),
                || Ok(Metrics::from_iter([("loss".to_string(), 1.0)])),
            )
        })?;
    }
    // The first epoch is the best; after two more without a better one the rate is halved, before the fourth and the sixth.
    assert_eq!(*rates.lock().expect("no panic"), [0.08, 0.08, 0.08, 0.04, 0.04, 0.02]);
    Ok(())
}

/// Metrics in batches are scikit-learn's of all at once (`golden/nn/metrics.json`).
#[test]
fn metrics_are_scikit_learns() -> Result<()> {
    let golden: serde_json::Value =
        serde_json::from_str(include_str!("../../../golden/nn/metrics.json")).expect("committed JSON");
    let list = |v: &serde_json::Value| -> Vec<f64> {
        v.as_array().expect("a list").iter().map(|x| x.as_f64().expect("a number")).collect()
    };
    let rows = |name: &str| -> Vec<Vec<f64>> { golden[name].as_array().expect("rows").iter().map(list).collect() };
    let tensor = |rows: &[Vec<f64>]| Tensor::from_slice(&rows.concat(), [rows.len(), rows[0].len()]);
    let close = |a: f64, b: &serde_json::Value, what: &str| {
        assert!((a - b.as_f64().expect("a number")).abs() < 1e-9, "{what}: {a} instead of {b}");
    };
    let labels: Vec<i64> = list(&golden["labels"]).iter().map(|v| *v as i64).collect();
    let mut classes = Classification::new(6, golden["k"].as_u64().expect("a number") as usize);
    for (scores, labels) in rows("scores").chunks(7).zip(labels.chunks(7)) {
        classes.update(&tensor(scores), &Tensor::new(labels), -100)?;
    }
    let metrics = classes.metrics();
    close(metrics["accuracy"], &golden["accuracy"], "accuracy");
    close(metrics["top3_accuracy"], &golden["top_k_accuracy"], "top-k accuracy");
    close(metrics["f1"], &golden["f1"], "f1");
    for (k, (found, expected)) in classes.per_class().iter().zip(rows("per_class")).enumerate() {
        let found = [found.precision, found.recall, found.f1, found.support as f64];
        assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-9), "class {k}: {found:?} {expected:?}");
    }
    let counts: Vec<Vec<f64>> = classes
        .confusion()
        .expect("six classes")
        .counts
        .iter()
        .map(|r| r.iter().map(|n| *n as f64).collect())
        .collect();
    assert_eq!(counts, rows("confusion"));
    let mut binary = Binary::new();
    for (logits, targets) in rows("logits").chunks(4).zip(rows("targets").chunks(4)) {
        binary.update(&tensor(logits), &tensor(targets))?;
    }
    let found: Vec<f64> = binary.metrics().into_values().collect();
    assert!(found.iter().zip(list(&golden["binary"])).all(|(a, b)| (a - b).abs() < 1e-9), "binary: {found:?}");
    let mut numbers = Regression::new();
    for (p, e) in list(&golden["predicted"]).chunks(6).zip(list(&golden["expected"]).chunks(6)) {
        numbers.update(&Tensor::new(p), &Tensor::new(e))?;
    }
    close(numbers.metrics()["mae"], &golden["mae"], "mae");
    close(numbers.metrics()["rmse"], &golden["rmse"], "rmse");
    Ok(())
}

#[test]
fn metrics() -> Result<()> {
    let scores = Tensor::from_slice(&[0.1f32, 0.9, 0.8, 0.2, 0.3, 0.7], [3, 2]);
    assert_eq!(accuracy(&scores, &Tensor::new(&[1i64, 0, 0]))?, 2.0 / 3.0);
    let matrix = ConfusionMatrix::new(2, &[1, 0, 0], &[1, 0, 1])?;
    assert_eq!((matrix.counts.clone(), matrix.accuracy()), (vec![vec![1, 1], vec![0, 1]], 2.0 / 3.0));
    expect!["ConfusionMatrix: expected class indices below 2, found 2 and 0"]
        .assert_eq(&ConfusionMatrix::new(2, &[2], &[0]).unwrap_err().to_string());
    let folder = tempfile::tempdir().expect("a folder");
    EventWriter::new(folder.path())?.scalar("loss", 1, 0.5)?;
    let file = std::fs::read_dir(folder.path()).expect("readable").next().expect("one file").expect("readable");
    assert!(file.file_name().to_string_lossy().starts_with("events.out.tfevents."));
    Ok(())
}
