//! Requests that conflict with a move, at each of its steps.

use drover::hub::{Client, Problem};
use drover_api::operations::{Operation, OperationState};
use drover_e2e::apps::App;
use drover_e2e::emco::{Group, ended, operation_id};
use drover_e2e::members::Shape;
use drover_e2e::{System, succeeded};
use drover_store::failpoint::{Action, Failpoints};
use drover_testkit::eventually;
use reqwest::Method;

/// It only guards against hanging.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(120);

fn refused(error: &anyhow::Error) -> (u16, &str, Option<&str>) {
    let problem = &error.downcast_ref::<Problem>().expect("the refusal is a problem document").0;
    (problem.status, &problem.code, problem.instance.as_deref())
}

/// Asserts that every request for the victim is refused with the operation that moves it.
async fn victim_is_locked(client: &Client, victim: &Group, mover: &str, point: &str) {
    for verb in ["terminate", "update"] {
        let error = victim.verb(client, verb).await.expect_err(point);
        assert_eq!(refused(&error), (409, "busy", Some(format!("/v2/operations/{mover}").as_str())), "{verb} at {point}: {error}");
    }
    let error = victim.upload(client).await.expect_err(point);
    assert_eq!(refused(&error).1, "busy", "an edit at {point}: {error}");
}

async fn cancel(client: &Client, id: &str) -> anyhow::Result<String> {
    operation_id(client, Method::POST, &format!("/v2/operations/{id}/cancel")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn victim_is_locked_at_each_step_of_its_move() {
    let members = vec![("left", "onprem", 1), ("right", "onprem", 1)];
    let system = System::shaped(&Shape { members, nodes: 1, cpu: 1, ..Shape::default() }, &[]).await;
    let (client, places, names) = (&system.client, ["onprem/left", "onprem/right"], ["left", "right"]);
    let group = |name: &str| Group::new(name, App::new(name, 1000)).in_project("stages").among(&places);
    let victim = group("victim").on(&places).movable(5);
    succeeded(&victim.deploy(client).await.unwrap());
    let newcomers = [group("to-left").on(&places[..1]), group("to-right").on(&places[1..])];
    for newcomer in &newcomers {
        newcomer.approve(client).await.unwrap();
    }
    let witness = system.sim().unwrap().record_ready(None, "app=victim").unwrap();
    witness.arm();
    let failpoints = Failpoints::of_process();

    let steps = drover_orchestrator::workflows::failpoints().into_iter().filter(|point| point.kind == "relocate" && !point.undo);
    let (mut past_the_pivot, mut seen) = (false, 0);
    // Each step after the one that locks the victims, just before its effect.
    for point in steps.filter(|point| point.moment == "before" && point.step != "hold_victims") {
        let at = usize::from(system.home("victim").await == names[1]);
        let newcomer = &newcomers[at];
        let armed = format!("{point}@stages/{0}/v1/{0}", newcomer.name);
        failpoints.set(&armed, Action::Pause);
        let id = newcomer.verb(client, "instantiate").await.unwrap();
        eventually(TIMEOUT, async || failpoints.is_paused(&armed).then_some(())).await;
        let operation: Operation = client.get(&format!("/v2/operations/{id}")).await.unwrap();
        let mover = operation.children.first().expect("the move has started").to_string();
        victim_is_locked(client, &victim, &mover, &armed).await;

        if past_the_pivot {
            let error = cancel(client, &mover).await.expect_err(&armed);
            assert_eq!((refused(&error).0, refused(&error).1), (409, "past_the_pivot"), "{armed}: {error}");
            failpoints.clear(&armed);
            succeeded(&ended(client, &id).await.unwrap());
            system.serves_on("victim", names[1 - at]).await;
            system.serves_on(&newcomer.name, names[at]).await;
            // One of the two members is empty again for the next move.
            let id = newcomer.verb(client, "terminate").await.unwrap();
            succeeded(&ended(client, &id).await.unwrap());
        } else {
            cancel(client, &id).await.unwrap();
            // The move would learn of it by itself a little later, but it continues now.
            cancel(client, &mover).await.unwrap();
            failpoints.clear(&armed);
            let operation = ended(client, &id).await.unwrap();
            assert_eq!(operation.state, OperationState::Cancelled, "{armed}: {operation:#?}");
            system.serves_on("victim", names[at]).await;
            assert!(system.member(names[1 - at]).deployed().await.is_empty(), "{armed}: the new copy is gone");
            assert_eq!((system.home("victim").await.as_str(), system.home(&newcomer.name).await.as_str()), (names[at], ""), "{armed}");
        }
        past_the_pivot |= Some(point.step) == point.pivot;
        seen += 1;
    }
    assert!(past_the_pivot && seen > 7, "only {seen} steps were tested");
    assert!(witness.min() >= 1, "the victim had a moment without a ready replica");
    system.end().await;
}
