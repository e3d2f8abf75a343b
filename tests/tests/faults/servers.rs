//! Members with faulty API servers, each with another fault and all at the same time: nothing wrong is written, the fault is shown, and no
//! repair is needed when it is over.

use std::time::Duration;

use drover_api::operations::{Operation, OperationState};
use drover_api::scheduling::MemberState;
use drover_e2e::apps::App;
use drover_e2e::emco::{Group, ended, patiently};
use drover_e2e::members::Shape;
use drover_e2e::{Member, System, succeeded};
use drover_kubesim::{Fault, Operation as Write};
use drover_testkit::eventually;
use futures::future::join_all;
use tokio_util::sync::CancellationToken;

/// It only guards against hanging.
const TIMEOUT: Duration = Duration::from_secs(150);
/// How often a fault that acts once is repeated.
const REPEAT_EVERY: Duration = Duration::from_millis(200);

/// A member and its fault.
struct Trouble {
    member: &'static str,
    fault: Fault,
    /// The state and a part of the reason that Drover shows meanwhile (what a server answers is only in the log); `None` if the fault does not disturb operations.
    shown: Option<(MemberState, &'static str)>,
}

fn troubles() -> Vec<Trouble> {
    let trouble = |member, fault, shown| Trouble { member, fault, shown };
    let hours = jiff::SignedDuration::from_hours;
    let (unreachable, late) = (MemberState::Unreachable, Duration::from_secs(40));
    vec![
        trouble("throttled", Fault::Status { code: 429, rate: 1.0 }, Some((unreachable, "does not answer as one"))),
        trouble("broken", Fault::Status { code: 500, rate: 1.0 }, Some((unreachable, "does not answer as one"))),
        trouble("late", Fault::Latency { min: late, max: late }, Some((unreachable, ""))),
        trouble("expired", Fault::Unauthorized, Some((MemberState::Unauthorized, "401"))),
        trouble("flaky", Fault::Status { code: 503, rate: 0.1 }, None),
        trouble("forgetful", Fault::LostAnswers { rate: 0.2 }, None),
        trouble("slow", Fault::Latency { min: Duration::from_millis(50), max: Duration::from_millis(300) }, None),
        trouble("cut", Fault::CutWatches, None),
        trouble("gone", Fault::Gone410, None),
        trouble("ahead", Fault::ClockSkew(hours(3)), None),
        trouble("behind", Fault::ClockSkew(-hours(3)), None),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn faulty_api_servers_lead_to_no_wrong_writes() {
    let troubles = troubles();
    let members = troubles.iter().map(|trouble| (trouble.member, "onprem", 1)).collect();
    let system = System::shaped(&Shape { members, nodes: 1, cpu: 8, ..Shape::default() }, &[]).await;
    join_all(troubles.iter().map(|trouble| suffers(&system, trouble))).await;
    system.end().await;
}

async fn suffers(system: &System, trouble: &Trouble) {
    let (client, sim, name) = (&system.client, system.sim().unwrap(), trouble.member);
    let (member, place) = (system.member(name), format!("onprem/{name}"));
    let group = |app: &str, replicas| {
        let app = format!("{app}-{name}");
        Group::new(&app, App::new(&app, 200).replicas(replicas)).in_project(name).among(&[&place]).on(&[&place])
    };
    let (old, going, new) = (group("old", 1), group("going", 1), group("new", 1));
    for group in [&old, &going] {
        succeeded(&group.deploy(client).await.unwrap());
    }
    new.approve(client).await.unwrap();
    let witness = sim.record_ready(None, &format!("app=old-{name}")).unwrap();
    witness.arm();

    let over = breaks(system, trouble);
    if let Some(wanted) = trouble.shown {
        shown(system, name, wanted).await;
    }
    // One operation of each kind during the fault.
    patiently(async || group("old", 2).upload(client).await).await.unwrap();
    let ids = [old.insist(client, "update").await, going.insist(client, "terminate").await, new.insist(client, "instantiate").await];
    let ids = ids.map(Result::unwrap);
    if trouble.shown.is_some() {
        for id in &ids {
            let operation: Operation = client.get(&format!("/v2/operations/{id}?wait=1s")).await.unwrap();
            // A terminate need not wait: it lists what is left.
            let goes = operation.kind == "terminate" && operation.state == OperationState::Succeeded && !operation.leftovers.is_empty();
            assert!(
                goes || operation.state == OperationState::Running,
                "{name}: an operation must wait while its member does not answer: {operation:#?}"
            );
        }
        mend(sim, name, over);
        all_succeed(system, &ids).await;
        shown(system, name, (MemberState::Ready, "")).await;
    } else {
        all_succeed(system, &ids).await;
        mend(sim, name, over);
    }

    // As without a fault: each object was created once, nothing else was deleted, and the old app was ready all the time.
    member_has(member, &[(format!("new-{name}"), 1), (format!("old-{name}"), 2)]).await;
    for app in ["old", "going", "new"] {
        assert_eq!(sim.created(name, "deployments.apps", "default", &format!("{app}-{name}")), 1, "{app} in {name}");
    }
    let deletes = |effect: &drover_kubesim::Effect| effect.operation == Write::Delete && &*effect.key.resource == "deployments.apps";
    let deleted: Vec<String> =
        sim.effects(name).iter().filter(|effect| deletes(effect)).map(|effect| effect.key.name.to_string()).collect();
    assert_eq!(deleted, [format!("going-{name}")]);
    assert!(witness.min() >= 1, "{name}: there was a moment without a ready replica");
    for group in [&old, &new] {
        let id = group.verb(client, "terminate").await.unwrap();
        succeeded(&ended(client, &id).await.unwrap());
    }
    member_has(member, &[]).await;
}

/// Starts the fault of a member. A fault that acts once is repeated until the returned token is cancelled.
fn breaks(system: &System, trouble: &Trouble) -> CancellationToken {
    let (over, sim) = (CancellationToken::new(), system.sim().unwrap().clone());
    sim.fault(trouble.member, trouble.fault.clone());
    if matches!(trouble.fault, Fault::CutWatches | Fault::Gone410) {
        let (stop, member, fault) = (over.clone(), trouble.member, trouble.fault.clone());
        tokio::spawn(stop.run_until_cancelled_owned(async move {
            loop {
                tokio::time::sleep(REPEAT_EVERY).await;
                sim.fault(member, fault.clone());
                // A compacted log is noticed by watches that are started again.
                sim.fault(member, Fault::CutWatches);
            }
        }));
    }
    over
}

fn mend(sim: &drover_kubesim::Sim, member: &str, over: CancellationToken) {
    over.cancel();
    sim.clear_faults(member);
}

async fn all_succeed(system: &System, ids: &[String]) {
    for operation in join_all(ids.iter().map(|id| ended(&system.client, id))).await {
        succeeded(&operation.unwrap());
    }
}

/// Waits until the member is shown with this state and reason.
async fn shown(system: &System, member: &str, (state, reason): (MemberState, &str)) {
    let seen = async || {
        let clusters = system.clusters().await;
        let cluster = clusters.iter().find(|c| c.cluster == member)?;
        (cluster.state == state && cluster.reason.as_deref().unwrap_or_default().contains(reason)).then_some(())
    };
    eventually(TIMEOUT, seen).await;
}

/// Waits until the member has exactly these Deployments, each with so many ready pods.
async fn member_has(member: &Member, wanted: &[(String, i32)]) {
    let has = async || {
        let mut has = Vec::new();
        for name in member.deployed().await {
            let ready = member.ready(&name).await;
            has.push((name, ready));
        }
        (has == wanted).then_some(())
    };
    eventually(TIMEOUT, has).await;
}
