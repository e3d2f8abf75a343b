//! Documents: intents, policies, algorithms and parameters, and the rules between them.

use crate::support::{FakePeers, Migration, dig_path};
use drover_testkit::{openapi, test_db};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

#[test]
fn openapi_document_matches_golden_file() {
    openapi::assert_golden("migration", &serde_json::to_value(drover_migration::openapi()).unwrap());
}

fn named(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name, "description": "", "userData1": "", "userData2": ""}, "spec": spec})
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_of_each_kind_can_be_made_read_changed_and_deleted() {
    let (db, peers) = (test_db().await, FakePeers::start().await);
    let migration = Migration::start(&db, &peers).await;
    let dig = dig_path("shop");
    peers.known.documents.lock().unwrap().insert(dig.clone(), Uuid::now_v7());
    let intent = json!({"metadata": {"name": "m", "description": "", "userData1": "", "userData2": ""}});
    let kinds = [
        (format!("{dig}/migration-intents"), intent.clone(), intent),
        (
            format!("{dig}/migration-intents/m/app-intents"),
            named("m", json!({"app": "cart", "migration": true, "priority": 3})),
            named("m", json!({"app": "cart", "migration": false, "priority": 10})),
        ),
        (
            "/v2/migration-parameters".into(),
            named("m", json!({"source": "constant", "scope": "app", "value": 3.0})),
            named("m", json!({"source": "metric", "scope": "service", "metric": "cpu_used"})),
        ),
        (
            "/v2/migration-algorithms".into(),
            named("m", json!({"expression": "m * 2", "prefer": "low", "missing": "first"})),
            named("m", json!({"expression": "m * 3", "prefer": "high", "missing": 4.5})),
        ),
        (
            "/v2/projects/default/migration-policies".into(),
            named("m", json!({"mode": "order", "algorithms": [{"algorithm": "m"}], "cascadeDepth": 0, "active": false})),
            named("m", json!({"mode": "scoring", "algorithms": [{"algorithm": "m", "weight": 2.0}], "cascadeDepth": 0, "active": true})),
        ),
    ];
    for (collection, made, changed) in &kinds {
        let item = format!("{collection}/m");
        migration.refused(Method::GET, &item, &Value::Null, 404, "not_found").await;
        assert_eq!(&migration.ok::<Value>(Method::POST, collection, made).await, made);
        migration.refused(Method::POST, collection, made, 409, "already_exists").await;
        assert_eq!(&migration.ok::<Value>(Method::GET, &item, &Value::Null).await, made);
        assert_eq!(&migration.ok::<Value>(Method::PUT, &item, changed).await, changed);
        let list: Vec<Value> = migration.ok(Method::GET, collection, &Value::Null).await;
        assert!(list.contains(changed), "{list:?}");
    }
    migration.refused(Method::DELETE, &format!("{dig}/migration-intents/m"), &Value::Null, 409, "has_children").await;
    migration.refused(Method::DELETE, "/v2/migration-algorithms/m", &Value::Null, 409, "has_references").await;
    migration.refused(Method::DELETE, "/v2/migration-parameters/m", &Value::Null, 409, "has_references").await;
    for collection in [&kinds[1].0, &kinds[0].0, &kinds[4].0, &kinds[3].0, &kinds[2].0] {
        let item = format!("{collection}/m");
        assert_eq!(migration.send(Method::DELETE, &item, None::<&()>).await.0, StatusCode::NO_CONTENT, "{item}");
        migration.refused(Method::GET, &item, &Value::Null, 404, "not_found").await;
    }
    let nowhere = dig_path("nowhere");
    migration.refused(Method::POST, &format!("{nowhere}/migration-intents"), &kinds[0].1, 404, "parent_not_found").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn project_has_one_active_policy() {
    let (db, peers) = (test_db().await, FakePeers::start().await);
    let migration = Migration::start(&db, &peers).await;
    peers.known.documents.lock().unwrap().insert("/v2/projects/other".into(), Uuid::now_v7());
    let policies = "/v2/projects/default/migration-policies";
    let active = |name: &str, active: bool| named(name, json!({"algorithms": [{"algorithm": "Age"}], "active": active}));
    let _: Value = migration.ok(Method::POST, policies, &active("one", true)).await;
    migration.refused(Method::POST, policies, &active("two", true), 409, "wrong_state").await;
    migration.refused(Method::GET, &format!("{policies}/two"), &Value::Null, 404, "not_found").await;
    let _: Value = migration.ok(Method::POST, policies, &active("two", false)).await;
    migration.refused(Method::PUT, &format!("{policies}/two"), &active("two", true), 409, "wrong_state").await;
    let _: Value = migration.ok(Method::POST, "/v2/projects/other/migration-policies", &active("two", true)).await;
    let _: Value = migration.ok(Method::PUT, &format!("{policies}/one"), &active("one", false)).await;
    let _: Value = migration.ok(Method::PUT, &format!("{policies}/two"), &active("two", true)).await;
    assert_eq!(migration.send(Method::DELETE, &format!("{policies}/two"), None::<&()>).await.0, StatusCode::NO_CONTENT);
    let _: Value = migration.ok(Method::PUT, &format!("{policies}/one"), &active("one", true)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_documents_are_refused() {
    let (db, peers) = (test_db().await, FakePeers::start().await);
    let migration = Migration::start(&db, &peers).await;
    let algorithms = "/v2/migration-algorithms";
    for (expression, column) in [("cpu_used *", "column"), ("cpu_usd * 2", "cpu_usd"), ("'text'", "column"), ("cpu_used > 1", "number")] {
        let problem =
            migration.refused(Method::POST, algorithms, &named("a", json!({"expression": expression})), 400, "expression_invalid").await;
        assert!(problem.to_string().contains(column), "{expression}: {problem}");
    }
    migration.refused(Method::GET, &format!("{algorithms}/a"), &Value::Null, 404, "not_found").await;
    let parameters = "/v2/migration-parameters";
    for spec in [
        json!({"source": "metric"}),
        json!({"source": "metric", "metric": "colour"}),
        json!({"source": "constant"}),
        json!({"source": "prometheus"}),
    ] {
        migration.refused(Method::POST, parameters, &named("p", spec), 400, "invalid").await;
    }
    migration.refused(Method::POST, parameters, &named("not-a-name", json!({"source": "constant", "value": 1.0})), 400, "invalid").await;
    let unknown = named("p", json!({"algorithms": [{"algorithm": "Nobody"}]}));
    migration.refused(Method::POST, "/v2/projects/default/migration-policies", &unknown, 409, "reference_not_found").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn builtin_documents_can_be_changed_and_deleted() {
    let (db, peers) = (test_db().await, FakePeers::start().await);
    let migration = Migration::start(&db, &peers).await;
    let busy: Value = migration.ok(Method::GET, "/v2/migration-algorithms/CPUUtilization", &Value::Null).await;
    assert_eq!((&busy["spec"]["prefer"], &busy["spec"]["missing"]), (&json!("low"), &json!("last")));
    let all: Vec<Value> = migration.ok(Method::GET, "/v2/migration-parameters", &Value::Null).await;
    assert!(all.iter().any(|parameter| parameter["metadata"]["name"] == "bandwidth"));
    // A restart neither restores deleted built-in documents nor resets changed ones.
    assert_eq!(migration.send(Method::DELETE, "/v2/migration-algorithms/Age", None::<&()>).await.0, StatusCode::NO_CONTENT);
    let slow = named("bandwidth", json!({"source": "constant", "scope": "app", "value": 1000.0}));
    let _: Value = migration.ok(Method::PUT, "/v2/migration-parameters/bandwidth", &slow).await;
    migration.kill();
    let migration = Migration::start(&db, &peers).await;
    migration.refused(Method::GET, "/v2/migration-algorithms/Age", &Value::Null, 404, "not_found").await;
    assert_eq!(migration.ok::<Value>(Method::GET, "/v2/migration-parameters/bandwidth", &Value::Null).await, slow);
}
