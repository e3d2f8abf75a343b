//! Rollouts of agents over REST, with members that behave as the test says.

use std::time::Duration;

use drover_api::agents::{AgentDocument, AgentMember, AgentOrder, AgentOrders, AgentPlace};
use drover_api::scheduling::{FleetMember, MemberState};
use drover_testkit::eventually;
use serde_json::Value;

use crate::base::member;
use crate::fakes::{Behaviour, Fakes};
use crate::scenarios::stack;
use crate::support::Stack;

const PATIENCE: Duration = Duration::from_secs(60);

fn order(version: &str) -> AgentOrder {
    AgentOrder { version: version.into(), image: "drover".into(), on: vec![AgentPlace::default()], ..AgentOrder::default() }
}

/// Orders the autoscaler in this version on these members.
fn orders(fakes: &Fakes, generation: i64, order: AgentOrder, on: &[&str]) {
    let members =
        on.iter().map(|name| AgentMember { member: member(name), state: MemberState::Ready, cordoned: false, report: None }).collect();
    let document = AgentDocument { name: "autoscaler".into(), generation, order, members };
    fakes.ledger.set_agents(AgentOrders { items: vec![document] });
}

async fn agent(stack: &Stack) -> Value {
    stack.get("/v2/agent-copies").await["items"][0].clone()
}

/// The version and state of each copy, as `a 1.0 Healthy`.
fn copies(agent: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let copy = |copy: &Value| {
        let cluster = text(&copy["member"]).split('+').next_back().unwrap().to_owned();
        format!("{cluster} {} {}", text(&copy["version"]), text(&copy["state"]))
    };
    agent["copies"].as_array().into_iter().flatten().map(copy).collect()
}

async fn reaches(stack: &Stack, state: &str, wanted: &[&str]) -> Value {
    let mut last = Value::Null;
    let found = tokio::time::timeout(PATIENCE, async {
        loop {
            last = agent(stack).await;
            if last["state"] == state && copies(&last) == wanted {
                return last.clone();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    found.await.unwrap_or_else(|_| panic!("not {state} with {wanted:?}"))
}

#[tokio::test]
async fn agents_reach_their_clusters_claim_room_and_leave_nothing_when_they_go() {
    let (fakes, stack) = stack().await;
    orders(&fakes, 1, order("1.0"), &["a", "b"]);
    let done = reaches(&stack, "Done", &["a 1.0 Healthy", "b 1.0 Healthy"]).await;
    assert!(done["copies"][0]["healthySince"].is_string(), "{done}");
    assert_eq!(fakes.ledger.summary(), ["autoscaler@a held", "autoscaler@b held"]);
    let claim = &fakes.ledger.all()[0];
    assert!(claim.request.demand.groups.iter().any(|group| group.workload == "Deployment/drover-autoscaler" && group.replicas == 2));
    // They are not applications of users.
    assert_eq!(stack.get("/v2/apps").await["items"].as_array().unwrap().len(), 0);

    // Another cluster joins, and one leaves.
    let capacity = fakes.ledger.copy().room(&member("a")).unwrap().capacity.as_deref().unwrap().clone();
    let joins = FleetMember { key: member("d"), priority: 1, state: MemberState::Ready, ..FleetMember::default() };
    fakes.ledger.add_member(joins, capacity);
    orders(&fakes, 2, order("1.0"), &["b", "d"]);
    reaches(&stack, "Done", &["b 1.0 Healthy", "d 1.0 Healthy"]).await;
    eventually(PATIENCE, async || (fakes.ledger.summary() == ["autoscaler@b held", "autoscaler@d held"]).then_some(())).await;

    fakes.ledger.set_agents(AgentOrders::default());
    eventually(PATIENCE, async || fakes.ledger.all().is_empty().then_some(())).await;
    eventually(PATIENCE, async || stack.get("/v2/agent-copies").await["items"].as_array()?.is_empty().then_some(())).await;
    assert!(fakes.members.present().is_empty());
}

#[tokio::test]
async fn version_that_fails_in_one_cluster_goes_back_everywhere_and_reaches_no_other() {
    let (fakes, stack) = stack().await;
    orders(&fakes, 1, order("1.0"), &["a", "b", "c"]);
    reaches(&stack, "Done", &["c 1.0 Healthy", "a 1.0 Healthy", "b 1.0 Healthy"]).await;
    let first = fakes.members.digest("autoscaler", "a").unwrap();

    // Clusters are taken by name: aws+c, onprem+a, onprem+b.
    fakes.members.fail_from("autoscaler", "a", &first);
    orders(&fakes, 2, order("2.0"), &["a", "b", "c"]);
    let stopped = reaches(&stack, "Stopped", &["c 1.0 Healthy", "a 1.0 Healthy", "b 1.0 Healthy"]).await;
    assert!(stopped["reason"].as_str().unwrap().starts_with("onprem+a: "), "{stopped}");
    for cluster in ["a", "b", "c"] {
        assert_eq!(fakes.members.digest("autoscaler", cluster).as_ref(), Some(&first), "{cluster}");
    }
    assert!(
        !fakes.members.updates().iter().any(|update| update.starts_with("autoscaler@b") && !update.ends_with(&first)),
        "b never had it"
    );

    // Asked for again, it is tried again.
    fakes.members.behave("autoscaler", "a", Behaviour::Ready);
    orders(&fakes, 3, order("2.0"), &["a", "b", "c"]);
    reaches(&stack, "Done", &["c 2.0 Healthy", "a 2.0 Healthy", "b 2.0 Healthy"]).await;
}

#[tokio::test]
async fn paused_rollout_and_unreachable_or_cordoned_clusters_wait() {
    let (fakes, stack) = stack().await;
    orders(&fakes, 1, AgentOrder { paused: true, ..order("1.0") }, &["a", "b"]);
    let paused = reaches(&stack, "Paused", &["a - Waiting", "b - Waiting"]).await;
    assert_eq!(paused["copies"].as_array().unwrap().len(), 2);

    let members = vec![
        AgentMember { member: member("a"), state: MemberState::Unreachable, cordoned: false, report: None },
        AgentMember { member: member("b"), state: MemberState::Ready, cordoned: true, report: None },
        AgentMember { member: member("c"), state: MemberState::Ready, cordoned: false, report: None },
    ];
    let document = AgentDocument { name: "autoscaler".into(), generation: 2, order: order("1.0"), members };
    fakes.ledger.set_agents(AgentOrders { items: vec![document] });
    let mut waiting = Value::Null;
    eventually(PATIENCE, async || {
        waiting = agent(&stack).await;
        let why = waiting["reason"].as_str()?;
        (why.contains("onprem+a is Unreachable") && why.contains("onprem+b is cordoned")).then_some(())
    })
    .await;
    assert_eq!(copies(&waiting), ["c 1.0 Healthy", "a - Waiting", "b - Waiting"]);
}
