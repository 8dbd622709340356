//! A map that keeps insertion order and removes in constant time, for modules with a million attributes.

use super::Name;
use foldhash::HashMap;

/// A string-keyed map in insertion order. Assigning an existing name keeps its position.
#[derive(Clone, Debug)]
pub(crate) struct OrderedMap<V> {
    index: HashMap<Name, u32>,
    slots: Vec<Option<(Name, V)>>,
}

impl<V> Default for OrderedMap<V> {
    fn default() -> Self {
        OrderedMap { index: HashMap::default(), slots: Vec::new() }
    }
}

impl<V> OrderedMap<V> {
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.index.contains_key(name)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&V> {
        let slot = *self.index.get(name)?;
        self.slots[slot as usize].as_ref().map(|(_, v)| v)
    }

    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut V> {
        let slot = *self.index.get(name)?;
        self.slots[slot as usize].as_mut().map(|(_, v)| v)
    }

    pub(crate) fn insert(&mut self, name: Name, value: V) -> Option<V> {
        if let Some(old) = self.get_mut(&name) {
            return Some(std::mem::replace(old, value));
        }
        let slot = u32::try_from(self.slots.len()).expect("a module has fewer than four billion attributes");
        self.index.insert(name.clone(), slot);
        self.slots.push(Some((name, value)));
        None
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<V> {
        let slot = self.index.remove(name)?;
        let (_, value) = self.slots[slot as usize].take().expect("the index names filled slots");
        // Half of the slots are holes: close them, so that walking the map stays linear in what it holds.
        if self.slots.len() > 16 && self.slots.len() > 2 * self.index.len() {
            self.slots.retain(Option::is_some);
            for (i, (name, _)) in self.slots.iter().flatten().enumerate() {
                *self.index.get_mut(name).expect("filled slots are indexed") = i as u32;
            }
        }
        Some(value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Name, &V)> {
        self.slots.iter().flatten().map(|(k, v)| (k, v))
    }
}
