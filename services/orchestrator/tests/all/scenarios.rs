//! What users see: lifecycle and relocation over REST, with members that misbehave as told.

use std::sync::Arc;
use std::time::Duration;

use drover_api::plans::PlanSubject;
use drover_api::scheduling::{Amounts, Claim, DigRef, Move, Plan};
use drover_orchestrator::tasks::sweep;
use drover_testkit::eventually;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::base::member;
use crate::fakes::{Behaviour, Fakes};
use crate::support::{Patience, Stack, deployment, doc};

const MEMBERS: [(&str, &str); 3] = [("onprem", "a"), ("onprem", "b"), ("aws", "c")];

fn members() -> Fakes {
    Fakes::with(&[("onprem", "a", 1, 1000), ("onprem", "b", 1, 1000), ("aws", "c", 5, 1000)])
}

/// Three members of 1000m, and an orchestrator with short patience.
pub async fn stack() -> (Fakes, Stack) {
    waiting(Patience::LITTLE).await
}

async fn waiting(patience: Patience) -> (Fakes, Stack) {
    let fakes = members();
    let stack = Stack::waiting(&fakes, patience).await;
    (fakes, stack)
}

/// A group of one app of its own name, allowed on these clusters, approved.
pub async fn approved(stack: &Stack, name: &str, cpu: &str, on: &[&str], when_full: Option<&str>) -> String {
    let dig = stack.group(name, &[(name, &deployment(name, cpu, 1))], &MEMBERS).await;
    stack.post(&format!("{dig}/generic-placement-intents"), doc("gpi", None), 201).await;
    let any_of: Vec<_> = on.iter().map(|cluster| json!({"clusterProvider": member(cluster).provider(), "cluster": cluster})).collect();
    let mut spec = json!({"app": name, "intent": {"anyOf": any_of}});
    if let Some(word) = when_full {
        spec["whenFull"] = word.into();
    }
    stack.post(&format!("{dig}/generic-placement-intents/gpi/app-intents"), doc(name, Some(spec)), 201).await;
    assert_eq!(stack.call("POST", &format!("{dig}/approve"), None).await.status, 202);
    dig
}

/// A verb, and the operation as it ended.
pub async fn done(stack: &Stack, path: &str) -> Value {
    let answer = stack.call("POST", path, None).await;
    assert_eq!(answer.status, 202, "{path}: {}", answer.body);
    let operation = answer.headers["location"].to_str().unwrap().to_owned();
    stack.ended(&operation).await
}

pub fn is(operation: &Value, state: &str) {
    assert_eq!(operation["state"], state, "{operation:#}");
}

/// A plan that moves the only binding of `victim` from `a` to `to`, for `newcomer` on `a`.
pub fn plan(fakes: &Fakes, victim: &str, to: &str, alternatives: &[&str], newcomer: &str) -> Plan {
    let claim = fakes.ledger.all().into_iter().find(|claim| claim.request.app == victim).unwrap();
    let placed = json!([{"app": newcomer, "groups": [{"placement": {"binding": Uuid::nil(), "member": claim.member, "pods": []}, "considered": []}]}]);
    let step = Move {
        claim: claim.id,
        dig: DigRef::clone(&claim.dig),
        app: victim.into(),
        from: claim.member.clone(),
        to: member(to),
        alternatives: alternatives.iter().map(|cluster| member(cluster)).collect(),
        pods: vec![],
        frees: Amounts::default(),
        reason: String::new(),
    };
    Plan { waves: vec![vec![step]], newcomer: serde_json::from_value(placed).unwrap(), ..Plan::default() }
}

/// `victim` serves on a, `newcomer` is approved for a only and does not fit beside it.
pub async fn full() -> (Fakes, Stack, String, String) {
    full_and(Patience::LITTLE).await
}

/// The same, with an orchestrator that waits so long.
pub async fn full_and(patience: Patience) -> (Fakes, Stack, String, String) {
    let (fakes, stack) = waiting(patience).await;
    let victim = approved(&stack, "victim", "600m", &["a", "b", "c"], None).await;
    is(&done(&stack, &format!("{victim}/instantiate")).await, "succeeded");
    assert_eq!(fakes.ledger.summary(), ["victim@a held"]);
    let newcomer = approved(&stack, "newcomer", "900m", &["a"], None).await;
    (fakes, stack, victim, newcomer)
}

#[tokio::test]
async fn instantiate_and_terminate_leave_nothing_behind() {
    let (fakes, stack) = stack().await;
    let dig = approved(&stack, "shop", "500m", &["a", "b", "c"], None).await;

    let dry = stack.call("POST", &format!("{dig}/instantiate?dryRun=All"), None).await;
    assert_eq!((dry.status, dry.body["decision"]["outcome"].as_str()), (200, Some("placed")), "{}", dry.body);
    assert!(fakes.ledger.all().is_empty(), "a dry run claims nothing");

    is(&done(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    assert_eq!((fakes.ledger.summary(), fakes.members.present()), (vec!["shop@a held".to_owned()], vec!["shop@a".to_owned()]));
    let again = stack.call("POST", &format!("{dig}/instantiate"), None).await;
    assert_eq!((again.status, again.body["code"].as_str()), (409, Some("wrong_state")));
    let delete = stack.call("DELETE", &dig, None).await;
    assert_eq!((delete.status, delete.body["code"].as_str()), (409, Some("wrong_state")));

    is(&done(&stack, &format!("{dig}/terminate")).await, "succeeded");
    assert!(fakes.ledger.all().is_empty() && fakes.members.present().is_empty());
    assert_eq!(fakes.members.history(), ["present shop@a", "absent shop@a"]);
    // Terminated: again, or away with it.
    is(&done(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    is(&done(&stack, &format!("{dig}/terminate")).await, "succeeded");
    assert_eq!(stack.call("DELETE", &format!("{dig}/generic-placement-intents/gpi/app-intents/shop"), None).await.status, 204);
    assert_eq!(stack.call("DELETE", &format!("{dig}/generic-placement-intents/gpi"), None).await.status, 204);
    // Migration's documents below it are asked for first.
    *fakes.plans.below.lock().unwrap() = vec![format!("{dig}/migration-intents/m")];
    let refused = stack.call("DELETE", &dig, None).await;
    assert_eq!((refused.status, refused.body["code"].as_str()), (409, Some("has_children")), "{}", refused.body);
    fakes.plans.below.lock().unwrap().clear();
    assert_eq!(stack.call("DELETE", &dig, None).await.status, 204);
}

#[tokio::test]
async fn what_the_member_refuses_or_never_gets_ready_is_taken_back() {
    let (fakes, stack) = stack().await;
    let dig = approved(&stack, "shop", "500m", &["a"], None).await;
    for (behaviour, code) in
        [(Behaviour::Refused, "preflight_failed"), (Behaviour::Stuck, "not_ready"), (Behaviour::Unschedulable, "not_ready")]
    {
        fakes.members.behave("shop", "a", behaviour);
        let failed = done(&stack, &format!("{dig}/instantiate")).await;
        is(&failed, "failed");
        assert_eq!(failed["code"], code, "{failed:#}");
        assert!(fakes.ledger.all().is_empty() && fakes.members.present().is_empty(), "{behaviour:?}");
    }
    fakes.members.behave("shop", "a", Behaviour::Ready);
    is(&done(&stack, &format!("{dig}/instantiate")).await, "succeeded");
}

#[tokio::test]
async fn a_newcomer_without_room_gets_it_from_one_who_may_move() {
    let (fakes, stack, _, newcomer) = full().await;
    let again = fakes.clone();
    fakes.plans.then(move || plan(&again, "victim", "b", &["c"], "newcomer"));
    let operation = done(&stack, &format!("{newcomer}/instantiate")).await;
    is(&operation, "succeeded");
    assert_eq!(fakes.ledger.summary(), ["newcomer@a held", "victim@b held"]);
    assert_eq!(fakes.members.history(), ["present victim@a", "present victim@b", "absent victim@a", "present newcomer@a"]);
    let child = operation["children"][0].as_str().unwrap();
    let moves = stack.get(&format!("/v2/operations/{child}")).await["moves"].clone();
    assert_eq!((&moves[0]["to"], &moves[0]["stage"]), (&json!("onprem+b"), &json!("done")), "{moves}");
}

#[tokio::test]
async fn no_plan_is_a_rejection_that_changes_nothing() {
    let (fakes, stack, _, newcomer) = full().await;
    let failed = done(&stack, &format!("{newcomer}/instantiate")).await;
    is(&failed, "failed");
    assert_eq!(failed["code"], "plan_infeasible");
    assert!(
        failed["reasons"].as_array().unwrap().iter().any(|reason| reason.as_str().unwrap().contains("nobody there may move")),
        "{failed:#}"
    );
    assert_eq!((fakes.ledger.summary(), fakes.members.present()), (vec!["victim@a held".to_owned()], vec!["victim@a".to_owned()]));
}

#[tokio::test]
async fn who_insists_on_the_best_overflows_only_without_a_plan() {
    let (fakes, stack) = stack().await;
    for (name, on) in [("one", "a"), ("two", "b")] {
        let dig = approved(&stack, name, "800m", &[on], None).await;
        is(&done(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    }
    let dig = approved(&stack, "third", "500m", &["a", "b", "c"], Some("preferred")).await;
    let dry = stack.call("POST", &format!("{dig}/instantiate?dryRun=All"), None).await.body;
    assert_eq!((dry["decision"]["outcome"].as_str(), dry["overflow"]["outcome"].as_str()), (Some("no_room"), Some("placed")), "{dry:#}");
    is(&done(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    assert_eq!(fakes.plans.count(), 1, "a plan was asked for first");
    assert!(fakes.ledger.summary().contains(&"third@c held".to_owned()));

    // A best provider that is silent is not waited for for long while others have room.
    fakes.ledger.silent(&member("a"), true);
    let dig = approved(&stack, "fourth", "100m", &["a", "c"], Some("preferred")).await;
    let dry = stack.call("POST", &format!("{dig}/instantiate?dryRun=All"), None).await.body;
    assert_eq!((dry["decision"]["outcome"].as_str(), dry["overflow"]["outcome"].as_str()), (Some("unknown"), Some("placed")), "{dry:#}");
    let before = fakes.ledger.decisions();
    is(&done(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    // A look a second for as long as a restart may take, and one that overflows: not one until the deadline.
    let looks = fakes.ledger.decisions() - before;
    assert!((2..20).contains(&looks), "{looks} decisions");
    assert!(fakes.ledger.summary().contains(&"fourth@c held".to_owned()));
}

#[tokio::test]
async fn a_destination_that_never_gets_ready_is_replaced_by_the_next() {
    for behaviour in [Behaviour::Stuck, Behaviour::Refused, Behaviour::Unreachable] {
        let (fakes, stack, _, newcomer) = full().await;
        fakes.members.behave("victim", "b", behaviour);
        let again = fakes.clone();
        fakes.plans.then(move || plan(&again, "victim", "b", &["c"], "newcomer"));
        is(&done(&stack, &format!("{newcomer}/instantiate")).await, "succeeded");
        assert!(fakes.members.present().contains(&"victim@c".to_owned()));
        // What was tried on b goes when b answers, and its room with it.
        fakes.members.behave("victim", "b", Behaviour::Ready);
        eventually(Duration::from_secs(60), async || (fakes.ledger.summary() == ["newcomer@a held", "victim@c held"]).then_some(())).await;
        assert_eq!(fakes.members.present(), ["newcomer@a", "victim@c"]);
    }
}

#[tokio::test]
async fn without_any_destination_everything_is_as_before() {
    let (fakes, stack, _, newcomer) = full().await;
    fakes.members.behave("victim", "b", Behaviour::Stuck);
    fakes.members.behave("victim", "c", Behaviour::Refused);
    let again = fakes.clone();
    fakes.plans.then(move || plan(&again, "victim", "b", &["c"], "newcomer"));
    let failed = done(&stack, &format!("{newcomer}/instantiate")).await;
    is(&failed, "failed");
    assert_eq!(failed["code"], "destination_not_ready", "{failed:#}");
    assert_eq!((fakes.ledger.summary(), fakes.members.present()), (vec!["victim@a held".to_owned()], vec!["victim@a".to_owned()]));
    assert!(!fakes.members.history().contains(&"absent victim@a".to_owned()), "the old copy was never touched");
}

#[tokio::test]
async fn freed_room_that_somebody_takes_is_planned_for_anew() {
    let (fakes, stack, _, newcomer) = full().await;
    fakes.members.behave("newcomer", "a", Behaviour::Unschedulable);
    let again = fakes.clone();
    fakes.plans.then(move || plan(&again, "victim", "b", &["c"], "newcomer"));
    let answer = stack.call("POST", &format!("{newcomer}/instantiate"), None).await;
    let operation = answer.headers["location"].to_str().unwrap().to_owned();
    // Somebody else's pod; the newcomer gives its copy and its room up.
    eventually(Duration::from_secs(60), async || fakes.members.history().contains(&"absent newcomer@a".to_owned()).then_some(())).await;
    fakes.members.behave("newcomer", "a", Behaviour::Ready);
    is(&stack.ended(&operation).await, "succeeded");
    assert_eq!(fakes.ledger.summary(), ["newcomer@a held", "victim@b held"]);
    assert_eq!(fakes.members.present(), ["newcomer@a", "victim@b"]);
}

#[tokio::test]
async fn cancel_before_the_pivot_leaves_everything_as_before_and_busy_groups_say_who() {
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
    is(&stack.ended(&operation).await, "cancelled");
    assert_eq!((fakes.ledger.summary(), fakes.members.present()), (vec!["victim@a held".to_owned()], vec!["victim@a".to_owned()]));
    is(&done(&stack, &format!("{victim}/terminate")).await, "succeeded");
}

#[tokio::test]
async fn a_chosen_plan_is_applied_as_it_is_or_says_what_changed() {
    let (fakes, stack, victim, _) = full().await;
    let lookup = stack.get("/internal/digs/lookup?project=p&compositeApp=newcomer&version=v1&dig=newcomer").await;
    let dig: DigRef = serde_json::from_value(lookup["dig"].clone()).unwrap();
    let stale = fakes.plans.propose(PlanSubject::Newcomer(dig.clone()), plan(&fakes, "victim", "b", &[], "newcomer"));
    let dry = stack.call("POST", &format!("/v2/plans/{stale}/apply?dryRun=All"), None).await;
    assert_eq!((dry.status, dry.body["state"].as_str()), (200, Some("proposed")));

    // Somebody fills b: the destination no longer fits.
    fakes.ledger.foreign(&member("b"), 900);
    let failed = done(&stack, &format!("/v2/plans/{stale}/apply")).await;
    is(&failed, "failed");
    assert_eq!(failed["code"], "world_changed", "{failed:#}");
    assert!(!failed["reasons"].as_array().unwrap().is_empty());
    assert_eq!((fakes.ledger.summary(), fakes.members.present()), (vec!["victim@a held".to_owned()], vec!["victim@a".to_owned()]));
    let again = stack.call("POST", &format!("/v2/plans/{stale}/apply"), None).await;
    assert_eq!((again.status, again.body["code"].as_str()), (409, Some("plan_not_proposed")), "{}", again.body);

    let good = fakes.plans.propose(PlanSubject::Newcomer(dig), plan(&fakes, "victim", "c", &[], "newcomer"));
    is(&done(&stack, &format!("/v2/plans/{good}/apply")).await, "succeeded");
    assert_eq!(fakes.ledger.summary(), ["newcomer@a held", "victim@c held"]);

    // A drain is the same workflow without a newcomer.
    let mut drain = plan(&fakes, "victim", "b", &[], "newcomer");
    drain.newcomer.clear();
    fakes.ledger.foreign(&member("b"), 0);
    let drain = fakes.plans.propose(PlanSubject::Drain(member("c")), drain);
    is(&done(&stack, &format!("/v2/plans/{drain}/apply")).await, "succeeded");
    assert_eq!(fakes.ledger.summary(), ["newcomer@a held", "victim@b held"]);
    is(&done(&stack, &format!("{victim}/terminate")).await, "succeeded");
}

#[tokio::test]
async fn deploying_again_updates_in_place_or_puts_the_old_revision_back() {
    use base64::Engine as _;
    let (fakes, stack) = stack().await;
    let dig = approved(&stack, "shop", "300m", &["a"], None).await;
    is(&done(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    let first = fakes.members.digest("shop", "a").unwrap();
    let app = "/v2/projects/p/composite-apps/shop/v1/apps/shop";
    let change = async |cpu: &str| {
        let mut body = doc("shop", None);
        body["file"] = base64::engine::general_purpose::STANDARD.encode(deployment("shop", cpu, 1)).into();
        assert_eq!(stack.call("PUT", app, Some(body)).await.status, 201);
    };
    change("400m").await;
    let dry = stack.call("POST", &format!("{dig}/update?dryRun=All"), None).await;
    assert_eq!((dry.status, dry.body["applied"][0]["member"].as_str()), (200, Some("onprem+a")), "{}", dry.body);
    assert_eq!((dry.body.get("misfits"), dry.body.get("newcomer")), (None, None), "{}", dry.body);
    let answer = stack.call("POST", &format!("{dig}/update"), None).await;
    assert_eq!((answer.status, &answer.body), (202, &json!(2)), "EMCO's bare revision");
    is(&stack.ended(answer.headers["location"].to_str().unwrap()).await, "succeeded");
    let second = fakes.members.digest("shop", "a").unwrap();
    assert_ne!(first, second);
    assert_eq!(fakes.ledger.all()[0].request.demand.groups[0].requests.cpu, 400);

    // Too large for where it runs: a dry run says so, and nothing is touched.
    change("1200m").await;
    let dry = stack.call("POST", &format!("{dig}/update?dryRun=All"), None).await.body;
    assert!(dry["misfits"][0].as_str().unwrap().contains("cpu"), "{dry:#}");
    let failed = done(&stack, &format!("{dig}/update")).await;
    assert_eq!((failed["state"].as_str(), failed["code"].as_str()), (Some("failed"), Some("no_room")), "{failed:#}");
    assert_eq!(fakes.members.digest("shop", "a").unwrap(), second);

    // The new revision never gets ready: the old one is applied again.
    change("350m").await;
    fakes.members.behave("shop", "a", Behaviour::Stuck);
    let answer = stack.call("POST", &format!("{dig}/update"), None).await;
    let operation = answer.headers["location"].to_str().unwrap().to_owned();
    eventually(Duration::from_secs(60), async || (stack.get(&operation).await["state"] == "undoing").then_some(())).await;
    fakes.members.behave("shop", "a", Behaviour::Ready);
    is(&stack.ended(&operation).await, "failed");
    assert_eq!(fakes.members.digest("shop", "a").unwrap(), second);
    let claim = &fakes.ledger.all()[0];
    assert_eq!((claim.request.demand.groups[0].requests.cpu, claim.surging), (400, false));
}

#[tokio::test]
async fn apps_start_after_those_they_depend_on_and_go_before_them() {
    let (fakes, stack) = stack().await;
    let dig = stack.group("shop", &[("web", &deployment("web", "100m", 1)), ("db", &deployment("db", "100m", 1))], &MEMBERS).await;
    let dependency = json!({"app": "db", "opStatus": "Ready", "wait": 0});
    stack.post("/v2/projects/p/composite-apps/shop/v1/apps/web/dependency", doc("d", Some(dependency)), 201).await;
    assert_eq!(stack.call("POST", &format!("{dig}/approve"), None).await.status, 202);
    is(&done(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    is(&done(&stack, &format!("{dig}/terminate")).await, "succeeded");
    let order: Vec<_> = fakes.members.history().iter().map(|line| line.split('@').next().unwrap().to_owned()).collect();
    assert_eq!(order, ["present db", "present web", "absent web", "absent db"]);
}

#[tokio::test]
async fn what_is_out_of_reach_is_left_and_removed_when_it_comes_back() {
    let (fakes, stack) = stack().await;
    let dig = approved(&stack, "shop", "500m", &["a"], None).await;
    is(&done(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    fakes.members.behave("shop", "a", Behaviour::Unreachable);
    let operation = done(&stack, &format!("{dig}/terminate")).await;
    is(&operation, "succeeded");
    assert_eq!(operation["leftovers"][0], "shop/shop on onprem+a", "{operation:#}");
    assert_eq!(fakes.ledger.summary(), ["shop@a held"], "what may still run keeps its room");
    fakes.members.behave("shop", "a", Behaviour::Ready);
    eventually(Duration::from_secs(60), async || fakes.ledger.all().is_empty().then_some(())).await;
}

#[tokio::test]
async fn room_that_nothing_explains_is_given_back_and_only_that() {
    let (fakes, stack) = stack().await;
    let dig = approved(&stack, "shop", "500m", &["a"], None).await;
    let operation = done(&stack, &format!("{dig}/instantiate")).await;
    let serving = fakes.ledger.all().remove(0);
    let strange = Arc::new(DigRef { id: Uuid::now_v7(), ..DigRef::clone(&serving.dig) });
    let stray = Claim { id: Uuid::now_v7(), member: member("b"), dig: strange, ..serving.clone() };
    let unknown = Claim { id: Uuid::now_v7(), member: member("c"), operation: Uuid::now_v7(), ..stray.clone() };
    assert_eq!(stray.operation.to_string(), operation["id"].as_str().unwrap());
    fakes.ledger.put(stray.clone());
    fakes.ledger.put(unknown);
    assert_eq!(sweep::once(&stack.app).await.unwrap(), [stray.id]);
    assert_eq!(fakes.ledger.summary(), ["shop@c held", "shop@a held"], "what serves, and what no operation of ours is known of");
    assert!(sweep::once(&stack.app).await.unwrap().is_empty());
}

/// Migration was just restarted and has not heard of all clusters: its plan is waited for, none is no answer yet.
#[tokio::test]
async fn a_plan_is_waited_for_until_all_clusters_were_heard_of() {
    let (fakes, stack, _, newcomer) = full().await;
    *fakes.plans.unheard.lock().unwrap() = 2;
    let again = fakes.clone();
    fakes.plans.then(move || plan(&again, "victim", "b", &["c"], "newcomer"));
    is(&done(&stack, &format!("{newcomer}/instantiate")).await, "succeeded");
    assert_eq!(*fakes.plans.unheard.lock().unwrap(), 0, "it was asked again");
    assert_eq!(fakes.ledger.summary(), ["newcomer@a held", "victim@b held"]);
}

/// One allowed cluster is full, the other is silent: others move, though not before there was time to hear of it.
#[tokio::test]
async fn a_silent_cluster_is_not_waited_for_where_others_can_make_room() {
    let fakes = members();
    let stack = Stack::waiting(&fakes, Patience { room: 3600, ..Patience::LITTLE }).await;
    let victim = approved(&stack, "victim", "600m", &["a", "c"], None).await;
    is(&done(&stack, &format!("{victim}/instantiate")).await, "succeeded");
    let late = approved(&stack, "late", "900m", &["a", "b"], None).await;
    fakes.ledger.silent(&member("b"), true);
    let again = fakes.clone();
    fakes.plans.then(move || plan(&again, "victim", "c", &[], "late"));
    let operation = done(&stack, &format!("{late}/instantiate")).await;
    is(&operation, "succeeded");
    assert_eq!(fakes.ledger.summary(), ["late@a held", "victim@c held"]);
}
