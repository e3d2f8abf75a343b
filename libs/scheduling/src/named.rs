//! Small immutable maps by name: the amounts of a binding by node, the labels of a node.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

use crate::Amounts;

/// An immutable map sorted by name. There is one for each binding and node, and most have few entries, so it is a boxed slice: a B-tree
/// allocates eleven entries at least.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "BTreeMap<String, V>", bound = "V: Deserialize<'de>")]
pub struct Named<V>(Box<[(Box<str>, V)]>);

/// Amounts by node name.
pub type ByNode = Named<Amounts>;

/// Labels of a node.
pub type Labels = Named<String>;

// A derived implementation would require `V: Default`.
impl<V> Default for Named<V> {
    fn default() -> Self {
        Self(Box::default())
    }
}

impl<V> Named<V> {
    /// Whether it has no entry.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The entries, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        self.0.iter().map(|(name, value)| (&**name, value))
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&V> {
        let at = self.0.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        Some(&self.0[at].1)
    }
}

impl ByNode {
    /// The sum of the amounts on all nodes.
    pub fn sum(&self) -> Amounts {
        let mut sum = Amounts::default();
        self.iter().for_each(|(_, amounts)| sum.add(amounts, 1));
        sum
    }
}

impl<V> From<BTreeMap<String, V>> for Named<V> {
    fn from(values: BTreeMap<String, V>) -> Self {
        Self(values.into_iter().map(|(name, value)| (name.into_boxed_str(), value)).collect())
    }
}

impl<V: Serialize> Serialize for Named<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_behaves_and_serialises_like_a_map() {
        let amounts = BTreeMap::from([("b".to_owned(), Amounts::pod(2, 2)), ("a".to_owned(), Amounts::pod(1, 1))]);
        let by_node = ByNode::from(amounts.clone());
        let json = serde_json::to_value(&by_node).unwrap();
        assert_eq!(json, serde_json::to_value(&amounts).unwrap());
        assert_eq!(serde_json::from_value::<ByNode>(json).unwrap(), by_node);
        assert_eq!((by_node.get("b"), by_node.get("c")), (Some(&Amounts::pod(2, 2)), None));
        assert_eq!(by_node.sum(), Amounts { pods: 2, ..Amounts::pod(3, 3) });
        assert_eq!(by_node.iter().map(|(node, _)| node).collect::<Vec<_>>(), ["a", "b"]);
    }
}
