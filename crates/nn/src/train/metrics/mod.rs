//! Metrics of a model's quality: accumulated batch by batch, read at the end of a pass.

mod classification;
mod regression;

pub use classification::{Binary, ClassScores, Classification, ConfusionMatrix, accuracy};
pub use regression::Regression;

use indexmap::IndexMap;

/// Metrics by name, in insertion order.
pub type Metrics = IndexMap<String, f64>;

/// Lists of metrics as JSON, which has no NaN and no infinity: these are written as text.
pub(super) mod numbers {
    use super::Metrics;
    use indexmap::IndexMap;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Number {
        Finite(f64),
        Other(String),
    }

    pub(crate) fn serialize<S: Serializer>(list: &[Metrics], s: S) -> Result<S::Ok, S::Error> {
        let number = |v: f64| if v.is_finite() { Number::Finite(v) } else { Number::Other(v.to_string()) };
        let written: Vec<IndexMap<&String, Number>> =
            list.iter().map(|m| m.iter().map(|(name, v)| (name, number(*v))).collect()).collect();
        written.serialize(s)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<Metrics>, D::Error> {
        let number = |n: Number| match n {
            Number::Finite(v) => Ok(v),
            Number::Other(text) => text.parse::<f64>().map_err(serde::de::Error::custom),
        };
        let list = Vec::<IndexMap<String, Number>>::deserialize(d)?;
        list.into_iter().map(|m| m.into_iter().map(|(name, n)| Ok((name, number(n)?))).collect()).collect()
    }
}
