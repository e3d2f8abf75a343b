//! Apps that run on every cluster of a selection.

use drover_api::scheduling::{Element, Intent, PlacementTerms};
use drover_orchestrator::store::deployment::{self, ApprovedApp, DeploymentState};
use drover_orchestrator::store::overview;
use drover_orchestrator::store::revision::{self, NewRevision, Requester, RevisionApp};
use uuid::Uuid;

use crate::base::{Base, member, rendered, request};

/// Every cluster with this label.
fn everywhere(label: &str) -> PlacementTerms {
    let element = Element { cluster_provider: Some("*".into()), cluster_label: Some(label.into()), ..Element::default() };
    PlacementTerms { intent: Intent { all_of: vec![element], any_of: Vec::new() }, ..request("web", 100, &[]).terms }
}

#[tokio::test]
async fn apps_that_spread_are_read_as_they_run_with_the_clusters_where_they_serve() {
    let base = Base::fresh().await;
    let [web, other] = [base.group("web", DeploymentState::Instantiated).await, base.group("other", DeploymentState::Instantiated).await];
    let demand = request("web", 100, &[]).demand;
    let app = ApprovedApp { app: "web".into(), digest: rendered("web-old").digest, namespace: "default".into(), demand };
    let mut tx = base.environment.store.begin().await.unwrap();
    let mut drawn = Vec::new();
    for (operation, label) in [(1, "edge"), (2, "gpu")] {
        let new = NewRevision {
            dig: web.id,
            operation: Uuid::from_u128(operation),
            kind: "update",
            from_revision: None,
            requested_by: &Requester::default(),
            description: "",
            controllers: &[],
            with_approved_actions: false,
            apps: &[RevisionApp { app: app.clone(), terms: everywhere(label) }],
        };
        drawn.push(revision::draw(&mut tx, &new).await.unwrap());
    }
    // The second one was not reached.
    deployment::reach(&mut tx, web.id, DeploymentState::Instantiated, drawn[0], Some(Uuid::from_u128(1))).await.unwrap();
    tx.commit().await.unwrap();
    for cluster in ["a", "c"] {
        base.serving(&web, request("web", 100, &[cluster]), cluster).await;
    }
    base.serving(&other, request("web", 100, &["b"]), "b").await;

    let mut db = base.environment.store.acquire().await.unwrap();
    assert_eq!(overview::spreading(&mut db).await.unwrap(), [(web.id, drawn[0])]);
    let apps = overview::spreading_apps(&mut db, &[web.id, other.id, Uuid::from_u128(3)]).await.unwrap();
    let [app] = apps.as_slice() else { panic!("{apps:?}") };
    let mut members = app.members.clone();
    members.sort();
    assert_eq!((app.dig_id, &app.terms.0, members), (web.id, &everywhere("edge"), vec![member("c").0, member("a").0]));
}
