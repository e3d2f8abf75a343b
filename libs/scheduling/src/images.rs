//! Shared storage for the names of container images on the nodes of members.

use std::sync::Arc;

use crate::{Capacity, Interner};

/// Image names, each stored once for all members and nodes.
#[derive(Clone, Debug, Default)]
pub struct ImageNames(Interner<str>);

impl ImageNames {
    /// Returns the shared copy of a name.
    pub fn share(&mut self, name: &str) -> Arc<str> {
        self.0.intern(name)
    }

    /// Makes `capacity` share memory: node labels and images with the `before` capacity of the same member where they are equal, else
    /// the names of its images with other members.
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
    fn share_all_reuses_names_and_equal_parts_of_previous_capacity() {
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
