//! Against loops over coordinates, for layouts, dtypes and thread counts.

use super::*;
use crate::ViewMut;
use crate::test_tensors::{LIES, Lie, Tensor, any_threads, coordinates, linear, with};

// Miri takes its time: it gets an element type of each kind, and smaller tensors.
const DTYPES: &[DType] =
    if cfg!(miri) { &[DType::U8, DType::F32] } else { &[DType::U8, DType::F16, DType::F32, DType::I64, DType::F64] };
const SHAPES: &[&[usize]] = if cfg!(miri) { &[&[7], &[2, 3, 4], LARGE] } else { &[&[7], &[4, 5], &[3, 4, 5], LARGE] };
/// Cut into chunks for threads; under Miri these are smaller.
const LARGE: &[usize] = if cfg!(miri) { &[12, 9] } else { &[200, 130] };

/// Sizes of an index into `sizes` along `dim`: of another length there, a little shorter elsewhere.
fn index_shape(sizes: &[usize], dim: usize) -> Vec<usize> {
    let shorter: Vec<usize> = sizes.iter().map(|&n| n - n / 4).collect();
    with(&shorter, dim, sizes[dim] + 3)
}

#[test]
fn gather_and_scatter_follow_their_definitions() {
    for &sizes in SHAPES {
        for dim in 0..sizes.len() {
            for lie in LIES {
                for &dtype in DTYPES {
                    let shape = index_shape(sizes, dim);
                    let int = if dtype == DType::F32 { DType::I32 } else { DType::I64 };
                    let index = Tensor::random(1, int, &shape, lie, 0, sizes[dim] as i64);
                    let input = Tensor::random(2, dtype, sizes, lie, 0, 100);
                    let src = Tensor::random(3, dtype, &shape, Lie::Reversed, 0, 3);
                    let (named, from, add) = (index.values(), input.values(), src.values());
                    let target = |i: usize, c: &[usize]| linear(sizes, &with(c, dim, named[i] as usize));

                    let got = any_threads(|| {
                        let out = Tensor::zeros(dtype, &shape, lie);
                        gather(&input.view(), dim, &index.view(), &out.view_mut()).expect("in range");
                        out.values()
                    });
                    let want: Vec<f64> = coordinates(&shape).enumerate().map(|(i, c)| from[target(i, &c)]).collect();
                    assert_eq!(got, want, "gather {sizes:?} {dim} {lie:?} {dtype}");

                    let got = any_threads(|| {
                        let out = Tensor::new(dtype, sizes, lie, &from);
                        scatter(&out.view_mut(), dim, &index.view(), &src.view()).expect("in range");
                        let sum = Tensor::new(dtype, sizes, lie, &from);
                        scatter_add(&sum.view_mut(), dim, &index.view(), &src.view()).expect("in range");
                        let max = Tensor::new(dtype, sizes, lie, &from);
                        let (to, by) = (max.view_mut(), index.view());
                        scatter_reduce(&to, dim, &by, &src.view(), Reduce::Amax, false).expect("in range");
                        [out.values(), sum.values(), max.values()]
                    });
                    let mut want = [from.clone(), from.clone(), from.clone()];
                    let mut touched = vec![false; from.len()];
                    for (i, c) in coordinates(&shape).enumerate() {
                        let t = target(i, &c);
                        want[0][t] = add[i];
                        want[1][t] = (want[1][t] + add[i]) % if dtype == DType::U8 { 256.0 } else { f64::INFINITY };
                        want[2][t] = if touched[t] { want[2][t].max(add[i]) } else { add[i] };
                        touched[t] = true;
                    }
                    assert!(got == want, "scatter {sizes:?} {dim} {lie:?} {dtype}");
                }
            }
        }
    }
}

#[test]
fn reductions_propagate_nan_and_honour_include_self() {
    let run = |reduce, include_self| {
        let out = Tensor::new(DType::F32, &[3], Lie::Contiguous, &[5.0, 2.0, 9.0]);
        let index = Tensor::new(DType::I64, &[3], Lie::Contiguous, &[0.0, 0.0, 1.0]);
        let src = Tensor::new(DType::F32, &[3], Lie::Contiguous, &[3.0, 4.0, f64::NAN]);
        scatter_reduce(&out.view_mut(), 0, &index.view(), &src.view(), reduce, include_self).expect("in range");
        let v = out.values();
        assert!(v[1].is_nan() && v[2] == 9.0);
        v[0]
    };
    assert_eq!([Reduce::Sum, Reduce::Prod, Reduce::Amax, Reduce::Amin].map(|r| run(r, true)), [12.0, 60.0, 5.0, 3.0]);
    assert_eq!([Reduce::Sum, Reduce::Prod, Reduce::Amax, Reduce::Amin].map(|r| run(r, false)), [7.0, 12.0, 4.0, 3.0]);
}

#[test]
fn blocks_along_a_dimension() {
    for &sizes in SHAPES {
        for dim in 0..sizes.len() {
            for lie in LIES {
                for &dtype in DTYPES {
                    let n = sizes[dim] + 5;
                    let index = Tensor::random(4, DType::I64, &[n], lie, 0, sizes[dim] as i64);
                    let shape = with(sizes, dim, n);
                    let input = Tensor::random(5, dtype, sizes, lie, 0, 50);
                    let src = Tensor::random(6, dtype, &shape, Lie::Contiguous, 0, 3);
                    let seven = Tensor::new(dtype, &[], Lie::Contiguous, &[7.0]);
                    let (named, from, new) = (index.values(), input.values(), src.values());
                    let got = any_threads(|| {
                        let selected = Tensor::zeros(dtype, &shape, lie);
                        index_select(&input.view(), dim, &index.view(), &selected.view_mut()).expect("in range");
                        let fresh = || Tensor::new(dtype, sizes, lie, &from);
                        let (added, copied, filled) = (fresh(), fresh(), fresh());
                        index_add(&added.view_mut(), dim, &index.view(), &src.view(), 2.0).expect("in range");
                        index_copy(&copied.view_mut(), dim, &index.view(), &src.view()).expect("in range");
                        index_fill(&filled.view_mut(), dim, &index.view(), &seven.view()).expect("in range");
                        [selected, added, copied, filled].map(|t| t.values())
                    });
                    let mut want = [vec![0.0; new.len()], from.clone(), from.clone(), from.clone()];
                    for (i, c) in coordinates(&shape).enumerate() {
                        let t = linear(sizes, &with(&c, dim, named[c[dim]] as usize));
                        want[0][i] = from[t];
                        want[1][t] =
                            (want[1][t] + 2.0 * new[i]) % if dtype == DType::U8 { 256.0 } else { f64::INFINITY };
                        want[2][t] = new[i];
                        want[3][t] = 7.0;
                    }
                    assert!(got == want, "{sizes:?} {dim} {lie:?} {dtype}");
                }
            }
        }
    }
}

#[test]
fn advanced_indexing_places_dimensions_as_pytorch_does() {
    // Sizes, which dimensions are indexed, sizes of the index, expected sizes.
    type Row = (&'static [usize], &'static [bool], &'static [usize], &'static [usize]);
    let table: [Row; 8] = [
        (&[6], &[true], &[4], &[4]),
        (&[6, 5], &[true], &[2, 3], &[2, 3, 5]),
        (&[6, 5], &[false, true], &[2, 3], &[6, 2, 3]),
        (&[6, 5], &[true, true], &[4], &[4]),
        (&[4, 5, 6], &[false, true, true], &[3, 2], &[4, 3, 2]),
        (&[4, 5, 6], &[true, false, true], &[3], &[3, 5]),
        (&[4, 5, 6, 3], &[false, true, false, true], &[2], &[2, 4, 6]),
        if cfg!(miri) { (&[30, 7], &[true], &[40], &[40, 7]) } else { (&[300, 70], &[true], &[400], &[400, 70]) },
    ];
    for (sizes, indexed, common, expected) in table {
        assert_eq!(&index_sizes(sizes, indexed, common)[..], expected);
        for lie in LIES {
            let input = Tensor::random(7, DType::F32, sizes, lie, 0, 1000);
            let tensors: Vec<Option<Tensor>> = (0..indexed.len())
                .map(|k| {
                    let n = sizes[k] as i64;
                    indexed[k].then(|| Tensor::random(8 + k as u64, DType::I64, common, lie, -n, n))
                })
                .collect();
            let indices: Vec<Option<View>> = tensors.iter().map(|t| t.as_ref().map(|t| t.view())).collect();
            let src = Tensor::random(9, DType::F32, expected, lie, 0, 9);
            let named: Vec<Option<Vec<f64>>> = tensors.iter().map(|t| t.as_ref().map(|t| t.values())).collect();
            let place = place_of(indexed);
            let target = |c: &[usize]| {
                let b = linear(common, &c[place..place + common.len()]);
                let mut rest = c[..place].iter().chain(&c[place + common.len()..]);
                let full: Vec<usize> = (0..sizes.len())
                    .map(|k| match named.get(k).and_then(|n| n.as_ref()) {
                        Some(n) => (n[b] as i64).rem_euclid(sizes[k] as i64) as usize,
                        None => *rest.next().expect("a coordinate"),
                    })
                    .collect();
                linear(sizes, &full)
            };
            let (from, new) = (input.values(), src.values());
            let got = any_threads(|| {
                let out = Tensor::zeros(DType::F32, expected, lie);
                index(&input.view(), &indices, &out.view_mut()).expect("in range");
                let (put, added) =
                    (Tensor::new(DType::F32, sizes, lie, &from), Tensor::new(DType::F32, sizes, lie, &from));
                index_put(&put.view_mut(), &indices, &src.view(), false).expect("in range");
                index_put(&added.view_mut(), &indices, &src.view(), true).expect("in range");
                [out, put, added].map(|t| t.values())
            });
            let mut want = [vec![0.0; new.len()], from.clone(), from.clone()];
            for (i, c) in coordinates(expected).enumerate() {
                want[0][i] = from[target(&c)];
                want[2][target(&c)] += new[i];
            }
            // The last index position wins, whatever the place of the index dimensions.
            let mut order: Vec<(usize, Vec<usize>)> = coordinates(expected).enumerate().collect();
            order.sort_by_key(|(_, c)| linear(common, &c[place..place + common.len()]));
            order.iter().for_each(|(i, c)| want[1][target(c)] = new[*i]);
            assert!(got == want, "{sizes:?} {indexed:?} {lie:?}");
        }
    }
}

fn place_of(indexed: &[bool]) -> usize {
    let text: String = indexed.iter().map(|&i| if i { 'x' } else { '.' }).collect();
    if text.trim_matches('.').contains('.') { 0 } else { text.find('x').unwrap_or(0) }
}

#[test]
fn masks_choose_in_logical_order() {
    for sizes in [&[][..], &[5], &[4, 5], &[3, 4, 5], if cfg!(miri) { LARGE } else { &[211, 333] }] {
        for lie in LIES {
            for &dtype in DTYPES {
                let input = Tensor::random(10, dtype, sizes, lie, 0, 4);
                let mask = Tensor::random(11, DType::Bool, sizes, Lie::Contiguous, 0, 2);
                let (from, chosen) = (input.values(), mask.values());
                let n = count_nonzero(&mask.view());
                assert_eq!(n, chosen.iter().filter(|&&m| m != 0.0).count());
                let nine = Tensor::new(dtype, &[], Lie::Contiguous, &[9.0]);
                let found = count_nonzero(&input.view());
                let got = any_threads(|| {
                    let selected = Tensor::zeros(dtype, &[n], lie);
                    masked_select(&input.view(), &mask.view(), &selected.view_mut());
                    let (filled, back) = (Tensor::new(dtype, sizes, lie, &from), Tensor::zeros(dtype, sizes, lie));
                    masked_fill(&filled.view_mut(), &mask.view(), &nine.view());
                    masked_scatter(&back.view_mut(), &mask.view(), &selected.view());
                    let places = Tensor::zeros(DType::I64, &[found, sizes.len()], lie);
                    nonzero(&input.view(), &places.view_mut());
                    [selected, filled, back, places].map(|t| t.values())
                });
                let pairs = || from.iter().zip(&chosen);
                let want = [
                    pairs().filter(|(_, m)| **m != 0.0).map(|(v, _)| *v).collect::<Vec<f64>>(),
                    pairs().map(|(v, m)| if *m != 0.0 { 9.0 } else { *v }).collect(),
                    pairs().map(|(v, m)| if *m != 0.0 { *v } else { 0.0 }).collect(),
                    coordinates(sizes)
                        .zip(&from)
                        .filter(|(_, v)| **v != 0.0)
                        .flat_map(|(c, _)| c.into_iter().map(|c| c as f64))
                        .collect(),
                ];
                assert!(got == want, "{sizes:?} {lie:?} {dtype}");
            }
        }
    }
}

#[test]
fn embedding_and_its_backward() {
    const WIDTH: usize = if cfg!(miri) { 5 } else { 200 };
    for lie in LIES {
        let weight = Tensor::random(12, DType::F32, &[9, WIDTH], lie, 0, 100);
        let indices = Tensor::random(13, DType::I32, &[3, 40], lie, 0, 9);
        let grad = Tensor::random(14, DType::F32, &[3, 40, WIDTH], lie, 0, 5);
        let (w, named, g) = (weight.values(), indices.values(), grad.values());
        let got = any_threads(|| {
            let out = Tensor::zeros(DType::F32, &[3, 40, WIDTH], lie);
            embedding(&weight.view(), &indices.view(), &out.view_mut()).expect("in range");
            let back = |scale| {
                let d = Tensor::zeros(DType::F32, &[9, WIDTH], lie);
                embedding_dense_backward(&grad.view(), &indices.view(), &d.view_mut(), Some(2), scale)
                    .expect("in range");
                d
            };
            [out, back(false), back(true)].map(|t| t.values())
        });
        let mut want = [vec![0.0; g.len()], vec![0.0; w.len()], vec![0f64; w.len()]];
        for (b, &row) in named.iter().enumerate() {
            let count = named.iter().filter(|&&r| r == row).count() as f32;
            for c in 0..WIDTH {
                let (i, t) = (b * WIDTH + c, row as usize * WIDTH + c);
                want[0][i] = w[t];
                if row != 2.0 {
                    want[1][t] += g[i];
                    want[2][t] = f64::from(want[2][t] as f32 + g[i] as f32 * (1.0 / count));
                }
            }
        }
        assert!(got == want);
    }
}

#[test]
fn take_and_put_count_in_logical_order() {
    for lie in LIES {
        let input = Tensor::random(15, DType::I64, &[3, 4], lie, 0, 100);
        let index = Tensor::new(DType::I64, &[2, 3], lie, &[0.0, -1.0, 5.0, 7.0, -12.0, 5.0]);
        let src = Tensor::new(DType::I64, &[2, 3], lie, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let from = input.values();
        let out = Tensor::zeros(DType::I64, &[2, 3], lie);
        take(&input.view(), &index.view(), &out.view_mut()).expect("in range");
        assert_eq!(out.values(), [0, 11, 5, 7, 0, 5].map(|i| from[i]));
        put(&input.view_mut(), &index.view(), &src.view(), false).expect("in range");
        assert_eq!([0, 11, 5, 7].map(|i| input.values()[i]), [5.0, 2.0, 6.0, 4.0]);
        put(&input.view_mut(), &index.view(), &src.view(), true).expect("in range");
        assert_eq!([0, 11, 5, 7].map(|i| input.values()[i]), [11.0, 4.0, 15.0, 8.0]);
    }
}

#[test]
fn an_error_names_the_first_index_and_writes_nothing() {
    let index_of = |values: &[f64]| Tensor::new(DType::I64, &[values.len()], Lie::Contiguous, values);
    let fresh = || Tensor::new(DType::F32, &[4], Lie::Contiguous, &[1.0, 2.0, 3.0, 4.0]);
    let src = Tensor::new(DType::F32, &[3], Lie::Contiguous, &[9.0; 3]);
    let nine = Tensor::new(DType::F32, &[], Lie::Contiguous, &[9.0]);
    type Write<'a> = &'a dyn Fn(&ViewMut, &View) -> Result<(), IndexOutOfRange>;
    let writes: [(&str, i64, Write); 9] = [
        ("scatter", -1, &|o, i| scatter(o, 0, i, &src.view())),
        ("scatter_add", -1, &|o, i| scatter_add(o, 0, i, &src.view())),
        ("scatter_reduce", -1, &|o, i| scatter_reduce(o, 0, i, &src.view(), Reduce::Prod, false)),
        ("index_add", -1, &|o, i| index_add(o, 0, i, &src.view(), 1.0)),
        ("index_copy", -1, &|o, i| index_copy(o, 0, i, &src.view())),
        ("index_fill", -5, &|o, i| index_fill(o, 0, i, &nine.view())),
        ("index_put", -5, &|o, i| index_put(o, &[Some(*i)], &src.view(), false)),
        ("index_put accumulate", -5, &|o, i| index_put(o, &[Some(*i)], &src.view(), true)),
        ("put", -5, &|o, i| put(o, i, &src.view(), false)),
    ];
    for (name, low, write) in writes {
        for bad in [4, low, i64::from(i32::MAX)] {
            let out = fresh();
            let index = index_of(&[0.0, bad as f64, 77.0]);
            assert_eq!(write(&out.view_mut(), &index.view()), Err(IndexOutOfRange { index: bad, size: 4 }), "{name}");
            assert_eq!(out.values(), [1.0, 2.0, 3.0, 4.0], "{name}");
        }
    }
    let (input, out) = (fresh(), Tensor::zeros(DType::F32, &[3], Lie::Contiguous));
    type Read<'a> = &'a dyn Fn(&View, &View, &ViewMut) -> Result<(), IndexOutOfRange>;
    let reads: [(i64, Read); 4] = [
        (-1, &|x, i, o| gather(x, 0, i, o)),
        (-1, &|x, i, o| index_select(x, 0, i, o)),
        (-5, &|x, i, o| index(x, &[Some(*i)], o)),
        (-5, &|x, i, o| take(x, i, o)),
    ];
    for (bad, read) in reads {
        let index = index_of(&[0.0, bad as f64, 77.0]);
        assert_eq!(read(&input.view(), &index.view(), &out.view_mut()), Err(IndexOutOfRange { index: bad, size: 4 }));
        assert_eq!(out.values(), [0.0; 3]);
    }
}

#[test]
fn an_index_that_is_its_own_output_stays_inside() {
    let t = Tensor::new(DType::I64, &[4], Lie::Contiguous, &[1.0, 2.0, 3.0, 0.0]);
    let far = Tensor::new(DType::I64, &[4], Lie::Contiguous, &[900.0; 4]);
    let r =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| scatter(&t.view_mut(), 0, &t.view(), &far.view())));
    assert!(r.is_err(), "the second index was overwritten by the first");
}

/// Sizes and dtypes that do not fit each other are refused before any address is made of them, in release builds too.
#[test]
fn operands_that_do_not_fit_are_refused() {
    let f = |sizes: &[usize]| Tensor::zeros(DType::F32, sizes, Lie::Contiguous);
    let i = |sizes: &[usize]| Tensor::zeros(DType::I64, sizes, Lie::Contiguous);
    let b = |sizes: &[usize]| Tensor::zeros(DType::Bool, sizes, Lie::Contiguous);
    let d = |sizes: &[usize]| Tensor::zeros(DType::F64, sizes, Lie::Contiguous);
    let (small, large, wide, one) = (f(&[2, 2]), f(&[3, 3]), d(&[2, 2]), f(&[]));
    let (index, long, mask, line) = (i(&[2, 2]), i(&[3, 3]), b(&[3, 3]), i(&[2]));
    let (s, l, w) = (small.view(), large.view(), wide.view());
    let (sm, lm, wm) = (small.view_mut(), large.view_mut(), wide.view_mut());
    type Case<'a> = (&'a str, &'a dyn Fn());
    let cases: [Case; 24] = [
        ("gather: output", &|| _ = gather(&l, 0, &long.view(), &sm)),
        ("gather: input", &|| _ = gather(&s, 0, &long.view(), &lm)),
        ("gather: dtype", &|| _ = gather(&s, 0, &index.view(), &wm)),
        ("gather: float index", &|| _ = gather(&s, 0, &s, &sm)),
        ("scatter: source", &|| _ = scatter(&lm, 0, &long.view(), &s)),
        ("scatter: target", &|| _ = scatter(&sm, 0, &long.view(), &l)),
        ("scatter_reduce: source", &|| _ = scatter_reduce(&lm, 0, &long.view(), &s, Reduce::Sum, true)),
        ("scatter_add: dtype", &|| _ = scatter_add(&sm, 0, &index.view(), &w)),
        ("masked_fill: mask", &|| masked_fill(&sm, &mask.view(), &one.view())),
        ("masked_fill: value", &|| masked_fill(&lm, &mask.view(), &f(&[0]).view())),
        ("masked_fill: float mask", &|| masked_fill(&sm, &s, &one.view())),
        ("masked_select: mask", &|| masked_select(&s, &mask.view(), &f(&[9]).view_mut())),
        ("masked_scatter: mask", &|| masked_scatter(&sm, &mask.view(), &f(&[9]).view())),
        ("nonzero: coordinates", &|| nonzero(&s, &i(&[4, 1]).view_mut())),
        ("nonzero: dtype", &|| nonzero(&s, &f(&[4, 2]).view_mut())),
        ("index: output", &|| _ = super::index(&l, &[Some(line.view())], &sm)),
        ("index: too many", &|| _ = super::index(&s, &[Some(line.view()); 3], &f(&[2]).view_mut())),
        ("index: not broadcast", &|| {
            _ = super::index(&s, &[Some(line.view()), Some(long.view())], &f(&[2]).view_mut())
        }),
        ("index_put: values", &|| _ = index_put(&lm, &[Some(line.view())], &s, true)),
        ("index_select: output", &|| _ = index_select(&l, 0, &i(&[3]).view(), &sm)),
        ("index_add: dtype", &|| _ = index_add(&sm, 0, &line.view(), &w, 1.0)),
        ("index_fill: value", &|| _ = index_fill(&sm, 0, &line.view(), &f(&[0]).view())),
        ("embedding: output", &|| _ = embedding(&l, &i(&[3]).view(), &sm)),
        ("embedding: gradient", &|| _ = embedding_dense_backward(&s, &i(&[3]).view(), &lm, None, false)),
    ];
    for (name, call) in cases {
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err(), "{name}");
    }
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| take(&l, &i(&[9]).view(), &sm))).is_err());
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| put(&lm, &i(&[9]).view(), &s, false))).is_err());
}
