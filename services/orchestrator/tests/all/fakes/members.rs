//! Resource-synchronizer and members in memory: a desired state is reached at once, unless the test sets another behaviour.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;

use async_trait::async_trait;
use drover_api::bindings::{
    BindingStatus, BoundsOrder, Bundle, DesiredBinding, DesiredBindings, DesiredState, ObjectStatus, Phase, Preflight, PreflightAnswer,
    Release, ScaledWorkload, SetName, SetShare, Share, StatefulPod, TakenVolume, TestOrder, TestResult, TestRun, TestedHook, VolumeAnswer,
    VolumeQuestion,
};
use drover_orchestrator::peers::{PeerError, Synchronizer};
use drover_service::FeedHub;
use serde_json::{Value, json};
use uuid::Uuid;

/// How an app behaves on a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    Ready,
    /// It is applied but never ready.
    Stuck,
    /// Its pods fit on no node.
    Unschedulable,
    /// The member refuses its objects, as every other one would.
    Refused,
    /// The member refuses its objects because of what is there.
    RefusedHere,
    /// The same, and another app has a name there.
    RefusedTwice,
    /// The member would refuse its objects now, and accepts them when they are written: what was in the way has left.
    InTheWay,
    /// The member is unreachable.
    Unreachable,
    /// It is ready, and its pods take long to end.
    Lingering,
    /// It is ready while it is to run at most one pod with volumes.
    OnlyOnePod,
}

#[derive(Default)]
struct Inner {
    bundles: BTreeMap<String, Vec<Value>>,
    desired: BTreeMap<Uuid, DesiredBinding>,
    behaviour: HashMap<(String, String), Behaviour>,
    statuses: BTreeMap<Uuid, BindingStatus>,
    off: BTreeSet<(String, String)>,
    /// Apps whose pods may run in two places at a time.
    overlapping: BTreeSet<String>,
    /// Apps of which a removed copy may become present again: those that must not run twice.
    returning: BTreeSet<String>,
    /// The pods with volumes of an app, wherever it runs.
    pods: BTreeMap<String, Vec<StatefulPod>>,
    /// `present app@member` and `absent app@member`, each change once, in order.
    history: Vec<String>,
    /// Apps on clusters where every digest but this one is refused.
    only: HashMap<(String, String), String>,
    /// `app@member digest` of each write of a binding that is to be present.
    updates: Vec<String>,
    /// What stays in a member when an app leaves it, and why, by app.
    kept: HashMap<String, String>,
    /// Workloads that were scaled, by app and cluster.
    scaled: HashMap<(String, String), Vec<ScaledWorkload>>,
    /// Shares of bounds that have reached a binding.
    bounds: HashMap<Uuid, BoundsOrder>,
    /// Clusters that shares do not reach.
    cut_off: BTreeSet<String>,
}

pub struct FakeMembers {
    inner: Mutex<Inner>,
    pub feed: FeedHub<BindingStatus>,
}

impl Default for FakeMembers {
    fn default() -> Self {
        Self { inner: Mutex::default(), feed: FeedHub::new() }
    }
}

impl FakeMembers {
    /// Sets the behaviour of an app on a cluster, also of a copy that is there already.
    pub fn behave(&self, app: &str, cluster: &str, behaviour: Behaviour) {
        let mut inner = self.inner.lock().unwrap();
        inner.behaviour.insert((app.to_owned(), cluster.to_owned()), behaviour);
        inner.only.remove(&(app.to_owned(), cluster.to_owned()));
        self.report_again(&mut inner, app, cluster);
    }

    /// Another field manager sets the number of replicas of the Deployment of an app, both of this name; `None`: it no longer does.
    pub fn scale(&self, app: &str, cluster: &str, replicas: Option<i32>) {
        let workload = |replicas| ScaledWorkload { kind: "Deployment".into(), name: app.into(), replicas, by: "hpa".into() };
        let key = (app.to_owned(), cluster.to_owned());
        let mut inner = self.inner.lock().unwrap();
        inner.scaled.insert(key, replicas.map(workload).into_iter().collect());
        self.report_again(&mut inner, app, cluster);
    }

    /// From now on shares of bounds do not reach a cluster, or reach it again.
    pub fn cut_off(&self, cluster: &str, is: bool) {
        let mut inner = self.inner.lock().unwrap();
        if is {
            inner.cut_off.insert(cluster.to_owned());
        } else {
            inner.cut_off.remove(cluster);
        }
    }

    /// The upper bounds that the copies of an app act upon, by cluster.
    pub fn upper_bounds(&self, app: &str) -> BTreeMap<String, u32> {
        let inner = self.inner.lock().unwrap();
        let of = |desired: &DesiredBinding| {
            let share = inner.bounds.get(&desired.id)?.shares.first()?.max;
            (desired.app == app && desired.state == DesiredState::Present).then(|| (desired.member.cluster().to_owned(), share))
        };
        inner.desired.values().filter_map(of).collect()
    }

    /// From now on an object stays in the member when an app leaves it; `why` is the note of it.
    pub fn keep(&self, app: &str, why: &str) {
        self.inner.lock().unwrap().kept.insert(app.to_owned(), why.to_owned());
    }

    /// Every bundle of an app but this one is refused on a cluster, until another behaviour is set.
    pub fn fail_from(&self, app: &str, cluster: &str, good: &str) {
        self.inner.lock().unwrap().only.insert((app.to_owned(), cluster.to_owned()), good.to_owned());
    }

    /// `app@cluster digest` of each write of a binding that is to be present, in order.
    pub fn updates(&self) -> Vec<String> {
        self.inner.lock().unwrap().updates.clone()
    }

    /// Lets a removed copy of an app become present again.
    pub fn may_return(&self, app: &str) {
        self.inner.lock().unwrap().returning.insert(app.to_owned());
    }

    /// Gives an app pods with volumes. From then on no two copies may run the same one.
    pub fn with_pods(&self, app: &str, count: u32) {
        let pod = |ordinal: u32| {
            let name = format!("data-{app}-{ordinal}");
            let volume = TakenVolume {
                claim: json!({"metadata": {"namespace": "default", "name": name}}),
                volume: json!({"metadata": {"name": format!("pv-{ordinal}")}}),
            };
            StatefulPod { namespace: "default".into(), set: app.to_owned(), ordinal, volumes: vec![volume] }
        };
        self.inner.lock().unwrap().pods.insert(app.to_owned(), (0..count).map(pod).collect());
    }

    /// The same with volumes of which the app says that they may be written in two places.
    pub fn with_shared_pods(&self, app: &str, count: u32) {
        self.with_pods(app, count);
        let mut inner = self.inner.lock().unwrap();
        inner.overlapping.insert(app.to_owned());
        for volume in inner.pods.get_mut(app).into_iter().flatten().flat_map(|pod| &mut pod.volumes) {
            volume.claim["metadata"]["annotations"] = json!({"drover.io/may-overlap": "true"});
            volume.claim["spec"] = json!({"accessModes": ["ReadWriteMany"]});
        }
    }

    /// Nothing of an app runs on a cluster any more, although the cluster does not answer.
    pub fn is_off(&self, app: &str, cluster: &str) {
        self.inner.lock().unwrap().off.insert((app.to_owned(), cluster.to_owned()));
    }

    /// From now on nothing is known of the pods of an app.
    pub fn without_pods(&self, app: &str) {
        self.inner.lock().unwrap().pods.remove(app);
    }

    /// The pods with volumes that run, as `pod@cluster`, sorted.
    pub fn running(&self) -> Vec<String> {
        let inner = self.inner.lock().unwrap();
        let of = |desired: &DesiredBinding| {
            inner.runs(desired).into_iter().map(|pod| format!("{pod}@{}", desired.member.cluster())).collect::<Vec<_>>()
        };
        let mut running: Vec<String> = inner.desired.values().flat_map(of).collect();
        running.sort();
        running
    }

    /// `app@cluster` of every binding that is desired to be present, sorted.
    pub fn present(&self) -> Vec<String> {
        let inner = self.inner.lock().unwrap();
        let mut present: Vec<_> = inner
            .desired
            .values()
            .filter(|desired| desired.state == DesiredState::Present)
            .map(|desired| format!("{}@{}", desired.app, desired.member.cluster()))
            .collect();
        present.sort();
        present
    }

    /// Digest of the bundle of an app on a cluster.
    pub fn digest(&self, app: &str, cluster: &str) -> Option<String> {
        let inner = self.inner.lock().unwrap();
        inner
            .desired
            .values()
            .find(|desired| desired.app == app && desired.member.cluster() == cluster && desired.state == DesiredState::Present)
            .map(|desired| desired.digest.to_string())
    }

    /// The objects of an app on a cluster.
    pub fn objects(&self, app: &str, cluster: &str) -> Vec<Value> {
        let digest = self.digest(app, cluster).unwrap_or_default();
        self.inner.lock().unwrap().bundles.get(&digest).cloned().unwrap_or_default()
    }

    pub fn history(&self) -> Vec<String> {
        self.inner.lock().unwrap().history.clone()
    }

    pub fn statuses(&self) -> Vec<BindingStatus> {
        self.inner.lock().unwrap().statuses.values().cloned().collect()
    }

    pub fn seed(&self, desired: DesiredBinding) {
        let mut inner = self.inner.lock().unwrap();
        inner.bundles.insert(desired.digest.to_string(), Vec::new());
        inner.desired.insert(desired.id, desired.clone());
        self.report(&mut inner, &desired);
    }

    /// Reports every copy of an app on a cluster, whose behaviour has changed.
    fn report_again(&self, inner: &mut Inner, app: &str, cluster: &str) {
        let copies: Vec<_> =
            inner.desired.values().filter(|desired| desired.app == app && desired.member.cluster() == cluster).cloned().collect();
        for desired in copies {
            self.report(inner, &desired);
        }
    }

    /// Reports what a binding is like, by the behaviour of its app.
    fn report(&self, inner: &mut Inner, desired: &DesiredBinding) {
        let key = (desired.app.clone(), desired.member.cluster().to_owned());
        let refused = inner.only.get(&key).is_some_and(|good| *good != *desired.digest);
        let behaviour = if refused { Behaviour::Refused } else { inner.behaviour.get(&key).copied().unwrap_or(Behaviour::Ready) };
        let present = desired.state == DesiredState::Present;
        let phase = match (present, behaviour) {
            (_, Behaviour::Unreachable) => Phase::Unreachable,
            (false, Behaviour::Lingering) => Phase::Deleting,
            (false, _) => Phase::Gone,
            (true, Behaviour::OnlyOnePod) if inner.wants(desired).len() > 1 => Phase::Applied,
            (true, Behaviour::Ready | Behaviour::Lingering | Behaviour::OnlyOnePod | Behaviour::InTheWay) => Phase::Ready,
            (true, Behaviour::Stuck | Behaviour::Unschedulable) => Phase::Applied,
            (true, Behaviour::Refused | Behaviour::RefusedHere | Behaviour::RefusedTwice) => Phase::Failed,
        };
        let object = ObjectStatus {
            group: "apps".into(),
            version: "v1".into(),
            kind: "Deployment".into(),
            namespace: desired.namespace.clone(),
            name: desired.app.clone(),
            applied: true,
            ready: phase == Phase::Ready,
            reason: None,
        };
        let status = BindingStatus {
            id: desired.id,
            member: desired.member.clone(),
            digest: desired.digest.clone(),
            fence: desired.fence,
            phase,
            code: (phase == Phase::Failed).then(|| "preflight_failed".to_owned()),
            reason: (phase == Phase::Failed).then(|| against(behaviour).to_owned()),
            elsewhere: phase == Phase::Failed && matches!(behaviour, Behaviour::RefusedHere | Behaviour::RefusedTwice),
            lasting: (phase == Phase::Failed).then(|| lasting(behaviour)),
            unschedulable: (present && behaviour == Behaviour::Unschedulable)
                .then(|| "0/1 nodes are available: insufficient cpu".to_owned()),
            objects: if phase == Phase::Gone { vec![] } else { vec![object] },
            scaled: inner.scaled.get(&key).cloned().unwrap_or_default(),
            kept: inner.kept.get(&desired.app).filter(|_| phase == Phase::Gone).cloned().into_iter().collect(),
            released: match (&desired.share, behaviour) {
                (Some(share), Behaviour::Ready | Behaviour::Stuck | Behaviour::Refused | Behaviour::OnlyOnePod) => {
                    share.releases.iter().map(Release::key).collect()
                }
                _ => vec![],
            },
            serving_after: 0,
            tested: None,
            bounds: inner.bounds.get(&desired.id).map(|order| order.version),
        };
        inner.statuses.insert(desired.id, status.clone());
        self.feed.publish(desired.id.to_string(), Some(status));
    }
}

const RULE: &str = "denied by an admission rule";

/// What of the reason does not end with other apps.
fn lasting(behaviour: Behaviour) -> String {
    match behaviour {
        Behaviour::RefusedTwice => RULE,
        behaviour => against(behaviour),
    }
    .to_owned()
}

/// Why a member refuses objects.
fn against(behaviour: Behaviour) -> &'static str {
    match behaviour {
        Behaviour::RefusedHere => RULE,
        Behaviour::RefusedTwice => "denied by an admission rule; Service/default/victim exists in the member and is not this app's",
        Behaviour::InTheWay => "Service/default/victim exists in the member and is not this app's",
        _ => "spec.replicas: Invalid value",
    }
}

impl Inner {
    /// The pods with volumes that a binding is to run.
    fn wants(&self, desired: &DesiredBinding) -> BTreeSet<String> {
        let Some(pods) = self.pods.get(&desired.app).filter(|_| desired.state == DesiredState::Present) else { return BTreeSet::new() };
        let here = |pod: &&StatefulPod| {
            let runs = |set: &SetShare| (set.start..set.start + set.replicas).contains(&pod.ordinal);
            desired.share.as_ref().is_none_or(|share| share.sets.iter().any(runs))
        };
        pods.iter().filter(here).map(|pod| format!("{}-{}", pod.set, pod.ordinal)).collect()
    }

    /// The pods with volumes that a binding may run: also those of which nobody has said that they stopped.
    fn runs(&self, desired: &DesiredBinding) -> BTreeSet<String> {
        let place = (desired.app.clone(), desired.member.cluster().to_owned());
        if self.off.contains(&place) {
            return BTreeSet::new();
        }
        let mut pods = self.wants(desired);
        let lingers =
            |pod: &String| self.statuses.get(&desired.id).is_some_and(|status| !status.released.iter().any(|key| key.ends_with(pod)));
        let behaviour = self.behaviour.get(&place);
        if matches!(behaviour, Some(Behaviour::Lingering | Behaviour::Unreachable)) {
            pods.extend(desired.share.iter().flat_map(|share| &share.releases).map(|release| release.pod.clone()).filter(lingers));
        }
        pods
    }
}

impl FakeMembers {
    fn put_binding(&self, binding: &DesiredBinding) -> Result<(), PeerError> {
        let mut inner = self.inner.lock().unwrap();
        assert!(
            binding.state == DesiredState::Absent || inner.bundles.contains_key(&*binding.digest),
            "a binding was sent before its bundle: {binding:?}"
        );
        let before = inner.desired.get(&binding.id);
        if before.is_some_and(|before| before.fence > binding.fence) {
            return Err(super::refused("resource-synchronizer", 409, "stale_fence", vec![]));
        }
        assert!(
            !(before.is_some_and(|before| before.state == DesiredState::Absent) && binding.state == DesiredState::Present)
                || inner.returning.contains(&binding.app),
            "a removed binding must not become present again: {binding:?}"
        );
        let of_share = |share: &Share| {
            let sets = share.sets.iter().map(|set| format!("{}+{}", set.start, set.replicas));
            format!("share {}@{} {}", binding.app, binding.member.cluster(), sets.collect::<Vec<_>>().join(" "))
        };
        let starts = inner.wants(binding);
        for other in inner.desired.values().filter(|other| other.id != binding.id && other.app == binding.app) {
            let both: Vec<String> = inner.runs(other).intersection(&starts).cloned().collect();
            let permitted = usize::from(inner.overlapping.contains(&binding.app));
            assert!(both.len() <= permitted, "{both:?} would run on {} and {}: {:#?}", other.member, binding.member, inner.history);
        }
        if let Some(share) = binding.share.as_ref().filter(|share| before.is_none_or(|before| before.share.as_ref() != Some(share))) {
            let told = of_share(share);
            inner.history.push(told);
        } else if before.is_none_or(|before| before.state != binding.state) {
            let word = if binding.state == DesiredState::Present { "present" } else { "absent" };
            inner.history.push(format!("{word} {}@{}", binding.app, binding.member.cluster()));
        }
        if binding.state == DesiredState::Present {
            inner.updates.push(format!("{}@{} {}", binding.app, binding.member.cluster(), binding.digest));
        }
        inner.desired.insert(binding.id, binding.clone());
        self.report(&mut inner, binding);
        Ok(())
    }
}

#[async_trait]
impl Synchronizer for FakeMembers {
    async fn put_bindings(&self, desired: &DesiredBindings) -> Result<(), PeerError> {
        if let Some(Bundle { digest, objects }) = &desired.bundle {
            assert!(!objects.is_empty(), "the bundle is empty");
            self.inner.lock().unwrap().bundles.insert(digest.to_string(), objects.clone());
        }
        // As the service does: a binding that is refused does not keep the others from being stored.
        let answers: Vec<_> = desired.bindings.iter().map(|binding| self.put_binding(binding)).collect();
        answers.into_iter().collect()
    }

    async fn forget_binding(&self, binding: Uuid) -> Result<(), PeerError> {
        let mut inner = self.inner.lock().unwrap();
        inner.desired.remove(&binding);
        inner.statuses.remove(&binding);
        self.feed.publish(binding.to_string(), None);
        Ok(())
    }

    async fn volumes(&self, asked: &VolumeQuestion) -> Result<VolumeAnswer, PeerError> {
        let inner = self.inner.lock().unwrap();
        let of_set = |set: &SetName| match inner.pods.get(&set.name) {
            Some(pods) => {
                let here = |pod: &StatefulPod| StatefulPod { namespace: set.namespace.clone(), ..pod.clone() };
                VolumeAnswer { pods: pods.iter().map(here).collect(), problems: vec![] }
            }
            None => VolumeAnswer { pods: vec![], problems: vec![format!("the volume claim data-{}-0 is not bound to a volume", set.name)] },
        };
        let (pods, problems) = asked.sets.iter().map(of_set).map(|answer| (answer.pods, answer.problems)).unzip::<_, _, Vec<_>, Vec<_>>();
        Ok(VolumeAnswer { pods: pods.concat(), problems: problems.concat() })
    }

    async fn preflight(&self, asked: &Preflight) -> Result<PreflightAnswer, PeerError> {
        assert!(!asked.objects.is_empty(), "nothing is asked about");
        let key = (asked.binding.app.clone(), asked.binding.member.cluster().to_owned());
        let behaviour = self.inner.lock().unwrap().behaviour.get(&key).copied();
        let refusing = [Behaviour::Refused, Behaviour::RefusedHere, Behaviour::RefusedTwice, Behaviour::InTheWay];
        let refuses = behaviour.filter(|behaviour| refusing.contains(behaviour));
        let reasons = refuses.into_iter().flat_map(|behaviour| against(behaviour).split("; ")).map(str::to_owned).collect();
        let elsewhere = refuses.is_some_and(|behaviour| behaviour != Behaviour::Refused);
        let may_end = refuses == Some(Behaviour::InTheWay);
        let lasting = refuses.filter(|_| !may_end).map(lasting).into_iter().collect();
        Ok(PreflightAnswer { reasons, elsewhere, may_end, lasting })
    }

    /// A test ends at once: it succeeds, or fails where its app is stuck, or goes on for ever where its app lingers.
    async fn put_test(&self, binding: Uuid, order: TestOrder) -> Result<(), PeerError> {
        let mut inner = self.inner.lock().unwrap();
        let desired = inner.desired.get(&binding).cloned();
        let Some(desired) = desired else { return Err(super::refused("resource-synchronizer", 404, "not_found", vec![])) };
        let behaviour = inner.behaviour.get(&(desired.app.clone(), desired.member.cluster().to_owned())).copied();
        let result = match behaviour {
            Some(Behaviour::Stuck) => TestResult::Failed,
            Some(Behaviour::Lingering) => TestResult::Running,
            _ => TestResult::Succeeded,
        };
        let test = TestedHook { object: "Pod/default/try".into(), result, reason: None, log: None };
        let status = inner.statuses.get_mut(&binding).expect("every binding has a status");
        status.tested = order.run.map(|run| TestRun { run, ended: result != TestResult::Running, tests: vec![test] });
        let status = status.clone();
        self.feed.publish(binding.to_string(), Some(status));
        Ok(())
    }

    async fn put_bounds(&self, binding: Uuid, order: &BoundsOrder) -> Result<(), PeerError> {
        let mut inner = self.inner.lock().unwrap();
        let Some(desired) = inner.desired.get(&binding).cloned() else {
            return Err(super::refused("resource-synchronizer", 404, "not_found", vec![]));
        };
        if !inner.cut_off.contains(desired.member.cluster()) {
            inner.bounds.insert(binding, order.clone());
            self.report(&mut inner, &desired);
        }
        Ok(())
    }

    async fn test(&self, binding: Uuid) -> Result<Option<TestRun>, PeerError> {
        let inner = self.inner.lock().unwrap();
        Ok(inner.statuses.get(&binding).and_then(|status| status.tested.clone()))
    }
}
