//! Optimizers and schedules against PyTorch's numbers (`golden/nn/optim.json`), in every implementation.

use expect_test::expect;
use firebrand_core::random::{Generator, with_generator};
use firebrand_core::{DType, Result, Tensor, ops, set_num_threads};
use firebrand_nn::optim::schedule::*;
use firebrand_nn::optim::*;
use serde_json::Value;

fn golden() -> Value {
    serde_json::from_str(include_str!("../../../golden/nn/optim.json")).expect("committed JSON")
}

fn floats(v: &Value) -> Vec<f64> {
    v.as_array().expect("a list").iter().map(|v| v.as_f64().expect("a number")).collect()
}

type Loss = Box<dyn Fn() -> Result<Tensor>>;

/// The linear problem of `optim.py`: parameters and the loss.
fn problem(dtype: DType) -> (Vec<Tensor>, Loss) {
    problem_of(&Value::Null, dtype)
}

/// The problem of a row of `optim.py`.
fn problem_of(row: &Value, dtype: DType) -> (Vec<Tensor>, Loss) {
    let draw = |sizes: &[usize]| Tensor::randn(sizes, dtype);
    let [x, y, w, b] =
        with_generator(Generator::new(0), || [draw(&[16, 5]), draw(&[16, 3]), draw(&[5, 3]), draw(&[3])]);
    let (w, b) = (w.requires_grad_(), b.requires_grad_());
    let distance = move |found: Tensor| Ok((found.tanh() - &y).square().mean());
    let integers = |n: i64, m: i64| Tensor::new(&(0..n).map(|i| i * 7 % m).collect::<Vec<i64>>());
    match row["problem"].as_str().unwrap_or("linear") {
        "embedding" => {
            let (params, at) = (vec![w.clone()], integers(16, 4));
            (params, Box::new(move || distance(ops::embedding(&w, &at, (-1).into(), false, true)?)))
        }
        "gather" => {
            let (params, at) = (vec![w.clone()], integers(48, 5).reshape([16, 3]));
            (params, Box::new(move || distance(ops::gather(&w, 0, &at, true)?)))
        }
        kind => {
            let params = if kind == "matrix" { vec![w.clone()] } else { vec![w.clone(), b.clone()] };
            (params, Box::new(move || distance(x.matmul(&w) + &b)))
        }
    }
}

fn number(options: &Value, name: &str, default: f64) -> f64 {
    options[name].as_f64().unwrap_or(default)
}

fn make(name: &str, o: &Value, params: &[Tensor], implementation: Implementation) -> Box<dyn Optimizer> {
    let get = |name, default| number(o, name, default);
    let flag = |name: &str| o[name].as_bool().unwrap_or(false);
    let pair = |name: &str, default| o[name].as_array().map_or(default, |_| (floats(&o[name])[0], floats(&o[name])[1]));
    let betas = pair("betas", (0.9, 0.999));
    let result: Result<Box<dyn Optimizer>> = match name {
        "SGD" => SGD::new(
            params,
            SGDOptions {
                lr: get("lr", 1e-3),
                momentum: get("momentum", 0.0),
                dampening: get("dampening", 0.0),
                weight_decay: get("weight_decay", 0.0),
                nesterov: flag("nesterov"),
                maximize: flag("maximize"),
                implementation,
            },
        )
        .map(|o| Box::new(o) as _),
        "Adam" => Adam::new(
            params,
            AdamOptions {
                lr: get("lr", 1e-3),
                betas,
                weight_decay: get("weight_decay", 0.0),
                amsgrad: flag("amsgrad"),
                maximize: flag("maximize"),
                implementation,
                ..Default::default()
            },
        )
        .map(|o| Box::new(o) as _),
        "AdamW" => AdamW::new(
            params,
            AdamWOptions {
                lr: get("lr", 1e-3),
                betas,
                weight_decay: get("weight_decay", 1e-2),
                amsgrad: flag("amsgrad"),
                maximize: flag("maximize"),
                implementation,
                ..Default::default()
            },
        )
        .map(|o| Box::new(o) as _),
        "RMSprop" => RMSprop::new(
            params,
            RMSpropOptions {
                lr: get("lr", 1e-2),
                alpha: get("alpha", 0.99),
                momentum: get("momentum", 0.0),
                centered: flag("centered"),
                weight_decay: get("weight_decay", 0.0),
                implementation,
                ..Default::default()
            },
        )
        .map(|o| Box::new(o) as _),
        "Adagrad" => Adagrad::new(
            params,
            AdagradOptions {
                lr: get("lr", 1e-2),
                lr_decay: get("lr_decay", 0.0),
                weight_decay: get("weight_decay", 0.0),
                initial_accumulator_value: get("initial_accumulator_value", 0.0),
                implementation,
                ..Default::default()
            },
        )
        .map(|o| Box::new(o) as _),
        "Adadelta" => Adadelta::new(
            params,
            AdadeltaOptions {
                lr: get("lr", 1.0),
                rho: get("rho", 0.9),
                eps: get("eps", 1e-6),
                weight_decay: get("weight_decay", 0.0),
                maximize: flag("maximize"),
                implementation,
            },
        )
        .map(|o| Box::new(o) as _),
        "Adamax" => Adamax::new(
            params,
            AdamaxOptions {
                lr: get("lr", 2e-3),
                betas,
                weight_decay: get("weight_decay", 0.0),
                implementation,
                ..Default::default()
            },
        )
        .map(|o| Box::new(o) as _),
        "RAdam" => RAdam::new(
            params,
            RAdamOptions {
                lr: get("lr", 1e-3),
                betas,
                weight_decay: get("weight_decay", 0.0),
                decoupled_weight_decay: flag("decoupled_weight_decay"),
                implementation,
                ..Default::default()
            },
        )
        .map(|o| Box::new(o) as _),
        "NAdam" => NAdam::new(
            params,
            NAdamOptions {
                lr: get("lr", 2e-3),
                betas,
                weight_decay: get("weight_decay", 0.0),
                momentum_decay: get("momentum_decay", 4e-3),
                decoupled_weight_decay: flag("decoupled_weight_decay"),
                implementation,
                ..Default::default()
            },
        )
        .map(|o| Box::new(o) as _),
        "Rprop" => Rprop::new(
            params,
            RpropOptions {
                lr: get("lr", 1e-2),
                etas: pair("etas", (0.5, 1.2)),
                step_sizes: pair("step_sizes", (1e-6, 50.0)),
                maximize: flag("maximize"),
                implementation,
            },
        )
        .map(|o| Box::new(o) as _),
        "ASGD" => ASGD::new(
            params,
            ASGDOptions {
                lr: get("lr", 1e-2),
                lambd: get("lambd", 1e-4),
                alpha: get("alpha", 0.75),
                t0: get("t0", 1e6),
                weight_decay: get("weight_decay", 0.0),
                implementation,
                ..Default::default()
            },
        )
        .map(|o| Box::new(o) as _),
        "LBFGS" => LBFGS::new(
            params,
            LBFGSOptions {
                lr: get("lr", 1.0),
                max_iter: get("max_iter", 20.0) as usize,
                history_size: get("history_size", 100.0) as usize,
                line_search: if o["line_search_fn"].is_string() { LineSearch::StrongWolfe } else { LineSearch::Fixed },
                ..Default::default()
            },
        )
        .map(|o| Box::new(o) as _),
        "Adafactor" => {
            let eps = o["eps"].as_array().map_or((None, 1e-3), |_| (Some(floats(&o["eps"])[0]), floats(&o["eps"])[1]));
            let options = AdafactorOptions {
                lr: get("lr", 1e-2),
                beta2_decay: get("beta2_decay", -0.8),
                eps,
                d: get("d", 1.0),
                weight_decay: get("weight_decay", 0.0),
                maximize: flag("maximize"),
                implementation,
            };
            Adafactor::new(params, options).map(|o| Box::new(o) as _)
        }
        "Muon" => {
            let options = MuonOptions {
                lr: get("lr", 1e-3),
                weight_decay: get("weight_decay", 0.1),
                momentum: get("momentum", 0.95),
                nesterov: o["nesterov"].as_bool().unwrap_or(true),
                ns_steps: get("ns_steps", 5.0) as usize,
                adjust_lr_fn: match o["adjust_lr_fn"].as_str() {
                    Some("match_rms_adamw") => AdjustLr::MatchRmsAdamw,
                    _ => AdjustLr::Original,
                },
                implementation,
                ..Default::default()
            };
            Muon::new(params, options).map(|o| Box::new(o) as _)
        }
        "SparseAdam" => {
            let (lr, eps, maximize) = (get("lr", 1e-3), get("eps", 1e-8), flag("maximize"));
            SparseAdam::new(params, SparseAdamOptions { lr, betas, eps, maximize, implementation })
                .map(|o| Box::new(o) as _)
        }
        other => panic!("no optimizer {other}"),
    };
    result.expect("golden settings are valid")
}

fn descend(optimizer: &mut dyn Optimizer, loss: &dyn Fn() -> Result<Tensor>, steps: usize) -> Vec<f64> {
    let params = optimizer.parameters();
    let mut closure = || {
        params.iter().for_each(Tensor::zero_grad);
        let l = loss()?;
        l.backward();
        Ok(l)
    };
    let mut step = |_| ops::item(&optimizer.step_with(&mut closure)?).map(|v| v.to_f64());
    (0..steps).map(&mut step).collect::<Result<_>>().expect("every step has a loss")
}

fn values(params: &[Tensor]) -> Vec<f64> {
    params.iter().flat_map(|p| p.to_dtype(DType::F64).to_vec::<f64>()).collect()
}

fn close(found: &[f64], expected: &[f64], relative: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (k, (f, e)) in found.iter().zip(expected).enumerate() {
        assert!((f - e).abs() <= relative * e.abs().max(1.0), "{what}: at {k} found {f}, expected {e}");
    }
}

const FORMS: [Implementation; 4] =
    [Implementation::Auto, Implementation::Single, Implementation::Foreach, Implementation::Fused];

#[test]
fn twenty_steps_are_pytorchs() {
    for row in golden()["optimizers"].as_array().expect("rows") {
        let name = row["name"].as_str().expect("a name");
        for form in FORMS {
            let what = format!("{name} {} {} {form:?}", row["problem"], row["options"]);
            let (params, loss) = problem_of(row, DType::F64);
            let losses = descend(&mut *make(name, &row["options"], &params, form), &loss, 20);
            let tolerance = |usual| number(row, "tolerance", usual);
            close(&losses, &floats(&row["losses"]), tolerance(1e-8), &what);
            close(&values(&params), &floats(&row["params"]), tolerance(1e-8), &what);
            let (params, loss) = problem_of(row, DType::F32);
            let losses = descend(&mut *make(name, &row["options"], &params, form), &loss, 20);
            let expected = floats(&row["losses_f32"]);
            close(&losses[..expected.len()], &expected, tolerance(1e-4), &format!("{what} f32"));
        }
    }
}

#[test]
fn a_run_continues_from_its_state_dict() {
    for row in golden()["optimizers"].as_array().expect("rows") {
        let name = row["name"].as_str().expect("a name");
        let whole = {
            let (params, loss) = problem_of(row, DType::F64);
            descend(&mut *make(name, &row["options"], &params, Implementation::Auto), &loss, 20);
            values(&params)
        };
        let (params, loss) = problem_of(row, DType::F64);
        let mut first = make(name, &row["options"], &params, Implementation::Auto);
        descend(&mut *first, &loss, 11);
        // Through flat names and JSON, as a checkpoint does.
        let dict = first.state_dict();
        let groups = serde_json::to_string(&dict.param_groups).expect("settings are plain");
        let groups = serde_json::from_str(&groups).expect("and come back");
        let dict = StateDict::from_parts(&dict.tensors(), groups).expect("names of our own");
        let mut second = make(name, &Value::Null, &params, Implementation::Auto);
        second.load_state_dict(&dict).expect("the same parameters");
        drop(first);
        descend(&mut *second, &loss, 9);
        assert_eq!(values(&params), whole, "{name} {}", row["options"]);
    }
}

/// A run of PyTorch's, saved after 11 of its 20 steps (`golden/nn/torch_state.py`), ends here where it ended there.
#[test]
fn a_run_of_pytorch_continues_here() {
    use firebrand_io::torch_save::{Object, from_bytes};
    let all = golden();
    let rows = all["optimizers"].as_array().expect("rows");
    let Object::List(runs) =
        from_bytes(include_bytes!("../../../golden/nn/torch_state.pt").as_slice()).expect("a file")
    else {
        panic!("the script saves a list")
    };
    for run in &runs {
        let Object::Tuple(parts) = run else { panic!("of tuples") };
        let [Object::Int(row), Object::List(saved), state] = &parts[..] else { panic!("of row, parameters, state") };
        let row = &rows[*row as usize];
        let (params, loss) = problem(DType::F64);
        for (p, saved) in params.iter().zip(saved) {
            let Object::Tensor(saved) = saved else { panic!("parameters are tensors") };
            p.data().copy_(saved, false);
        }
        let mut optimizer = make(row["name"].as_str().expect("a name"), &Value::Null, &params, Implementation::Auto);
        optimizer.load_state_dict(&StateDict::from_torch(state).expect("a state")).expect("the same parameters");
        descend(&mut *optimizer, &loss, 9);
        close(&values(&params), &floats(&row["params"]), 1e-8, &format!("{} {}", row["name"], row["options"]));
    }
    assert_eq!(runs.len(), 14);
    let error = StateDict::from_torch(&Object::List(runs)).expect_err("no state").to_string();
    assert!(error.contains("expected an optimizer's `state_dict`"), "{error}");
}

#[test]
fn state_dicts_have_pytorchs_names() {
    let (params, loss) = problem(DType::F64);
    let mut adam = Adam::new(&params, AdamOptions { amsgrad: true, ..Default::default() }).expect("valid");
    descend(&mut adam, &loss, 3);
    let dict = adam.state_dict();
    let names: Vec<_> = dict.state[&0].keys().map(String::as_str).collect();
    assert_eq!(names, ["step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"]);
    assert_eq!(dict.state[&1]["step"].to_vec::<f32>(), [3.0]);
    let settings: Vec<_> = dict.param_groups[0].settings.keys().map(String::as_str).collect();
    assert_eq!(settings, ["lr", "betas", "eps", "weight_decay", "amsgrad", "maximize"]);
    assert_eq!(dict.param_groups[0].params, [0, 1]);
    let mut other = Adam::new(&params[..1], AdamOptions::default()).expect("valid");
    let error = other.load_state_dict(&dict).expect_err("another number of parameters").to_string();
    assert!(error.contains("expected groups of 1 parameters, found 2"), "{error}");
}

/// The split over threads changes no bit.
#[test]
fn fused_steps_do_not_depend_on_threads() {
    let run = |threads| {
        set_num_threads(threads);
        with_generator(Generator::new(1), || {
            let p = Tensor::randn([70_001], DType::F32).requires_grad_();
            let mut adam = AdamW::new([&p], AdamWOptions::default()).expect("valid");
            for _ in 0..3 {
                p.set_grad(Some(&Tensor::randn([70_001], DType::F32)));
                adam.step().expect("a step");
            }
            p.to_vec::<f32>()
        })
    };
    let one = run(1);
    assert_eq!(run(4), one);
}

/// Strided parameters, and gradients that alias them, take the same steps.
#[test]
fn fused_steps_of_any_layout() {
    let base = Tensor::from_slice(&[1.0f64, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]);
    let step = |p: Tensor, grad: &Tensor| {
        let p = p.requires_grad_();
        p.set_grad(Some(grad));
        SGD::new([&p], SGDOptions { lr: 0.1, momentum: 0.9, ..Default::default() }).expect("valid").step().expect("ok");
        p.contiguous().to_vec::<f64>()
    };
    let expected = step(base.t().contiguous().detach(), &base.t());
    let turned = base.try_deep_copy().expect("memory").t().detach();
    assert!(!turned.is_contiguous());
    assert_eq!(step(turned, &base.t()), expected);
    let own = base.t().contiguous().detach();
    let alias = own.data();
    assert_eq!(step(own, &alias), expected);
}

fn schedule(name: &str) -> Box<dyn Schedule> {
    let cyclic = CyclicLR { step_size_up: 3, step_size_down: 4, ..CyclicLR::new(0.1, 0.5) };
    match name {
        "StepLR" => Box::new(StepLR { step_size: 4, gamma: 0.5 }),
        "MultiStepLR" => Box::new(MultiStepLR { milestones: vec![3, 7, 7, 12], gamma: 0.3 }),
        "ExponentialLR" => Box::new(ExponentialLR { gamma: 0.9 }),
        "LinearLR" => Box::new(LinearLR::default()),
        "ConstantLR" => Box::new(ConstantLR::default()),
        "PolynomialLR" => Box::new(PolynomialLR { total_iters: 12, power: 2.0 }),
        "MultiplicativeLR" => Box::new(MultiplicativeLR(|epoch| 1.0 - 0.05 * (epoch % 3) as f64)),
        "ChainedScheduler" => {
            let warm_up = LinearLR { start_factor: 0.1, total_iters: 4, ..Default::default() };
            Box::new(ChainedScheduler::new([
                Box::new(warm_up) as Box<dyn Schedule>,
                Box::new(ExponentialLR { gamma: 0.9 }),
            ]))
        }
        "CyclicLR" => Box::new(cyclic),
        "CyclicLR triangular2" => Box::new(CyclicLR { mode: CyclicMode::Triangular2, ..cyclic }),
        "CyclicLR exp_range" => Box::new(CyclicLR { mode: CyclicMode::ExpRange(0.9), momentum: None, ..cyclic }),
        "LambdaLR" => Box::new(LambdaLR(|epoch, _| 1.0 / (1.0 + epoch as f64))),
        "CosineAnnealingLR" => Box::new(CosineAnnealingLR { t_max: 8, eta_min: 0.001 }),
        "CosineAnnealingWarmRestarts" => Box::new(CosineAnnealingWarmRestarts { t_0: 3, t_mult: 2, eta_min: 0.01 }),
        "OneCycleLR" => Box::new(OneCycleLR::new(1.0, 25)),
        "OneCycleLR three_phase linear" => {
            Box::new(OneCycleLR { three_phase: true, anneal: Anneal::Linear, ..OneCycleLR::new(1.0, 25) })
        }
        "SWALR" => Box::new(SWALR { anneal_epochs: 7, ..SWALR::new(0.05) }),
        "SequentialLR" => {
            let warm_up = LinearLR { start_factor: 0.1, ..Default::default() };
            Box::new(SequentialLR::new(warm_up, 5, CosineAnnealingLR { t_max: 10, eta_min: 0.01 }))
        }
        other => panic!("no schedule {other}"),
    }
}

#[test]
fn schedules_are_pytorchs() {
    for (name, rates) in golden()["schedules"].as_object().expect("rows") {
        let p = Tensor::new(&[0.0f32]).requires_grad_();
        let mut sgd =
            SGD::new([&p], SGDOptions { lr: 0.2, momentum: 0.5, ..Default::default() }).expect("valid settings");
        let mut scheduler = LRScheduler::new(schedule(name), &mut sgd);
        for (step, expected) in rates.as_array().expect("a list").iter().enumerate() {
            let found = [sgd.lr(0), sgd.momentum(0).expect("it has one")];
            close(&found, &floats(expected), 1e-12, &format!("{name}, step {step}"));
            scheduler.step(&mut sgd);
        }
    }
}

#[test]
fn a_plateau_reduces_the_rate() {
    let golden = golden();
    let p = Tensor::new(&[0.0f32]).requires_grad_();
    let mut sgd = SGD::new([&p], SGDOptions { lr: 0.2, ..Default::default() }).expect("valid settings");
    let options = PlateauOptions { factor: 0.5, patience: 2, cooldown: 1, min_lr: 0.03, ..Default::default() };
    let mut plateau = ReduceLROnPlateau::new(options);
    let rates: Vec<f64> = floats(&golden["plateau"]["metrics"])
        .into_iter()
        .map(|m| {
            plateau.step(m, &mut sgd);
            sgd.lr(0)
        })
        .collect();
    close(&rates, &floats(&golden["plateau"]["lr"]), 1e-12, "plateau");
}

#[test]
fn clipping() {
    let a = Tensor::new(&[1.0f64, 1.0]).requires_grad_();
    let b = Tensor::new(&[1.0f64]).requires_grad_();
    let unused = Tensor::new(&[1.0f64]).requires_grad_();
    let set = || {
        a.set_grad(Some(&Tensor::new(&[3.0f64, 0.0])));
        b.set_grad(Some(&Tensor::new(&[-4.0f64])));
    };
    set();
    assert_eq!(clip_grad_norm([&a, &b, &unused], 10.0, 2.0).expect("ok"), 5.0);
    assert_eq!(a.grad().expect("set").to_vec::<f64>(), [3.0, 0.0]);
    assert_eq!(clip_grad_norm([&a, &b], 1.0, f64::INFINITY).expect("ok"), 4.0);
    close(&a.grad().expect("set").to_vec::<f64>(), &[3.0 / 4.000001, 0.0], 1e-12, "by the largest element");
    set();
    clip_grad_value([&a, &b], 2.0).expect("ok");
    assert_eq!(values(&[a.grad().expect("set"), b.grad().expect("set")]), [2.0, 0.0, -2.0]);
}

/// D-19 as a way of training: the parameter has moved and its gradient is gone when backward returns.
#[test]
fn steps_during_backward() {
    let run = |inside: bool| {
        let (params, loss) = problem(DType::F64);
        let options = AdamOptions { lr: 0.05, ..Default::default() };
        if inside {
            let _hooks = step_in_backward(&params, |p| Adam::new([p], options)).expect("leaves");
            for _ in 0..5 {
                loss().expect("a loss").backward();
                assert!(params.iter().all(|p| p.grad().is_none()));
            }
        } else {
            descend(&mut Adam::new(&params, options).expect("valid"), &loss, 5);
        }
        values(&params)
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn averages() {
    let p = Tensor::new(&[1.0f64]);
    let mut mean = Averaged::new([&p], Averaging::Mean).expect("memory");
    let mut exponential = Averaged::new([&p], Averaging::Exponential(0.9)).expect("memory");
    for v in [2.0, 4.0, 9.0] {
        p.fill_(v);
        mean.update().expect("ok");
        exponential.update().expect("ok");
    }
    close(&values(mean.averages()), &[5.0], 1e-12, "mean");
    close(&values(exponential.averages()), &[(2.0 * 0.9 + 0.4) * 0.9 + 0.9], 1e-12, "exponential");
    mean.swap().expect("ok");
    close(&values(std::slice::from_ref(&p)), &[5.0], 1e-12, "swapped in");
    mean.swap().expect("ok");
    assert_eq!(p.to_vec::<f64>(), [9.0]);
}

#[test]
fn refusals_say_what_to_do() {
    let p = Tensor::new(&[1.0f64]).requires_grad_();
    let refused = |r: Result<SGD>| r.expect_err("refused").to_string();
    let none: [&Tensor; 0] = [];
    assert!(refused(SGD::new(none, SGDOptions::default())).contains("at least one parameter"));
    assert!(refused(SGD::new([&p, &p], SGDOptions::default())).contains("more than once"));
    assert!(refused(SGD::new([&(&p * 2.0)], SGDOptions::default())).contains("only leaves"));
    assert!(
        refused(SGD::new([&p], SGDOptions { lr: -1.0, ..Default::default() })).contains("of at least 0, found -1.0")
    );
    let (vector, matrix) = (&p, &Tensor::ones([2, 2], DType::F64).requires_grad_());
    assert!(Muon::new([vector], MuonOptions::default()).expect_err("a vector").to_string().contains("real matrices"));
    matrix.set_grad(Some(&Tensor::ones([2, 2], DType::F64)));
    let dense = SparseAdam::new([matrix], SparseAdamOptions::default()).expect("valid").step();
    assert!(dense.expect_err("a dense gradient").to_string().contains("use Adam"));
    let at = Tensor::from_slice(&[0i64], [1, 1]);
    matrix.set_grad(Some(&Tensor::sparse_coo_tensor(&at, &Tensor::ones([1, 2], DType::F64), &[2, 2])));
    let sparse = Adam::new([matrix], AdamOptions::default()).expect("valid").step();
    assert!(sparse.expect_err("a sparse gradient").to_string().contains("SGD and SparseAdam"));
    let decay = SGDOptions { weight_decay: 0.1, ..Default::default() };
    let decay = SGD::new([matrix], decay).expect("valid").step().expect_err("no decay of some rows").to_string();
    assert!(decay.contains("some gradients are sparse"), "{decay}");
    let nesterov = SGDOptions { nesterov: true, ..Default::default() };
    assert!(refused(SGD::new([&p], nesterov)).contains("with momentum"));
    expect!["LBFGS: a step evaluates the loss several times; call step_with and give it a closure"]
        .assert_eq(&LBFGS::new([&p], LBFGSOptions::default()).expect("valid").step().unwrap_err().to_string());
}
