//! Every op on every type it supports, against scalar code, over contiguous and strided memory.

use super::*;
use crate::cpu::{self, Isa};
use crate::{DType, Element, View, ViewMut, bf16, copy, f16, fill, parallel, with_element};
use std::sync::{Mutex, MutexGuard};

/// Tests that change the instruction set or the number of threads take turns.
pub(crate) fn settings() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|e| e.into_inner())
}

fn isas() -> Vec<Isa> {
    cpu::available().collect()
}

/// Memory of one dtype with a shape, for tests.
#[derive(Clone)]
struct Array {
    bytes: Vec<u64>,
    dtype: DType,
    sizes: Vec<usize>,
    strides: Vec<usize>,
    offset: usize,
}

impl Array {
    fn zeros(dtype: DType, sizes: &[usize]) -> Array {
        let mut strides = vec![1; sizes.len()];
        for d in (1..sizes.len()).rev() {
            strides[d - 1] = strides[d] * sizes[d]
        }
        let n = sizes.iter().product::<usize>();
        Array { bytes: vec![0; n + 8], dtype, sizes: sizes.to_vec(), strides, offset: 0 }
    }

    fn from(dtype: DType, sizes: &[usize], values: impl Fn(usize) -> f64) -> Array {
        let mut a = Array::zeros(dtype, sizes);
        for i in 0..sizes.iter().product() {
            a.set(i, values(i))
        }
        a
    }

    fn transposed(mut self) -> Array {
        self.sizes.reverse();
        self.strides.reverse();
        self
    }

    #[allow(unsafe_code)]
    fn set(&mut self, at: usize, v: f64) {
        // SAFETY: every element has a word to itself at least.
        with_element!(self.dtype, T => unsafe { *self.bytes.as_mut_ptr().cast::<T>().add(at) = T::from_f64(v) })
    }

    #[allow(unsafe_code)]
    fn raw(&self, at: usize) -> f64 {
        // SAFETY: as above.
        with_element!(self.dtype, T => unsafe { (*self.bytes.as_ptr().cast::<T>().add(at)).to_f64() })
    }

    /// Element `i` in row-major order of the view.
    fn get(&self, mut i: usize) -> f64 {
        let mut at = self.offset;
        for (n, s) in self.sizes.iter().zip(&self.strides).rev() {
            at += i % n * s;
            i /= n;
        }
        self.raw(at)
    }

    fn numel(&self) -> usize {
        self.sizes.iter().product()
    }

    #[allow(unsafe_code)]
    fn view(&self) -> View<'_> {
        let at = self.offset * self.dtype.size();
        // SAFETY: the strides stay within the words.
        unsafe { View::new(self.bytes.as_ptr().cast::<u8>().add(at), self.dtype, &self.sizes, &self.strides) }
    }

    #[allow(unsafe_code)]
    fn view_mut(&mut self) -> ViewMut<'_> {
        let at = self.offset * self.dtype.size();
        // SAFETY: as above.
        unsafe { ViewMut::new(self.bytes.as_mut_ptr().cast::<u8>().add(at), self.dtype, &self.sizes, &self.strides) }
    }
}

/// Numbers that are exact in every dtype, with zeros and both signs (for unsigned types: wrapped, still exact).
fn small(i: usize) -> f64 {
    ((i * 7 + i / 11) % 23) as f64 - 9.0
}

fn positive(i: usize) -> f64 {
    ((i * 5 + i / 7) % 13) as f64 + 1.0
}

/// The op in f64 or i64, one element; what the loops must agree with.
fn reference(op: Op, dtype: DType, a: f64, b: f64, c: f64) -> f64 {
    use Op::*;
    let bit = |x: bool| f64::from(u8::from(x));
    let (i, j) = (a as i64, b as i64);
    let float = dtype.is_floating_point();
    let wrapped = |v: i64| with_element!(dtype, T => T::from_i64(v).to_f64());
    let y = match op {
        Copy => a,
        Neg => -a,
        Abs => a.abs(),
        Angle => bit(a < 0.0) * std::f64::consts::PI,
        Conj => a,
        Sign => bit(a > 0.0) - bit(a < 0.0),
        Square => a * a,
        Relu => a.max(0.0),
        Sqrt => a.sqrt(),
        Rsqrt => 1.0 / a.sqrt(),
        Reciprocal => 1.0 / a,
        Exp => a.exp(),
        Exp2 => a.exp2(),
        Expm1 => a.exp_m1(),
        Log => a.ln(),
        Log2 => a.log2(),
        Log10 => a.log10(),
        Log1p => a.ln_1p(),
        Sin => a.sin(),
        Cos => a.cos(),
        Tan => a.tan(),
        Asin => a.asin(),
        Acos => a.acos(),
        Atan => a.atan(),
        Sinh => a.sinh(),
        Cosh => a.cosh(),
        Tanh => a.tanh(),
        Asinh => a.asinh(),
        Acosh => a.acosh(),
        Atanh => a.atanh(),
        Sigmoid => 1.0 / (1.0 + (-a).exp()),
        LogSigmoid => -(-a).exp().ln_1p(),
        Erf => libm::erf(a),
        Erfc => libm::erfc(a),
        Erfinv => crate::vmath64::erfinv::<false>(a),
        Lgamma => libm::lgamma(a),
        Digamma => crate::vmath64::digamma::<false>(a),
        Floor => a.floor(),
        Ceil => a.ceil(),
        Round => a.round_ties_even(),
        Trunc => a.trunc(),
        Frac => a.fract(),
        Gelu => 0.5 * a * libm::erfc(-a / 2f64.sqrt()),
        GeluTanh => a / (1.0 + (-1.5957691216057308 * (a + 0.044715 * a * a * a)).exp()),
        Silu => a / (1.0 + (-a).exp()),
        Mish => a * a.exp().ln_1p().tanh(),
        BitwiseNot if dtype == DType::Bool => bit(a == 0.0),
        BitwiseNot => !i as f64,
        Isnan => bit(a.is_nan()),
        Isinf => bit(a.is_infinite()),
        Isfinite => bit(a.is_finite()),
        Signbit => bit(if float { a.is_sign_negative() } else { a < 0.0 }),
        LogicalNot => bit(a == 0.0),
        Add if dtype == DType::Bool => bit(a + b != 0.0),
        Add => a + b,
        Sub => a - b,
        Mul => a * b,
        Div => a / b,
        FloorDivide if float => (a / b).floor(),
        TruncDivide if float => (a / b).trunc(),
        Fmod if float => a % b,
        Remainder if float => a - b * (a / b).floor(),
        FloorDivide | TruncDivide | Fmod | Remainder if j == 0 => 0.0,
        FloorDivide => (a / b).floor(),
        TruncDivide => (i / j) as f64,
        Fmod => (i % j) as f64,
        Remainder => a - b * (a / b).floor(),
        Pow if float => a.powf(b),
        Pow if j < 0 => [0.0, a.powf(b)][usize::from(a.abs() == 1.0)],
        Pow => wrapped((0..j).fold(1i64, |y, _| y.wrapping_mul(i))),
        Maximum if a.is_nan() || b.is_nan() => f64::NAN,
        Minimum if a.is_nan() || b.is_nan() => f64::NAN,
        Maximum | Fmax => a.max(b),
        Minimum | Fmin => a.min(b),
        Atan2 => a.atan2(b),
        Hypot => a.hypot(b),
        Zeta => crate::vmath64::zeta::<false>(a, b),
        Copysign => a.copysign(b),
        BitwiseAnd => (i & j) as f64,
        BitwiseOr => (i | j) as f64,
        BitwiseXor => (i ^ j) as f64,
        ShiftLeft if !(0..64).contains(&j) => 0.0,
        ShiftLeft => wrapped(i << j),
        ShiftRight => (i >> if (0..64).contains(&j) { j } else { 63 }) as f64,
        Eq => bit(a == b),
        Ne => bit(a != b),
        Lt => bit(a < b),
        Le => bit(a <= b),
        Gt => bit(a > b),
        Ge => bit(a >= b),
        LogicalAnd => bit(a != 0.0 && b != 0.0),
        LogicalOr => bit(a != 0.0 || b != 0.0),
        LogicalXor => bit((a != 0.0) != (b != 0.0)),
        MulAdd => a * b + c,
        Lerp => a + c * (b - a),
        Clamp => a.max(b).min(c),
        Softplus => [(a * b).exp().ln_1p() / b, a][usize::from(a * b > c)],
        Where => [c, b][usize::from(a != 0.0)],
    };
    if dtype.is_integer() && !op.yields_bool() {
        return wrapped(y as i64);
    }
    y
}

fn close(got: f64, want: f64, dtype: DType) -> bool {
    let eps = match dtype {
        DType::F16 => 2e-3,
        DType::BF16 => 1.6e-2,
        DType::F32 => 1e-6,
        DType::F64 => 1e-13,
        _ => 0.0,
    };
    let largest = match dtype {
        DType::F16 => 65504.0,
        DType::F32 => f64::from(f32::MAX),
        _ => f64::MAX,
    };
    got == want
        || (got.is_nan() && want.is_nan())
        || (got.is_infinite() && want.abs() >= largest && got * want > 0.0)
        || (got - want).abs() <= eps * want.abs().max(1e-3)
}

fn apply(op: Op, compute: DType, args: &[&Array], out: &mut Array) {
    let v = |k: usize| Operand::View(args[k].view());
    match op.arity() {
        1 => unary(op, compute, args[0].view(), out.view_mut()),
        2 => binary(op, compute, v(0), v(1), out.view_mut()),
        _ => ternary(op, compute, v(0), v(1), v(2), out.view_mut()),
    }
}

fn check(op: Op, dtype: DType, args: &[&Array], out: &Array) {
    for i in 0..out.numel() {
        let x = |k: usize| args.get(k).map_or(0.0, |a: &&Array| a.get(i));
        let want = reference(op, dtype, x(0), x(1), x(2));
        let got = out.get(i);
        assert!(
            close(got, want, out.dtype),
            "{op:?} {dtype} at {i}: ({}, {}, {}) gave {got}, not {want} ({:?})",
            x(0),
            x(1),
            x(2),
            cpu::isa()
        );
    }
}

fn operands(op: Op, dtype: DType, sizes: &[usize]) -> [Array; 3] {
    let first = if op == Op::Where { DType::Bool } else { dtype };
    let tame = |f: fn(usize) -> f64| move |i: usize| if dtype.is_floating_point() { f(i) / 8.0 } else { f(i) };
    let b = if matches!(op, Op::Softplus | Op::Clamp) { positive } else { small };
    [
        Array::from(first, sizes, tame(small)),
        Array::from(dtype, sizes, tame(b)),
        Array::from(dtype, sizes, tame(|i| small(i + 3))),
    ]
}

#[test]
fn every_op_on_every_type() {
    let _turn = settings();
    let before = cpu::isa();
    for isa in isas() {
        cpu::set_isa(isa);
        for &op in Op::ALL {
            for dtype in DType::reals().filter(|&d| op.supports(d)) {
                for n in [0, 1, 4, 63, 64, 65, 1100] {
                    let [a, b, c] = operands(op, dtype, &[n]);
                    let mut out = Array::zeros(op.result(dtype), &[n]);
                    let args = &[&a, &b, &c][..op.arity()];
                    apply(op, dtype, args, &mut out);
                    check(op, dtype, args, &out);
                }
            }
        }
    }
    cpu::set_isa(before);
}

/// Binary ops over all kinds of memory must give exactly what they give on contiguous memory.
#[test]
fn strides_do_not_change_results() {
    for dtype in [DType::F32, DType::F64, DType::I64, DType::I16, DType::Bool, DType::BF16] {
        let sizes = [(33, 70), (1025, 40), (5, 2000), (4, 6), (1, 9), (16, 32), (23, 45)];
        for (op, (m, n)) in [Op::Add, Op::Mul, Op::Lt].into_iter().cycle().zip(sizes) {
            let plain = Array::from(dtype, &[m, n], small);
            let mut turned = Array::zeros(dtype, &[n, m]);
            copy(plain.clone().transposed().view(), turned.view_mut());
            let turned = turned.transposed(); // the same numbers, column-major
            let mut row = Array::from(dtype, &[1, n], positive);
            let full_row = Array::from(dtype, &[m, n], |i| positive(i % n));
            row.sizes[0] = m;
            row.strides[0] = 0;
            let mut column = Array::from(dtype, &[m, 1], positive);
            let full_column = Array::from(dtype, &[m, n], |i| positive(i / n));
            column.sizes[1] = n;
            column.strides = vec![1, 0];
            let mut shifted = Array::from(dtype, &[m + 1, 2 * n], small); // offset, and every second column
            shifted.offset = 2 * n + 1;
            shifted.sizes = vec![m, n];
            shifted.strides = vec![2 * n, 2];
            let full_shifted = Array::from(dtype, &[m, n], |i| shifted.get(i));
            let result = op.result(dtype);
            for (b, full) in [(&row, &full_row), (&column, &full_column), (&shifted, &full_shifted), (&turned, &plain)]
            {
                for a in [&plain, &turned] {
                    let mut want = Array::zeros(result, &[m, n]);
                    apply(op, dtype, &[&plain, full], &mut want);
                    check(op, dtype, &[&plain, full], &want);
                    let mut got = Array::zeros(result, &[m, n]);
                    apply(op, dtype, &[a, b], &mut got);
                    let mut column_major = Array::zeros(result, &[n, m]).transposed();
                    apply(op, dtype, &[a, b], &mut column_major);
                    for i in 0..m * n {
                        assert_eq!(got.get(i).to_bits(), want.get(i).to_bits(), "{op:?} {dtype} at {i}");
                        assert_eq!(column_major.get(i).to_bits(), want.get(i).to_bits(), "{op:?} {dtype} at {i}");
                    }
                }
            }
        }
    }
}

/// Few elements are copied first where they lie otherwise than the result, and where they would be overwritten.
#[test]
fn a_small_result_may_lie_over_its_operands() {
    for n in [1, 5, 31, 32] {
        let mut x = Array::from(DType::F32, &[n, n], small);
        let want: Vec<f64> = (0..n * n).map(|i| small(i) - small(i % n * n + i / n)).collect();
        let target = x.view_mut();
        let (sizes, strides) = ([n, n], [1, n]);
        // SAFETY: the same elements, columns for rows.
        #[allow(unsafe_code)]
        let turned = unsafe { View::new(target.as_ptr(), DType::F32, &sizes, &strides) };
        binary(Op::Sub, DType::F32, target.as_view().into(), turned.into(), target);
        assert!((0..n * n).all(|i| x.get(i) == want[i]), "{n}");
    }
    // A condition that is repeated, and operands of other widths.
    let mut which = Array::from(DType::Bool, &[3, 1], |i| (i % 2) as f64);
    (which.sizes, which.strides) = (vec![3, 4], vec![1, 0]);
    let (a, b) = (Array::from(DType::F64, &[3, 4], small), Array::from(DType::F64, &[4, 3], positive).transposed());
    let mut out = Array::zeros(DType::F64, &[3, 4]);
    apply(Op::Where, DType::F64, &[&which, &a, &b], &mut out);
    check(Op::Where, DType::F64, &[&which, &a, &b], &out);
}

#[test]
fn four_dimensions_and_none() {
    let a = Array::from(DType::F32, &[3, 4, 5, 6], small);
    let mut b = Array::from(DType::F32, &[1, 4, 1, 6], positive);
    b.sizes = vec![3, 4, 5, 6];
    b.strides = vec![0, 6, 0, 1];
    let mut out = Array::zeros(DType::F32, &[3, 4, 5, 6]);
    apply(Op::Sub, DType::F32, &[&a, &b], &mut out);
    check(Op::Sub, DType::F32, &[&a, &b], &out);
    let mut permuted = a.clone();
    permuted.sizes = vec![6, 3, 5, 4];
    permuted.strides = vec![1, 120, 6, 30];
    let mut out = Array::zeros(DType::F32, &[6, 3, 5, 4]);
    apply(Op::Exp, DType::F32, &[&permuted], &mut out);
    check(Op::Exp, DType::F32, &[&permuted], &out);
    let (a, b) = (Array::from(DType::F32, &[], |_| 2.0), Array::from(DType::F64, &[], |_| 3.0));
    let mut out = Array::zeros(DType::F32, &[]);
    apply(Op::Mul, DType::F32, &[&a, &b], &mut out);
    assert_eq!(out.get(0), 6.0);
}

#[test]
fn in_place_and_scalars() {
    for n in [4, 100, 5000, 100_000] {
        for dtype in [DType::F32, DType::I32, DType::F16] {
            let a = Array::from(dtype, &[n], small);
            let mut out = a.clone();
            let alias = out.view_mut();
            binary(Op::Add, dtype, alias.as_view().into(), Value::Int(3).into(), alias);
            for i in 0..n {
                assert_eq!(out.get(i), a.get(i) + 3.0);
            }
            let (mut turned, m) = (Array::from(dtype, &[n / 4, 4], small).transposed(), n / 4 * 4);
            let alias = turned.view_mut();
            binary(Op::Mul, dtype, Value::Float(2.0).into(), alias.as_view().into(), alias);
            for i in 0..m {
                assert_eq!(turned.raw(i), 2.0 * small(i));
            }
        }
    }
}

#[test]
fn operands_of_other_types_are_converted() {
    let a = Array::from(DType::U8, &[3, 50], |i| (i * 5 % 256) as f64);
    let b = Array::from(DType::F16, &[3, 50], |i| i as f64 / 4.0);
    for to in DType::reals() {
        let mut out = Array::zeros(to, &[3, 50]);
        apply(Op::Add, DType::F32, &[&a, &b], &mut out);
        for i in 0..150 {
            let want = with_element!(to, T => T::from_f64(a.get(i) + b.get(i)).to_f64());
            assert_eq!(out.get(i), want, "to {to}");
        }
    }
}

#[test]
fn programs_fuse_and_contract() {
    // y = where(x > 0, tanh(2x + 1), x as i64 as f32), z = x
    let mut b = Builder::new();
    let x = b.input(DType::F32);
    let s = b.input(DType::F32);
    let one = b.constant(DType::F32, 1.0);
    let zero = b.constant(DType::F32, 0.0);
    let p = b.op(Op::Mul, &[x, s]);
    let p = b.op(Op::Add, &[p, one]);
    let t = b.op(Op::Tanh, &[p]);
    let whole = b.cast(x, DType::I64);
    let whole = b.cast(whole, DType::F32);
    let positive = b.op(Op::Gt, &[x, zero]);
    let y = b.op(Op::Where, &[positive, t, whole]);
    let _unused = b.op(Op::Exp, &[y]);
    b.output(y);
    b.output(x);
    b.output(y);
    b.contract();
    let program = b.finish();
    assert_eq!(program.len(), 8); // the product is gone, two outputs are copies
    let n = 3000;
    let x = Array::from(DType::F32, &[n], |i| small(i) / 4.0);
    let (mut y, mut z) = (Array::zeros(DType::F32, &[n]), Array::zeros(DType::F64, &[n]));
    let mut again = Array::zeros(DType::BF16, &[n]);
    program.run(&[x.view().into(), Value::Int(2).into()], &[y.view_mut(), z.view_mut(), again.view_mut()]);
    for i in 0..n {
        let v = x.get(i);
        let want = if v > 0.0 { (2.0 * v + 1.0).tanh() } else { v.trunc() };
        assert!(close(y.get(i), want, DType::F32));
        assert_eq!(z.get(i), v);
        assert_eq!(again.get(i), bf16::from_f64(y.get(i)).to_f64());
    }
}

#[test]
fn an_output_may_be_an_input_of_a_program() {
    // a, b = b, a + b, in place
    let mut p = Builder::new();
    let (a, b) = (p.input(DType::F32), p.input(DType::F32));
    let sum = p.op(Op::Add, &[a, b]);
    p.output(b);
    p.output(sum);
    let p = p.finish();
    for n in [7, 50_000] {
        let (mut a, mut b) = (Array::from(DType::F32, &[n], small), Array::from(DType::F32, &[n], positive));
        let (x, y) = (a.view_mut(), b.view_mut());
        p.run(&[x.as_view().into(), y.as_view().into()], &[x, y]);
        for i in 0..n {
            assert_eq!((a.get(i), b.get(i)), (positive(i), small(i) + positive(i)));
        }
    }
}

/// Contiguous operands of few elements take a way of their own.
#[test]
fn few_elements_are_computed_as_many_are() {
    // y = tanh(2x + c) + s x, w = x > y, z = x as f64
    let mut p = Builder::new();
    let (x, s) = (p.input(DType::F32), p.input(DType::F32));
    let (two, c) = (p.constant(DType::F32, 2.0), p.input(DType::F32));
    let y = p.op(Op::MulAdd, &[x, two, c]);
    let y = p.op(Op::Tanh, &[y]);
    let y = p.op(Op::MulAdd, &[s, x, y]);
    let w = p.op(Op::Gt, &[x, y]);
    let z = p.cast(x, DType::F64);
    for v in [y, w, z] {
        p.output(v);
    }
    let p = p.finish();
    for n in [1, 3, 64, 65, 1024, 1025] {
        let [x, c] = [3.0, 7.0].map(|d| Array::from(DType::F32, &[n], |i| small(i) / d));
        // Every second element: the same numbers, which are gathered.
        let [wide_x, wide_c] = [&x, &c].map(|a| {
            let mut wide = Array::from(DType::F32, &[2 * n], |i| a.get(i / 2));
            (wide.sizes, wide.strides) = (vec![n], vec![2]);
            wide
        });
        let run = |x: &Array, c: &Array| {
            let [mut y, mut w, mut z] = [DType::F32, DType::Bool, DType::F64].map(|d| Array::zeros(d, &[n]));
            let inputs = [x.view().into(), Value::Float(0.3).into(), c.view().into()];
            p.run(&inputs, &[y.view_mut(), w.view_mut(), z.view_mut()]);
            [y, w, z]
        };
        for (few, many) in run(&x, &c).iter().zip(run(&wide_x, &wide_c)) {
            assert!((0..n).all(|i| few.get(i).to_bits() == many.get(i).to_bits()), "{n} of {}", few.dtype);
        }
    }
}

#[test]
fn threads_and_vectors_agree_to_the_bit() {
    let _turn = settings();
    let (isa, threads) = (cpu::isa(), parallel::num_threads());
    let n = 100_003;
    let a = Array::from(DType::F32, &[n], |i| small(i) * 0.37 + i as f64 * 1e-4);
    for op in [Op::Tanh, Op::Exp, Op::Gelu, Op::Sin, Op::Mish, Op::Log1p, Op::Sigmoid, Op::Erf, Op::Atan] {
        let mut seen: Option<Array> = None;
        for isa in isas().into_iter().filter(|&i| i != Isa::Portable) {
            for threads in [1, 2] {
                cpu::set_isa(isa);
                parallel::set_num_threads(threads);
                let mut out = Array::zeros(DType::F32, &[n]);
                apply(op, DType::F32, &[&a], &mut out);
                // The same numbers one by one, as an element of a large array and alone.
                for i in (0..n).step_by(9973) {
                    let (x, mut y) = (Array::from(DType::F32, &[1], |_| a.get(i)), Array::zeros(DType::F32, &[1]));
                    apply(op, DType::F32, &[&x], &mut y);
                    assert_eq!(y.get(0).to_bits(), out.get(i).to_bits(), "{op:?} of {}", x.get(0));
                }
                if let Some(first) = &seen {
                    assert!(first.bytes == out.bytes, "{op:?} {isa:?} with {threads} threads");
                }
                seen = Some(out);
            }
        }
    }
    cpu::set_isa(isa);
    parallel::set_num_threads(threads);
}

#[test]
fn large_arguments_of_sine() {
    let xs = [3e7, -1e20, 2e6, 1.5, f64::INFINITY];
    let a = Array::from(DType::F32, &[5], |i| xs[i]);
    let mut out = Array::zeros(DType::F32, &[5]);
    for op in [Op::Sin, Op::Cos, Op::Tan] {
        apply(op, DType::F32, &[&a], &mut out);
        check(op, DType::F32, &[&a], &out);
    }
}

#[test]
fn copies_cast_and_turn() {
    for from in DType::reals() {
        for to in DType::reals() {
            for (m, n) in [(1, 1), (3, 5), (70, 130)] {
                let src = Array::from(from, &[m, n], small);
                let mut dst = Array::zeros(to, &[n, m]);
                let turned = src.clone().transposed();
                copy(turned.view(), dst.view_mut());
                for i in 0..m * n {
                    let v = turned.get(i);
                    let want = with_element!(to, T => T::from_f64(v).to_f64());
                    assert_eq!(dst.get(i), want, "{from} {v} to {to}");
                }
                let mut flat = Array::zeros(to, &[m, n]);
                copy(src.view(), flat.view_mut());
                assert_eq!(flat.get(m * n - 1), dst.raw(m * n - 1));
            }
        }
    }
}

#[test]
fn large_copies() {
    let (m, n) = (700, 900);
    let src = Array::from(DType::F32, &[m, n], |i| i as f64);
    let mut dst = Array::zeros(DType::F32, &[n, m]);
    copy(src.clone().transposed().view(), dst.view_mut());
    for i in 0..m * n {
        assert_eq!(dst.raw(i % n * m + i / n), i as f64);
    }
    let mut back = Array::zeros(DType::F32, &[m, n]);
    copy(dst.transposed().view(), back.view_mut());
    assert!(back.bytes == src.bytes);
}

#[test]
fn fills() {
    for dtype in DType::reals() {
        for value in [Value::Bool(true), Value::Int(-3), Value::Float(2.5)] {
            let mut a = Array::zeros(dtype, &[3, 100]);
            a.sizes = vec![3, 50];
            a.strides = vec![100, 2]; // every second
            fill(a.view_mut(), value);
            let want = match value {
                Value::Float(f) => with_element!(dtype, T => T::from_f64(f).to_f64()),
                v => with_element!(dtype, T => T::from_i64(v.to_i64()).to_f64()),
            };
            assert_eq!((a.raw(0), a.raw(1), a.raw(198)), (want, 0.0, want));
        }
    }
    let mut big = Array::zeros(DType::F16, &[100_000]);
    fill(big.view_mut(), Value::Float(0.5));
    assert!((0..100_000).all(|i| big.raw(i) == 0.5) && f16::from_f64(0.5).to_f64() == 0.5);
    fill(Array::zeros(DType::F32, &[]).view_mut(), Value::Int(1));
    fill(Array::zeros(DType::F32, &[0, 3]).view_mut(), Value::Int(1));
}
