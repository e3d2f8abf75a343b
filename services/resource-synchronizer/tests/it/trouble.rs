//! Faults: unreachable members, killed processes, leftovers, failing requests.

use crate::support::{MEMBER, PATIENCE, Stack, absent, binding, config, deployment, service};
use drover_api::bindings::{BindingStatus, DesiredBinding, Phase};
use drover_kubesim::Fault;
use drover_scheduling::{MemberKey, MemberState};
use drover_store::failpoint::Action;
use drover_testkit::eventually;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use uuid::Uuid;

#[tokio::test]
async fn unreachable_member_delays_no_other_and_catches_up_when_it_is_back() {
    let stack = Stack::start().await;
    stack.add_member("aws+b");
    stack.bundle("b1", vec![config("a", "1"), deployment("web", 1, "100m")]).await;
    let kept = binding("kept", "b1");
    stack.desire(&kept).await;
    stack.reaches(&kept, Phase::Ready).await;

    stack.sim.fault(MEMBER, Fault::Partition { hang: true });
    stack.tell(MEMBER, MemberState::Unreachable);
    stack.desire(&absent(&kept)).await;
    let other = DesiredBinding { member: MemberKey("aws+b".into()), ..binding("other", "b1") };
    stack.desire(&other).await;
    stack.reaches(&other, Phase::Ready).await;
    let status = stack.reaches(&absent(&kept), Phase::Unreachable).await;
    assert_eq!(status.code.as_deref(), Some("unreachable"));

    stack.sim.clear_faults(MEMBER);
    stack.tell(MEMBER, MemberState::Ready);
    stack.reaches(&absent(&kept), Phase::Gone).await;
    assert_eq!(stack.names().await, Vec::<String>::new());
}

#[tokio::test]
async fn binding_that_is_to_go_is_gone_when_its_member_is_deregistered() {
    let stack = Stack::start().await;
    stack.bundle("b1", vec![config("a", "1")]).await;
    stack.bundle("b2", vec![config("b", "1")]).await;
    let (leaving, staying) = (binding("leaving", "b1"), binding("staying", "b2"));
    for desired in [&leaving, &staying] {
        stack.desire(desired).await;
        stack.reaches(desired, Phase::Ready).await;
    }
    stack.sim.fault(MEMBER, Fault::Partition { hang: false });
    stack.tell(MEMBER, MemberState::Unreachable);
    stack.desire(&absent(&leaving)).await;
    stack.reaches(&absent(&leaving), Phase::Unreachable).await;
    stack.members.publish(MEMBER, None);
    stack.reaches(&absent(&leaving), Phase::Gone).await;
    assert_eq!(stack.reaches(&staying, Phase::Pending).await.code.as_deref(), Some("unknown_member"));
    stack.desire(&absent(&staying)).await;
    stack.reaches(&absent(&staying), Phase::Gone).await;
}

#[tokio::test]
async fn binding_of_an_unknown_member_waits_until_it_is_registered() {
    let stack = Stack::without_members().await;
    stack.bundle("b1", vec![config("a", "1")]).await;
    let desired = binding("shop", "b1");
    stack.desire(&desired).await;
    assert_eq!(stack.reaches(&desired, Phase::Pending).await.code.as_deref(), Some("unknown_member"));
    stack.add_member(MEMBER);
    stack.reaches(&desired, Phase::Ready).await;
}

#[tokio::test]
async fn restart_applies_only_what_differs() {
    let mut stack = Stack::start().await;
    stack.bundle("b1", vec![config("a", "1"), deployment("web", 2, "100m")]).await;
    let (desired, gone) = (binding("shop", "b1"), binding("gone", "b2"));
    stack.bundle("b2", vec![config("b", "1")]).await;
    for desired in [&desired, &gone] {
        stack.desire(desired).await;
        stack.reaches(desired, Phase::Ready).await;
    }
    stack.desire(&absent(&gone)).await;
    stack.reaches(&absent(&gone), Phase::Gone).await;
    let writes = stack.writes();
    stack.restart().await;
    stack.reaches(&desired, Phase::Ready).await;
    stack.reaches(&absent(&gone), Phase::Gone).await;
    assert_eq!(stack.writes(), writes);

    // A change that was made while the service was down is seen.
    stack.kill();
    stack.merge::<ConfigMap>("a", json!({"data": {"value": "theirs"}})).await;
    stack.restart().await;
    eventually(PATIENCE, async || (stack.api::<ConfigMap>().get("a").await.unwrap().data?["value"] == "1").then_some(())).await;
}

#[tokio::test]
async fn crash_at_any_write_leaves_no_object_behind() {
    for point in
        ["synchronizer/apply/before", "synchronizer/apply/after_effect", "synchronizer/delete/before", "synchronizer/delete/after_effect"]
    {
        let mut stack = Stack::start().await;
        stack.bundle("b1", vec![config("a", "1"), config("b", "1")]).await;
        let desired = binding("shop", "b1");
        stack.failpoints.set(point, Action::Pause);
        stack.desire(&desired).await;
        if point.contains("delete") {
            stack.reaches(&desired, Phase::Ready).await;
            stack.desire(&absent(&desired)).await;
        }
        eventually(PATIENCE, async || stack.failpoints.is_paused(point).then_some(())).await;
        stack.kill();
        stack.failpoints.clear(point);
        stack.restart().await;
        if !point.contains("delete") {
            stack.reaches(&desired, Phase::Ready).await;
            assert_eq!(stack.sim.created(MEMBER, "configmaps", "default", "a"), 1, "{point}");
            stack.desire(&absent(&desired)).await;
        }
        stack.reaches(&absent(&desired), Phase::Gone).await;
        assert_eq!(stack.names().await, Vec::<String>::new(), "{point}");
    }
}

/// Applying the object again after the crash does not change it, so no watch reports it: its readiness as seen before must count.
#[tokio::test]
async fn object_that_got_ready_before_its_apply_was_recorded_is_ready() {
    let mut stack = Stack::start().await;
    stack.bundle("b1", vec![deployment("web", 1, "100m")]).await;
    let desired = binding("shop", "b1");
    stack.failpoints.set("synchronizer/apply/after_effect", Action::Pause);
    stack.desire(&desired).await;
    let settled = async || {
        let status = stack.api::<Deployment>().get("web").await.ok()?.status?;
        (status.ready_replicas == Some(1) && status.observed_generation.is_some()).then_some(())
    };
    eventually(PATIENCE, settled).await;
    eventually(PATIENCE, async || stack.failpoints.is_paused("synchronizer/apply/after_effect").then_some(())).await;
    stack.kill();
    stack.failpoints.clear("synchronizer/apply/after_effect");
    stack.restart().await;
    stack.reaches(&desired, Phase::Ready).await;
    // Desired once more, it is judged by what was seen since, and not only at the moment when everything had just been listed.
    let again = DesiredBinding { fence: desired.fence + 1, ..desired };
    stack.desire(&again).await;
    stack.reaches(&again, Phase::Ready).await;
}

#[tokio::test]
async fn objects_of_unknown_bindings_are_deleted() {
    let stack = Stack::start().await;
    stack.bundle("b1", vec![config("a", "1")]).await;
    let desired = binding("shop", "b1");
    stack.desire(&desired).await;
    stack.reaches(&desired, Phase::Ready).await;
    let labels = stack.api::<ConfigMap>().get("a").await.unwrap().metadata.labels.unwrap();
    let leave = async |name: &str, hub: &str, binding: Uuid| {
        let labels = json!({"drover.io/hub": hub, "drover.io/dig": binding, "drover.io/app": "web", "drover.io/binding": binding});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}});
        stack.api::<ConfigMap>().patch(name, &PatchParams::apply("zombie"), &Patch::Apply(object)).await.unwrap();
    };
    // An object of another installation stays, whatever its binding. Ours is deleted if no row has its binding, or its bundle lacks it.
    leave("foreign", &Uuid::new_v4().to_string(), Uuid::new_v4()).await;
    leave("zombie", &labels["drover.io/hub"], Uuid::new_v4()).await;
    leave("beside", &labels["drover.io/hub"], desired.id).await;
    eventually(PATIENCE, async || (stack.names().await == ["ConfigMap/a", "ConfigMap/foreign"]).then_some(())).await;
}

#[tokio::test]
async fn new_credential_is_fetched_and_used() {
    let stack = Stack::without_members().await;
    stack.add_remote_member(MEMBER).await;
    stack.bundle("b1", vec![config("a", "1")]).await;
    stack.bundle("b2", vec![config("a", "2")]).await;
    let first = binding("shop", "b1");
    stack.desire(&first).await;
    stack.reaches(&first, Phase::Ready).await;

    stack.sim.rotate_token(MEMBER);
    stack.sim.fault(MEMBER, Fault::CutWatches);
    let unauthorized = |status: &BindingStatus| status.phase == Phase::Unreachable && status.code.as_deref() == Some("unauthorized");
    eventually(PATIENCE, async || stack.status(first.id).await.filter(unauthorized)).await;
    stack.give_kubeconfig(MEMBER, 2);
    let second = DesiredBinding { digest: "b2".into(), fence: 2, ..first };
    stack.desire(&second).await;
    stack.reaches(&second, Phase::Ready).await;
}

#[tokio::test]
async fn failing_writes_of_a_kind_fail_only_the_bindings_that_use_it() {
    let stack = Stack::start().await;
    stack.bundle("hit", vec![config("a", "1")]).await;
    stack.bundle("spared", vec![deployment("web", 1, "100m")]).await;
    let (hit, spared) = (binding("hit", "hit"), binding("spared", "spared"));
    // Like a failing webhook: every write of this kind is answered 500, everything else works.
    stack.sim.fault(MEMBER, Fault::Path { contains: "/configmaps".into(), writes: true, code: 500 });
    stack.desire(&hit).await;
    stack.desire(&spared).await;
    stack.reaches(&spared, Phase::Ready).await;
    let seen = eventually(PATIENCE, async || stack.status(hit.id).await.filter(|status| status.reason.is_some())).await;
    assert_ne!((seen.phase, seen.code.as_deref()), (Phase::Unreachable, Some("unreachable")), "{seen:#?}");
    let failed = eventually(PATIENCE * 2, async || stack.status(hit.id).await.filter(|status| status.phase == Phase::Failed)).await;
    assert_eq!(failed.code.as_deref(), Some("apply_failed"));
    assert!(failed.reason.is_some_and(|reason| reason.contains("500")));

    // Other bindings are reconciled meanwhile: the watches go on.
    stack.desire(&absent(&spared)).await;
    stack.reaches(&absent(&spared), Phase::Gone).await;
    stack.sim.clear_faults(MEMBER);
    // It would be tried again after a while; a new desired row is reconciled at once.
    let again = DesiredBinding { fence: 2, ..hit };
    stack.desire(&again).await;
    stack.reaches(&again, Phase::Ready).await;
}

#[tokio::test]
async fn failing_deletion_does_not_keep_other_objects() {
    let stack = Stack::start().await;
    stack.bundle("both", vec![config("a", "1"), deployment("web", 1, "100m")]).await;
    let both = binding("both", "both");
    stack.desire(&both).await;
    stack.reaches(&both, Phase::Ready).await;
    stack.sim.fault(MEMBER, Fault::Path { contains: "/deployments".into(), writes: true, code: 500 });
    stack.desire(&absent(&both)).await;
    // The Deployment is deleted first, because it needs the ConfigMap.
    eventually(PATIENCE, async || (stack.names().await == ["Deployment/web", "Pod"]).then_some(())).await;
    let hindered = async || stack.status(both.id).await.filter(|status| status.code.as_deref() == Some("delete_failed"));
    let hindered = eventually(PATIENCE, hindered).await;
    assert_eq!(hindered.phase, Phase::Deleting);
    assert!(hindered.reason.is_some_and(|reason| reason.contains("500")));
    stack.sim.clear_faults(MEMBER);
    let again = DesiredBinding { fence: 3, ..absent(&both) };
    stack.desire(&again).await;
    stack.reaches(&again, Phase::Gone).await;
    assert!(stack.names().await.is_empty());
}

#[tokio::test]
async fn kind_that_cannot_be_discovered_affects_only_its_bindings() {
    let mut stack = Stack::start().await;
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "example.com/job:1"}]});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"}, "spec": {"template": {"spec": pod}}});
    stack.bundle("job", vec![job]).await;
    stack.bundle("other", vec![config("a", "1")]).await;
    let (job, other) = (binding("job", "job"), binding("other", "other"));
    stack.desire(&job).await;
    stack.reaches(&job, Phase::Ready).await;
    stack.kill();
    stack.sim.fault(MEMBER, Fault::Path { contains: "/apis/batch/v1".into(), writes: false, code: 503 });
    stack.restart().await;
    stack.desire(&other).await;
    stack.reaches(&other, Phase::Ready).await;
    let status = eventually(PATIENCE, async || stack.status(job.id).await.filter(|status| status.reason.is_some())).await;
    assert!(status.phase != Phase::Unreachable && status.phase != Phase::Ready, "{status:#?}");
    stack.sim.clear_faults(MEMBER);
    eventually(PATIENCE, async || stack.status(job.id).await.filter(|status| status.phase == Phase::Ready)).await;
    assert_eq!(stack.sim.created(MEMBER, "jobs.batch", "default", "once"), 1);
}

#[tokio::test]
#[ignore = "long: half a minute until the lists are given up"]
async fn kind_that_is_never_listed_affects_only_its_bindings() {
    let mut stack = Stack::start().await;
    stack.bundle("hit", vec![config("a", "1")]).await;
    stack.bundle("spared", vec![deployment("web", 1, "100m")]).await;
    let (hit, spared) = (binding("hit", "hit"), binding("spared", "spared"));
    stack.desire(&hit).await;
    stack.reaches(&hit, Phase::Ready).await;
    stack.kill();
    stack.sim.fault(MEMBER, Fault::Path { contains: "/configmaps".into(), writes: false, code: 500 });
    stack.restart().await;
    stack.desire(&spared).await;
    eventually(PATIENCE * 2, async || stack.status(spared.id).await.filter(|status| status.phase == Phase::Ready)).await;
}

#[tokio::test]
async fn kind_without_objects_is_forgotten() {
    let mut stack = Stack::start().await;
    stack.bundle("b1", vec![config("a", "1"), service("web")]).await;
    stack.bundle("b2", vec![config("b", "1")]).await;
    let (first, second) = (binding("first", "b1"), binding("second", "b2"));
    for desired in [&first, &second] {
        stack.desire(desired).await;
        stack.reaches(desired, Phase::Ready).await;
    }
    assert_eq!(stack.kinds().await, ["ConfigMap", "Service"]);
    stack.desire(&absent(&first)).await;
    stack.reaches(&absent(&first), Phase::Gone).await;
    eventually(PATIENCE, async || (stack.kinds().await == ["ConfigMap"]).then_some(())).await;
    // A kind that an earlier version left behind is forgotten at the next start; a kind with objects stays.
    stack.kill();
    stack.also_kind("v1", "Secret").await;
    stack.restart().await;
    eventually(PATIENCE, async || (stack.kinds().await == ["ConfigMap"]).then_some(())).await;
    stack.desire(&absent(&second)).await;
    stack.reaches(&absent(&second), Phase::Gone).await;
    eventually(PATIENCE, async || stack.kinds().await.is_empty().then_some(())).await;
    // A kind is watched again as soon as it is applied again.
    let third = binding("third", "b1");
    stack.desire(&third).await;
    stack.reaches(&third, Phase::Ready).await;
    stack.merge::<ConfigMap>("a", json!({"data": {"value": "theirs"}})).await;
    eventually(PATIENCE, async || (stack.api::<ConfigMap>().get("a").await.unwrap().data?["value"] == "1").then_some(())).await;
}
