//! Members that refuse an app for what they have: others are tried, and nothing is moved for an app that would be refused.

use base64::Engine as _;
use drover_orchestrator::peers::ClusterManager as _;
use serde_json::{Value, json};

use crate::base::member;
use crate::fakes::{Behaviour, Fakes};
use crate::scenarios::{approved, expect_state, members, run, stack};
use crate::support::{Stack, WaitSeconds, deployment, doc};
use crate::updating::{growing, growing_by};

/// What a dry run says.
async fn dry(stack: &Stack, dig: &str, verb: &str) -> Value {
    let answer = stack.call("POST", &format!("{dig}/{verb}?dryRun=All"), None).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body
}

fn place(preview: &Value) -> &Value {
    &preview["decision"]["apps"][0]["groups"][0]["placement"]["member"]
}

/// Where an app would be placed now, and what is said of each member.
async fn placed_now(stack: &Stack, app: &str) -> (Value, Vec<(String, String, String)>) {
    let answer = stack.call("GET", &format!("/v2/explain?app={app}&project=p"), None).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let group = &answer.body["now"]["decision"]["groups"][0];
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let of = |considered: &Value| (text(&considered["member"]), text(&considered["verdict"]), text(&considered["reason"]));
    (group["placement"]["member"].clone(), group["considered"].as_array().unwrap().iter().map(of).collect())
}

#[tokio::test]
async fn explanation_leaves_out_members_that_refused_the_objects_until_one_accepts_them() {
    let (fakes, stack) = stack().await;
    fakes.members.behave("shop", "a", Behaviour::RefusedHere);
    let dig = approved(&stack, "shop", "300m", &["a", "c"], None).await;
    expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    assert_eq!(fakes.ledger.summary(), ["shop@c held"]);

    let (place, considered) = placed_now(&stack, "shop/shop").await;
    assert_eq!(place, "aws+c", "{considered:?}");
    let refused = |considered: &[(String, String, String)]| {
        considered.iter().any(|(member, verdict, reason)| {
            let told = reason.starts_with("it refused the objects at 20") && reason.ends_with(": denied by an admission rule");
            member == "onprem+a" && verdict == "not_allowed" && told
        })
    };
    assert!(refused(&considered), "{considered:?}");

    for wrong in ["shop", "shop/", "/shop"] {
        assert_eq!(stack.call("GET", &format!("/v2/explain?app={wrong}"), None).await.status, 400, "{wrong}");
    }
    assert_eq!(stack.call("GET", "/v2/explain?app=none/none&project=p", None).await.status, 404);

    // It is not asked again before somebody deploys the application again. Where it runs then, it was accepted.
    fakes.members.behave("shop", "a", Behaviour::Ready);
    assert!(refused(&placed_now(&stack, "shop/shop").await.1));
    expect_state(&run(&stack, &format!("{dig}/terminate")).await, "succeeded");
    expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    assert_eq!(fakes.ledger.summary(), ["shop@a held"]);
    let (place, considered) = placed_now(&stack, "shop/shop").await;
    assert!(place == "onprem+a" && !refused(&considered), "{considered:?}");
}

#[tokio::test]
async fn explanation_names_no_object_of_others_that_was_in_the_way() {
    let (fakes, stack) = stack().await;
    // The first is written to, the second is asked before.
    ["a", "b"].iter().for_each(|member| fakes.members.behave("shop", member, Behaviour::RefusedTwice));
    let dig = approved(&stack, "shop", "300m", &["a", "b", "c"], None).await;
    let told = run(&stack, &format!("{dig}/instantiate")).await;
    expect_state(&told, "succeeded");
    assert_eq!(fakes.ledger.summary(), ["shop@c held"]);
    assert!(told["message"].as_str().unwrap().contains("Service/default/victim"), "the operation says all that spoke against it: {told:#}");

    let (_, considered) = placed_now(&stack, "shop/shop").await;
    let remembered: Vec<_> = considered.iter().filter(|(_, _, reason)| reason.starts_with("it refused the objects")).collect();
    let lasting = |(_, _, reason): &&(String, String, String)| reason.ends_with(": denied by an admission rule");
    assert!(remembered.len() == 2 && remembered.iter().all(lasting), "{considered:?}");
}

#[tokio::test]
async fn explanation_forgets_what_was_refused_of_earlier_objects() {
    let (fakes, stack) = stack().await;
    fakes.members.behave("shop", "a", Behaviour::RefusedHere);
    let dig = approved(&stack, "shop", "300m", &["a", "c"], None).await;
    expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    assert_eq!(placed_now(&stack, "shop/shop").await.0, "aws+c");
    let mut body = doc("shop", None);
    body["file"] = base64::engine::general_purpose::STANDARD.encode(deployment("shop", "350m", 1)).into();
    assert_eq!(stack.call("PUT", "/v2/projects/p/composite-apps/shop/v1/apps/shop", Some(body)).await.status, 201);
    expect_state(&run(&stack, &format!("{dig}/update")).await, "succeeded");
    assert_eq!(placed_now(&stack, "shop/shop").await.0, "onprem+a", "nobody knows what it says to these");
}

#[tokio::test]
async fn dry_run_shows_moves_with_which_a_refusal_may_end() {
    let (fakes, stack, newcomer) = full().await;
    ["a", "b"].iter().for_each(|cluster| fakes.members.behave("newcomer", cluster, Behaviour::InTheWay));
    let said = dry(&stack, &newcomer, "instantiate").await;
    let place = &said["plan"]["plan"]["newcomer"][0]["groups"][0]["placement"]["member"];
    assert!(place.is_string(), "{said:#}");
    let refusal = json!([{"app": "newcomer", "member": place, "mayEnd": true,
        "reasons": ["Service/default/victim exists in the member and is not this app's"]}]);
    assert_eq!(said["refusals"], refusal, "{said:#}");
    // What may end is remembered by nobody.
    expect_state(&run(&stack, &format!("{newcomer}/instantiate")).await, "succeeded");
    let (_, considered) = placed_now(&stack, "newcomer/newcomer").await;
    assert!(considered.iter().all(|(_, _, reason)| !reason.contains("refused")), "{considered:?}");
}

/// How often an app was written to a cluster.
fn written(fakes: &Fakes, copy: &str) -> usize {
    fakes.members.history().iter().filter(|entry| **entry == format!("present {copy}")).count()
}

#[tokio::test]
async fn app_that_an_update_adds_goes_to_another_member_or_fails_with_the_reason_of_each() {
    let (fakes, stack) = stack().await;
    fakes.members.behave("extra", "a", Behaviour::RefusedHere);
    let dig = growing(&stack, &["a", "c"], None).await;
    let said = dry(&stack, &dig, "update").await;
    assert_eq!((place(&said["newcomer"]), &said["newcomer"]["refusals"]), (&json!("aws+c"), &Value::Null), "{said:#}");

    // Every allowed member refuses it: each is named, and the second is only asked.
    fakes.members.behave("extra", "c", Behaviour::RefusedHere);
    let said = dry(&stack, &dig, "update").await;
    assert_eq!(said["newcomer"]["refusals"].as_array().map(Vec::len), Some(2), "{said:#}");
    let operation = run(&stack, &format!("{dig}/update")).await;
    expect_state(&operation, "failed");
    assert_eq!(operation["code"], "preflight_failed");
    let reasons = operation["reasons"].as_array().unwrap();
    let told = |member: &str| reasons.contains(&json!(format!("extra: {member}: denied by an admission rule")));
    assert!(told("onprem+a") && told("aws+c"), "{operation:#}");
    assert_eq!((written(&fakes, "extra@a"), written(&fakes, "extra@c")), (1, 0));
    assert_eq!((fakes.ledger.summary(), fakes.members.present()), (vec!["shop@b held".to_owned()], vec!["shop@b".to_owned()]));

    fakes.members.behave("extra", "c", Behaviour::Ready);
    let operation = run(&stack, &format!("{dig}/update")).await;
    expect_state(&operation, "succeeded");
    assert_eq!(operation["message"], "updated; extra not on onprem+a: denied by an admission rule");
    assert_eq!(fakes.ledger.summary(), ["extra@c held", "shop@b held"]);
    assert_eq!(fakes.members.present(), ["extra@c", "shop@b"]);
}

#[tokio::test]
async fn app_that_runs_is_not_placed_elsewhere_when_its_member_refuses_its_update() {
    let (fakes, stack) = stack().await;
    let dig = approved(&stack, "shop", "300m", &["a", "b"], None).await;
    expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    let first = fakes.members.digest("shop", "a").unwrap();
    let mut body = doc("shop", None);
    body["file"] = base64::engine::general_purpose::STANDARD.encode(deployment("shop", "350m", 1)).into();
    assert_eq!(stack.call("PUT", "/v2/projects/p/composite-apps/shop/v1/apps/shop", Some(body)).await.status, 201);
    fakes.members.behave("shop", "a", Behaviour::RefusedHere);

    let failed = run(&stack, &format!("{dig}/update")).await;

    expect_state(&failed, "failed");
    assert!(failed["message"].as_str().unwrap().contains("the old revision is applied again"), "{failed:#}");
    assert_eq!((fakes.members.present(), fakes.members.digest("shop", "a")), (vec!["shop@a".to_owned()], Some(first)));
}

#[tokio::test]
async fn added_app_that_its_call_graph_keeps_beside_a_running_one_is_refused_with_the_reason() {
    let (fakes, stack) = stack().await;
    fakes.members.behave("extra", "b", Behaviour::RefusedHere);
    let dig = growing_by(&stack, "300m", &["b", "c"], None).await;
    let graph = json!({"calls": [{"from": "shop", "to": "extra", "calls": 1}], "keepTogether": true});
    stack.post("/v2/projects/p/composite-apps/shop/v1/call-graphs", doc("calls", Some(graph)), 201).await;
    let stays = "extra: its call graph keeps it together with shop, so no other cluster is tried for it";

    let said = dry(&stack, &dig, "update").await;
    assert_eq!(
        said["newcomer"]["refusals"],
        json!([{"app": "extra", "member": "onprem+b", "reasons": ["denied by an admission rule", stays]}]),
        "{said:#}"
    );
    let failed = run(&stack, &format!("{dig}/update")).await;
    expect_state(&failed, "failed");
    assert_eq!(
        (&failed["code"], &failed["reasons"]),
        (&json!("preflight_failed"), &json!(["extra: onprem+b: denied by an admission rule", stays]))
    );
    assert_eq!((fakes.ledger.summary(), written(&fakes, "extra@c")), (vec!["shop@b held".to_owned()], 0));
}

/// `v1` fills `a` and `v2` fills `b`; both may move to `c`. `newcomer` is allowed on `a` and `b`, and fits where one of them has left.
async fn full() -> (Fakes, Stack, String) {
    let fakes = members();
    fakes.plans.plan_on(&fakes.ledger);
    let stack = Stack::waiting(&fakes, WaitSeconds::PATIENT).await;
    for (victim, cluster) in [("v1", "a"), ("v2", "b")] {
        let dig = approved(&stack, victim, "600m", &[cluster, "c"], None).await;
        expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    }
    let newcomer = approved(&stack, "newcomer", "900m", &["a", "b"], None).await;
    assert_eq!(fakes.ledger.summary(), ["v1@a held", "v2@b held"]);
    (fakes, stack, newcomer)
}

#[tokio::test]
async fn nothing_is_moved_to_make_room_on_a_member_that_would_refuse_the_newcomer() {
    let (fakes, stack, newcomer) = full().await;
    // Where the planner would make room.
    let said = dry(&stack, &newcomer, "instantiate").await;
    let first = said["plan"]["plan"]["newcomer"][0]["groups"][0]["placement"]["member"].as_str().unwrap().to_owned();
    let (refusing, other) = if first == "onprem+a" { ("a", "b") } else { ("b", "a") };
    fakes.members.behave("newcomer", refusing, Behaviour::RefusedHere);

    let said = dry(&stack, &newcomer, "instantiate").await;
    let place = &said["plan"]["plan"]["newcomer"][0]["groups"][0]["placement"]["member"];
    assert_eq!((place, &said["refusals"]), (&json!(member(other)), &Value::Null), "{said:#}");
    let operation = run(&stack, &format!("{newcomer}/instantiate")).await;
    expect_state(&operation, "succeeded");
    assert_eq!(operation["message"], format!("instantiated; newcomer not on onprem+{refusing}: denied by an admission rule"));
    let victims = if refusing == "a" { ["v1@a held", "v2@c held"] } else { ["v1@c held", "v2@b held"] };
    let wanted: Vec<String> = [format!("newcomer@{other} held")].into_iter().chain(victims.map(str::to_owned)).collect();
    assert_eq!(fakes.ledger.summary(), wanted);
    assert_eq!(written(&fakes, &format!("newcomer@{refusing}")), 0);
}

#[tokio::test]
async fn nothing_is_moved_for_a_newcomer_that_every_member_would_refuse() {
    for behaviour in [Behaviour::RefusedHere, Behaviour::Refused] {
        let (fakes, stack, newcomer) = full().await;
        ["a", "b"].iter().for_each(|cluster| fakes.members.behave("newcomer", cluster, behaviour));
        let before = (fakes.ledger.summary(), fakes.members.history());
        let operation = run(&stack, &format!("{newcomer}/instantiate")).await;
        expect_state(&operation, "failed");
        assert_eq!(operation["code"], "preflight_failed", "{operation:#}");
        if behaviour == Behaviour::RefusedHere {
            let reasons = operation["reasons"].as_array().unwrap();
            let told = |member: &str| reasons.contains(&json!(format!("{member}: newcomer: denied by an admission rule")));
            assert!(told("onprem+a") && told("onprem+b"), "{operation:#}");
        }
        assert_eq!((fakes.ledger.summary(), fakes.members.history()), before);
    }
}

#[tokio::test]
async fn room_is_made_where_only_the_victims_may_be_in_the_way() {
    let (fakes, stack, newcomer) = full().await;
    // As if the names that it wants were those of the victims.
    ["a", "b"].iter().for_each(|cluster| fakes.members.behave("newcomer", cluster, Behaviour::InTheWay));
    let operation = run(&stack, &format!("{newcomer}/instantiate")).await;
    expect_state(&operation, "succeeded");
    assert_eq!(operation["message"], "instantiated", "{operation:#}");
}

#[tokio::test]
async fn deployment_whose_clusters_are_cordoned_says_so_and_for_which_app() {
    let (fakes, stack) = stack().await;
    let dig = approved(&stack, "shop", "300m", &["a", "b"], None).await;
    for cluster in ["a", "b"] {
        fakes.ledger.cordon(&member(cluster), "new racks").await.unwrap();
    }
    let failed = run(&stack, &format!("{dig}/instantiate")).await;
    assert_eq!((&failed["code"], failed["reasons"].as_array().map(Vec::len)), (&json!("unknown_cluster"), Some(2)), "{failed:#}");
    assert!(failed["message"].as_str().unwrap().starts_with("no cluster that is allowed for shop may be used now"), "{failed:#}");
    assert!(failed["reasons"][0].as_str().unwrap().contains("onprem+a: is cordoned since now: new racks"), "{failed:#}");
}
