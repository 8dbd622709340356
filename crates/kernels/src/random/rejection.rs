//! Single draws of distributions that are sampled by trial: Poisson, gamma, binomial.
//!
//! The trials are PyTorch's, draw for draw, so that a seed gives its numbers; some of its constants are of single
//! precision, and are so here.

use super::Generator;

/// The logarithm of the gamma function.
fn ln_gamma(x: f64) -> f64 {
    libm::lgamma(x)
}

/// What Stirling's formula for the logarithm of `k!` leaves out.
fn stirling_tail(k: f64) -> f64 {
    const SMALL: [f64; 10] = [
        0.0810614667953272,
        0.0413406959554092,
        0.0276779256849983,
        0.02079067210376509,
        0.0166446911898211,
        0.0138761288230707,
        0.0118967099458917,
        0.0104112652619720,
        0.00925546218271273,
        0.00833056343336287,
    ];
    if k < SMALL.len() as f64 {
        return SMALL[k.max(0.0) as usize];
    }
    let square = (k + 1.0) * (k + 1.0);
    (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / 1260.0 / square) / square) / (k + 1.0)
}

impl Generator {
    /// A Poisson number of this rate, which is not negative: products of uniforms for small rates, Hörmann's transformed
    /// rejection for large ones.
    pub fn poisson(&mut self, rate: f64) -> f64 {
        if rate == 0.0 {
            return 0.0;
        }
        if rate < 10.0 {
            let end = (-rate).exp();
            let (mut product, mut count) = (1.0, 0.0);
            loop {
                product *= self.uniform_f64();
                if product <= end {
                    return count;
                }
                count += 1.0;
            }
        }
        let (root, log) = (rate.sqrt(), rate.ln());
        let b = 0.931 + 2.53 * root;
        let a = -0.059 + 0.02483 * b;
        let inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
        let limit = 0.9277 - 3.6224 / (b - 2.0);
        loop {
            let u = self.uniform_f64() - 0.5;
            let v = self.uniform_f64();
            let us = 0.5 - u.abs();
            let k = ((2.0 * a / us + b) * u + rate + 0.43).floor();
            if us >= 0.07 && v <= limit {
                return k;
            }
            if k < 0.0 || (us < 0.013 && v > us) {
                continue;
            }
            let accepted = v.ln() + inverse_alpha.ln() - (a / (us * us) + b).ln();
            if accepted <= -rate + k * log - ln_gamma(k + 1.0) {
                return k;
            }
        }
    }

    /// A number of the gamma distribution of this shape and scale 1, by Marsaglia and Tsang's method. With `single` the
    /// shape is a number of single precision, and so is what is made of it first.
    pub fn gamma(&mut self, shape: f64, single: bool) -> f64 {
        let round = |x: f64| if single { f64::from(x as f32) } else { x };
        let (mut shape, mut scale) = (shape, 1.0);
        if shape < 1.0 {
            if shape == 0.0 {
                return 0.0;
            }
            scale *= (1.0 - self.uniform_f64()).powf(round(1.0 / shape));
            shape = round(shape + 1.0);
        }
        if shape.is_nan() {
            return f64::NAN;
        }
        let d = round(shape - f64::from(1.0f32 / 3.0f32));
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let (x, y) = loop {
                let x = self.normal_f64();
                let y = 1.0 + c * x;
                if y > 0.0 {
                    break (x, y);
                }
            };
            let v = y * y * y;
            let u = 1.0 - self.uniform_f64();
            let square = x * x;
            let surely = u < 1.0 - f64::from(0.0331f32) * square * square;
            if surely || u.ln() < 0.5 * square + d * (1.0 - v + v.ln()) {
                return scale * d * v;
            }
        }
    }

    /// How many of `count` trials succeed. With `single` both are numbers of single precision, and so is what is made of
    /// them first.
    pub fn binomial(&mut self, count: f64, probability: f64, single: bool) -> f64 {
        let round = |x: f64| if single { f64::from(x as f32) } else { x };
        if count <= 0.0 || probability <= 0.0 {
            return 0.0;
        }
        if probability >= 1.0 {
            return count;
        }
        if probability.is_nan() || count.is_nan() {
            return f64::NAN;
        }
        let rare = if probability <= 0.5 { probability } else { round(1.0 - probability) };
        let hits = match round(count * rare) >= 10.0 {
            true => self.binomial_many(count, rare, round),
            false => self.binomial_few(count, round((-rare).ln_1p())),
        };
        if probability <= 0.5 { hits } else { count - hits }
    }

    /// By the waiting times between successes; `log` is that of the probability of a failure.
    fn binomial_few(&mut self, count: f64, log: f64) -> f64 {
        let (mut waited, mut hits) = (0.0, 0.0);
        loop {
            waited += (self.uniform_f64().ln() / log).ceil();
            if waited > count {
                return hits;
            }
            hits += 1.0;
        }
    }

    /// By Hörmann's transformed rejection.
    fn binomial_many(&mut self, count: f64, probability: f64, round: impl Fn(f64) -> f64) -> f64 {
        let (mean, other) = (round(count * probability), round(1.0 - probability));
        let deviation = round(round(mean * other).sqrt());
        let b = 1.15 + 2.53 * deviation;
        let a = -0.0873 + 0.0248 * b + 0.01 * probability;
        let c = mean + 0.5;
        let limit = 0.92 - 4.2 / b;
        let odds = round(probability / other);
        let alpha = (2.83 + 5.1 / b) * deviation;
        let mode = round((count + 1.0) * probability).floor();
        loop {
            let u = self.uniform_f64() - 0.5;
            let v = self.uniform_f64();
            let us = 0.5 - u.abs();
            let k = ((2.0 * a / us + b) * u + c).floor();
            if k < 0.0 || k > count {
                continue;
            }
            if us >= 0.07 && v <= limit {
                return k;
            }
            let v = (v * alpha / (a / (us * us) + b)).ln();
            let bound = (mode + 0.5) * ((mode + 1.0) / (odds * (count - mode + 1.0))).ln()
                + (count + 1.0) * ((count - mode + 1.0) / (count - k + 1.0)).ln()
                + (k + 0.5) * (odds * (count - k + 1.0) / (k + 1.0)).ln()
                + stirling_tail(mode)
                + stirling_tail(count - mode)
                - stirling_tail(k)
                - stirling_tail(count - k);
            if v <= bound {
                return k;
            }
        }
    }
}
