//! The profiler: what it sees, that it changes nothing, and that it costs nothing where it is not used.

use firebrand_core::profiler::{EventKind, Order, is_profiling, profile, record_function};
use firebrand_core::{DType, Tensor, ops};

/// Names of the kernels of one direction, in order.
fn names(profile: &firebrand_core::profiler::Profile, backward: bool) -> Vec<String> {
    let kernels = profile.events.iter().filter(|e| e.kind == EventKind::Op && e.backward == backward);
    kernels.map(|e| e.name.to_string()).collect()
}

#[test]
fn sees_every_kernel_forward_and_backward() {
    let (x, w) = (Tensor::ones([3, 4], DType::F32), Tensor::ones([4, 5], DType::F32).requires_grad_());
    let (loss, seen) = profile(|| {
        let loss = x.matmul(&w).relu().sum();
        loss.backward();
        loss
    });
    assert_eq!(loss.item::<f32>(), 60.0);
    assert_eq!(names(&seen, false), ["aten::mm", "aten::relu", "aten::sum"]);
    let backward = names(&seen, true);
    assert!(backward.contains(&"aten::threshold_backward".to_string()), "{backward:?}");
    assert!(backward.contains(&"aten::mm".to_string()), "{backward:?}");
    assert!(!is_profiling());
    let (_, empty) = profile(|| ());
    assert!(empty.events.is_empty());
}

#[test]
fn counts_flops_and_bytes() {
    let of = |f: &dyn Fn()| profile(f).1.work();
    let t = |sizes: &[i64]| Tensor::ones(sizes, DType::F32);
    let (a, b) = (t(&[3, 4]), t(&[4, 5]));
    let mm = of(&|| drop(a.mm(&b)));
    assert_eq!((mm.flops, mm.bytes), (2 * 3 * 4 * 5, 4 * (12 + 20 + 15)));
    // One number for all rows is read once.
    let row = t(&[1, 5]).expand([100, 5]);
    let add = of(&|| drop(&row + &t(&[100, 5])));
    assert_eq!((add.flops, add.bytes), (0, 4 * (5 + 500 + 500)), "{add:?}");
    // A view does nothing.
    assert_eq!(of(&|| drop(a.transpose(0, 1))).bytes, 0);
    let (image, weight) = (t(&[2, 4, 8, 8]), t(&[6, 2, 3, 3]));
    let conv = of(&|| {
        let one = [1.into(); 2];
        let none = [0.into(); 2];
        drop(ops::convolution(&image, &weight, None, &one, &one, &one, false, &none, 2.into()).unwrap())
    });
    assert_eq!(conv.flops, 2 * (2 * 6 * 8 * 8) * (2 * 3 * 3));
}

/// The bit that switches it on does not make attention, optimizers or anything else take another way.
#[test]
fn runs_the_same_kernels() {
    firebrand_core::random::manual_seed(3);
    let q = Tensor::randn([1, 2, 16, 8], DType::F32).requires_grad_();
    let run = || {
        let out = ops::scaled_dot_product_attention(&q, &q, &q, None, 0.0, true, None, false).unwrap();
        out.sum().backward();
        let grad = q.grad().unwrap();
        q.zero_grad();
        (out.to_vec::<f32>(), grad.to_vec::<f32>(), out.grad_fn().unwrap().name().to_string())
    };
    let plain = run();
    let (profiled, seen) = profile(run);
    assert_eq!(profiled, plain);
    assert_eq!(names(&seen, false).iter().filter(|n| *n == "aten::_attention").count(), 1, "{:?}", names(&seen, false));
}

#[test]
fn labels_nest_and_end_on_unwind() {
    let x = Tensor::ones([2], DType::F32);
    let ((), seen) = profile(|| {
        let _outer = record_function("outer");
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _inner = record_function("inner");
            let _ = &x + &x;
            panic!("stop");
        }));
        assert!(caught.is_err());
        let _ = &x * &x;
    });
    let within: Vec<(&str, Option<&str>)> = seen.events.iter().map(|e| (&*e.name, e.within.as_deref())).collect();
    let expected = [
        ("aten::add.Tensor", Some("inner")),
        ("inner", Some("outer")),
        ("aten::mul.Tensor", Some("outer")),
        ("outer", None),
    ];
    assert_eq!(within, expected);
    let table = seen.table(Order::Calls, 1);
    assert!(table.contains("… and 1 more") && table.contains("outer"), "{table}");
}

/// A failing op is not an event, and the profile goes on.
#[test]
fn errors_pass_through() {
    let (a, b) = (Tensor::ones([2, 3], DType::F32), Tensor::ones([2, 3], DType::F32));
    let (message, seen) = profile(|| a.try_mm(&b).unwrap_err().to_string());
    assert_eq!(message, a.try_mm(&b).unwrap_err().to_string());
    assert!(seen.events.is_empty());
}
