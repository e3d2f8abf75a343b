//! Claims follow the number of replicas that others have chosen.

use std::time::Duration;

use drover_orchestrator::store::deployment::DeploymentState;
use drover_orchestrator::store::revision::{self, NewRevision, Requester};
use drover_testkit::eventually;
use serde_json::Value;
use uuid::Uuid;

use crate::base::{Base, member};
use crate::contention::{self, moves, victim};
use crate::scenarios::{approved, expect_state, run, stack};

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn claim_grows_and_shrinks_with_what_runs_and_says_when_it_does_not_fit() {
    let (fakes, stack) = stack().await;
    let dig = approved(&stack, "web", "200m", &["a"], None).await;
    expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    let replicas = || fakes.ledger.all()[0].request.demand.groups[0].replicas;
    assert_eq!(replicas(), 1);

    fakes.members.scale("web", "a", Some(4));
    eventually(PATIENCE, async || (replicas() == 4).then_some(())).await;
    // Another app does not fit beside four pods of 200m on 1000m; the claim says so to placement.
    let other = approved(&stack, "other", "300m", &["a"], None).await;
    let refused = run(&stack, &format!("{other}/instantiate")).await;
    expect_state(&refused, "failed");

    // Six pods of 200m do not fit into 1000m. The claim stays, and the list of apps says why.
    fakes.members.scale("web", "a", Some(6));
    eventually(PATIENCE, async || {
        let apps = stack.get("/v2/apps").await;
        let web = apps["items"].as_array()?.iter().find(|app| app["app"] == "web")?.clone();
        web["bindings"][0]["unclaimed"].as_str()?.contains("room for 6 pods is not all claimed").then_some(())
    })
    .await;
    assert_eq!(replicas(), 4);

    // At zero it keeps room for one pod; without another owner it has what the manifest says.
    for (scaled, claimed) in [(Some(0), 1), (Some(3), 3), (None, 1)] {
        fakes.members.scale("web", "a", scaled);
        eventually(PATIENCE, async || (replicas() == claimed).then_some(())).await;
    }

    // An update of an app that is scaled keeps the claim of the number that runs.
    fakes.members.scale("web", "a", Some(2));
    eventually(PATIENCE, async || (replicas() == 2).then_some(())).await;
    expect_state(&run(&stack, &format!("{dig}/update")).await, "succeeded");
    assert_eq!(replicas(), 2);
}

#[tokio::test]
async fn growth_makes_room_and_says_when_none_can_be_made() {
    let (fakes, stack) = contention::stack().await;
    victim(&fakes, &stack, "v", "500m", &["a", "b"]).await;
    let web = approved(&stack, "web", "200m", &["a"], None).await;
    expect_state(&run(&stack, &format!("{web}/instantiate")).await, "succeeded");
    let replicas = || fakes.ledger.all().iter().find(|claim| claim.request.app == "web").unwrap().request.demand.groups[0].replicas;
    let last_growth = async |state: &str| -> Option<Value> {
        let operations = stack.get("/v2/operations").await;
        let found = operations["items"].as_array()?.iter().find(|one| one["kind"] == "grow" && one["state"] == state)?.clone();
        Some(stack.get(&format!("/v2/operations/{}", found["id"].as_str()?)).await)
    };

    // Four pods of 200m do not fit beside the 500m of v on 1000m; v may move to b.
    fakes.members.scale("web", "a", Some(4));
    eventually(PATIENCE, async || (replicas() == 4).then_some(())).await;
    let grown = eventually(PATIENCE, async || last_growth("succeeded").await).await;
    assert_eq!(moves(&grown), ["v/v onprem+a->onprem+b done"], "{grown:#}");
    assert_eq!(fakes.ledger.summary(), ["v@b held", "web@a held"]);

    // Six pods of 200m fit nowhere on 1000m, and there is nothing left to move: the app keeps what it has, and the reasons are told.
    fakes.members.scale("web", "a", Some(6));
    let failed = eventually(PATIENCE, async || last_growth("failed").await).await;
    assert_eq!(failed["code"], "plan_infeasible", "{failed:#}");
    let apps = stack.get("/v2/apps").await;
    let app = apps["items"].as_array().unwrap().iter().find(|app| app["app"] == "web").unwrap();
    assert!(app["bindings"][0]["unclaimed"].as_str().unwrap().contains("room for 6 pods is not all claimed"), "{app:#}");
    assert_eq!(replicas(), 4);
}

#[tokio::test]
async fn growth_moves_no_more_apps_than_its_pods_need_of_which_some_run_already() {
    let (fakes, stack) = contention::stack().await;
    for name in ["v0", "v1", "v2"] {
        victim(&fakes, &stack, name, "200m", &["a", "b"]).await;
    }
    let web = approved(&stack, "web", "200m", &["a"], None).await;
    expect_state(&run(&stack, &format!("{web}/instantiate")).await, "succeeded");
    let claim = || fakes.ledger.all().into_iter().find(|claim| claim.request.app == "web" && claim.request.demand.grows.is_none()).unwrap();

    // Three pods of 200m need 200m more than is free. The second one has started in the room that was free before it is claimed, and the
    // third one starts as soon as v0 has left.
    fakes.ledger.observe(&member("a"), claim().id, 2, 200);
    fakes.members.scale("web", "a", Some(3));
    eventually(PATIENCE, async || (fakes.ledger.summary()[0] == "v0@b held").then_some(())).await;
    fakes.ledger.observe(&member("a"), claim().id, 3, 200);
    eventually(PATIENCE, async || (claim().request.demand.groups[0].replicas == 3).then_some(())).await;
    let grown = eventually(PATIENCE, async || {
        let operations = stack.get("/v2/operations").await;
        let found = operations["items"].as_array()?.iter().find(|one| one["kind"] == "grow" && one["state"] == "succeeded")?.clone();
        Some(stack.get(&format!("/v2/operations/{}", found["id"].as_str()?)).await)
    })
    .await;
    assert_eq!(moves(&grown), ["v0/v0 onprem+a->onprem+b done"], "{grown:#}");
    assert_eq!(fakes.ledger.summary(), ["v0@b held", "v1@a held", "v2@a held", "web@a held"]);
}

#[tokio::test]
async fn app_that_has_grown_moves_itself_if_no_room_can_be_made_where_it_is() {
    let (fakes, stack) = contention::stack().await;
    victim(&fakes, &stack, "v", "200m", &["a", "b"]).await;
    fakes.ledger.foreign(&member("a"), 500);
    // Four pods of 200m do not fit into the 500m that are left on a, and nothing there may move but the app itself. They fit on b.
    fakes.members.scale("v", "a", Some(4));
    // The new copy starts with as many, and has room for them from the beginning.
    fakes.members.scale("v", "b", Some(4));
    eventually(PATIENCE, async || {
        let claim = fakes.ledger.all().into_iter().find(|claim| claim.member == member("b"))?;
        assert_eq!(claim.request.demand.groups[0].replicas, 4);
        Some(())
    })
    .await;
    let moved = eventually(PATIENCE, async || {
        let operations = stack.get("/v2/operations").await;
        let found = operations["items"].as_array()?.iter().find(|one| one["kind"] == "relocate" && one["state"] == "succeeded")?.clone();
        Some(stack.get(&format!("/v2/operations/{}", found["id"].as_str()?)).await)
    })
    .await;
    assert_eq!(moves(&moved), ["v/v onprem+a->onprem+b done"], "{moved:#}");
    assert_eq!(fakes.ledger.summary(), ["v@b held"]);

    // Six pods of 200m fit nowhere: it stays, and says so.
    fakes.members.scale("v", "b", Some(6));
    eventually(PATIENCE, async || {
        let apps = stack.get("/v2/apps").await;
        let v = apps["items"].as_array()?.iter().find(|app| app["app"] == "v")?.clone();
        v["bindings"][0]["unclaimed"].as_str().map(|_| ())
    })
    .await;
    assert_eq!(fakes.ledger.summary(), ["v@b held"]);
}

#[tokio::test]
async fn growth_may_move_apps_as_the_last_change_of_its_group_could() {
    let base = Base::fresh().await;
    let dig = base.group("web", DeploymentState::Instantiated).await;
    let mut tx = base.environment.store.begin().await.unwrap();
    let operations = [Uuid::from_u128(2), Uuid::from_u128(3)];
    for (number, project) in [(2, "shop"), (3, "blog")] {
        let requested_by = &Requester { name: "someone".into(), movable_projects: Some(vec![project.to_owned()]) };
        let (dig, operation) = (dig.id, Uuid::from_u128(number));
        let new = NewRevision {
            dig,
            operation,
            kind: "update",
            from_revision: None,
            requested_by,
            description: "",
            controllers: &[],
            with_approved_actions: false,
            apps: &[],
        };
        revision::draw(&mut tx, &new).await.unwrap();
    }
    for (operation, of, projects) in [
        (operations[0], dig.id, Some("shop")),
        (operations[1], dig.id, Some("blog")),
        // Nobody asked for this one.
        (Uuid::from_u128(4), dig.id, Some("blog")),
        (Uuid::from_u128(4), Uuid::from_u128(5), None),
    ] {
        let may = revision::movable_projects(&mut tx, operation, of).await.unwrap();
        assert_eq!(may, projects.map(|project| vec![project.to_owned()]), "operation {operation} on {of}");
    }
}
