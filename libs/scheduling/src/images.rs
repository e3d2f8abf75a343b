//! The images that a member's nodes have.

use std::sync::Arc;

use crate::{Capacity, Interner};

/// Names that are kept once, however many members and nodes have the image.
#[derive(Clone, Debug, Default)]
pub struct ImageNames(Interner<str>);

impl ImageNames {
    /// The name, shared with all who have it from here.
    pub fn share(&mut self, name: &str) -> Arc<str> {
        self.0.intern(name)
    }

    /// Makes `capacity` share what it can: its images and the labels of its nodes with what was told of the member before, else the
    /// names of images.
    pub fn share_all(&mut self, capacity: &mut Capacity, before: Option<&Capacity>) {
        let known = before.into_iter().flat_map(|before| before.nodes.iter());
        for (node, known) in Arc::make_mut(&mut capacity.nodes).iter_mut().zip(known).filter(|(node, known)| node.labels == known.labels) {
            node.labels = Arc::clone(&known.labels);
        }
        capacity.images = match before.filter(|before| before.images == capacity.images) {
            Some(before) => Arc::clone(&before.images),
            None => Arc::new(capacity.images.iter().map(|(name, bytes)| (self.share(name), *bytes)).collect()),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{Images, Node};

    #[test]
    fn a_member_shares_names_and_what_it_told_before() {
        let mut names = ImageNames::default();
        let (one, again) = (names.share("a"), names.share("a"));
        assert!(Arc::ptr_eq(&one, &again));
        let told = |names: &mut ImageNames, before: Option<&Capacity>| {
            let labels = Arc::new(BTreeMap::from([("zone".to_owned(), "b".to_owned())]).into());
            let nodes = Arc::new(vec![Node { labels, ..Node::default() }]);
            let mut capacity = Capacity { nodes, images: Arc::new(Images::from([("a".into(), 1)])), ..Capacity::default() };
            names.share_all(&mut capacity, before);
            capacity
        };
        let first = told(&mut names, None);
        assert!(Arc::ptr_eq(first.images.keys().next().unwrap(), &one));
        let second = told(&mut names, Some(&first));
        assert!(Arc::ptr_eq(&second.images, &first.images) && Arc::ptr_eq(&second.nodes[0].labels, &first.nodes[0].labels));
    }
}
