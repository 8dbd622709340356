//! What the browser calls, on this machine.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand::Tensor;
use firebrand_web::{DigitsTask, Model, Trainer};

const DIGITS: &[u8] = include_bytes!("../../firebrand/data/digits.pt2");

#[test]
fn a_program_is_loaded_trained_saved_and_loaded_again() {
    let model = Model::load(DIGITS).unwrap();
    let name = model.input_names().unwrap().pop().unwrap();
    assert_eq!(model.input_sizes(&name).unwrap().unwrap(), [-1, 64]);
    assert_eq!(model.input_sizes("no such input").unwrap(), None);
    assert_eq!(model.parameter_count(), 64 * 32 + 32 + 32 * 10 + 10);
    let x = Tensor::full([4, 64], 0.5, firebrand::DType::F32);
    let y = Tensor::new(&[7i64, 8, 9, 7]);
    let mut trainer = Trainer::new(&model, "cross_entropy", "adamw", 1e-2).unwrap();
    let losses: Vec<f64> = (0..20).map(|_| trainer.step(&model, [(name.as_str(), &x)], &y).unwrap()).collect();
    assert!(losses[19] < losses[0] / 2.0, "{losses:?}");
    let again = Model::load(&model.save().unwrap()).unwrap();
    let run = |m: &Model| m.run([(name.as_str(), &x)]).unwrap()[0].detach().to_vec::<f32>();
    assert_eq!(run(&again), run(&model));
    assert!(model.html("digits").starts_with("<!doctype html>"));
    assert_eq!(Model::html_of(DIGITS, "digits").unwrap(), Model::load(DIGITS).unwrap().html("digits"));
}

#[test]
fn what_is_wrong_is_said() {
    let model = Model::load(DIGITS).unwrap();
    let message = |r: firebrand::Result<Trainer>| r.unwrap_err().to_string();
    assert!(message(Trainer::new(&model, "hinge", "sgd", 0.1)).contains("known are cross_entropy and mse"));
    assert!(message(Trainer::new(&model, "mse", "lion", 0.1)).contains("known are sgd, adam and adamw"));
    assert!(message(Trainer::new(&model, "mse", "sgd", -1.0)).contains("lr"));
    assert!(Model::load(b"not a program").is_err() && Model::html_of(&DIGITS[..1000], "half").is_err());
    let x = Tensor::new(&[1.0f32]);
    assert!(model.run([("nothing", &x)]).unwrap_err().to_string().contains("missing"));
    assert!(DigitsTask::new(DIGITS, 0, 0, 0.1).unwrap_err().to_string().contains("batch size"));
    let task = DigitsTask::new(DIGITS, 0, 32, 0.1).unwrap();
    assert!(task.predict(&[0.0; 63]).unwrap_err().to_string().contains("found 63"));
    assert!(task.test_sample(task.test_count()).is_err());
}

#[test]
fn the_digits_are_learned() {
    let mut task = DigitsTask::new(DIGITS, 0, 32, 5e-3).unwrap();
    let before = task.accuracy().unwrap();
    for _ in 0..5 * task.steps_per_epoch() {
        task.step().unwrap();
    }
    let after = task.accuracy().unwrap();
    assert!(before < 0.6 && after > 0.9, "{before} {after}");
    let (pixels, digit) = task.test_sample(0).unwrap();
    let likely = task.predict(&pixels).unwrap();
    assert!((likely.iter().sum::<f32>() - 1.0).abs() < 1e-5);
    assert_eq!(likely.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0 as i64, digit);
}
