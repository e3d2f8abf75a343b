//! Which groups a pass looks at that brings apps to further clusters: those that may lack a copy. The cost follows what changes, not the
//! number of applications.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use drover_api::members::Member;
use drover_api::scheduling::{MemberKey, MemberState};
use uuid::Uuid;

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
    /// Whether this pass looks at all groups although clusters did not change.
    resyncing: bool,
}

impl Extension {
    /// Groups may mean other clusters now.
    pub fn clusters_changed(&mut self) {
        self.changed = Some(Instant::now());
    }

    /// The groups that a pass has to look at, of all that spread.
    pub(super) fn due(&mut self, spreading: Vec<(Uuid, i64)>) -> Vec<(Uuid, i64)> {
        self.tried.retain(|_, at| at.elapsed() < AGAIN);
        self.resyncing = self.all.is_none_or(|all| all.elapsed() >= RESYNC);
        if self.resyncing || self.changed.is_some_and(|changed| changed.elapsed() < SPREADS_WITHIN) {
            self.complete.clear();
            self.all = Some(Instant::now());
        }
        let known: BTreeSet<Uuid> = spreading.iter().map(|(id, _)| *id).collect();
        self.complete.retain(|id, _| known.contains(id));
        spreading.into_iter().filter(|(id, revision)| self.complete.get(id) != Some(revision)).collect()
    }

    /// Those of `due` that may lack a copy. The others were placed, so many seconds ago, after placement had heard of the last change of
    /// clusters: they are complete.
    pub(super) fn lacking(&mut self, due: Vec<(Uuid, i64)>, placed_for: &BTreeMap<(Uuid, i64), f64>) -> Vec<(Uuid, i64)> {
        let steady = self.changed.and_then(|changed| changed.elapsed().checked_sub(SPREADS_WITHIN)).filter(|_| !self.resyncing);
        let complete = |one: &(Uuid, i64)| steady.zip(placed_for.get(one)).is_some_and(|(steady, ago)| *ago < steady.as_secs_f64());
        let (complete, lacking): (Vec<_>, Vec<_>) = due.into_iter().partition(complete);
        self.complete.extend(complete);
        lacking
    }
}

#[cfg(test)]
mod tests {
    use drover_api::scheduling::Cordon;

    use super::*;

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
        assert_eq!(extension.due(both.clone()), both, "nothing is known after a start");
        extension.complete.extend(both.clone());
        assert_eq!(extension.due(both.clone()), []);
        assert_eq!(extension.due(vec![(ids[0], 2), (ids[1], 1)]), [(ids[0], 2)], "it has another revision");
        assert_eq!(extension.due(vec![(ids[1], 1)]), []);
        assert_eq!(extension.due(both.clone()), [(ids[0], 1)], "it ran no more in between");
        extension.complete.extend(both.clone());
        extension.clusters_changed();
        assert_eq!(extension.due(both.clone()), both);
    }

    #[test]
    fn group_that_was_instantiated_on_the_present_clusters_is_complete() {
        let one = (Uuid::from_u128(1), 1);
        let pass = |extension: &mut Extension, placed_for: Option<f64>| {
            let due = extension.due(vec![one]);
            assert_eq!(due, [one]);
            let lacking = extension.lacking(due, &placed_for.map(|ago| (one, ago)).into_iter().collect());
            assert_eq!(lacking.is_empty(), extension.complete.contains_key(&one.0), "what is not looked at counts as complete");
            !lacking.is_empty()
        };
        let looks = |clusters_changed: Option<Duration>, placed_for: Option<f64>| {
            let now = Instant::now();
            let changed = clusters_changed.map(|ago| now.checked_sub(ago).unwrap());
            pass(&mut Extension { all: Some(now), changed, ..Extension::default() }, placed_for)
        };
        let before = SPREADS_WITHIN + Duration::from_secs(10);
        assert!(!looks(Some(before), Some(5.0)));
        assert!(looks(Some(before), Some(20.0)), "placement may not have known of the change yet");
        assert!(looks(Some(before), None), "it was changed since, or a user chose the plan");
        assert!(looks(Some(Duration::from_secs(10)), Some(5.0)) && looks(None, Some(5.0)), "the clusters are new");
        let changed = Instant::now().checked_sub(before);
        assert!(pass(&mut Extension { changed, ..Extension::default() }, Some(5.0)), "all are looked at in this pass");
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
