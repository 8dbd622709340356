//! Every draw against `golden/generator.json`.

use super::*;
use crate::{DType, Storage, with_element};
use serde_json::Value;

fn fnv(bytes: &[u8]) -> String {
    let h = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    format!("{h:016x}")
}

/// The elements as bit patterns, widened.
fn bits(storage: &Storage, dtype: DType, n: usize, stride: usize) -> Vec<u64> {
    let bytes = storage.nbytes();
    let raw = storage.view(DType::U8, 0, &[bytes], &[1]).as_slice::<u8>().expect("contiguous").to_vec();
    let element = |i: usize| {
        let mut wide = [0; 8];
        wide[..dtype.size()].copy_from_slice(&raw[i * stride * dtype.size()..][..dtype.size()]);
        u64::from_le_bytes(wide)
    };
    (0..n).map(element).collect()
}

fn run(g: &mut Generator, op: &str, dtype: DType, n: usize, args: &[f64], ints: &[i64]) -> Vec<u64> {
    let storage = Storage::zeroed(8 * n.max(1) * 6).expect("small");
    let strided = op == "normal_strided";
    let (sizes, strides) = ([n], [1 + usize::from(strided)]);
    let out = storage.view_mut(dtype, 0, &sizes, &strides);
    let arg = |i: usize, default: f64| args.get(i).copied().unwrap_or(default);
    match op {
        "uniform" => g.uniform(&out, arg(0, 0.0), arg(1, 1.0)),
        "normal" | "normal_strided" => g.normal(&out, arg(0, 0.0), arg(1, 1.0)),
        "bernoulli" => g.bernoulli(&out, arg(0, 0.5)),
        "bernoulli_tensor" => {
            let p = if dtype.is_floating_point() { dtype } else { DType::F64 };
            let source = Storage::zeroed(8 * n).expect("small");
            let view = source.view_mut(p, 0, &sizes, &strides);
            let mut i = 0;
            with_element!(p, T => distributions::fill::<T>(&view, || {
                i += 1;
                distributions::narrow(f64::from((i - 1) % 10) / 10.0)
            }));
            g.bernoulli_tensor(&out, &view.as_view())
        }
        "exponential" => g.exponential(&out, arg(0, 1.0)),
        "geometric" => g.geometric(&out, arg(0, 0.5)),
        "cauchy" => g.cauchy(&out, arg(0, 0.0), arg(1, 1.0)),
        "log_normal" => g.log_normal(&out, arg(0, 1.0), arg(1, 2.0)),
        "random_from_to" => g.random_from_to(&out, ints[0], ints[1]),
        "random" => g.random_any(&out),
        "random_full" => g.random_full(&out),
        "randperm" => g.randperm(&out),
        "multinomial" => {
            let source = Storage::zeroed(8 * 21).expect("small");
            let view = source.view_mut(dtype, 0, &[3, 7], &[7, 1]);
            let mut i = 0;
            with_element!(dtype, T => distributions::fill::<T>(&view, || {
                i += 1;
                let (row, column) = ((i - 1) / 7, (i - 1) % 7);
                crate::Element::from_i64((column + 7 - row) % 7 + 1)
            }));
            g.multinomial(&storage.view_mut(DType::I64, 0, &[3, n], &[n, 1]), &view.as_view());
            return bits(&storage, DType::I64, 3 * n, 1);
        }
        _ => panic!("unknown op {op}"),
    }
    bits(&storage, dtype, n, strides[0])
}

#[test]
fn every_draw_is_pytorchs() {
    let golden: Value = serde_json::from_str(include_str!("../../../../golden/generator.json")).expect("valid");
    let mut wrong = Vec::new();
    for (k, case) in golden["cases"].as_array().expect("list").iter().enumerate() {
        let mut g = Generator::new(case["seed"].as_u64().expect("seed"));
        for step in case["steps"].as_array().expect("list") {
            let (op, name) = (step["op"].as_str().expect("op"), step["dtype"].as_str().expect("dtype"));
            let n = step["n"].as_u64().expect("n") as usize;
            let dtype = DType::from_name(name).expect("dtype");
            let list = step["args"].as_array().expect("args");
            let args: Vec<f64> = list.iter().map(|a| a.as_f64().expect("number")).collect();
            let ints: Vec<i64> = list.iter().map(|a| a.as_i64().unwrap_or(0)).collect();
            let want: Vec<u64> = step["bits"]
                .as_str()
                .expect("bits")
                .split(' ')
                .map(|h| u64::from_str_radix(h, 16).expect("hex"))
                .collect();
            let got = run(&mut g, op, dtype, n, &args, &ints);
            assert_eq!(got.len(), want.len());
            if got != want {
                let at = got.iter().zip(&want).position(|(a, b)| a != b).expect("some element differs");
                let (a, b) = (got[at], want[at]);
                wrong.push(format!("case {k}: {op} {name} {n} {list:?} at {at}: {a:x}, expected {b:x}"));
            }
        }
        if fnv(&g.to_bytes()) != case["state"].as_str().expect("state") {
            wrong.push(format!("case {k}: state"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_saved_state_continues_where_it_was() {
    let mut g = Generator::new(5);
    for dtype in [DType::F32, DType::F64] {
        run(&mut g, "normal", dtype, 7, &[], &[]); // leaves a cached value
        let mut again = Generator::from_bytes(&g.to_bytes()).expect("own state");
        assert_eq!(again, g);
        assert_eq!(run(&mut again, "normal", dtype, 700, &[], &[]), run(&mut g, "normal", dtype, 700, &[], &[]));
    }
    assert_eq!(Generator::from_bytes(&[0; 5056]), Err(InvalidState));
    assert_eq!(Generator::from_bytes(&g.to_bytes()[1..]), Err(InvalidState));
}

/// A state is taken only if a thousand draws stay inside its words, whatever `left` and `next` claim.
#[test]
fn places_in_a_state_belong_together() {
    let n = mersenne::N as u64;
    for (left, next, good) in [
        (1, 0, true),
        (1, n, true),
        (n, 1, true),
        (2, n - 1, true),
        (n, 0, false),
        (2, n, false),
        (n, n, false),
        (3, n - 1, false),
        (0, 1, false),
        (n + 1, 0, false),
        (1, n + 1, false),
    ] {
        let mut bytes = Generator::new(3).to_bytes();
        bytes[8..12].copy_from_slice(&(left as u32).to_le_bytes());
        bytes[16..24].copy_from_slice(&next.to_le_bytes());
        let found = Generator::from_bytes(&bytes);
        assert_eq!(found.is_ok(), good, "left {left}, next {next}");
        if let Ok(mut g) = found {
            (0..1000).for_each(|_| _ = g.random());
        }
    }
}
