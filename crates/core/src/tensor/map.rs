//! A map whose keys are tensors, not what is in them: one entry for each object, found in constant time.
//!
//! It holds its keys, so that their ids stay their own, and keeps them in the order in which they came. Where stand-ins are about
//! other tensors ([`capture::has_stand_ins`]), a key is also found by what stands for it.

use crate::{Tensor, capture};
use indexmap::IndexMap;

/// Values by tensor.
#[derive(Clone, Debug)]
pub struct TensorMap<V> {
    entries: IndexMap<usize, (Tensor, V)>,
}

impl<V> TensorMap<V> {
    /// An empty map.
    pub fn new() -> TensorMap<V> {
        TensorMap::default()
    }

    /// Sets the value of a tensor. Returns the one it had.
    pub fn insert(&mut self, tensor: &Tensor, value: V) -> Option<V> {
        let at = self.position(tensor);
        match at.and_then(|at| self.entries.get_index_mut(at)) {
            Some((_, (_, old))) => Some(std::mem::replace(old, value)),
            None => {
                self.entries.insert(tensor.id(), (tensor.clone(), value));
                None
            }
        }
    }

    /// The value of a tensor.
    pub fn get(&self, tensor: &Tensor) -> Option<&V> {
        self.entries.get_index(self.position(tensor)?).map(|(_, (_, value))| value)
    }

    /// Whether a tensor has a value.
    pub fn contains(&self, tensor: &Tensor) -> bool {
        self.position(tensor).is_some()
    }

    /// Tensors and values, in the order in which the tensors came.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Tensor, &V)> {
        self.entries.values().map(|(tensor, value)| (tensor, value))
    }

    fn position(&self, tensor: &Tensor) -> Option<usize> {
        let known = self.entries.get_index_of(&tensor.id());
        known.or_else(|| match capture::has_stand_ins() {
            true => self.entries.values().position(|(key, _)| key.is_same(tensor)),
            false => None,
        })
    }
}

impl<V> Default for TensorMap<V> {
    fn default() -> TensorMap<V> {
        TensorMap { entries: IndexMap::new() }
    }
}

impl<V> IntoIterator for TensorMap<V> {
    type Item = (Tensor, V);
    type IntoIter = indexmap::map::IntoValues<usize, (Tensor, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    #[test]
    fn keys_are_objects() {
        let (a, b) = (Tensor::ones([2], DType::F32), Tensor::ones([2], DType::F32));
        let mut map = TensorMap::new();
        assert_eq!((map.insert(&a, 1), map.insert(&b, 2)), (None, None));
        assert_eq!(map.insert(&a.clone(), 3), Some(1), "a handle to the same object");
        assert_eq!((map.get(&a), map.get(&b), map.get(&a.detach())), (Some(&3), Some(&2), None));
        assert!(map.contains(&b) && !map.contains(&b.view([2])));
        let values: Vec<i32> = map.into_iter().map(|(_, v)| v).collect();
        assert_eq!(values, [3, 2], "in the order in which the tensors came");
    }
}
