//! Interning: equal values are stored once.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

/// A set of shared values. Values without other references are removed from time to time.
#[derive(Debug)]
pub struct Interner<T: ?Sized> {
    known: HashSet<Arc<T>>,
    tidy_at: usize,
}

// A derived implementation would require `T: Clone`, which is not needed.
impl<T: ?Sized> Clone for Interner<T> {
    fn clone(&self) -> Self {
        Self { known: self.known.clone(), tidy_at: self.tidy_at }
    }
}

impl<T: ?Sized> Default for Interner<T> {
    fn default() -> Self {
        Self { known: HashSet::new(), tidy_at: 0 }
    }
}

impl<T: ?Sized + Eq + Hash> Interner<T> {
    /// Returns the shared copy of a value.
    pub fn intern<V: AsRef<T> + Into<Arc<T>>>(&mut self, value: V) -> Arc<T> {
        if let Some(known) = self.known.get(value.as_ref()) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.tidy_at {
            self.known.retain(|value| Arc::strong_count(value) > 1);
            self.tidy_at = 2 * self.known.len() + 256;
        }
        let value = value.into();
        self.known.insert(Arc::clone(&value));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intern_stores_equal_values_once_and_drops_unused() {
        let mut names = Interner::<str>::default();
        let (one, again) = (names.intern("a"), names.intern("a"));
        assert!(Arc::ptr_eq(&one, &again));
        for n in 0..2_000 {
            names.intern(n.to_string());
        }
        assert!(names.known.len() < 600 && names.known.contains("a"), "{}", names.known.len());
    }
}
