//! The images that a member's nodes have.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Capacity, Interner};

/// Images of a member by their one name (`drover_quantity::image_name`), with their sizes in bytes. 0: it is there, and nobody says
/// how large it is.
pub type Images = BTreeMap<Arc<str>, u64>;

/// Names that are kept once, however many members and nodes have the image.
#[derive(Clone, Debug, Default)]
pub struct ImageNames(Interner<str>);

impl ImageNames {
    /// The name, shared with all who have it from here.
    pub fn share(&mut self, name: &str) -> Arc<str> {
        self.0.intern(name)
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
    fn a_member_shares_names_and_what_it_told_before() {
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
    }
}
