//! Apps that must not run twice: a move stops the old copy before it starts the new one.

use std::time::Duration;

use drover_testkit::eventually;

use crate::fakes::{Behaviour, Fakes};
use crate::scenarios::{approved, approved_with, expect_state, plan, run, waiting};
use crate::support::{Stack, WaitSeconds, deployment};

/// `victim` must not run twice and runs on a; `newcomer` is allowed on a only and does not fit beside it. The plan moves `victim` to b, or
/// else to c.
async fn full(wait: WaitSeconds) -> (Fakes, Stack, String) {
    let (fakes, stack) = waiting(wait).await;
    let once = deployment("victim", "600m", 1)
        .replace("{name: victim}\nspec", "{name: victim, annotations: {drover.io/at-most-once: 'true'}}\nspec");
    let victim = approved_with(&stack, "victim", &once, &["a", "b", "c"], None).await;
    expect_state(&run(&stack, &format!("{victim}/instantiate")).await, "succeeded");
    let newcomer = approved(&stack, "newcomer", "900m", &["a"], None).await;
    fakes.members.may_return("victim");
    let again = fakes.clone();
    fakes.plans.then(move || plan(&again, "victim", "b", &["c"], "newcomer"));
    (fakes, stack, newcomer)
}

#[tokio::test]
async fn app_that_must_not_run_twice_is_stopped_before_it_starts_elsewhere() {
    let (fakes, stack, newcomer) = full(WaitSeconds::PATIENT).await;
    expect_state(&run(&stack, &format!("{newcomer}/instantiate")).await, "succeeded");
    assert_eq!(fakes.ledger.summary(), ["newcomer@a held", "victim@b held"]);
    assert_eq!(fakes.members.history(), ["present victim@a", "absent victim@a", "present victim@b", "present newcomer@a"]);
}

#[tokio::test]
async fn app_that_must_not_run_twice_starts_again_where_it_was_when_the_new_copy_is_gone() {
    let (fakes, stack, newcomer) = full(WaitSeconds { unschedulable: 1, ..WaitSeconds::PATIENT }).await;
    fakes.members.behave("victim", "b", Behaviour::Unschedulable);
    fakes.members.behave("victim", "c", Behaviour::Refused);
    let failed = run(&stack, &format!("{newcomer}/instantiate")).await;
    expect_state(&failed, "failed");
    assert_eq!(failed["code"], "destination_not_ready", "{failed:#}");
    assert_eq!(
        fakes.members.history(),
        [
            "present victim@a",
            "absent victim@a",
            "present victim@b",
            "absent victim@b",
            "present victim@c",
            "absent victim@c",
            "present victim@a"
        ]
    );
    assert_eq!((fakes.ledger.summary(), fakes.members.present()), (vec!["victim@a held".to_owned()], vec!["victim@a".to_owned()]));
}

#[tokio::test]
async fn app_that_does_not_stop_is_started_nowhere_else() {
    let (fakes, stack, newcomer) = full(WaitSeconds { gone: 2, ..WaitSeconds::PATIENT }).await;
    fakes.members.behave("victim", "a", Behaviour::Lingering);
    let failed = run(&stack, &format!("{newcomer}/instantiate")).await;
    expect_state(&failed, "failed");
    assert_eq!(failed["code"], "copy_not_stopped", "{failed:#}");
    // Undone, what never was there is told to be absent all the same.
    let history = ["present victim@a", "absent victim@a", "absent victim@b", "present victim@a"];
    assert_eq!(fakes.members.history(), history);
    assert_eq!(fakes.ledger.summary(), ["victim@a held"]);
}

#[tokio::test]
async fn copy_on_an_unreachable_member_lets_no_other_start() {
    let (fakes, stack, newcomer) = full(WaitSeconds { unreachable: 1, ..WaitSeconds::PATIENT }).await;
    fakes.members.behave("victim", "b", Behaviour::Unreachable);
    let answer = stack.call("POST", &format!("{newcomer}/instantiate"), None).await;
    let operation = answer.headers["location"].to_str().unwrap().to_owned();
    // It is given up on b and is to be gone from there, which nobody can know.
    eventually(Duration::from_secs(60), async || fakes.members.history().contains(&"absent victim@b".to_owned()).then_some(())).await;
    let waits = async || {
        assert_eq!(fakes.members.present(), Vec::<String>::new());
        let child = stack.get(&operation).await["children"][0].as_str()?.to_owned();
        stack.get(&format!("/v2/operations/{child}")).await["message"].as_str()?.contains("gone from onprem+b").then_some(())
    };
    eventually(Duration::from_secs(60), waits).await;
    fakes.members.behave("victim", "b", Behaviour::Ready);
    expect_state(&stack.ended(&operation).await, "succeeded");
    assert_eq!(fakes.members.present(), ["newcomer@a", "victim@c"]);
}
