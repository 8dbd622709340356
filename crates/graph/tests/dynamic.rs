//! Export with sizes that vary: docs/behaviour/graph-and-passes.md §8, P-54, P-119.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand_core::autograd::{AutocastOptions, autocast, no_grad};
use firebrand_core::module::{Buffer, Forward, Module, ModuleCore, Parameter};
use firebrand_core::{DType, Result, Tensor, ops};
use firebrand_graph::passes::{Context, run_decompositions};
use firebrand_graph::text::{Form, print};
use firebrand_graph::{Dim, Error, Export, ExportedProgram, ValueRange, verify};

type F = fn(&[Tensor]) -> Result<Vec<Tensor>>;
/// Inputs, their dimensions, and what these are.
type Dims<'a> = &'a [(usize, usize, &'a Dim)];

fn data(sizes: &[usize]) -> Tensor {
    let count: usize = sizes.iter().product();
    let values: Vec<f64> = (0..count).map(|i| ((i * 37 + 11) % 101) as f64 / 50.0 - 1.0).collect();
    Tensor::from_slice(&values, sizes)
}

/// The program as an archive says it, read back.
fn reloaded(program: &ExportedProgram) -> ExportedProgram {
    let bytes = program.to_bytes().unwrap();
    ExportedProgram::from_bytes(bytes).unwrap()
}

fn same(what: &str, program: &ExportedProgram, f: &dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>, inputs: &[Tensor]) {
    let expected = f(inputs).unwrap();
    let found = program.run(inputs).unwrap_or_else(|e| panic!("{what}: {e}\n{}", print(program, Form::Short)));
    assert_eq!(found.len(), expected.len(), "{what}");
    for (a, b) in found.iter().zip(&expected) {
        let a = a.tensor().unwrap();
        assert_eq!((a.shape(), a.dtype()), (b.shape(), b.dtype()), "{what}");
        assert_eq!(a.to_vec::<f64>(), b.to_vec::<f64>(), "{what}");
        assert_eq!(a.requires_grad(), b.requires_grad(), "{what}");
    }
}

/// Functions of `x` (n by 6) and `y` (n by 6) whose sizes reach ops in many ways; each is exported at n = 4, saved, loaded,
/// and run at other sizes.
#[test]
fn functions_run_at_other_sizes() {
    let functions: &[(&str, F)] = &[
        ("pointwise", |x| Ok(vec![&x[0] * &x[1]])),
        ("reshape by size", |x| Ok(vec![x[0].try_reshape([x[0].size(0) * 6])?])),
        ("reshape by shape", |x| Ok(vec![x[0].try_reshape([x[0].shape()[0] * 2, 3])?])),
        ("cat", |x| Ok(vec![ops::cat(&[x[0].clone(), x[1].clone()], 0)?])),
        ("outer", |x| Ok(vec![x[0].try_matmul(&x[1].t())?.try_reshape([x[0].shape()[0] * x[0].shape()[0]])?])),
        ("pool", |x| Ok(vec![ops::max_pool1d(&x[0].t().unsqueeze(0), &[3], &[2], &[1], &[1], false)?])),
        ("pool by four, sizes used", |x| {
            let y = ops::max_pool1d(&x[0].t().unsqueeze(0), &[2], &[4], &[1], &[1], false)?;
            Ok(vec![y.try_reshape([y.size(2) * 6])?])
        }),
        ("a tensor of its size", |x| {
            let size = [x[0].size(0), 6.into()];
            Ok(vec![&x[0] + &ops::full(&size, 2.0.into(), Some(DType::F64), None)?])
        }),
        ("no_grad", |x| {
            let s = no_grad(|| x[0].try_reshape([x[0].size(0) * 6]))?;
            Ok(vec![s.try_reshape([x[0].size(0) * 3, 2.into()])?, s])
        }),
        ("written in place", |x| {
            let y = &x[0] * 2.0;
            y.try_narrow(0, 1, x[0].size(0) - 2)?.try_add_scalar_(1.0, 1.0)?;
            Ok(vec![y])
        }),
        ("narrow", |x| Ok(vec![x[0].try_narrow(0, 1, x[0].size(0) - 3)?])),
        ("mean over rows", |x| Ok(vec![x[0].try_mean_dim(0, false)?])),
    ];
    let batch = Dim::new("batch").min(3).max(64);
    let example = [data(&[4, 6]), data(&[4, 6])];
    for (what, f) in functions {
        let export = Export::new(&example).names(["x", "y"]).dynamic(0, 0, &batch).dynamic(1, 0, &batch);
        let program = export.run(f).unwrap_or_else(|e| panic!("{what}: {e}"));
        verify::verify_program(&program).unwrap_or_else(|e| panic!("{what}: {e}"));
        let loaded = reloaded(&program);
        assert_eq!(loaded.module.graph.len(), program.module.graph.len(), "{what}");
        assert_eq!(loaded.range_constraints, program.range_constraints, "{what}");
        let decomposed = run_decompositions(&loaded, &Context::default());
        let (core, _) = decomposed.unwrap_or_else(|e| panic!("{what}, decomposed: {e}"));
        for n in [3, 4, 5, 6, 7, 8, 9, 64] {
            let inputs = [data(&[n, 6]), data(&[n, 6])];
            same(what, &program, f, &inputs);
            same(what, &loaded, f, &inputs);
            same(&format!("{what}, decomposed"), &core, f, &inputs);
        }
    }
}

/// What varies is a symbol in sizes and strides; integers that depend on it are computed from a size of an input. P-54: a
/// region takes them as operands.
#[test]
fn sizes_are_symbols() {
    let batch = Dim::new("batch").min(2).max(64);
    let example = [data(&[4, 6])];
    let program = Export::new(&example)
        .names(["x"])
        .dynamic(0, 0, &batch)
        .run(|x| {
            let n = x[0].size(0);
            let flat = no_grad(|| x[0].try_reshape([n * 2, 3.into()]))?;
            Ok(vec![flat.sin()])
        })
        .unwrap();
    expect_test::expect![[r#"
        graph {
          %x = placeholder
          %sym_size_int = aten.sym_size.int(%x, 0)
          %mul = operator.mul(%sym_size_int, 2)
          %submod_3 = get_attr submod_1
          %reshape = hop.wrap_with_set_grad_enabled(False, %submod_3, %x, %mul)
          %getitem = operator.getitem(%reshape, 0)
          %sin = aten.sin.default(%getitem)
          return (%sin,)
        }
          submod_1 {
            %x = placeholder
            %mul = placeholder
            %reshape = aten.reshape.default(%x, [%mul, 3])
            return (%reshape,)
          }
        # inputs
        x: USER_INPUT

        # outputs
        sin: USER_OUTPUT
    "#]]
    .assert_eq(&print(&program, Form::Short));
    let graph = &program.module.graph;
    let sin = graph[graph.find("sin").unwrap()].meta().val.clone().unwrap();
    let meta = sin.tensor().unwrap();
    assert_eq!(meta.sizes[0].expr().unwrap().to_string(), "Mul(Integer(2), Symbol('s0', positive=True, integer=True))");
    assert_eq!((meta.sizes[0].hint(), meta.sizes[1].known()), (Some(8), Some(3)));
    assert_eq!(program.range_constraints["s0"], ValueRange { min: Some(2), max: Some(64) });
}

/// P-119: sizes outside the range, unequal sizes of one Dim and other sizes are refused by name.
#[test]
fn sizes_out_of_range_are_refused() {
    let batch = Dim::new("batch").min(3).max(6);
    let example = [data(&[4, 2]), data(&[4])];
    let export = Export::new(&example).names(["x", "y"]).dynamic(0, 0, &batch).dynamic(1, 0, &batch);
    let program = export.run(|x| Ok(vec![&x[0].sum_dim(1, false) + &x[1]])).unwrap();
    for program in [&program, &reloaded(&program)] {
        for (sizes, message) in [
            ([&[2usize, 2][..], &[2]], "input x: dimension 0 has size 2, allowed 3..6 (x.size()[0] >= 3)"),
            ([&[7, 2], &[7]], "input x: dimension 0 has size 7, allowed 3..6 (x.size()[0] <= 6)"),
            ([&[4, 5], &[4]], "input x: dimension 1 has size 5, expected 2 (x.size()[1] == 2)"),
            (
                [&[4, 2], &[5]],
                "input y: dimension 0 has size 5, expected 4, as x.size()[0] has (y.size()[0] == x.size()[0])",
            ),
        ] {
            let found = program.run(&sizes.map(data)).unwrap_err().to_string();
            assert_eq!(found, message);
        }
        assert_eq!(program.run(&[data(&[6, 2]), data(&[6])]).unwrap()[0].tensor().unwrap().shape(), [6]);
    }
}

/// A size that is asked to vary and cannot is an error that names the op and the value it forces.
#[test]
fn what_forces_a_size_is_named() {
    let four = data(&[4, 6]);
    let refused = |f: &dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>, dims: Dims<'_>| {
        let example = [data(&[4, 6]), data(&[4, 6])];
        let mut export = Export::new(&example).names(["x", "y"]);
        for (input, dim, size) in dims {
            export = export.dynamic(*input, *dim, size);
        }
        export.run(f).unwrap_err()
    };
    let (a, b) = (Dim::new("a"), Dim::new("b"));
    let error = refused(&|x| Ok(vec![&x[0] + &four]), &[(0, 0, &a)]);
    assert!(
        matches!(&error, Error::Specialized { dim, value: 4, op, .. } if dim == "a" && op.contains("aten.add")),
        "{error}"
    );
    let cases: &[(&str, F, Dims<'_>, &str)] = &[
        (
            "two dims that are one",
            |x| Ok(vec![&x[0] + &x[1]]),
            &[(0, 0, &a), (1, 0, &b)],
            "equal to Dim b; use one Dim",
        ),
        ("a view of half", |x| Ok(vec![x[0].try_view([x[0].size(0) / 2, 12.into()])?]), &[(0, 0, &a)], "aten.view"),
        (
            "a branch on the size",
            |x| Ok(vec![if x[0].shape()[0] > 4 { x[0].sin() } else { x[0].cos() }]),
            &[(0, 0, &a)],
            "aten.cos",
        ),
        (
            "a float of the size",
            |x| Ok(vec![&x[0] * x[0].shape()[0] as f64]),
            &[(0, 0, &a)],
            "only integers may depend on a size",
        ),
        (
            "as many ops as rows",
            |x| Ok(vec![(0..x[0].shape()[0]).fold(x[1].clone(), |s, _| s.sin())]),
            &[(0, 0, &a)],
            "sin",
        ),
        (
            "a constant of its size",
            |x| Ok(vec![&x[0] + &Tensor::ones([x[0].size(0), 6.into()], DType::F64)]),
            &[(0, 0, &a)],
            "a constant whose sizes depend on those of the inputs",
        ),
        ("rows as a list", |x| Ok(vec![ops::unbind(&x[0], 0)?.remove(0)]), &[(0, 0, &a)], "aten.unbind"),
    ];
    for (what, f, dims, message) in cases {
        let error = refused(f, dims).to_string();
        assert!(error.starts_with("Dim a (size 0 of x) cannot vary: "), "{what}: {error}");
        assert!(error.contains("forces the value 4") && error.contains(message), "{what}: {error}");
    }
}

/// What is asked for must make sense before anything is traced.
#[test]
fn examples_and_ranges_agree() {
    let example = [data(&[4, 6]), data(&[5, 1])];
    let refused = |dims: &[(usize, usize, Dim)]| {
        let mut export = Export::new(&example).names(["x", "y"]);
        for (input, dim, size) in dims {
            export = export.dynamic(*input, *dim, size);
        }
        export.run(|x| Ok(vec![x[0].sin()])).unwrap_err().to_string()
    };
    let n = Dim::new("n");
    for (dims, message) in [
        (vec![(0, 2, n.clone())], "Dim n: there is no dimension 2 of x"),
        (vec![(2, 0, n.clone())], "Dim n: there is no dimension 0 of arg_2"),
        (vec![(0, 0, n.clone()), (1, 0, n.clone())], "input y: size 0 makes n 5, size 0 of x makes it 4"),
        (vec![(0, 0, n.clone().min(5))], "input x: size 0 of the example makes n 4, outside 5.."),
        (vec![(1, 1, n.clone())], "input y: size 1 of the example makes n 1: sizes 0 and 1 broadcast"),
        (vec![(1, 0, n.clone() * 2)], "input y: dimension 0 has size 5, which n * 2 + 0 cannot be"),
    ] {
        let found = refused(&dims);
        assert!(found.contains(message), "{found}");
    }
}

/// Sizes that are functions of one Dim, and several Dims at once.
#[test]
fn derived_and_several_dims() {
    let (n, m) = (Dim::new("n"), Dim::new("m").min(2));
    let f = |x: &[Tensor]| {
        let halves = x[0].try_view([x[0].size(0) / 2, 2.into(), x[0].size(1)])?;
        let sum = &halves.sum_dim(1, false) + &x[1].slice(0, Some(1.into()), None, 1);
        Ok(vec![sum.try_reshape([sum.size(0) * sum.size(1)])?, sum.t().matmul(&sum)])
    };
    let example = [data(&[6, 5]), data(&[4, 5])];
    let export = Export::new(&example).names(["x", "y"]);
    let export = export.dynamic(0, 0, &(n.clone() * 2)).dynamic(1, 0, &(n.clone() + 1));
    let program = export.dynamic(0, 1, &m).dynamic(1, 1, &m).run(f).unwrap();
    for (k, m) in [(1, 2), (3, 5), (5, 9)] {
        let inputs = [data(&[2 * k, m]), data(&[k + 1, m])];
        same("derived", &program, &f, &inputs);
        same("derived, loaded", &reloaded(&program), &f, &inputs);
    }
    let error = program.run(&[data(&[6, 5]), data(&[5, 5])]).unwrap_err().to_string();
    assert!(error.contains("input y: dimension 0 has size 5, expected 4"), "{error}");
}

/// Without a smallest value given, the smallest that works is found.
#[test]
fn the_smallest_size_is_found() {
    let range = |f: F| {
        let example = [data(&[1, 2, 9])];
        let program = Export::new(&example).dynamic(0, 2, &Dim::new("n")).run(f).unwrap();
        program.range_constraints["s0"]
    };
    assert_eq!(range(|x| Ok(vec![x[0].sin()])), ValueRange { min: Some(0), max: None });
    let least = range(|x| Ok(vec![ops::avg_pool1d(&x[0], &[5], &[2], &[0], false, true)?]));
    assert_eq!(least, ValueRange { min: Some(5), max: None });
}

struct Norm {
    weight: Parameter,
    mean: Buffer,
    var: Buffer,
    scale: Buffer,
    core: ModuleCore,
}

impl Module for Norm {
    fn core(&self) -> &ModuleCore {
        &self.core
    }

    fn visit<'a>(&'a self, visitor: &mut dyn firebrand_core::module::ModuleVisitor<'a>) {
        visitor.parameter("weight", &self.weight);
        visitor.buffer("mean", &self.mean);
        visitor.buffer("var", &self.var);
        visitor.buffer("scale", &self.scale);
    }
}

impl Forward<Tensor> for Norm {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (mean, var) = (self.mean.get(), self.var.get());
        let y = ops::batch_norm(x, Some(&self.weight), None, Some(&mean), Some(&var), true, 0.1, 1e-5, false)?;
        Ok(&y * &self.scale.get())
    }
}

/// A module's parameters and buffers, saved ones and others, are the program's; running statistics are written at any size.
#[test]
fn modules_bring_their_state() {
    let norm = || Norm {
        weight: Parameter::new(Tensor::new(&[1.0f64, 2.0, 0.5])),
        mean: Buffer::new(Tensor::new(&[0.0f64, 0.0, 0.0])),
        var: Buffer::new(Tensor::new(&[1.0f64, 1.0, 1.0])),
        scale: Buffer::non_persistent(Tensor::new(&[3.0f64])),
        core: ModuleCore::new(),
    };
    let (module, twin) = (norm(), norm());
    let example = [data(&[4, 3])];
    let batch = Dim::new("batch").min(2);
    let program =
        Export::new(&example).module(&module).dynamic(0, 0, &batch).run(|x| Ok(vec![module.forward(&x[0])?])).unwrap();
    assert_eq!(module.mean.get().to_vec::<f64>(), [0.0, 0.0, 0.0], "an export computes nothing");
    let names: Vec<&str> = program.state_dict.keys().map(String::as_str).collect();
    assert_eq!((names, program.constants.len()), (vec!["weight", "mean", "var"], 1));
    for program in [&program, &reloaded(&program)] {
        let runner = program.module().unwrap();
        let twin_state = [twin.mean.get().to_vec::<f64>(), twin.var.get().to_vec::<f64>()];
        for n in [2, 4, 9] {
            let x = data(&[n, 3]);
            let found = runner.run(std::slice::from_ref(&x)).unwrap()[0].tensor().unwrap().to_vec::<f64>();
            assert_eq!(found, twin.forward(&x).unwrap().to_vec::<f64>());
        }
        let after = runner.program();
        for (name, buffer) in [("mean", &twin.mean), ("var", &twin.var)] {
            assert_eq!(after.state(name).unwrap().to_vec::<f64>(), buffer.get().to_vec::<f64>(), "{name}");
        }
        // The second program starts where the module started.
        for (buffer, values) in [&twin.mean, &twin.var].into_iter().zip(twin_state) {
            buffer.set(Tensor::new(&values[..]));
        }
    }
}

/// Autocast blocks become regions, alone, nested, and around blocks without gradient; at any size.
#[test]
fn autocast_blocks_become_regions() {
    let off = AutocastOptions { enabled: false, ..AutocastOptions::default() };
    let f = |x: &[Tensor]| {
        let h = autocast(DType::BF16, || {
            let a = x[0].matmul(&x[1]);
            let b = autocast(off, || x[0].matmul(&x[1]));
            let c = no_grad(|| x[0].matmul(&x[1]));
            let flat = ops::linear(&x[0], &x[1].t(), None)?;
            Ok::<_, firebrand_core::Error>(vec![a, b, c, flat])
        })?;
        let d = x[0].matmul(&x[1]);
        Ok(h.into_iter().chain([d]).collect())
    };
    let single = |sizes: &[usize]| data(sizes).to_dtype(DType::F32).detach().requires_grad_();
    let example = [single(&[4, 6]), single(&[6, 3])];
    let program = Export::new(&example).dynamic(0, 0, &Dim::new("n").min(2)).run(f).unwrap();
    let text = print(&program, Form::Short);
    assert!(text.contains("hop.wrap_with_autocast(\"cpu\", bfloat16, True, False"), "{text}");
    assert!(!text.contains("_autocast(%") && !text.contains("_to_copy"), "{text}");
    for n in [2, 4, 11] {
        let inputs = [single(&[n, 6]), single(&[6, 3])];
        same("autocast", &program, &f, &inputs);
        same("autocast, loaded", &reloaded(&program), &f, &inputs);
    }
}
