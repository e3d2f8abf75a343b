//! Amounts on the few nodes that a binding has pods on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

use crate::Amounts;

/// Amounts by node name, in its order. There are as many of these as bindings, times the services that know them, and most have one
/// entry, where a B-tree's smallest leaf has room for eleven.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "BTreeMap<String, Amounts>")]
pub struct ByNode(Box<[(Box<str>, Amounts)]>);

impl ByNode {
    /// Without any node.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The amounts on each node.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Amounts)> {
        self.0.iter().map(|(node, amounts)| (&**node, amounts))
    }

    /// The amounts on one node.
    pub fn get(&self, node: &str) -> Option<&Amounts> {
        let at = self.0.binary_search_by(|(name, _)| (**name).cmp(node)).ok()?;
        Some(&self.0[at].1)
    }
}

impl From<BTreeMap<String, Amounts>> for ByNode {
    fn from(amounts: BTreeMap<String, Amounts>) -> Self {
        Self(amounts.into_iter().map(|(node, amounts)| (node.into_boxed_str(), amounts)).collect())
    }
}

impl Serialize for ByNode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_a_map_for_everybody_else() {
        let amounts = BTreeMap::from([("b".to_owned(), Amounts::pod(2, 2)), ("a".to_owned(), Amounts::pod(1, 1))]);
        let by_node = ByNode::from(amounts.clone());
        let json = serde_json::to_value(&by_node).unwrap();
        assert_eq!(json, serde_json::to_value(&amounts).unwrap());
        assert_eq!(serde_json::from_value::<ByNode>(json).unwrap(), by_node);
        assert_eq!((by_node.get("b"), by_node.get("c")), (Some(&Amounts::pod(2, 2)), None));
        assert_eq!(by_node.iter().map(|(node, _)| node).collect::<Vec<_>>(), ["a", "b"]);
    }
}
