//! Apps with volumes move pod by pod. The members in memory let no pod be asked for in two places.

use std::time::Duration;

use drover_testkit::eventually;
use serde_json::json;

use crate::fakes::{Behaviour, FakeMembers, Fakes};
use crate::scenarios::{approved, approved_with, expect_state, plan, run, waiting};
use crate::support::{Stack, WaitSeconds};

const PATIENCE: Duration = Duration::from_secs(60);

/// `victim` has two pods with volumes and runs on a; `newcomer` is allowed on a only and does not fit beside it. The plan moves `victim` to
/// b, or else to c.
async fn full() -> (Fakes, Stack, String) {
    full_with(FakeMembers::with_pods, WaitSeconds::PATIENT).await
}

/// The same with pods that the test gives to the members, and with these deadlines.
async fn full_with(give: impl Fn(&FakeMembers, &str, u32), wait: WaitSeconds) -> (Fakes, Stack, String) {
    let (fakes, stack) = waiting(wait).await;
    let set = "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: victim}\nspec:\n  replicas: 2\n  serviceName: victim\n  \
               selector: {matchLabels: {app: victim}}\n  template:\n    metadata: {labels: {app: victim}}\n    spec:\n      containers:\n      \
               - {name: c, image: registry/victim:1, resources: {requests: {cpu: 300m, memory: 64Mi}}}\n  volumeClaimTemplates:\n  \
               - {metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}\n";
    let victim = approved_with(&stack, "victim", set, &["a", "b", "c"], None).await;
    give(&fakes.members, "victim", 2);
    expect_state(&run(&stack, &format!("{victim}/instantiate")).await, "succeeded");
    let newcomer = approved(&stack, "newcomer", "900m", &["a"], None).await;
    let again = fakes.clone();
    fakes.plans.then(move || plan(&again, "victim", "b", &["c"], "newcomer"));
    (fakes, stack, newcomer)
}

/// Both pods move, with these requests in this order.
async fn both_move(give: impl Fn(&FakeMembers, &str, u32), requests: [&str; 4]) {
    let (fakes, stack, newcomer) = full_with(give, WaitSeconds::PATIENT).await;
    expect_state(&run(&stack, &format!("{newcomer}/instantiate")).await, "succeeded");
    assert_eq!(fakes.members.running(), ["victim-0@b", "victim-1@b"]);
    let mut expected = vec!["present victim@a", "share victim@b 2+0"];
    expected.extend(requests);
    expected.extend(["absent victim@a", "present newcomer@a"]);
    assert_eq!(fakes.members.history(), expected);
}

#[tokio::test]
async fn pods_move_one_after_the_other_the_highest_first() {
    let requests = ["share victim@a 0+1", "share victim@b 1+1", "share victim@a 0+0", "share victim@b 0+2"];
    both_move(FakeMembers::with_pods, requests).await;
}

#[tokio::test]
async fn pods_with_shared_volumes_start_there_before_they_stop_here() {
    let requests = ["share victim@b 1+1", "share victim@a 0+1", "share victim@b 0+2", "share victim@a 0+0"];
    both_move(FakeMembers::with_shared_pods, requests).await;
}

/// The destination runs only one of both pods, and they go back with these requests.
async fn both_go_back(give: impl Fn(&FakeMembers, &str, u32), back: &[&str]) {
    let (fakes, stack, newcomer) = full_with(give, WaitSeconds { ready: 15, ..WaitSeconds::PATIENT }).await;
    fakes.members.behave("victim", "b", Behaviour::OnlyOnePod);
    let failed = run(&stack, &format!("{newcomer}/instantiate")).await;
    expect_state(&failed, "failed");
    assert_eq!(failed["code"], "destination_not_ready", "{failed:#}");
    assert_eq!(fakes.members.running(), ["victim-0@a", "victim-1@a"]);
    let history = fakes.members.history();
    assert!(history.windows(back.len()).any(|part| part == back), "{history:#?}");
    assert_eq!(fakes.ledger.summary(), ["victim@a held"]);
}

#[tokio::test]
async fn pods_with_shared_volumes_go_back_when_the_destination_fails_half_way() {
    // The pod that never got ready there had not been stopped here.
    let back = ["share victim@b 0+2", "share victim@b 1+1", "share victim@b 2+0", "share victim@a 0+2", "absent victim@b"];
    both_go_back(FakeMembers::with_shared_pods, &back).await;
}

#[tokio::test]
async fn pods_go_back_one_after_the_other_when_the_destination_fails_half_way() {
    let back =
        ["share victim@b 0+2", "share victim@b 1+1", "share victim@a 0+1", "share victim@b 2+0", "share victim@a 0+2", "absent victim@b"];
    both_go_back(FakeMembers::with_pods, &back).await;
}

#[tokio::test]
async fn pod_on_an_unreachable_member_is_started_nowhere_else() {
    let (fakes, stack, newcomer) = full().await;
    fakes.members.behave("victim", "a", Behaviour::Unreachable);
    let answer = stack.call("POST", &format!("{newcomer}/instantiate"), None).await;
    let operation = answer.headers["location"].to_str().unwrap().to_owned();
    let says = async || {
        let child = stack.get(&operation).await["children"][0].as_str()?.to_owned();
        let message = stack.get(&format!("/v2/operations/{child}")).await["message"].as_str()?.to_owned();
        message.contains("nobody knows whether victim-1 has stopped there").then_some(())
    };
    eventually(PATIENCE, says).await;
    assert_eq!(fakes.members.running(), ["victim-0@a", "victim-1@a"], "as far as anybody knows");
    fakes.members.behave("victim", "a", Behaviour::Ready);
    expect_state(&stack.ended(&operation).await, "succeeded");
    assert_eq!(fakes.members.running(), ["victim-0@b", "victim-1@b"]);
}

#[tokio::test]
async fn pod_that_does_not_stop_is_started_nowhere_else() {
    let (fakes, stack, newcomer) = full_with(FakeMembers::with_pods, WaitSeconds { gone: 2, ..WaitSeconds::PATIENT }).await;
    fakes.members.behave("victim", "a", Behaviour::Lingering);
    let failed = run(&stack, &format!("{newcomer}/instantiate")).await;
    expect_state(&failed, "failed");
    assert_eq!(failed["code"], "copy_not_stopped", "{failed:#}");
    assert_eq!(fakes.members.running(), ["victim-0@a", "victim-1@a"]);
    assert!(!fakes.members.history().contains(&"share victim@b 1+1".to_owned()), "{:#?}", fakes.members.history());
}

#[tokio::test]
async fn app_whose_volumes_cannot_be_read_stays_as_it_is() {
    let (fakes, stack, newcomer) = full().await;
    fakes.members.without_pods("victim");
    let failed = run(&stack, &format!("{newcomer}/instantiate")).await;
    expect_state(&failed, "failed");
    assert_eq!(failed["code"], "volume_app", "{failed:#}");
    assert!(!fakes.members.history().iter().any(|change| change.starts_with("share")), "{:#?}", fakes.members.history());
}

#[tokio::test]
async fn operator_may_vouch_for_a_cluster_that_does_not_answer() {
    let (fakes, stack, newcomer) = full().await;
    fakes.members.behave("victim", "a", Behaviour::Unreachable);
    let answer = stack.call("POST", &format!("{newcomer}/instantiate"), None).await;
    let operation = answer.headers["location"].to_str().unwrap().to_owned();
    eventually(PATIENCE, async || fakes.members.history().contains(&"share victim@a 0+1".to_owned()).then_some(())).await;
    let vouch = async |cluster: &str, reason: &str| {
        stack.call("POST", &format!("{operation}/force-fence"), Some(json!({"cluster": cluster, "reason": reason}))).await
    };
    assert_eq!(vouch("onprem+a", " ").await.body["code"], "invalid");
    assert_eq!(vouch("aws+c", "off").await.body["code"], "wrong_state", "nothing moves from or to it");
    let dry = Some(json!({"cluster": "onprem+a", "reason": "switched off"}));
    assert_eq!(stack.call("POST", &format!("{operation}/force-fence?dryRun=All"), dry).await.status, 200);
    assert_eq!(fakes.members.running(), ["victim-0@a", "victim-1@a"], "a dry run records nothing");
    fakes.members.is_off("victim", "a");
    let vouched = vouch("onprem+a", "switched off").await;
    assert_eq!(vouched.status, 200, "{}", vouched.body);
    eventually(PATIENCE, async || (fakes.members.running() == ["victim-0@b", "victim-1@b"]).then_some(())).await;
}
