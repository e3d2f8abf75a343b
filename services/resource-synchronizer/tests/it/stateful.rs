//! An app with volumes moves pod by pod between two members, on kubesim: every pod and every volume is in one place at a time.

use std::sync::Arc;

use drover_api::bindings::{
    BindingStatus, DesiredBinding, Phase, Release, ReleasedClaim, SetName, SetShare, Share, StatefulPod, VolumeAnswer, VolumeQuestion,
};
use drover_kubesim::Operation;
use drover_scheduling::MemberKey;
use drover_testkit::eventually;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::support::{MEMBER, PATIENCE, Stack, absent, binding};

const OTHER: &str = "onprem+b";

/// An app of two pods with volumes that runs on [`MEMBER`] and may move to [`OTHER`].
struct Database {
    stack: Stack,
    old: DesiredBinding,
    new: DesiredBinding,
    fence: i64,
}

fn set() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {"serviceName": "db", "replicas": 2,
        "selector": {"matchLabels": {"app": "db"}}, "template": {"metadata": {"labels": {"app": "db"}},
            "spec": {"containers": [{"name": "c", "image": "example.com/db:1", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]}},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "shared",
            "resources": {"requests": {"storage": "1Gi"}}}}]}})
}

impl Database {
    async fn start() -> Self {
        let stack = Stack::start().await;
        stack.add_member(OTHER);
        stack.know(MEMBER);
        for member in [MEMBER, OTHER] {
            let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "shared",
                "labels": {"drover.io/shared": "true"}}, "provisioner": "example.com/nfs"});
            let classes: Api<StorageClass> = Api::all(stack.sim.client(member));
            classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
        }
        stack.bundle("db", vec![set()]).await;
        let old = binding("db", "db");
        let new = DesiredBinding { id: uuid::Uuid::new_v4(), member: MemberKey(OTHER.into()), ..old.clone() };
        stack.desire(&old).await;
        stack.reaches(&old, Phase::Ready).await;
        Self { stack, old, new, fence: 1 }
    }

    /// The pods as they are to move.
    async fn pods(&self) -> Vec<StatefulPod> {
        let sets = vec![SetName { namespace: "default".into(), name: "db".into() }];
        let asked = VolumeQuestion { member: self.old.member.clone(), sets };
        let (status, body) = self.stack.send(reqwest::Method::POST, "/internal/volumes", &asked).await;
        assert_eq!(status, 200, "{body}");
        let answer: VolumeAnswer = serde_json::from_value(body).unwrap();
        assert_eq!(answer.problems, Vec::<String>::new());
        answer.pods
    }

    /// Asks a copy to run these pods, and to release the others.
    async fn ask(&mut self, new: bool, all: &[StatefulPod], start: u32, replicas: u32) -> DesiredBinding {
        self.fence += 1;
        let here = |pod: &&StatefulPod| (start..start + replicas).contains(&pod.ordinal);
        let release = |pod: &StatefulPod| Release {
            namespace: "default".into(),
            pod: format!("db-{}", pod.ordinal),
            set: "db".into(),
            claims: pod.volumes.iter().map(|v| ReleasedClaim { name: v.claim_name().1.into(), volume: v.volume_name().into() }).collect(),
        };
        let share = Share {
            sets: vec![SetShare { namespace: "default".into(), name: "db".into(), start, replicas }],
            volumes: all.iter().filter(here).flat_map(|pod| pod.volumes.clone()).collect(),
            releases: all.iter().filter(|pod| !here(pod)).map(release).collect(),
        };
        let copy = if new { &self.new } else { &self.old };
        let desired = DesiredBinding { share: Some(Arc::new(share)), fence: self.fence, ..copy.clone() };
        self.stack.desire(&desired).await;
        desired
    }

    /// Waits until a copy has released what it was asked to, and is ready with the rest.
    async fn done(&self, desired: &DesiredBinding) -> BindingStatus {
        let wanted = desired.share.as_ref().map_or(0, |share| share.releases.len());
        eventually(PATIENCE, async || {
            let status = self.stack.status(desired.id).await?;
            (status.fence == desired.fence && status.phase == Phase::Ready && status.released.len() == wanted).then_some(status)
        })
        .await
    }

    fn pods_of(&self, member: &str) -> Api<Pod> {
        Api::namespaced(self.stack.sim.client(member), "default")
    }

    /// The names of pods, and of claims with the handle of their volume, in a member.
    async fn there(&self, member: &str) -> (Vec<String>, Vec<(String, String)>) {
        let mut pods: Vec<String> =
            self.pods_of(member).list(&Default::default()).await.unwrap().items.into_iter().filter_map(|pod| pod.metadata.name).collect();
        pods.sort();
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.stack.sim.client(member), "default");
        let volumes: Api<PersistentVolume> = Api::all(self.stack.sim.client(member));
        let mut bound = Vec::new();
        for claim in claims.list(&Default::default()).await.unwrap().items {
            let volume = volumes.get(&claim.spec.unwrap().volume_name.unwrap()).await.unwrap().spec.unwrap();
            bound.push((claim.metadata.name.unwrap(), volume.csi.unwrap().volume_handle));
        }
        assert_eq!(volumes.list(&Default::default()).await.unwrap().items.len(), bound.len(), "no volume without a claim");
        bound.sort();
        (pods, bound)
    }
}

#[tokio::test]
async fn volume_claims_that_stay_when_an_app_leaves_are_named() {
    let db = Database::start().await;
    db.stack.desire(&absent(&db.old)).await;
    let kept = db.stack.reaches(&absent(&db.old), Phase::Gone).await.kept;
    let named = |ordinal: u32| format!("PersistentVolumeClaim/default/data-db-{ordinal} stays with its data: StatefulSet db made it");
    assert_eq!(kept, [named(0), named(1)]);
    assert_eq!(db.there(MEMBER).await.1.len(), 2, "they are there");
}

#[tokio::test]
async fn pods_take_their_volumes_along_there_and_back_and_no_two_copies_have_one() {
    let mut db = Database::start().await;
    let pods = db.pods().await;
    let (_, before) = db.there(MEMBER).await;
    assert_eq!((pods.len(), before.len()), (2, 2));

    // The first ordinal and the number of the pods that each copy is to run.
    for (old, new) in [((0, 1), (1, 1)), ((0, 0), (0, 2))] {
        let asked = db.ask(false, &pods, old.0, old.1).await;
        // Like a crash while the pod is being stopped.
        db.stack.restart().await;
        db.done(&asked).await;
        let asked = db.ask(true, &pods, new.0, new.1).await;
        db.done(&asked).await;
    }
    assert_eq!(db.there(MEMBER).await, (vec![], vec![]));
    assert_eq!(db.there(OTHER).await, (vec!["db-0".to_owned(), "db-1".to_owned()], before.clone()));

    let asked = db.ask(true, &pods, 1, 1).await;
    db.done(&asked).await;
    let asked = db.ask(false, &pods, 0, 1).await;
    db.done(&asked).await;
    assert_eq!(db.there(MEMBER).await, (vec!["db-0".to_owned()], before[..1].to_vec()));
    assert_eq!(db.there(OTHER).await, (vec!["db-1".to_owned()], before[1..].to_vec()));

    // In each member a pod exists between its creation and its deletion; these times never overlap.
    for pod in ["db-0", "db-1"] {
        let mut lives = Vec::new();
        for member in [MEMBER, OTHER] {
            let of_pod =
                db.stack.sim.effects(member).into_iter().filter(|effect| &*effect.key.resource == "pods" && &*effect.key.name == pod);
            for effect in of_pod {
                match effect.operation {
                    Operation::Create => lives.push((effect.at, None)),
                    Operation::Delete => lives.last_mut().unwrap().1 = Some(effect.at),
                    Operation::Update => {}
                }
            }
        }
        lives.sort();
        assert!(lives.windows(2).all(|two| two[0].1.is_some_and(|end| end <= two[1].0)), "{pod}: {lives:?}");
    }
}

#[tokio::test]
async fn pod_on_a_lost_node_is_not_released_even_if_somebody_deletes_it_by_force() {
    let mut db = Database::start().await;
    let pods = db.pods().await;
    let node = db.pods_of(MEMBER).get("db-1").await.unwrap().spec.unwrap().node_name.unwrap();
    db.stack.sim.node_down(MEMBER, &node);
    let asked = db.ask(false, &pods, 0, 1).await;
    eventually(PATIENCE, async || db.pods_of(MEMBER).get("db-1").await.unwrap().metadata.deletion_timestamp.map(drop)).await;
    db.pods_of(MEMBER).delete("db-1", &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() }).await.unwrap();
    // A later pass has seen it.
    db.stack.restart().await;
    let status = eventually(PATIENCE, async || {
        db.stack.status(asked.id).await.filter(|status| status.fence == asked.fence && status.phase != Phase::Pending)
    })
    .await;
    assert_eq!(status.released, Vec::<String>::new());
    assert!(db.pods_of(MEMBER).get_opt("db-1").await.unwrap().is_some());
    assert_eq!(db.there(MEMBER).await.1.len(), 2, "its volume is still its own");
    db.stack.sim.node_up(MEMBER, &node);
    db.done(&asked).await;
}

#[tokio::test]
async fn claim_of_somebody_else_is_neither_taken_over_nor_deleted() {
    let mut db = Database::start().await;
    let pods = db.pods().await;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(db.stack.sim.client(OTHER), "default");
    let theirs = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data-db-1"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    claims.create(&PostParams::default(), &serde_json::from_value(theirs).unwrap()).await.unwrap();
    let asked = db.ask(true, &pods, 2, 0).await;
    db.done(&asked).await;
    assert!(claims.get_opt("data-db-1").await.unwrap().is_some(), "releasing what never ran here deletes nothing of others");
    let asked = db.ask(true, &pods, 1, 1).await;
    let failed = db.stack.reaches(&asked, Phase::Failed).await;
    assert_eq!(failed.code.as_deref(), Some("preflight_failed"));
    assert!(failed.reason.unwrap().contains("data-db-1 exists in the member and is bound to another volume"));
    assert_eq!(db.pods_of(OTHER).list(&Default::default()).await.unwrap().items.len(), 0);
}

#[tokio::test]
async fn pod_that_goes_nowhere_after_all_is_not_held_by_its_finalizer() {
    let mut db = Database::start().await;
    let pods = db.pods().await;
    let pin = json!({"metadata": {"finalizers": ["drover.io/stops-before-it-moves"]}});
    db.pods_of(MEMBER).patch("db-1", &PatchParams::default(), &Patch::Merge(pin)).await.unwrap();
    let asked = db.ask(false, &pods, 0, 2).await;
    db.done(&asked).await;
    assert_eq!(db.pods_of(MEMBER).get("db-1").await.unwrap().metadata.finalizers.unwrap_or_default(), Vec::<String>::new());
}
