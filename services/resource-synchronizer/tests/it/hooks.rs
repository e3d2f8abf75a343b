//! Hooks of charts run in their order, once, and a failed one fails the app.

use crate::real::real;
use crate::support::{MEMBER, PATIENCE, Stack, absent, binding, config, deployment};
use drover_api::bindings::{DesiredBinding, Phase, TestOrder, TestRun};
use drover_kubesim::Operation;
use drover_store::failpoint::Action;
use drover_testkit::eventually;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, ListParams};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

/// An object that runs as a hook in these events.
fn hook(mut object: Value, events: &str, weight: i32, policy: &str) -> Value {
    object["metadata"]["annotations"] =
        json!({"drover.io/hook": events, "helm.sh/hook-weight": weight.to_string(), "helm.sh/hook-delete-policy": policy});
    object
}

fn pod(name: &str, annotations: Value) -> Value {
    json!({"metadata": {"name": name, "labels": {"kit/finite": "true"}, "annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "example.com/migrate:1"}]}})
}

fn job(name: &str) -> Value {
    let template = pod(name, json!({"kit/start-delay": "10ms", "kit/run-for": "300ms"}));
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}})
}

/// What was created and deleted in the member, in this order, without pods and events.
fn effects(stack: &Stack) -> Vec<String> {
    let effects = stack.sim.effects(MEMBER).into_iter();
    let of_app =
        effects.filter(|effect| ["jobs", "configmaps", "deployments"].iter().any(|plural| effect.key.resource.starts_with(plural)));
    of_app
        .filter_map(|effect| match effect.operation {
            Operation::Create => Some(format!("+{}", effect.key.name)),
            Operation::Delete => Some(format!("-{}", effect.key.name)),
            _ => None,
        })
        .collect()
}

fn chart(value: &str) -> Vec<Value> {
    vec![
        config("web", value),
        deployment("api", 1, "100m"),
        hook(job("migrate"), "pre-install,pre-upgrade", 1, "before-hook-creation"),
        hook(config("settings", "1"), "pre-install", -5, ""),
        hook(job("report"), "post-install", 0, "hook-succeeded"),
        hook(config("rights", "1"), "pre-install,post-install", -6, "before-hook-creation,hook-succeeded"),
    ]
}

#[tokio::test]
async fn hooks_run_around_an_installation_and_around_an_upgrade() {
    let stack = Stack::start().await;
    stack.bundle("b1", chart("1")).await;
    stack.bundle("b2", chart("2")).await;
    let desired = binding("shop", "b1");
    stack.desire(&desired).await;
    stack.reaches(&desired, Phase::Ready).await;
    let installed = "+rights +settings +migrate -rights +web +api +rights +report -rights -report";
    assert_eq!(effects(&stack).join(" "), installed);

    let newer = DesiredBinding { digest: "b2".into(), fence: 2, ..desired.clone() };
    stack.desire(&newer).await;
    stack.reaches(&newer, Phase::Ready).await;
    // The upgrade runs its own hook again; the other one stays as it is.
    assert_eq!(effects(&stack)[10..], ["-migrate", "+migrate"]);
    assert_eq!(stack.names().await.iter().filter(|name| **name == "ConfigMap/settings").count(), 1);

    // Undone, it needs no hooks: the bundle was complete before.
    let undone = DesiredBinding { fence: 3, ..newer.clone() };
    stack.desire(&undone).await;
    stack.reaches(&undone, Phase::Ready).await;
    assert_eq!(effects(&stack).len(), 12);

    stack.desire(&absent(&undone)).await;
    stack.reaches(&absent(&undone), Phase::Gone).await;
    assert_eq!(stack.names().await, Vec::<String>::new());
}

/// The same on a real API server, whose Job controller and garbage collector work as they do.
#[tokio::test]
async fn hooks_run_on_a_real_api_server() {
    let Some(stack) = real() else { return };
    let stack = stack.await;
    let namespace = format!("drover-hooks-{}", std::process::id());
    for (digest, value) in [("b1", "1"), ("b2", "2")] {
        stack.bundle(digest, chart(value)).await;
    }
    let desired = DesiredBinding { namespace: namespace.clone(), ..binding("hooks", "b1") };
    let jobs: Api<Job> = Api::namespaced(stack.client(), &namespace);
    let configs: Api<ConfigMap> = Api::namespaced(stack.client(), &namespace);
    let uid = async |name: &str| jobs.get_opt(name).await.unwrap().and_then(|job| job.metadata.uid);

    stack.desire(&desired).await;
    stack.reaches(&desired, Phase::Ready).await;
    let first = uid("migrate").await;
    assert!(first.is_some() && uid("report").await.is_none(), "one hook stays, the other was deleted when it had succeeded");
    assert!(configs.get_opt("settings").await.unwrap().is_some() && configs.get_opt("rights").await.unwrap().is_none());

    let newer = DesiredBinding { digest: "b2".into(), fence: 2, ..desired };
    stack.desire(&newer).await;
    stack.reaches(&newer, Phase::Ready).await;
    let second = uid("migrate").await;
    assert!(second.is_some() && second != first, "the upgrade runs it again");

    stack.desire(&absent(&newer)).await;
    stack.reaches(&absent(&newer), Phase::Gone).await;
    assert!(uid("migrate").await.is_none() && configs.get_opt("settings").await.unwrap().is_none(), "hooks go with the app");
}

/// A Pod that ends with an error, as a hook.
fn crashing_hook(name: &str, events: &str) -> Value {
    let mut crashing = pod(name, json!({"kit/start-delay": "10ms", "kit/crash-after": "100ms"}));
    crashing["apiVersion"] = json!("v1");
    crashing["kind"] = json!("Pod");
    crashing["metadata"]["labels"]["kit/chaos"] = json!("crash");
    let mut hooked = hook(crashing.clone(), events, 0, "");
    for (name, value) in crashing["metadata"]["annotations"].as_object().unwrap() {
        hooked["metadata"]["annotations"][name] = value.clone();
    }
    hooked
}

#[tokio::test]
async fn hooks_of_deletion_run_around_it_and_one_that_fails_holds_up_nothing() {
    let stack = Stack::start().await;
    let objects = vec![
        config("web", "1"),
        hook(job("leave"), "pre-delete", 0, "hook-succeeded"),
        crashing_hook("broken", "pre-delete"),
        hook(job("sweep"), "post-delete", 0, ""),
    ];
    stack.bundle("b1", objects).await;
    let desired = binding("shop", "b1");
    stack.desire(&desired).await;
    stack.reaches(&desired, Phase::Ready).await;
    assert_eq!(effects(&stack), ["+web"], "nothing of them runs before");

    stack.desire(&absent(&desired)).await;
    let status = stack.reaches(&absent(&desired), Phase::Gone).await;
    assert_eq!(effects(&stack).join(" "), "+web +leave -leave -web +sweep -sweep");
    let kept = status.kept.join("; ");
    assert!(kept.contains("hook Pod/default/broken of the deletion failed"), "{kept}");
    assert_eq!(stack.names().await, Vec::<String>::new());
}

#[tokio::test]
async fn failed_hook_fails_the_app_and_another_attempt_runs_it_again() {
    let stack = Stack::start().await;
    stack.bundle("b1", vec![deployment("web", 1, "100m"), crashing_hook("migrate", "pre-install")]).await;
    let desired = binding("shop", "b1");
    stack.desire(&desired).await;
    let status = stack.reaches(&desired, Phase::Failed).await;
    assert_eq!(status.code.as_deref(), Some("hook_failed"));
    assert!(status.reason.unwrap_or_default().contains("Pod/default/migrate"), "the hook is named");
    assert!(!effects(&stack).contains(&"+web".to_owned()), "nothing of the app was written");

    let pods = || {
        stack.sim.effects(MEMBER).iter().filter(|effect| &*effect.key.name == "migrate" && effect.operation == Operation::Create).count()
    };
    assert_eq!(pods(), 1);
    let again = DesiredBinding { fence: 2, ..desired };
    stack.desire(&again).await;
    eventually(PATIENCE, async || (pods() == 2).then_some(())).await;
}

#[tokio::test]
async fn hook_that_had_begun_runs_once_when_the_process_dies() {
    for point in ["synchronizer/apply/before", "synchronizer/apply/after_effect"] {
        let mut stack = Stack::start().await;
        stack.bundle("b1", vec![config("web", "1"), hook(job("migrate"), "pre-install", 0, "")]).await;
        let desired = binding("shop", "b1");
        stack.failpoints.set(point, Action::Pause);
        stack.desire(&desired).await;
        eventually(PATIENCE, async || stack.failpoints.is_paused(point).then_some(())).await;
        stack.kill();
        stack.failpoints.clear(point);
        stack.restart().await;
        stack.reaches(&desired, Phase::Ready).await;
        assert_eq!(effects(&stack), ["+migrate", "+web"], "{point}");
    }
}

/// Asks for a run of tests and waits for its end.
async fn tested(stack: &Stack, desired: &DesiredBinding) -> TestRun {
    let path = format!("/internal/bindings/{}/test", desired.id);
    let order = TestOrder { run: Some(Uuid::new_v4()), fence: desired.fence };
    let (status, body) = stack.send(Method::PUT, &path, &order).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let ended = async || {
        let (_, body) = stack.send(Method::GET, &path, &()).await;
        let run: TestRun = serde_json::from_value(body).unwrap();
        (run.ended && Some(run.run) == order.run).then_some(run)
    };
    eventually(PATIENCE, ended).await
}

#[tokio::test]
async fn tests_run_when_they_are_asked_for_and_change_nothing_of_the_app() {
    let stack = Stack::start().await;
    let mut crash = crashing_hook("crash", "test");
    crash["metadata"]["annotations"]["helm.sh/hook-weight"] = json!("3");
    crash["metadata"]["annotations"]["helm.sh/hook-delete-policy"] = json!("hook-failed");
    let objects = vec![
        config("web", "1"),
        hook(job("second"), "test", 2, "hook-succeeded"),
        hook(job("first"), "test", 1, ""),
        crash,
        hook(job("never"), "test", 4, ""),
    ];
    stack.bundle("b1", objects).await;
    let desired = binding("shop", "b1");
    stack.desire(&desired).await;
    stack.reaches(&desired, Phase::Ready).await;
    assert_eq!(effects(&stack), ["+web"], "an installation runs no test");

    for _ in 0..2 {
        let run = tested(&stack, &desired).await;
        let results: Vec<String> = run.tests.iter().map(|test| format!("{} {:?}", test.object, test.result)).collect();
        assert_eq!(results, ["Job/default/first Succeeded", "Job/default/second Succeeded", "Pod/default/crash Failed"]);
        assert!(run.tests[2].reason.is_some(), "{run:?}");
        assert_eq!(stack.status(desired.id).await.unwrap().phase, Phase::Ready, "the app is as ready as before");
    }
    assert_eq!(effects(&stack).join(" "), "+web +first +second -second -first +first +second -second");
    let pods = stack.api::<Pod>().list(&ListParams::default()).await.unwrap().items;
    assert!(!pods.iter().any(|pod| pod.metadata.name.as_deref() == Some("crash")), "its policy deletes it when it has failed");

    stack.desire(&absent(&desired)).await;
    stack.reaches(&absent(&desired), Phase::Gone).await;
    assert_eq!(stack.names().await, Vec::<String>::new(), "tests go with the app");
}

#[tokio::test]
async fn rollback_runs_its_own_hooks_and_not_those_of_upgrade() {
    let stack = Stack::start().await;
    let chart = |value: &str| {
        vec![
            config("web", value),
            hook(job("up"), "pre-upgrade", 0, ""),
            hook(job("back"), "pre-rollback", 0, ""),
            hook(job("after"), "post-rollback", 0, ""),
        ]
    };
    stack.bundle("b1", chart("1")).await;
    stack.bundle("b2", chart("2")).await;
    let desired = binding("shop", "b1");
    stack.desire(&desired).await;
    stack.reaches(&desired, Phase::Ready).await;
    let newer = DesiredBinding { digest: "b2".into(), fence: 2, ..desired.clone() };
    stack.desire(&newer).await;
    stack.reaches(&newer, Phase::Ready).await;
    let back = DesiredBinding { fence: 3, rollback: true, ..desired };
    stack.desire(&back).await;
    stack.reaches(&back, Phase::Ready).await;
    assert_eq!(effects(&stack).join(" "), "+web +up +back +after");
}
