//! Which groups a pass looks at that brings apps to further clusters: those that may lack a copy. The cost follows what changes, not the
//! number of applications.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use drover_api::members::Member;
use drover_api::scheduling::{MemberKey, MemberState};
use uuid::Uuid;

use crate::store::overview::SpreadingGroup;

/// After which time a cluster is tried again where an app did not become ready.
const AGAIN: Duration = Duration::from_secs(30 * 60);
/// For how long after a change of clusters all groups are looked at: placement hears of the change by itself.
const SPREADS_WITHIN: Duration = Duration::from_secs(60);
/// All groups are looked at this often in any case, for example because a cluster accepts a kind of objects that it refused.
const RESYNC: Duration = Duration::from_secs(5 * 60);

/// What is known of a cluster that decides whether an element means it, and whether a copy may start there.
#[derive(PartialEq, Eq)]
struct Selectable {
    id: Uuid,
    member: MemberKey,
    /// Apps cannot be reached there from other clusters.
    linked: bool,
    labels: BTreeSet<String>,
    state: MemberState,
    cordoned: bool,
}

/// All registered clusters, by the key of the feed.
#[derive(Default)]
pub struct Fleet(BTreeMap<String, Selectable>);

impl Fleet {
    /// Takes changes over. Returns whether other clusters may be meant or usable now.
    pub fn change(&mut self, reset: bool, items: Vec<(String, Option<Member>)>) -> bool {
        let mut changed = false;
        if reset {
            let count = self.0.len();
            self.0.retain(|key, _| items.iter().any(|(listed, member)| listed == key && member.is_some()));
            changed = self.0.len() < count;
        }
        for (key, member) in items {
            let new = member.map(|member| Selectable {
                id: member.id,
                linked: member.link.is_some(),
                labels: member.labels.into_iter().collect(),
                state: member.state,
                cordoned: member.cordoned.is_some(),
                member: member.key,
            });
            changed |= self.0.get(&key) != new.as_ref();
            match new {
                Some(new) => drop(self.0.insert(key, new)),
                None => drop(self.0.remove(&key)),
            }
        }
        changed
    }
}

/// What passes know of earlier ones. After a restart all groups are looked at again.
#[derive(Default)]
pub struct Extension {
    /// When a copy of an app of a group was last started on a cluster.
    pub(super) tried: BTreeMap<(Uuid, String, MemberKey), Instant>,
    /// Groups with a copy on every cluster that they mean, with the revision that was looked at. They are left alone until they change.
    pub(super) complete: BTreeMap<Uuid, i64>,
    /// When clusters changed last.
    changed: Option<Instant>,
    /// When all groups were looked at last.
    all: Option<Instant>,
}

impl Extension {
    /// Groups may mean other clusters now.
    pub fn clusters_changed(&mut self) {
        self.changed = Some(Instant::now());
    }

    /// The groups that a pass has to look at, of all that spread.
    pub(super) fn due(&mut self, spreading: Vec<SpreadingGroup>) -> Vec<(Uuid, i64)> {
        self.tried.retain(|_, at| at.elapsed() < AGAIN);
        let resync = self.all.is_none_or(|all| all.elapsed() >= RESYNC);
        if resync || self.changed.is_some_and(|changed| changed.elapsed() < SPREADS_WITHIN) {
            self.complete.clear();
            self.all = Some(Instant::now());
        }
        let known: BTreeSet<Uuid> = spreading.iter().map(|group| group.dig_id).collect();
        self.complete.retain(|id, _| known.contains(id));
        let due = spreading.into_iter().filter(|group| self.complete.get(&group.dig_id) != Some(&group.revision));
        let (new, due): (Vec<_>, Vec<_>) = due.partition(|group| !resync && self.was_placed_on_present_clusters(group));
        self.complete.extend(new.into_iter().map(|group| (group.dig_id, group.revision)));
        due.into_iter().map(|group| (group.dig_id, group.revision)).collect()
    }

    /// Whether a group was instantiated after placement had heard of the last change of clusters: then it is complete.
    fn was_placed_on_present_clusters(&self, group: &SpreadingGroup) -> bool {
        let steady = self.changed.and_then(|changed| changed.elapsed().checked_sub(SPREADS_WITHIN));
        steady.zip(group.instantiated_for).is_some_and(|(steady, ago)| ago < steady.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use drover_api::scheduling::Cordon;

    use super::*;

    fn groups(of: &[(Uuid, i64)]) -> Vec<SpreadingGroup> {
        of.iter().map(|(dig_id, revision)| SpreadingGroup { dig_id: *dig_id, revision: *revision, instantiated_for: None }).collect()
    }

    fn cluster(name: &str, labels: &[&str]) -> (String, Option<Member>) {
        let member = Member {
            id: Uuid::from_u128(1),
            key: MemberKey::new("p", name),
            priority: 1,
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            state: MemberState::Ready,
            since: None,
            reason: None,
            cordoned: None,
            link: None,
            credential_version: 1,
        };
        (name.to_owned(), Some(member))
    }

    #[test]
    fn groups_that_are_complete_are_looked_at_again_when_they_or_clusters_change() {
        let (mut extension, ids) = (Extension::default(), [1, 2].map(Uuid::from_u128));
        let both = vec![(ids[0], 1), (ids[1], 1)];
        assert_eq!(extension.due(groups(&both)), both, "nothing is known after a start");
        extension.complete.extend(both.clone());
        assert_eq!(extension.due(groups(&both)), []);
        assert_eq!(extension.due(groups(&[(ids[0], 2), (ids[1], 1)])), [(ids[0], 2)], "it has another revision");
        assert_eq!(extension.due(groups(&[(ids[1], 1)])), []);
        assert_eq!(extension.due(groups(&both)), [(ids[0], 1)], "it ran no more in between");
        extension.complete.extend(both.clone());
        extension.clusters_changed();
        assert_eq!(extension.due(groups(&both)), both);
    }

    #[test]
    fn group_that_was_instantiated_on_the_present_clusters_is_complete() {
        let one = |ago| vec![SpreadingGroup { dig_id: Uuid::from_u128(1), revision: 1, instantiated_for: ago }];
        let due = |clusters_changed: Option<Duration>, ago: Option<f64>| {
            let now = Instant::now();
            let changed = clusters_changed.map(|ago| now.checked_sub(ago).unwrap());
            let mut extension = Extension { all: Some(now), changed, ..Extension::default() };
            let due = !extension.due(one(ago)).is_empty();
            assert_eq!(due, extension.complete.is_empty(), "what is not looked at counts as complete");
            due
        };
        let before = Some(SPREADS_WITHIN + Duration::from_secs(10));
        assert!(!due(before, Some(5.0)));
        assert!(due(before, Some(20.0)), "placement may not have known of the change yet");
        assert!(due(before, None), "it was changed since");
        assert!(due(Some(Duration::from_secs(10)), Some(5.0)) && due(None, Some(5.0)), "the clusters are new");
    }

    #[test]
    fn change_of_labels_or_state_counts_and_anything_else_of_a_cluster_does_not() {
        let mut fleet = Fleet::default();
        assert!(fleet.change(true, vec![cluster("a", &["edge"]), cluster("b", &[])]));
        let mut renewed = cluster("a", &["edge"]);
        renewed.1.as_mut().unwrap().credential_version = 2;
        assert!(!fleet.change(false, vec![renewed]));
        assert!(!fleet.change(true, vec![cluster("a", &["edge"]), cluster("b", &[])]));
        assert!(fleet.change(false, vec![cluster("b", &["edge"])]));
        let mut closed = cluster("b", &["edge"]);
        closed.1.as_mut().unwrap().cordoned = Some(Cordon { since: String::new(), reason: String::new() });
        assert!(fleet.change(false, vec![closed]));
        assert!(fleet.change(false, vec![("b".to_owned(), None)]) && !fleet.change(false, vec![("b".to_owned(), None)]));
        assert!(fleet.change(true, vec![]));
    }
}
