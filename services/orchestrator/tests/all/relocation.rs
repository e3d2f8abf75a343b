//! Relocations over REST: for a newcomer, by a plan that a user chose, and as a drain.

use std::time::Duration;

use drover_api::plans::PlanSubject;
use drover_api::scheduling::DigRef;
use drover_testkit::eventually;
use serde_json::json;
use uuid::Uuid;

use crate::base::member;
use crate::fakes::Behaviour;
use crate::scenarios::{approved, expect_state, full, full_and, members, plan, run};
use crate::support::{Stack, WaitSeconds};

#[tokio::test]
async fn instantiate_without_room_relocates_victim() {
    let (fakes, stack, _, newcomer) = full().await;
    let again = fakes.clone();
    fakes.plans.then(move || plan(&again, "victim", "b", &["c"], "newcomer"));
    let operation = run(&stack, &format!("{newcomer}/instantiate")).await;
    expect_state(&operation, "succeeded");
    assert_eq!(fakes.ledger.summary(), ["newcomer@a held", "victim@b held"]);
    assert_eq!(fakes.members.history(), ["present victim@a", "present victim@b", "absent victim@a", "present newcomer@a"]);
    let child = operation["children"][0].as_str().unwrap();
    let moves = stack.get(&format!("/v2/operations/{child}")).await["moves"].clone();
    assert_eq!((&moves[0]["to"], &moves[0]["stage"]), (&json!("onprem+b"), &json!("done")), "{moves}");
}

#[tokio::test]
async fn destination_that_is_never_ready_is_replaced() {
    for (behaviour, wait) in [
        (Behaviour::Stuck, WaitSeconds { ready: 15, ..WaitSeconds::PATIENT }),
        (Behaviour::Refused, WaitSeconds::PATIENT),
        (Behaviour::Unreachable, WaitSeconds { unreachable: 1, ..WaitSeconds::PATIENT }),
    ] {
        let (fakes, stack, _, newcomer) = full_and(wait).await;
        fakes.members.behave("victim", "b", behaviour);
        let again = fakes.clone();
        fakes.plans.then(move || plan(&again, "victim", "b", &["c"], "newcomer"));
        expect_state(&run(&stack, &format!("{newcomer}/instantiate")).await, "succeeded");
        assert!(fakes.members.present().contains(&"victim@c".to_owned()));
        // The copy on b is removed, and its room released, when b answers.
        fakes.members.behave("victim", "b", Behaviour::Ready);
        eventually(Duration::from_secs(60), async || (fakes.ledger.summary() == ["newcomer@a held", "victim@c held"]).then_some(())).await;
        assert_eq!(fakes.members.present(), ["newcomer@a", "victim@c"]);
    }
}

#[tokio::test]
async fn relocation_without_destination_is_undone() {
    let (fakes, stack, _, newcomer) = full_and(WaitSeconds { unschedulable: 1, ..WaitSeconds::PATIENT }).await;
    fakes.members.behave("victim", "b", Behaviour::Unschedulable);
    fakes.members.behave("victim", "c", Behaviour::Refused);
    let again = fakes.clone();
    fakes.plans.then(move || plan(&again, "victim", "b", &["c"], "newcomer"));
    let failed = run(&stack, &format!("{newcomer}/instantiate")).await;
    expect_state(&failed, "failed");
    assert_eq!(failed["code"], "destination_not_ready", "{failed:#}");
    assert_eq!((fakes.ledger.summary(), fakes.members.present()), (vec!["victim@a held".to_owned()], vec!["victim@a".to_owned()]));
    assert!(!fakes.members.history().contains(&"absent victim@a".to_owned()), "the old copy was never told to be absent");
}

#[tokio::test]
async fn instantiate_replans_when_freed_room_is_lost() {
    let (fakes, stack, _, newcomer) = full_and(WaitSeconds { unschedulable: 1, ..WaitSeconds::PATIENT }).await;
    fakes.members.behave("newcomer", "a", Behaviour::Unschedulable);
    let again = fakes.clone();
    fakes.plans.then(move || plan(&again, "victim", "b", &["c"], "newcomer"));
    let answer = stack.call("POST", &format!("{newcomer}/instantiate"), None).await;
    let operation = answer.headers["location"].to_str().unwrap().to_owned();
    // Other pods took the room: the newcomer's copy and its claim are removed.
    eventually(Duration::from_secs(60), async || fakes.members.history().contains(&"absent newcomer@a".to_owned()).then_some(())).await;
    fakes.members.behave("newcomer", "a", Behaviour::Ready);
    expect_state(&stack.ended(&operation).await, "succeeded");
    assert_eq!(fakes.ledger.summary(), ["newcomer@a held", "victim@b held"]);
    assert_eq!(fakes.members.present(), ["newcomer@a", "victim@b"]);
}

#[tokio::test]
async fn cancel_before_pivot_undoes_relocation_and_held_groups_are_busy() {
    let (fakes, stack, victim, newcomer) = full().await;
    fakes.members.behave("victim", "b", Behaviour::Stuck);
    let again = fakes.clone();
    fakes.plans.then(move || plan(&again, "victim", "b", &["c"], "newcomer"));
    let answer = stack.call("POST", &format!("{newcomer}/instantiate"), None).await;
    let operation = answer.headers["location"].to_str().unwrap().to_owned();
    eventually(Duration::from_secs(60), async || fakes.members.present().contains(&"victim@b".to_owned()).then_some(())).await;

    for path in [format!("{victim}/terminate"), format!("{newcomer}/instantiate")] {
        let busy = stack.call("POST", &path, None).await;
        assert_eq!((busy.status, busy.body["code"].as_str()), (409, Some("busy")), "{}", busy.body);
        assert!(busy.body["instance"].as_str().unwrap().starts_with("/v2/operations/"));
    }
    let holds = stack.get("/internal/holds").await;
    let held: Vec<_> = holds["items"].as_array().unwrap().iter().map(|hold| hold["path"].as_str().unwrap().to_owned()).collect();
    assert_eq!(held, [newcomer.clone(), victim.clone()], "{holds:#}");
    let edit = stack.call("DELETE", "/v2/projects/p/composite-apps/victim/v1/apps/victim", None).await;
    assert_eq!((edit.status, edit.body["code"].as_str()), (409, Some("busy")), "{}", edit.body);

    assert_eq!(stack.call("POST", &format!("{operation}/cancel"), None).await.status, 202);
    expect_state(&stack.ended(&operation).await, "cancelled");
    assert_eq!((fakes.ledger.summary(), fakes.members.present()), (vec!["victim@a held".to_owned()], vec!["victim@a".to_owned()]));
    expect_state(&run(&stack, &format!("{victim}/terminate")).await, "succeeded");
}

#[tokio::test]
async fn chosen_plan_is_applied_unchanged_or_fails_with_differences() {
    let (fakes, stack, victim, _) = full().await;
    let lookup = stack.get("/internal/digs/lookup?project=p&compositeApp=newcomer&version=v1&dig=newcomer").await;
    let dig: DigRef = serde_json::from_value(lookup["dig"].clone()).unwrap();
    let stale = fakes.plans.propose(PlanSubject::Newcomer(dig.clone()), plan(&fakes, "victim", "b", &[], "newcomer"));
    let dry = stack.call("POST", &format!("/v2/plans/{stale}/apply?dryRun=All"), None).await;
    assert_eq!((dry.status, dry.body["state"].as_str()), (200, Some("proposed")));

    // Other pods fill b: the victim no longer fits there.
    fakes.ledger.foreign(&member("b"), 900);
    let failed = run(&stack, &format!("/v2/plans/{stale}/apply")).await;
    expect_state(&failed, "failed");
    assert_eq!(failed["code"], "world_changed", "{failed:#}");
    assert!(!failed["reasons"].as_array().unwrap().is_empty());
    assert_eq!((fakes.ledger.summary(), fakes.members.present()), (vec!["victim@a held".to_owned()], vec!["victim@a".to_owned()]));
    let again = stack.call("POST", &format!("/v2/plans/{stale}/apply"), None).await;
    assert_eq!((again.status, again.body["code"].as_str()), (409, Some("plan_not_proposed")), "{}", again.body);

    let good = fakes.plans.propose(PlanSubject::Newcomer(dig), plan(&fakes, "victim", "c", &[], "newcomer"));
    expect_state(&run(&stack, &format!("/v2/plans/{good}/apply")).await, "succeeded");
    assert_eq!(fakes.ledger.summary(), ["newcomer@a held", "victim@c held"]);

    // A drain is a relocation without a newcomer.
    let mut drain = plan(&fakes, "victim", "b", &[], "newcomer");
    drain.newcomer.clear();
    fakes.ledger.foreign(&member("b"), 0);
    let drain = fakes.plans.propose(PlanSubject::Drain(member("c")), drain);
    expect_state(&run(&stack, &format!("/v2/plans/{drain}/apply")).await, "succeeded");
    assert_eq!(fakes.ledger.summary(), ["newcomer@a held", "victim@b held"]);
    assert_eq!(fakes.ledger.cordon_of(&member("c")), Some(format!("drained by plan {drain}")));
    expect_state(&run(&stack, &format!("{victim}/terminate")).await, "succeeded");
}

/// Migration was just restarted and does not know all clusters yet: having no plan is not final.
#[tokio::test]
async fn planning_waits_for_silent_clusters() {
    let (fakes, stack, _, newcomer) = full().await;
    *fakes.plans.unheard.lock().unwrap() = 2;
    let again = fakes.clone();
    fakes.plans.then(move || plan(&again, "victim", "b", &["c"], "newcomer"));
    expect_state(&run(&stack, &format!("{newcomer}/instantiate")).await, "succeeded");
    assert_eq!(*fakes.plans.unheard.lock().unwrap(), 0, "migration was asked again");
    assert_eq!(fakes.ledger.summary(), ["newcomer@a held", "victim@b held"]);
}

/// One allowed cluster is full, the other is silent: another app is moved, after the time that a restart of placement takes.
#[tokio::test]
async fn silent_cluster_is_not_waited_for_if_others_can_make_room() {
    let fakes = members();
    let stack = Stack::waiting(&fakes, WaitSeconds::PATIENT).await;
    let victim = approved(&stack, "victim", "600m", &["a", "c"], None).await;
    expect_state(&run(&stack, &format!("{victim}/instantiate")).await, "succeeded");
    let late = approved(&stack, "late", "900m", &["a", "b"], None).await;
    fakes.ledger.silent(&member("b"), true);
    let again = fakes.clone();
    fakes.plans.then(move || plan(&again, "victim", "c", &[], "late"));
    let operation = run(&stack, &format!("{late}/instantiate")).await;
    expect_state(&operation, "succeeded");
    assert_eq!(fakes.ledger.summary(), ["late@a held", "victim@c held"]);
}

/// A target that the state of the relocation does not name, as a defect or an older version may leave one.
#[tokio::test]
async fn cut_over_retires_targets_that_the_relocation_does_not_name() {
    let (fakes, stack, _, newcomer) = full().await;
    fakes.members.behave("victim", "b", Behaviour::Stuck);
    let again = fakes.clone();
    fakes.plans.then(move || plan(&again, "victim", "b", &[], "newcomer"));
    let answer = stack.call("POST", &format!("{newcomer}/instantiate"), None).await;
    let operation = answer.headers["location"].to_str().unwrap().to_owned();
    eventually(Duration::from_secs(60), async || fakes.members.present().contains(&"victim@b".to_owned()).then_some(())).await;

    let stray = Uuid::now_v7();
    let sql =
        "insert into binding (id, dig_id, project, composite_app, version, dig, app, member, namespace, digest, request, role, operation)
        select $1, dig_id, project, composite_app, version, dig, app, 'aws+c', namespace, digest, request, role, operation
        from binding where role = 'target' and app = 'victim'";
    let inserted = sqlx::query(sql).bind(stray).execute(&mut *stack.app.store.acquire().await.unwrap()).await.unwrap();
    assert_eq!(inserted.rows_affected(), 1);
    fakes.members.behave("victim", "b", Behaviour::Ready);

    expect_state(&stack.ended(&operation).await, "succeeded");
    eventually(Duration::from_secs(60), async || {
        let role: String = sqlx::query_scalar("select role from binding where id = $1")
            .bind(stray)
            .fetch_one(&mut *stack.app.store.acquire().await.unwrap())
            .await
            .unwrap();
        (role == "gone").then_some(())
    })
    .await;
    assert_eq!(fakes.members.present(), ["newcomer@a", "victim@b"]);
}
