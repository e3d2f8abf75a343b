use drover_service::codes;
use drover_workflow::Failure;
use serde_json::json;

use super::*;
use crate::store::binding::{Binding, Role};

fn at(second: i64) -> Timestamp {
    Timestamp(jiff::Timestamp::from_second(1_000_000 + second).unwrap())
}

fn view(kind: &str, status: &str) -> WorkflowView {
    WorkflowView {
        id: Uuid::from_u128(1),
        kind: kind.into(),
        version: 1,
        subject: "p/shop/v1/shop".into(),
        status: status.into(),
        past_pivot: false,
        cancel_requested: false,
        message: Some("2 of 3 ready".into()),
        failure: None,
        input: json!({}),
        state: json!({}),
        parent_id: None,
        fence: 1,
        revision: 1,
        created_at: at(0),
        updated_at: at(0),
        ended_at: None,
        steps: vec![],
    }
}

fn step(name: &str, status: &str) -> StepView {
    StepView {
        name: name.into(),
        round: 1,
        status: status.into(),
        attempt: 1,
        output: None,
        error: None,
        started_at: Some(at(1)),
        finished_at: None,
        undo_started_at: None,
        undo_finished_at: None,
    }
}

/// A move in the format of the workflow state; tests fail when that format changes.
fn moving(stage: &str, ended: Option<Timestamp>) -> Value {
    let old = Binding {
        id: Uuid::from_u128(7),
        dig: drover_api::scheduling::DigRef { project: "p".into(), composite_app: "shop".into(), ..Default::default() },
        app: "cart".into(),
        member: drover_api::scheduling::MemberKey("onprem+a".into()),
        namespace: "shop".into(),
        digest: "d".into(),
        request: Default::default(),
        role: Role::Current,
        operation: Uuid::nil(),
    };
    json!({"old": old, "new": Uuid::from_u128(8), "to": "aws+b", "others": [], "stage": stage, "since": at(10), "ended": ended})
}

fn child(parent: u128, stage: &str) -> WorkflowView {
    WorkflowView {
        id: Uuid::from_u128(2),
        parent_id: Some(Uuid::from_u128(parent)),
        state: json!({"moves": [moving(stage, None)], "removal": {"sent": {}, "since": null, "leftovers": ["shop/cart on onprem+a"], "kept": ["on onprem+a: Namespace/shop stays"]}}),
        past_pivot: true,
        ..view("relocate", "running")
    }
}

#[test]
fn moves_of_children_are_shown_with_the_parent() {
    let shown = operation(&view("instantiate", "running"), &[child(1, "starting"), child(99, "done")], at(12));
    assert_eq!(shown.children, [Uuid::from_u128(2)]);
    assert_eq!(
        shown.moves,
        [MoveView {
            app: "shop/cart".into(),
            project: "p".into(),
            from: "onprem+a".into(),
            to: "aws+b".into(),
            stage: "starting".into(),
            seconds: 2.0,
            reason: None,
        }]
    );
    assert_eq!(shown.leftovers, ["shop/cart on onprem+a"]);
    assert_eq!(shown.kept, ["on onprem+a: Namespace/shop stays"]);
    assert_eq!((shown.state, shown.message.as_str()), (OperationState::Running, "2 of 3 ready"));
}

#[test]
fn move_that_ended_before_the_cut_over_is_undone_with_fixed_seconds() {
    let mut relocate = view("relocate", "failed");
    relocate.state = json!({"moves": [moving("claimed", None), moving("done", Some(at(14)))]});
    relocate.ended_at = Some(at(11));
    let shown = operation(&relocate, &[], at(1000)).moves;
    assert_eq!(shown.iter().map(|shown| (shown.stage.as_str(), shown.seconds)).collect::<Vec<_>>(), [("undone", 1.0), ("done", 4.0)]);
}

#[test]
fn message_of_a_failure_has_cause_and_remainder() {
    let mut failed = view("instantiate", "failed");
    failed.failure = Some(Failure {
        code: "no_room".into(),
        message: "nothing has room".into(),
        reasons: vec![json!("a: full"), json!({"message": "b: full"})],
    });
    let shown = operation(&failed, &[], at(0));
    assert_eq!((shown.code.as_deref(), shown.message.as_str()), (Some("no_room"), "nothing has room (undone)"));
    assert_eq!(shown.reasons, ["a: full", "b: full"]);
    assert_eq!(operation(&failed, &[child(1, "done")], at(0)).message, "nothing has room (undone; the moves made for it are kept)");
    failed.past_pivot = true;
    assert_eq!(operation(&failed, &[], at(0)).message, "nothing has room (what was done is kept)");
    assert_eq!(operation(&view("instantiate", "refused"), &[], at(0)).state, OperationState::Refused);
}

#[test]
fn message_names_the_error_of_a_retried_step() {
    let mut running = view("instantiate", "running");
    running.steps =
        vec![StepView { attempt: 3, error: Some(json!({"message": "placement does not answer"})), ..step("decide", "started") }];
    assert_eq!(operation(&running, &[], at(0)).message, "2 of 3 ready; trying again: placement does not answer");
    running.cancel_requested = true;
    assert!(operation(&running, &[], at(0)).message.starts_with("being cancelled; "));
}

#[test]
fn steps_are_the_started_ones_ordered_by_time() {
    let undone = |name: &str, second| StepView {
        started_at: Some(at(second)),
        undo_started_at: Some(at(20 - second)),
        undo_finished_at: Some(at(21 - second)),
        ..step(name, "undone")
    };
    let failed =
        StepView { started_at: Some(at(3)), finished_at: Some(at(4)), error: Some(json!({"message": "no"})), ..step("deliver", "failed") };
    let pending = StepView { started_at: None, ..step("become_current", "pending") };
    let shown = super::steps(&[undone("decide", 1), undone("bind", 2), failed, pending]);
    let order: Vec<_> = shown.iter().map(|step| (step.name.as_str(), step.direction.as_str())).collect();
    assert_eq!(order, [("decide", "do"), ("bind", "do"), ("deliver", "do"), ("bind", "undo"), ("decide", "undo")]);
    assert_eq!(shown[2].error.as_deref(), Some("no"));
}

#[test]
fn plan_is_the_given_or_the_made_one() {
    let plan = Uuid::from_u128(5);
    let mut relocate = view("relocate", "running");
    relocate.input =
        serde_json::to_value(relocate::Order { plan, subject: "drain a+b".into(), moves: vec![], order: vec![], newcomer: None }).unwrap();
    assert_eq!(operation(&relocate, &[], at(0)).plan, Some(plan));
    let mut instantiate = view("instantiate", "running");
    instantiate.input = serde_json::to_value(instantiate::Order {
        dig: Default::default(),
        revision: 1,
        apps: vec![],
        plan: Some(plan),
        changed: Vec::new(),
    })
    .unwrap();
    assert_eq!(operation(&instantiate, &[], at(0)).plan, Some(plan));
    instantiate.state = json!({"search": {"plan": {"id": Uuid::from_u128(6), "moves": [], "newcomer": []}}});
    assert_eq!(operation(&instantiate, &[], at(0)).plan, Some(Uuid::from_u128(6)));
}

#[test]
fn cancel_errors_have_their_own_codes() {
    let code = |error: CancelError| drover_service::Problem::from(Error::from(error)).code();
    assert_eq!(code(CancelError::PastThePivot), codes::PAST_THE_PIVOT);
    assert_eq!(code(CancelError::Ended), codes::WRONG_STATE);
    assert_eq!(code(CancelError::NotFound), codes::NOT_FOUND);
}
