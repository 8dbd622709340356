//! Winograd's algorithm against plain f64 loops on odd shapes, over thread counts, with numbers that are not finite, and off.
use super::*;

/// 3 x 3, stride 1: every padding, odd planes, ragged channels, groups, one image and many; all are served.
fn three_by_three() -> Vec<ConvShape> {
    let conv =
        |c, plane: [usize; 2], padding: [usize; 2]| ConvShape::new(c, &plane, &[3, 3], &[1, 1], &padding, &[1, 1]);
    let shapes = vec![
        conv((1, 16, 16, 1), [16, 16], [0, 0]),
        conv((1, 16, 16, 1), [15, 17], [1, 1]),
        conv((1, 17, 13, 1), [13, 14], [2, 2]),
        conv((2, 12, 31, 1), [11, 40], [0, 2]),
        conv((2, 33, 12, 1), [37, 9], [2, 0]),
        conv((1, 8, 9, 1), [70, 35], [1, 0]),
        conv((2, 3, 5, 1), [20, 20], [1, 1]),
        conv((3, 64, 72, 1), [9, 8], [1, 1]),
        conv((64, 16, 16, 1), [7, 7], [1, 1]),
        conv((64, 19, 24, 1), [4, 4], [1, 1]),
        conv((64, 12, 12, 1), [3, 3], [0, 0]),
        conv((64, 12, 12, 1), [1, 2], [1, 1]),
        conv((5, 40, 48, 2), [10, 11], [1, 1]),
        conv((3, 36, 36, 3), [12, 7], [2, 1]),
        conv((2, 12, 14, 1), [9, 9], [4, 3]),
        conv((1, 130, 150, 1), [12, 13], [1, 1]),
    ];
    for s in &shapes {
        assert!(crate::conv::winograd::serves(s), "{s:?}");
        assert_eq!(crate::conv::winograd::serves_weight(s), s.in_channels > 8, "{s:?}");
    }
    shapes
}

/// The largest difference in units of the unit roundoff times the largest result.
fn error(got: &[f64], want: &[f64]) -> f64 {
    let scale = want.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    let worst = got.iter().zip(want).map(|(a, b)| if a.is_nan() { f64::INFINITY } else { (a - b).abs() });
    worst.fold(0.0, f64::max) / scale / f64::from(f32::EPSILON)
}

/// Sums of 27 to 3800 products are off by a few roundoffs of the largest one. On these shapes the plain sum shows up to 5
/// and the algorithm up to 4.3, as its sums are shorter: six are allowed to both.
#[test]
fn is_as_exact_as_the_plain_sum() {
    let _turn = alone();
    for s in three_by_three() {
        let want = naive(&s, true, thirds);
        let winograd = run_on(&s, DType::F32, true, thirds);
        set_winograd(false);
        let plain = run_on(&s, DType::F32, true, thirds);
        set_winograd(true);
        for (i, op) in ["forward", "grad_input", "grad_weight"].iter().enumerate() {
            let (a, b) = (error(&winograd[i], &want[i]), error(&plain[i], &want[i]));
            assert!(a.max(b) <= 6.0, "{op} is off by {a:.1} roundoffs, the plain sum by {b:.1}: {s:?}");
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let _turn = alone();
    let threads = parallel::num_threads();
    for s in three_by_three() {
        let results = [1, 2, 3, 7].map(|t| {
            parallel::set_num_threads(t);
            run_on(&s, DType::F32, true, thirds)
        });
        assert!(results.windows(2).all(|r| r[0] == r[1]), "{s:?}");
    }
    parallel::set_num_threads(threads);
}

/// An infinity stays within the tiles whose patch holds it; without the algorithm, within the windows that hold it.
#[test]
fn an_infinity_stays_in_its_tiles() {
    let _turn = alone();
    let s = ConvShape::new((1, 8, 8, 1), &[16, 16], &[3, 3], &[1, 1], &[1, 1], &[1, 1]);
    let (plane, at) = (256, [7, 8]);
    let mut x = random(s.in_len(), 1);
    x[3 * plane + at[0] * 16 + at[1]] = f64::INFINITY;
    let (sx, sw, sy) = ([s.in_len()], [s.weight_len()], [s.out_len()]);
    let (x, w) = (store(DType::F32, &x), store(DType::F32, &vec![0.5; s.weight_len()]));
    for on in [true, false] {
        set_winograd(on);
        let y = store(DType::F32, &vec![0.0; s.out_len()]);
        let (x, w) = (x.view(DType::F32, 0, &sx, &[1]), w.view(DType::F32, 0, &sw, &[1]));
        forward(&s, x, w, None, y.view_mut(DType::F32, 0, &sy, &[1]));
        for (i, v) in load(DType::F32, &y, s.out_len()).iter().enumerate() {
            let o = [i % plane / 16, i % 16];
            // Tile `t` reads rows and columns `2t - 1..2t + 3`.
            let in_patch = (0..2).all(|d| (o[d] / 2 * 2..o[d] / 2 * 2 + 4).contains(&(at[d] + 1)));
            let in_window = (0..2).all(|d| (o[d]..o[d] + 3).contains(&(at[d] + 1)));
            assert!(v.is_finite() || if on { in_patch } else { in_window }, "{o:?} is {v}");
            assert!(!v.is_finite() || !in_window, "{o:?} is {v}, beside the infinity");
        }
    }
    set_winograd(true);
}
