//! The objects of an app while actions change them. In some clusters they may become different from those in the others. Pure.

use std::collections::{BTreeMap, BTreeSet};

use drover_api::scheduling::MemberKey;
use serde_json::Value;

use crate::render::Rendered;

/// The clusters in which a change is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Clusters {
    #[default]
    Everywhere,
    These(BTreeSet<MemberKey>),
}

impl Clusters {
    /// All clusters of several changes.
    pub fn union<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut these = BTreeSet::new();
        for clusters in all {
            match clusters {
                Self::Everywhere => return Self::Everywhere,
                Self::These(more) => these.extend(more.iter().cloned()),
            }
        }
        Self::These(these)
    }
}

/// The objects of an app.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// In every cluster that is not in `by_member`.
    everywhere: Vec<Value>,
    /// In the clusters where they may differ.
    by_member: BTreeMap<MemberKey, Vec<Value>>,
}

impl Objects {
    /// The objects of a rendered app.
    pub fn of(rendered: Rendered) -> Self {
        Self { everywhere: rendered.objects, by_member: rendered.variants }
    }

    /// Changes the objects in these clusters.
    ///
    /// # Errors
    /// The change does not fit.
    pub fn change(&mut self, clusters: &Clusters, change: impl Fn(&mut Vec<Value>) -> Result<(), String>) -> Result<(), String> {
        match clusters {
            Clusters::Everywhere => {
                change(&mut self.everywhere)?;
                self.by_member.values_mut().try_for_each(change)
            }
            Clusters::These(members) => members.iter().try_for_each(|member| {
                let objects = self.by_member.entry(member.clone()).or_insert_with(|| self.everywhere.clone());
                change(objects).map_err(|reason| format!("{reason}, in {member}"))
            }),
        }
    }

    /// The app with these objects.
    ///
    /// # Errors
    /// There are no objects, or one is there twice.
    pub fn rendered(self) -> Result<Rendered, String> {
        Rendered::of(self.everywhere)?.with_variants(self.by_member)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn changes_of_single_clusters_make_variants_that_later_changes_reach_too() {
        let [edge, core] = ["edge", "core"].map(|cluster| MemberKey::new("p", cluster));
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {}});
        let mut objects = Objects::of(Rendered::of(vec![object]).unwrap());
        let set = |key: &'static str| {
            move |objects: &mut Vec<Value>| {
                objects[0]["data"][key] = json!("1");
                Ok(())
            }
        };
        objects.change(&Clusters::These([edge.clone()].into()), set("first")).unwrap();
        objects.change(&Clusters::Everywhere, set("second")).unwrap();
        let rendered = objects.rendered().unwrap();
        assert_eq!(rendered.in_member(&core)[0]["data"], json!({"second": "1"}));
        assert_eq!(rendered.in_member(&edge)[0]["data"], json!({"first": "1", "second": "1"}));
        assert_eq!(rendered.variants.len(), 1);
    }

    #[test]
    fn union_of_clusters_is_everywhere_if_one_is() {
        let these = |names: &[&str]| Clusters::These(names.iter().map(|name| MemberKey::new("p", name)).collect());
        assert_eq!(Clusters::union([&these(&["a"]), &these(&["b", "a"])]), these(&["a", "b"]));
        assert_eq!(Clusters::union([&these(&["a"]), &Clusters::Everywhere]), Clusters::Everywhere);
        assert_eq!(Clusters::union([]), these(&[]));
    }
}
