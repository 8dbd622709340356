//! Memory as safe code sees it: what cannot exist is refused where it is made, meta tensors have no data, bools are true or
//! false whatever bytes lie there, and data that is replaced costs what is in use.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod common;

use firebrand_core::sym::SymInt;
use firebrand_core::{DType, Device, Layout, Spec, Storage, Tensor, memory_stats, ops};

/// A tensor over a meta storage is a meta tensor: it has sizes, and every way to its data is an error.
#[test]
fn meta_storages_make_meta_tensors() {
    let from_meta = Tensor::empty([4], Device::Meta).untyped_storage();
    for storage in [Storage::meta(usize::MAX / 2), from_meta, Storage::meta(64).duplicate().unwrap()] {
        for dtype in DType::ALL {
            let t = Tensor::try_from_storage(&storage, dtype, Layout::contiguous(&[1]).unwrap()).unwrap();
            assert!(t.is_meta(), "{dtype}");
            assert!(t.try_to_vec::<f64>().is_err() && t.try_item::<f64>().is_err(), "{dtype}");
        }
    }
    let t = Tensor::try_from_storage(&Storage::meta(64), DType::F32, Layout::contiguous(&[2]).unwrap()).unwrap();
    let here = Tensor::new(&[1.0f32, 2.0]);
    let error = ops::copy_(&here, &t, false).expect_err("nothing to read").to_string();
    assert!(error.contains("meta"), "{error}");
    assert_eq!(here.to_vec::<f32>(), [1.0, 2.0], "a refused copy writes nothing");
    assert!(firebrand_core::Fork::default().tensor(&t).unwrap().is_meta());
}

/// Layouts that no memory can have are errors where they are made: not a panic later, and no address that wraps.
#[test]
fn layouts_that_cannot_exist_are_refused() {
    let far = 1usize << 20;
    assert_err!(Layout::strided(&[2], &[0usize.wrapping_sub(far)], far), LayoutOverflow { .. });
    assert_err!(Layout::strided(&[1; 65], &[1; 65], 0), TooManyDims { ndim: 65 });
    assert_err!(Layout::strided(&[1, 2], &[1], 0), LayoutRank { .. });
    assert_err!(Spec::new(&[1 << (usize::BITS / 2 + 8); 2], DType::U8, Device::Cpu), SizeOverflow { .. });
    assert_err!(Tensor::try_from_vec(vec![1.0f32], &[1usize; 65][..]), TooManyDims { .. });
    // A layout with an offset has room for its elements.
    let layout = Layout::contiguous(&[3]).unwrap().with_offset(5).unwrap();
    let t = Tensor::try_empty(Spec { layout, dtype: DType::F32, device: Device::Cpu }).unwrap();
    assert_eq!((t.fill_(2.0).to_vec::<f32>(), t.storage_offset()), (vec![2.0; 3], 5));
}

/// More elements or dimensions than a tensor can have are errors of the op that would make them, on either device.
#[test]
fn ops_refuse_results_that_cannot_exist() {
    // A tensor can have as many elements, but not their square.
    const LARGE: i64 = 1 << (usize::BITS / 2 + 8);
    let big = |n: i64| SymInt::from(n);
    for device in [Device::Cpu, Device::Meta] {
        let one = Tensor::zeros([1, 1], device);
        let huge = [big(1 << 32), big(1 << 32)];
        assert_err!(ops::expand(&one, &huge, false), SizeOverflow { .. });
        let (a, b) = (ops::expand(&one, &[big(LARGE), big(1)], false), ops::expand(&one, &[big(1), big(LARGE)], false));
        let (a, b) = (a.unwrap(), b.unwrap());
        assert!(ops::add(&a, &b, 1.into()).is_err(), "a broadcast result");
        assert!(ops::mul(&a, &b).is_err() && ops::masked_select(&a, &b).is_err());
        assert!(ops::broadcast_tensors(&[a, b]).is_err());
        let mut deep = one.reshape([1]);
        for _ in 1..64 {
            deep = deep.unsqueeze(0);
        }
        assert_eq!(deep.ndim(), 64);
        assert_err!(ops::unsqueeze(&deep, 0), TooManyDims { ndim: 65 });
        assert!(ops::view(&deep, &[big(1); 65]).is_err() && ops::reshape(&deep, &[big(1); 65]).is_err());
        assert!(
            ops::expand(&deep, &[big(1); 65], false).is_err() && ops::stack(&[deep.clone(), deep.clone()], 0).is_err()
        );
        assert!(ops::as_strided(&deep, &[big(1); 65], &[big(1); 65], None).is_err());
        assert!(ops::zeros(&[big(1); 70], None, Some(device)).is_err());
        assert!(ops::empty_strided(&[big(2)], &[big(i64::MAX / 2)], None, Some(device)).is_err());
        // A step beyond the end leaves one element, whose stride means nothing.
        let stepped = ops::slice(&Tensor::zeros([10], device), 0, None, None, big(i64::MAX / 2)).unwrap();
        assert_eq!(stepped.shape(), [1]);
        assert_eq!(stepped.unsqueeze(0).shape(), [1, 1]);
    }
}

/// Any byte but 0 is true, for every kernel that reads it: none is ever counted as more than one, or read as Rust's bool.
#[test]
fn bools_are_true_or_false_whatever_bytes_they_are() {
    let bytes: Vec<u8> = (0..=255).collect();
    let storage = Storage::from_bytes(&[0; 256]).unwrap();
    let t = Tensor::try_from_storage(&storage, DType::Bool, Layout::contiguous(&[256]).unwrap()).unwrap();
    let raw = Tensor::try_from_storage(&storage, DType::U8, Layout::contiguous(&[256]).unwrap()).unwrap();
    raw.copy_(&Tensor::new(&bytes), false);
    let truth: Vec<bool> = bytes.iter().map(|&b| b != 0).collect();
    let number = |t: &Tensor| t.item::<f64>();
    assert_eq!(t.to_vec::<bool>(), truth);
    assert_eq!((number(&t.sum()), number(&t.any()), number(&t.all())), (255.0, 1.0, 0.0));
    assert_eq!(t.nonzero().shape(), [255, 1]);
    for dtype in DType::ALL {
        let wide: Vec<f64> = t.to_dtype(dtype).to_vec();
        assert_eq!(wide.iter().sum::<f64>(), 255.0, "{dtype}");
    }
    let ones = Tensor::full([256], true, DType::Bool);
    let same = |found: Tensor, f: fn(bool) -> bool, what: &str| {
        assert_eq!(found.to_vec::<bool>(), truth.iter().map(|&b| f(b)).collect::<Vec<_>>(), "{what}");
        let bytes = Tensor::try_from_storage(&found.untyped_storage(), DType::U8, found.layout().clone()).unwrap();
        assert!(bytes.to_vec::<u8>().iter().all(|&b| b <= 1), "{what} writes 0 or 1");
    };
    same(t.logical_not(), |b| !b, "not");
    same(t.bitwise_not(), |b| !b, "bitwise not");
    same(t.logical_and(&ones), |b| b, "and");
    same(t.logical_xor(&ones), |b| !b, "xor");
    same(t.bitwise_xor(&ones), |b| !b, "bitwise xor");
    same(t.bitwise_and(&ones), |b| b, "bitwise and");
    same(t.bitwise_or(&t), |b| b, "bitwise or");
    same(t.eq(&ones), |b| b, "eq");
    same(t.ne(&ones), |b| !b, "ne");
    same(t.lt(&ones), |b| !b, "lt");
    same(t.ge(&ones), |b| b, "ge");
    same(&t + &t, |b| b, "add");
    same(&t * &t, |b| b, "mul");
    same(t.maximum(&t), |b| b, "maximum");
    let (sorted, _) = t.sort(0, false);
    assert_eq!(sorted.to_vec::<bool>(), (0..256).map(|i| i > 0).collect::<Vec<_>>());
    assert_eq!(t.cumsum(0).to_vec::<f64>(), (0..256).map(f64::from).collect::<Vec<_>>());
    assert_eq!(Tensor::new(&[1.0f32; 256]).masked_select(&t).shape(), [255]);
    assert_eq!(
        ops::where_self(&t, &Tensor::scalar(1.0f32), &Tensor::scalar(0.0f32)).unwrap().to_vec::<f32>()[..2],
        [0.0, 1.0]
    );
    let m = ops::mm(&t.reshape([16, 16]), &ones.reshape([16, 16]));
    if let Ok(m) = m {
        assert!(m.to_vec::<u8>().iter().all(|&b| b == 1));
    }
}

/// Memory that is shown as it is holds 0 or 1 where it is bool: it may be saved.
#[test]
fn new_bools_are_zero_on_reused_memory() {
    for n in [1i64, 64, 1000] {
        for _ in 0..4 {
            drop(Tensor::full([n], 77, DType::U8));
            let like = Tensor::zeros([n], DType::Bool);
            let made = [
                Tensor::empty([n], DType::Bool),
                ops::empty(&[n.into()], Some(DType::Bool), None, None).unwrap(),
                ops::empty_like(&like, None, None, None).unwrap(),
                ops::new_empty(&like, &[n.into()], None, None).unwrap(),
                ops::empty_strided(&[n.into()], &[1.into()], Some(DType::Bool), None).unwrap(),
            ];
            for t in made {
                let bytes = Tensor::try_from_storage(&t.untyped_storage(), DType::U8, t.layout().clone()).unwrap();
                assert_eq!(bytes.to_vec::<u8>(), vec![0; n as usize]);
                bytes.fill_(77.0);
            }
        }
    }
}

/// Descriptions that come back are kept once, and memory that was replaced is let go, however often that happens.
#[test]
fn replacing_data_for_ever_costs_nothing() {
    let t = Tensor::zeros([2, 3], DType::F32);
    let first = t.layout();
    for _ in 0..20_001 {
        t.t_();
    }
    assert_eq!((t.shape(), first.sizes()), (&[3, 2][..], &[2, 3][..]), "what was borrowed stays as it was");
    let p = Tensor::zeros([1], DType::F32);
    let before = memory_stats().live;
    for i in 0..500i64 {
        p.set_data(&Tensor::full([1000 + i % 10, 100], i, DType::F32)); // 400 KB each
    }
    assert_eq!(p.shape(), [1009, 100]);
    assert!(p.to_vec::<f32>().iter().all(|&v| v == 499.0));
    let held = memory_stats().live.saturating_sub(before);
    assert!(held < 16 << 20, "{held} bytes are held, of 200 MB that were put in its place");
}

/// What readers borrow stays valid while another thread replaces the data.
#[test]
fn data_is_replaced_under_readers() {
    let t = Tensor::full([4], 4, DType::F32);
    let others: Vec<Tensor> = [1i64, 2, 8].iter().map(|&n| Tensor::full([n, 1], n, DType::F32)).collect();
    std::thread::scope(|s| {
        s.spawn(|| (0..2000).for_each(|i| t.set_data(&others[i % 3])));
        for _ in 0..2 {
            s.spawn(|| {
                for _ in 0..2000 {
                    let layout = t.layout();
                    assert_eq!(layout.sizes().iter().product::<usize>(), layout.numel());
                    assert_eq!(layout.ndim(), if layout.numel() == 4 { 1 } else { 2 });
                }
            });
        }
    });
    assert_eq!(t.to_vec::<f32>(), others[1999 % 3].to_vec::<f32>());
}
