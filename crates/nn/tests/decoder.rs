//! Parts of decoders: with a cache as without one, windows as masks say, positions by their distance.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand_core::random::manual_seed;
use firebrand_core::{DType, Result, Tensor, ops};
use firebrand_nn::generate::{Generation, LanguageModel, Sampling, generate};
use firebrand_nn::layers::{Forward, GroupedQueryAttentionOptions, Module, RotaryEmbedding, SwiGLU, causal_mask};

fn worst(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!(a.shape(), b.shape());
    (a - b).abs().max().item::<f64>()
}

#[test]
fn a_cache_changes_nothing() {
    manual_seed(0);
    for window in [None, Some(1), Some(3), Some(50)] {
        for kv_heads in [1, 2, 4] {
            let options = GroupedQueryAttentionOptions {
                sliding_window: window,
                ..GroupedQueryAttentionOptions::new(16, 4, kv_heads)
            };
            let layer = options.build().unwrap();
            let x = Tensor::randn([2, 7, 16], DType::F32);
            let whole = layer.try_call(&x).unwrap().detach();
            // In pieces of any length.
            for cuts in [&[1, 1, 1, 1, 1, 1, 1][..], &[4, 3], &[2, 1, 4], &[7]] {
                let mut cache = layer.cache(2, 7, DType::F32);
                let mut at = 0;
                for &n in cuts {
                    let part = ops::narrow(&x, 1, at.into(), n.into()).unwrap();
                    let found = layer.attend(&part, Some(&mut cache)).unwrap().detach();
                    let expected = ops::narrow(&whole, 1, at.into(), n.into()).unwrap();
                    let off = worst(&found, &expected);
                    assert!(off < 1e-5, "window {window:?}, {kv_heads} heads of keys, {cuts:?} at {at}: {off}");
                    at += n;
                }
                assert_eq!(cache.len(), 7);
                let message = layer.attend(&x, Some(&mut cache)).unwrap_err().to_string();
                assert!(message.contains("room for 7"), "{message}");
                cache.clear();
                assert!(cache.is_empty());
            }
        }
    }
}

#[test]
fn masks_of_the_past() {
    let rows = |m: Tensor| m.to_vec::<bool>().into_iter().map(|b| if b { '1' } else { '.' }).collect::<String>();
    assert_eq!(rows(causal_mask(3, 3, None).unwrap()), "1..11.111");
    assert_eq!(rows(causal_mask(2, 4, None).unwrap()), "111.1111");
    assert_eq!(rows(causal_mask(3, 4, Some(2)).unwrap()), "11...11...11");
    assert!(causal_mask(3, 2, None).is_err());
}

#[test]
fn products_depend_on_the_distance_only() {
    let rotary = RotaryEmbedding::new(8, 10_000.0).unwrap();
    let (q, k) = (Tensor::randn([1, 1, 1, 8], DType::F32), Tensor::randn([1, 1, 1, 8], DType::F32));
    let at = |t: &Tensor, p: usize| rotary.at(p, 1, DType::F32).unwrap().turn(t).unwrap();
    let product = |a: usize, b: usize| (at(&q, a) * at(&k, b)).sum().item::<f64>();
    assert!((product(0, 3) - product(40, 43)).abs() < 1e-4);
    assert!((product(0, 3) - product(0, 4)).abs() > 1e-4, "another distance, another product");
    assert!(RotaryEmbedding::new(7, 10_000.0).is_err());
    assert!(GroupedQueryAttentionOptions::new(16, 4, 3).build().is_err());
}

#[test]
fn names_are_those_of_hugging_face() {
    let names = |m: &dyn Module| m.named_parameters().into_iter().map(|(n, _)| n).collect::<Vec<_>>().join(" ");
    let attention = GroupedQueryAttentionOptions::new(8, 2, 1).bias(true).build().unwrap();
    assert_eq!(
        names(&attention),
        "q_proj.weight q_proj.bias k_proj.weight k_proj.bias v_proj.weight v_proj.bias o_proj.weight"
    );
    assert_eq!(names(&SwiGLU::new(8, 12).unwrap()), "gate_proj.weight up_proj.weight down_proj.weight");
}

/// Logits of its own, whatever it is fed.
struct Fixed(Vec<f32>);

impl LanguageModel for Fixed {
    fn feed(&mut self, _: &[i64]) -> Result<Tensor> {
        Ok(Tensor::new(&self.0))
    }
    fn reset(&mut self) -> Result<()> {
        Ok(())
    }
    fn max_length(&self) -> Option<usize> {
        Some(2000)
    }
}

#[test]
fn draws_stay_within_top_k_and_top_p() {
    let logits = vec![0.0, 3.0, 1.0, 2.0, -1.0];
    let seen = |sampling: Sampling| {
        manual_seed(1);
        let options = Generation { max_new_tokens: 500, sampling: Sampling { sample: true, ..sampling }, stop: vec![] };
        let mut made = generate(&mut Fixed(logits.clone()), &[0], &options, |_| true).unwrap();
        assert_eq!(made.len(), 500);
        made.sort_unstable();
        made.dedup();
        made
    };
    assert_eq!(seen(Sampling::default()), [0, 1, 2, 3, 4]);
    assert_eq!(seen(Sampling { top_k: Some(2), ..Sampling::default() }), [1, 3]);
    // Probabilities 0.64, 0.24, 0.09, …: two are enough for 0.8.
    assert_eq!(seen(Sampling { top_p: Some(0.8), ..Sampling::default() }), [1, 3]);
    assert_eq!(seen(Sampling { top_p: Some(0.01), ..Sampling::default() }), [1]);
    assert_eq!(seen(Sampling { temperature: 0.05, ..Sampling::default() }), [1]);
}

#[test]
fn greedy_with_penalty_and_stop() {
    let run = |options: &Generation| generate(&mut Fixed(vec![0.1, 1.0, 0.9, -1.0]), &[0], options, |_| true).unwrap();
    let mut options = Generation { max_new_tokens: 3, ..Generation::default() };
    assert_eq!(run(&options), [1, 1, 1]);
    options.sampling.repetition_penalty = 2.0;
    assert_eq!(run(&options), [1, 2, 1], "0.5 and 0.45 are left of 1.0 and 0.9");
    options.stop = vec![2];
    assert_eq!(run(&options), [1, 2]);
    let mut shown = Vec::new();
    let stopped = generate(&mut Fixed(vec![0.0, 1.0]), &[0], &Generation::default(), |t| {
        shown.push(t);
        shown.len() < 2
    });
    assert_eq!((stopped.unwrap(), shown), (vec![1, 1], vec![1, 1]));
}

#[test]
fn refusals_say_what_to_do() {
    let refused = |prompt: &[i64], options: Generation, words: &str| {
        let message = generate(&mut Fixed(vec![0.0, 1.0]), prompt, &options, |_| true).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    };
    let sampling = |s: Sampling| Generation { sampling: s, ..Generation::default() };
    refused(&[], Generation::default(), "no token");
    refused(&[1], Generation { max_new_tokens: 3000, ..Generation::default() }, "limited to 2000 tokens");
    refused(&[1], sampling(Sampling { temperature: 0.0, ..Sampling::default() }), "temperature");
    refused(&[1], sampling(Sampling { top_k: Some(0), ..Sampling::default() }), "top-k");
    refused(&[1], sampling(Sampling { top_p: Some(1.5), ..Sampling::default() }), "top-p");
    refused(&[1], sampling(Sampling { repetition_penalty: -1.0, ..Sampling::default() }), "penalty");
}
