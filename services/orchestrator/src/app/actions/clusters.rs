//! Which clusters a change that is not for all clusters is for: EMCO's `clusterInfo`.

use std::collections::{BTreeMap, BTreeSet};

use drover_api::scheduling::MemberKey;

use super::objects::Clusters;
use crate::resources::controllers::generic::ClusterInfo;

/// The clusters of a group's logical cloud with their labels.
#[derive(Clone, Debug, Default)]
pub struct LabelledMembers(pub BTreeMap<MemberKey, BTreeSet<String>>);

impl LabelledMembers {
    /// The clusters that are chosen.
    pub(super) fn chosen(&self, by: &ClusterInfo) -> Clusters {
        let meant = |member: &MemberKey, labels: &BTreeSet<String>| {
            let is = match by.by_label() {
                true => labels.contains(&by.cluster_label),
                false => member.cluster() == by.cluster,
            };
            is && member.provider() == by.cluster_provider
        };
        let members = self.0.iter().filter(|(member, labels)| meant(member, labels) != by.denies());
        Clusters::These(members.map(|(member, _)| member.clone()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_are_chosen_by_name_or_label_and_allowed_or_denied() {
        let member = |name: &str, labels: &[&str]| {
            let (provider, cluster) = name.split_once('+').unwrap();
            (MemberKey::new(provider, cluster), labels.iter().map(|label| (*label).to_owned()).collect::<BTreeSet<_>>())
        };
        let members = LabelledMembers([member("p+a", &["edge"]), member("p+b", &[]), member("q+a", &["edge"])].into());
        let chosen = |scope: &str, mode: &str| {
            let by = ClusterInfo {
                scope: scope.into(),
                cluster_provider: "p".into(),
                cluster: "a".into(),
                cluster_label: "edge".into(),
                mode: mode.into(),
            };
            match members.chosen(&by) {
                Clusters::These(members) => members.into_iter().map(|member| member.0).collect::<Vec<_>>(),
                Clusters::Everywhere => panic!("everywhere"),
            }
        };
        assert_eq!(chosen("name", "allow"), ["p+a"]);
        assert_eq!(chosen("Label", "Allow"), ["p+a"]);
        assert_eq!(chosen("label", "deny"), ["p+b", "q+a"]);
    }
}
