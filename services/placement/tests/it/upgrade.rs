//! A ledger that the first version wrote as jsonb is read after the migration and continues to work.

use crate::support::{ClusterManager, Placement, app, bindings, dig, nodes, request};
use drover_api::ledger::DecisionRecord;
use drover_scheduling::{Decision, Outcome};
use drover_store::{MigrationSet, Store, StoreConfig};
use drover_testkit::test_db;
use serde::Serialize;
use serde_json::Value;
use sqlx::migrate::Migrator;
use uuid::Uuid;

const A: [&str; 1] = ["onprem+a"];

/// As the first version wrote it: names of fields in snake_case.
fn first(value: &impl Serialize) -> Value {
    fn snake(value: Value) -> Value {
        match value {
            Value::Array(items) => items.into_iter().map(snake).collect(),
            Value::Object(fields) => fields.into_iter().map(|(name, value)| (snake_name(&name), snake(value))).collect(),
            other => other,
        }
    }
    // Names of EMCO's placement intents were camelCase then, too.
    fn snake_name(name: &str) -> String {
        if matches!(name, "allOf" | "anyOf" | "clusterProvider" | "clusterLabel") {
            return name.to_owned();
        }
        let letter = |c: char| if c.is_uppercase() { format!("_{}", c.to_ascii_lowercase()) } else { c.to_string() };
        name.chars().map(letter).collect()
    }
    snake(serde_json::to_value(value).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn jsonb_ledger_is_read_after_the_migration() {
    let manager = ClusterManager::start().await;
    manager.member("onprem+a", 1, nodes(1, 1000));

    // A decision and its claims, from another ledger.
    let (id, wanted) = (Uuid::now_v7(), request(&dig("shop"), vec![app("cart", 1, 300, &A), app("web", 2, 100, &A)]));
    let (decision, claims) = {
        let db = test_db().await;
        let placement = Placement::start(&db, &manager).await;
        (placement.decide(id, &wanted).await, placement.claims("").await)
    };

    // The same, as the first version stored it.
    assert!(first(&wanted)["apps"][0]["terms"]["when_full"].is_string(), "{}", first(&wanted));
    let db = test_db().await;
    let all = sqlx::migrate!("../../migrations/placement");
    let earliest = Migrator { migrations: all.migrations[..1].to_vec().into(), ..all };
    let store = Store::connect(&StoreConfig::new("placement", db.url.clone()), &[MigrationSet::new("placement", earliest)]).await.unwrap();
    sqlx::query("update head set seq = 1").execute(&mut *store.acquire().await.unwrap()).await.unwrap();
    let insert = "insert into decision (id, seq, project, composite_app, dig, dig_id, operation, outcome, request, answer) \
        values ($1, 1, $2, $3, $4, $5, $6, 'placed', $7, $8)";
    sqlx::query(insert)
        .bind(id)
        .bind(&wanted.dig.project)
        .bind(&wanted.dig.composite_app)
        .bind(&wanted.dig.name)
        .bind(wanted.dig.id)
        .bind(wanted.operation)
        .bind(first(&wanted))
        .bind(first(&decision))
        .execute(&mut *store.acquire().await.unwrap())
        .await
        .unwrap();
    let insert = "insert into claim (id, seq, dig_id, project, composite_app, composite_app_version, dig, app, member, state, surging, \
        fence, operation, request, pods) values ($1, 1, $2, $3, $4, $5, $6, $7, $8, 'held', false, $9, $10, $11, $12)";
    for claim in &claims.items {
        sqlx::query(insert)
            .bind(claim.id)
            .bind(claim.dig.id)
            .bind(&claim.dig.project)
            .bind(&claim.dig.composite_app)
            .bind(&claim.dig.version)
            .bind(&claim.dig.name)
            .bind(&claim.request.app)
            .bind(&claim.member.0)
            .bind(claim.fence)
            .bind(claim.operation)
            .bind(first(&*claim.request))
            .bind(first(&claim.pods))
            .execute(&mut *store.acquire().await.unwrap())
            .await
            .unwrap();
    }
    store.close().await;

    let placement = Placement::start(&db, &manager).await;
    assert_eq!(placement.claims("").await, claims);
    assert_eq!(placement.clusters().await[0].total.requested.cpu, 500);
    let record: DecisionRecord = placement.get(&format!("/v2/decisions/{id}")).await;
    assert_eq!((&record.decision, record.request.as_ref()), (&decision, Some(&wanted)));
    assert_eq!(placement.decide(id, &wanted).await, decision, "a repeated id gets the stored answer");
    let again: Decision = placement.decide(Uuid::now_v7(), &wanted).await;
    assert_eq!(again.outcome, Outcome::Placed);
    assert_eq!(bindings(&again).len(), 2);
    assert_eq!(placement.clusters().await[0].total.requested.cpu, 1000);
}
