//! The instruction set: what exists, how many operands it takes and of what type the result is.
//!
//! Which op is defined for which register type: arithmetic and comparisons for all (on bool, `Add` is or and `Mul` is
//! and); bitwise ops and shifts for integers and bool; everything transcendental for floats only. Complex registers have
//! arithmetic, equality and elementary functions; `Sign` is then `a / |a|`, and `Abs` and `Angle` leave no imaginary part.
//! Running an op on a type that it is not defined for is a bug of the caller and panics.

use crate::DType;

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident $arity:literal $bool:literal,)*) => {
        /// One instruction: a vectorised loop over a tile. Names follow PyTorch's functions.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Op { $($(#[$doc])* $name,)* }

        impl Op {
            /// Every instruction.
            pub const ALL: &'static [Op] = &[$(Op::$name,)*];

            /// How many operands it takes.
            #[inline]
            pub const fn arity(self) -> usize {
                const ARITY: &[u8] = &[$($arity,)*];
                ARITY[self as usize] as usize
            }

            /// Whether the result is a bool whatever the operands are.
            #[inline]
            pub const fn yields_bool(self) -> bool {
                const YIELDS: &[bool] = &[$($bool,)*];
                YIELDS[self as usize]
            }
        }
    };
}

ops! {
    /// The operand itself.
    Copy 1 false,
    /// `-a`
    Neg 1 false,
    /// Absolute value.
    Abs 1 false,
    /// -1, 0 or 1; 0 for NaN.
    Sign 1 false,
    /// `a * a`
    Square 1 false,
    /// `max(a, 0)`, NaN stays.
    Relu 1 false,
    /// Square root.
    Sqrt 1 false,
    /// `1 / sqrt(a)`
    Rsqrt 1 false,
    /// `1 / a`
    Reciprocal 1 false,
    /// `e^a`
    Exp 1 false,
    /// `2^a`
    Exp2 1 false,
    /// `e^a - 1`
    Expm1 1 false,
    /// Natural logarithm.
    Log 1 false,
    /// Base-two logarithm.
    Log2 1 false,
    /// Base-ten logarithm.
    Log10 1 false,
    /// `log(1 + a)`
    Log1p 1 false,
    /// Sine.
    Sin 1 false,
    /// Cosine.
    Cos 1 false,
    /// Tangent.
    Tan 1 false,
    /// Arc sine.
    Asin 1 false,
    /// Arc cosine.
    Acos 1 false,
    /// Arc tangent.
    Atan 1 false,
    /// Hyperbolic sine.
    Sinh 1 false,
    /// Hyperbolic cosine.
    Cosh 1 false,
    /// Hyperbolic tangent.
    Tanh 1 false,
    /// Inverse hyperbolic sine.
    Asinh 1 false,
    /// Inverse hyperbolic cosine.
    Acosh 1 false,
    /// Inverse hyperbolic tangent.
    Atanh 1 false,
    /// `1 / (1 + e^-a)`
    Sigmoid 1 false,
    /// `log(sigmoid(a))`
    LogSigmoid 1 false,
    /// Error function.
    Erf 1 false,
    /// `1 - erf(a)`
    Erfc 1 false,
    /// Inverse of the error function.
    Erfinv 1 false,
    /// `log |Gamma(a)|`
    Lgamma 1 false,
    /// Derivative of `Lgamma`.
    Digamma 1 false,
    /// Down to an integer.
    Floor 1 false,
    /// Up to an integer.
    Ceil 1 false,
    /// To the nearest integer, ties to even.
    Round 1 false,
    /// Towards zero.
    Trunc 1 false,
    /// `a - trunc(a)`
    Frac 1 false,
    /// `a Phi(a)`
    Gelu 1 false,
    /// The approximation of `Gelu` by tanh.
    GeluTanh 1 false,
    /// `a sigmoid(a)`
    Silu 1 false,
    /// `a tanh(softplus(a))`
    Mish 1 false,
    /// The angle in the complex plane: 0 or pi for a real number.
    Angle 1 false,
    /// The conjugate of a complex number.
    Conj 1 false,
    /// Every bit flipped; on bool, not.
    BitwiseNot 1 false,
    /// Whether NaN.
    Isnan 1 true,
    /// Whether infinite.
    Isinf 1 true,
    /// Whether neither NaN nor infinite.
    Isfinite 1 true,
    /// Whether the sign bit is set (below zero for integers).
    Signbit 1 true,
    /// `a == 0`
    LogicalNot 1 true,
    /// `a + b`
    Add 2 false,
    /// `a - b`
    Sub 2 false,
    /// `a * b`
    Mul 2 false,
    /// `a / b`, floats.
    Div 2 false,
    /// `a / b`, rounded down. Integers by zero give 0.
    FloorDivide 2 false,
    /// `a / b`, towards zero. Integers by zero give 0.
    TruncDivide 2 false,
    /// Remainder with the sign of `a`. Integers by zero give 0.
    Fmod 2 false,
    /// Remainder with the sign of `b`. Integers by zero give 0.
    Remainder 2 false,
    /// `a^b`
    Pow 2 false,
    /// The larger; NaN if either is.
    Maximum 2 false,
    /// The smaller; NaN if either is.
    Minimum 2 false,
    /// The larger; the other one if one is NaN.
    Fmax 2 false,
    /// The smaller; the other one if one is NaN.
    Fmin 2 false,
    /// The angle of `(b, a)`.
    Atan2 2 false,
    /// `sqrt(a^2 + b^2)`
    Hypot 2 false,
    /// Hurwitz zeta: the sum of `(b + k)^-a` over `k >= 0`.
    Zeta 2 false,
    /// The magnitude of `a` with the sign of `b`.
    Copysign 2 false,
    /// Bits in both.
    BitwiseAnd 2 false,
    /// Bits in either.
    BitwiseOr 2 false,
    /// Bits in one only.
    BitwiseXor 2 false,
    /// `a << b`; 0 when all bits leave or `b` is negative.
    ShiftLeft 2 false,
    /// `a >> b`, filled with the sign.
    ShiftRight 2 false,
    /// `a == b`
    Eq 2 true,
    /// `a != b`
    Ne 2 true,
    /// `a < b`
    Lt 2 true,
    /// `a <= b`
    Le 2 true,
    /// `a > b`
    Gt 2 true,
    /// `a >= b`
    Ge 2 true,
    /// Both are nonzero.
    LogicalAnd 2 true,
    /// One at least is nonzero.
    LogicalOr 2 true,
    /// Exactly one is nonzero.
    LogicalXor 2 true,
    /// `a * b + c`, rounded once where the machine can.
    MulAdd 3 false,
    /// From `a` to `b` by weight `c`, exact at both ends.
    Lerp 3 false,
    /// `min(max(a, b), c)`; NaN in any operand gives NaN.
    Clamp 3 false,
    /// `log(1 + e^(b a)) / b`, and `a` itself where `b a > c`.
    Softplus 3 false,
    /// `b` where the bool `a` is true, else `c`.
    Where 3 false,
}

impl Op {
    /// The type of the result when the op computes in `dtype`.
    #[inline]
    pub const fn result(self, dtype: DType) -> DType {
        if self.yields_bool() { DType::Bool } else { dtype }
    }

    /// The type of operand `k` when the op computes in `dtype`.
    #[inline]
    pub const fn operand(self, k: usize, dtype: DType) -> DType {
        if matches!(self, Op::Where) && k == 0 { DType::Bool } else { dtype }
    }

    /// Whether the op is defined for the registers that `dtype` is computed in.
    pub fn supports(self, dtype: DType) -> bool {
        use Op::*;
        let any = self.yields_bool()
            || matches!(
                self,
                Copy | Abs | Sign | Square | Relu | Add | Mul | Maximum | Minimum | Fmax | Fmin | Clamp | Where
            );
        let bits = matches!(self, BitwiseNot | BitwiseAnd | BitwiseOr | BitwiseXor);
        let whole = bits || matches!(self, ShiftLeft | ShiftRight);
        let signed = matches!(
            self,
            Neg | Sub | FloorDivide | TruncDivide | Fmod | Remainder | Pow | MulAdd | Floor | Ceil | Round | Trunc
        );
        let field = matches!(
            self,
            Copy | Neg
                | Abs
                | Sign
                | Square
                | Sqrt
                | Rsqrt
                | Reciprocal
                | Add
                | Sub
                | Mul
                | Div
                | Pow
                | MulAdd
                | Lerp
                | Where
        ) || matches!(self, Exp | Exp2 | Expm1 | Log | Log2 | Log10 | Log1p | Sigmoid | Angle | Conj)
            || matches!(self, Sin | Cos | Tan | Asin | Acos | Atan | Sinh | Cosh | Tanh | Asinh | Acosh | Atanh)
            || matches!(self, Isnan | Isinf | Isfinite | Eq | Ne | LogicalNot | LogicalAnd | LogicalOr | LogicalXor);
        match dtype.compute() {
            DType::C64 | DType::C128 => field,
            DType::Bool => any || bits,
            DType::I64 => any || whole || signed,
            _ => !whole && self != Conj,
        }
    }
}
