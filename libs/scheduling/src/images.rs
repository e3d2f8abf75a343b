//! The images that a member's nodes have.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use crate::Capacity;

/// Images of a member by their one name (`drover_quantity::image_name`), with their sizes in bytes. 0: it is there, and nobody says
/// how large it is.
pub type Images = BTreeMap<Arc<str>, u64>;

/// Names that are kept once, however many members and nodes have the image.
#[derive(Clone, Debug, Default)]
pub struct ImageNames {
    names: HashSet<Arc<str>>,
    tidy_at: usize,
}

impl ImageNames {
    /// The name, shared with all who have it from here.
    pub fn share(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return Arc::clone(known);
        }
        if self.names.len() >= self.tidy_at {
            self.names.retain(|name| Arc::strong_count(name) > 1);
            self.tidy_at = 2 * self.names.len() + 256;
        }
        let name: Arc<str> = name.into();
        self.names.insert(Arc::clone(&name));
        name
    }

    /// Makes `capacity` share what it can: all its images with what was told of the member before, else the names.
    pub fn share_all(&mut self, capacity: &mut Capacity, before: Option<&Capacity>) {
        capacity.images = match before.filter(|before| before.images == capacity.images) {
            Some(before) => Arc::clone(&before.images),
            None => Arc::new(capacity.images.iter().map(|(name, bytes)| (self.share(name), *bytes)).collect()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_once_and_not_for_ever() {
        let mut names = ImageNames::default();
        let (one, again) = (names.share("a"), names.share("a"));
        assert!(Arc::ptr_eq(&one, &again));
        let told = |names: &mut ImageNames, before: Option<&Capacity>| {
            let mut capacity = Capacity { images: Arc::new(Images::from([("a".into(), 1)])), ..Capacity::default() };
            names.share_all(&mut capacity, before);
            capacity
        };
        let first = told(&mut names, None);
        assert!(Arc::ptr_eq(first.images.keys().next().unwrap(), &one));
        assert!(Arc::ptr_eq(&told(&mut names, Some(&first)).images, &first.images));
        for n in 0..2_000 {
            names.share(&n.to_string());
        }
        assert!(names.names.len() < 600 && names.names.contains("a"), "{}", names.names.len());
    }
}
