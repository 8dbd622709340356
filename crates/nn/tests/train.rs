//! The training loop: exact continuation (also after a kill), accumulation, early stopping, event files.

use expect_test::expect;
use firebrand_core::random::{Generator, with_generator};
use firebrand_core::{DType, Result, Tensor};
use firebrand_nn::data::{DataLoader, LoaderOptions, TensorDataset};
use firebrand_nn::layers::{BatchNorm1d, Dropout, Forward, Linear, Module, ReLU, Sequential};
use firebrand_nn::losses::{Loss, MSELoss};
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
    with_generator(Generator::new(0), || {
        let (model, loader) = (model(), loader(1)?);
        let stop = Arc::new(AtomicBool::new(false));
        let options = TrainOptions {
            epochs: 5,
            accumulate: 2,
            clip_norm: Some(1.0),
            schedule_every_step: true,
            checkpoint,
            checkpoint_every: every,
            stop: stop.clone(),
            ..Default::default()
        };
        let optimizer = AdamW::new(model.parameters(), AdamWOptions { lr: 0.01, ..Default::default() })?;
        let mut trainer = Trainer::new(&model, optimizer, options)
            .schedule(CosineAnnealingLR { t_max: 40, eta_min: 0.0 })
            .watch(StopAt(stop_at.unwrap_or(u64::MAX), stop));
        trainer.resume()?;
        let finish =
            trainer.fit(&loader, |[x, y]| MSELoss::new().loss(&model.try_call(x)?, y), || Ok(Metrics::new()))?;
        let bits = |t: &Tensor| t.to_dtype(DType::F32).to_vec::<f32>().iter().map(|v| v.to_bits()).collect();
        Ok((finish, model.state_dict().values().map(bits).collect()))
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
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["child", "--exact", "--nocapture"]).env(CHILD, path).stdout(Stdio::null());
    command.spawn().expect("a process")
}

/// Files beside the checkpoint: what a writer has not finished.
fn unfinished(path: &Path) -> Vec<PathBuf> {
    let folder = std::fs::read_dir(path.parent().expect("a folder")).expect("a folder");
    folder.map(|entry| entry.expect("a file").path()).filter(|other| other != path).collect()
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
        hits += usize::from(while_writing && !left.is_empty());
        // It may have been between two runs; then this one starts anew.
        assert_eq!(run(Some(path.clone()), None, None)?, (Finish::Done, expected.clone()));
        std::fs::remove_file(&path).expect("the checkpoint of a finished run");
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
