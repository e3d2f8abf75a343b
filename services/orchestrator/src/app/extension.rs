//! Which groups a pass looks at that brings apps to further clusters: those that may lack a copy. The cost follows what changes, not the
//! number of applications.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::{Duration, Instant};

use drover_api::members::Member;
use drover_api::scheduling::{Element, MemberKey, MemberState};
use uuid::Uuid;

use super::everywhere::is_open;
use crate::store::overview::SpreadingApp;

/// After which time a cluster is tried again where an app did not become ready.
const AGAIN: Duration = Duration::from_secs(30 * 60);
/// For how long after a change of clusters all groups are looked at: placement hears of the change by itself.
const SPREADS_WITHIN: Duration = Duration::from_secs(60);
/// All groups are looked at this often in any case, for example because a cluster accepts a kind of objects that it refused.
const RESYNC: Duration = Duration::from_secs(5 * 60);
/// Shortest and longest time until a group is looked at again that lacks a copy which cannot be started now. It doubles.
const PATIENCE: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(30)];

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
struct Fleet(BTreeMap<String, Selectable>);

impl Fleet {
    /// Takes changes over. Returns whether other clusters may be meant or usable now.
    fn change(&mut self, reset: bool, items: Vec<(String, Option<Member>)>) -> bool {
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

/// A group that lacked a copy which could not be started.
struct Waiting {
    revision: i64,
    since: Instant,
    pause: Duration,
}

/// What passes know of the clusters and of earlier passes. After a restart all groups are looked at again.
#[derive(Default)]
pub struct Extension {
    /// When a copy of an app of a group was last started on a cluster.
    pub(super) tried: BTreeMap<(Uuid, String, MemberKey), Instant>,
    /// Groups with a copy on every cluster that they mean, with the revision that was looked at. They are left alone until they change.
    complete: BTreeMap<Uuid, i64>,
    /// Groups that lack a copy. They are left alone for a while.
    waiting: BTreeMap<Uuid, Waiting>,
    fleet: Fleet,
    /// When clusters changed last.
    changed: Option<Instant>,
    /// When all groups were looked at last.
    all: Option<Instant>,
}

impl Extension {
    /// Takes changes of the clusters over. Groups may mean other clusters then.
    pub fn clusters_changed(&mut self, reset: bool, items: Vec<(String, Option<Member>)>) {
        if self.fleet.change(reset, items) {
            self.changed = Some(Instant::now());
        }
    }

    /// The groups that a pass has to look at, of all that spread.
    pub(super) fn due(&mut self, spreading: Vec<(Uuid, i64)>) -> Vec<(Uuid, i64)> {
        self.tried.retain(|_, at| at.elapsed() < AGAIN);
        let changing = self.changed.is_some_and(|changed| changed.elapsed() < SPREADS_WITHIN);
        if changing {
            self.waiting.clear();
        }
        if changing || self.all.is_none_or(|all| all.elapsed() >= RESYNC) {
            self.complete.clear();
            self.all = Some(Instant::now());
        }
        let known: BTreeSet<Uuid> = spreading.iter().map(|(id, _)| *id).collect();
        self.complete.retain(|id, _| known.contains(id));
        self.waiting.retain(|id, _| known.contains(id));
        let waits = |(id, revision): &(Uuid, i64)| {
            self.waiting.get(id).is_some_and(|waiting| waiting.revision == *revision && waiting.since.elapsed() < waiting.pause)
        };
        spreading.into_iter().filter(|group| self.complete.get(&group.0) != Some(&group.1) && !waits(group)).collect()
    }

    /// Those of `due` that may lack a copy, where `apps` are the apps that they run. Placement need not be asked about the others: they
    /// have a copy on every cluster that it could mean.
    pub(super) fn lacking(&mut self, due: &[(Uuid, i64)], apps: &[SpreadingApp]) -> Vec<(Uuid, i64)> {
        let mut covered: BTreeMap<Uuid, bool> = BTreeMap::new();
        for app in apps {
            *covered.entry(app.dig_id).or_insert(true) &= self.covers(app);
        }
        let (lacking, complete): (Vec<_>, Vec<_>) = due.iter().partition(|(id, _)| covered.get(id) != Some(&true));
        complete.into_iter().for_each(|(id, revision)| self.is_complete(id, revision));
        lacking
    }

    /// Whether an app runs on every cluster that placement could mean. What else is against a cluster, only placement knows.
    fn covers(&self, app: &SpreadingApp) -> bool {
        let open: Vec<&Element> = app.terms.intent.all_of.iter().filter(|element| is_open(element)).collect();
        let runs_on: HashSet<&str> = app.members.iter().map(String::as_str).collect();
        let (whole, named): (Vec<_>, Vec<_>) = app.terms.logical_cloud.iter().partition(|key| key.cluster() == MemberKey::EVERY);
        let named: HashSet<&MemberKey> = named.into_iter().collect();
        let in_cloud = |member: &MemberKey| named.contains(member) || whole.iter().any(|key| key.includes(member));
        let means = |element: &Element, one: &Selectable| element.means(&one.member, |label| one.labels.contains(label));
        let mut meant = self.fleet.0.values().filter(|one| open.iter().any(|element| means(element, one)));
        !self.fleet.0.is_empty() && meant.all(|one| runs_on.contains(&*one.member.0) || one.cordoned || !in_cloud(&one.member))
    }

    /// A group has a copy on every cluster that it means.
    pub(super) fn is_complete(&mut self, id: Uuid, revision: i64) {
        self.waiting.remove(&id);
        self.complete.insert(id, revision);
    }

    /// A group lacks a copy that cannot be started now.
    pub(super) fn waits(&mut self, id: Uuid, revision: i64) {
        let [shortest, longest] = PATIENCE;
        let before = self.waiting.get(&id).filter(|before| before.revision == revision);
        let pause = before.map_or(shortest, |before| (before.pause * 2).min(longest));
        self.waiting.insert(id, Waiting { revision, since: Instant::now(), pause });
    }
}

#[cfg(test)]
mod tests {
    use drover_api::scheduling::{Cordon, Intent, PlacementTerms};
    use sqlx::types::Json;

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
        let complete = |extension: &mut Extension| ids.iter().for_each(|id| extension.is_complete(*id, 1));
        assert_eq!(extension.due(both.clone()), both, "nothing is known after a start");
        complete(&mut extension);
        assert_eq!(extension.due(both.clone()), []);
        assert_eq!(extension.due(vec![(ids[0], 2), (ids[1], 1)]), [(ids[0], 2)], "it has another revision");
        assert_eq!(extension.due(vec![(ids[1], 1)]), []);
        assert_eq!(extension.due(both.clone()), [(ids[0], 1)], "it ran no more in between");
        complete(&mut extension);
        extension.clusters_changed(false, vec![cluster("a", &["edge"])]);
        assert_eq!(extension.due(both.clone()), both);
    }

    #[test]
    fn group_that_lacks_a_copy_is_looked_at_less_and_less_often_until_clusters_change() {
        let (mut extension, one) = (Extension::default(), (Uuid::from_u128(1), 1));
        extension.due(vec![one]);
        extension.waits(one.0, one.1);
        let mut due_after = |seconds: u64| {
            let waiting = extension.waiting.get_mut(&one.0).unwrap();
            waiting.since = Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
            let due = !extension.due(vec![one]).is_empty();
            if due {
                extension.waits(one.0, one.1);
            }
            due
        };
        let seconds = [4, 6, 6, 11, 11, 21, 29, 31, 31];
        assert_eq!(seconds.map(&mut due_after), [false, true, false, true, false, true, false, true, true]);
        assert_eq!(extension.due(vec![(one.0, 2)]), [(one.0, 2)], "it was changed");
        extension.clusters_changed(false, vec![cluster("a", &["edge"])]);
        assert_eq!(extension.due(vec![one]), [one]);
    }

    #[test]
    fn group_that_runs_on_every_cluster_that_it_could_mean_is_complete() {
        let element = |provider: &str, cluster: Option<&str>, label: Option<&str>| Element {
            cluster_provider: Some(provider.to_owned()),
            cluster: cluster.map(str::to_owned),
            cluster_label: label.map(str::to_owned),
            any_of: Vec::new(),
        };
        let one = (Uuid::from_u128(1), 1);
        let mut extension = Extension::default();
        let app = |all_of: Element, cloud: &[&str], members: &[&str]| SpreadingApp {
            dig_id: one.0,
            terms: Json(PlacementTerms {
                intent: Intent { all_of: vec![all_of], any_of: Vec::new() },
                logical_cloud: cloud.iter().map(|key| MemberKey((*key).to_owned())).collect(),
                ..PlacementTerms::default()
            }),
            members: members.iter().map(|key| (*key).to_owned()).collect(),
        };
        let whole = || app(element("*", Some("*"), None), &["*+*"], &["p+a", "p+b"]);
        assert_eq!(extension.lacking(&[one], &[whole()]), [one], "the clusters are not known yet");
        let mut closed = cluster("closed", &["edge"]);
        closed.1.as_mut().unwrap().cordoned = Some(Cordon { since: String::new(), reason: String::new() });
        extension.clusters_changed(true, vec![cluster("a", &["edge"]), cluster("b", &[]), closed]);
        let mut lacks = |apps: &[SpreadingApp]| {
            let lacks = !extension.lacking(&[one], apps).is_empty();
            assert_eq!(lacks, extension.complete.remove(&one.0).is_none(), "what is not looked at counts as complete");
            lacks
        };
        assert!(!lacks(&[whole()]), "nothing new comes to a closed cluster");
        assert!(lacks(&[app(element("p", Some("*"), None), &["*+*"], &["p+a"])]), "p+b has no copy");
        assert!(!lacks(&[app(element("q", Some("*"), None), &["*+*"], &[])]), "no cluster is of q");
        assert!(!lacks(&[app(element("p", Some("*"), None), &["p+a"], &["p+a"])]), "p+b is not in the logical cloud");
        assert!(!lacks(&[app(element("p", None, Some("edge")), &["p+*"], &["p+a"])]), "p+b has no such label");
        assert!(lacks(&[app(element("p", None, Some("edge")), &["p+*"], &["p+b"])]));
        assert!(lacks(&[whole(), app(element("p", Some("*"), None), &["*+*"], &[])]), "one of its apps lacks copies");
        assert!(lacks(&[]), "what it runs is not known");
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
