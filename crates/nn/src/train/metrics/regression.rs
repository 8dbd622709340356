//! Regression errors.

use super::Metrics;
use firebrand_core::{DType, Error, Result, Tensor};

/// Mean absolute error and root mean squared error, over all elements of all batches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Regression {
    absolute: f64,
    squared: f64,
    count: usize,
}

impl Regression {
    /// No predictions yet.
    pub fn new() -> Regression {
        Regression::default()
    }

    /// Adds predictions and targets, elementwise.
    pub fn update(&mut self, predicted: &Tensor, expected: &Tensor) -> Result<()> {
        if predicted.shape() != expected.shape() {
            let (p, e) = (predicted.shape(), expected.shape());
            return Err(Error::argument("Regression", format!("expected targets of shape {p:?}, found {e:?}")));
        }
        let numbers = |t: &Tensor| t.try_to_dtype(DType::F64)?.try_to_vec::<f64>();
        for (p, e) in numbers(predicted)?.into_iter().zip(numbers(expected)?) {
            self.absolute += (p - e).abs();
            self.squared += (p - e) * (p - e);
            self.count += 1;
        }
        Ok(())
    }

    /// `mae` and `rmse`; NaN without predictions.
    pub fn metrics(&self) -> Metrics {
        let n = self.count as f64;
        Metrics::from_iter([("mae".into(), self.absolute / n), ("rmse".into(), (self.squared / n).sqrt())])
    }
}
