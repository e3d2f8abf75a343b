//! A copy of the database: what users hand over as secrets is in none of its tables.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use drover_api::operations::Operation;
use drover_e2e::apps::App;
use drover_e2e::emco::{Group, ended};
use drover_e2e::{System, succeeded};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use reqwest::{Method, header};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

/// Each is at another place of what a user writes.
const SECRET: &str = "correct-horse-in-a-secret";
const ENCODED: &str = "battery-in-a-secret";
const SETTING: &str = "staple-in-an-environment";
const OVERRIDE: &str = "tr0ub4dor-in-an-override";
const PAIR: &str = "pigeon-in-a-kv-pair";
const CLOUD_PAIR: &str = "magpie-in-a-kv-pair";
const PATCH: &str = "ostrich-in-a-patch";
const DATA: &str = "penguin-in-a-file";
const ALL: [&str; 8] = [SECRET, ENCODED, SETTING, OVERRIDE, PAIR, CLOUD_PAIR, PATCH, DATA];

/// The rows of all tables of all services as text, by table.
async fn tables(url: &str) -> Vec<(String, Vec<String>)> {
    let mut db = PgConnection::connect(url).await.unwrap();
    let names: Vec<(String, String)> =
        sqlx::query_as("select schemaname::text, tablename::text from pg_tables where schemaname like 'drover%' order by 1, 2")
            .fetch_all(&mut db)
            .await
            .unwrap();
    let mut tables = Vec::new();
    for (schema, table) in names {
        let sql = format!("select row::text from {schema}.{table} row");
        tables.push((format!("{schema}.{table}"), sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(&mut db).await.unwrap()));
    }
    tables
}

/// How a word may be stored: as it is, in base64, and as bytes are shown; also text that is in base64 in a column of bytes.
fn forms(word: &str) -> Vec<String> {
    let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    let encoded = STANDARD.encode(word);
    vec![word.to_owned(), encoded.clone(), hex(word), hex(&encoded)]
}

fn manifests(app: &App) -> String {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"},
        "stringData": {"a": SECRET}, "data": {"b": STANDARD.encode(ENCODED)}});
    let text = app.manifests();
    let mut objects: Vec<Value> = drover_manifest::objects::read("app", &text).unwrap().into_iter().map(|object| object.value).collect();
    let pods = objects.iter_mut().find(|object| object["kind"] == "Deployment").unwrap();
    pods["spec"]["template"]["spec"]["containers"][0]["env"] = json!([{"name": "SETTING", "value": SETTING}]);
    objects.push(secret);
    objects.iter().map(|object| format!("---\n{object}\n")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn contents_of_apps_are_nowhere_in_the_database_in_clear_text() {
    let system = System::guarded().await;
    let client = &system.client;
    let app = App::new("web", 100);
    let group = Group::new("web", app.clone()).in_project("shop");
    group.prepare_without_apps(client).await.unwrap();
    let body = json!({"metadata": {"name": "web"}, "file": STANDARD.encode(manifests(&app))});
    client.upsert(&format!("{}/apps", group.composite()), "web", &body).await.unwrap();

    // With a key, so that the answer is kept.
    let mut document: Value = client.get(&group.path()).await.unwrap();
    document["metadata"]["name"] = "second".into();
    document["spec"]["overrideValues"] = json!([{"app": "web", "values": {"password": OVERRIDE}}]);
    let second = || {
        let groups = client.base().join(&format!("{}/deployment-intent-groups", group.composite())).unwrap();
        client.http().request(Method::POST, groups).header("idempotency-key", "one").json(&document).send()
    };
    let made: Value = second().await.unwrap().json().await.unwrap();
    let again = second().await.unwrap();
    assert_eq!(again.headers()["idempotency-replayed"], "true");
    assert_eq!(again.json::<Value>().await.unwrap(), made, "a kept answer is given out as it was");
    let shown: Value = client.get(&format!("{}/deployment-intent-groups/second", group.composite())).await.unwrap();
    assert_eq!(shown["spec"]["overrideValues"][0]["values"]["password"], OVERRIDE);

    let pair = |value: &str| json!({"metadata": {"name": "pairs"}, "spec": {"kv": [{"password": value}]}});
    let of_cluster = "/v2/cluster-providers/onprem/clusters/private-a/kv-pairs";
    client.post(of_cluster, Some(&pair(PAIR))).await.unwrap();
    let value: Value = client.get(&format!("{of_cluster}/pairs?key=password")).await.unwrap();
    assert_eq!(value["value"], PAIR);
    client.post("/v2/projects/shop/logical-clouds/all/kv-pairs", Some(&pair(CLOUD_PAIR))).await.unwrap();

    let intents = format!("{}/generic-k8s-intents", group.path());
    let named = |name: &str| json!({"metadata": {"name": name}});
    client.ensure(&intents, &named("changes")).await.unwrap();
    let resource = |name: &str, new: &str, kind: &str, api: &str| {
        json!({"metadata": {"name": name}, "spec": {"app": "web", "newObject": new,
            "resourceGVK": {"apiVersion": api, "kind": kind, "name": name}}})
    };
    let resources = format!("{intents}/changes/resources");
    client.ensure(&resources, &resource("web", "false", "Deployment", "apps/v1")).await.unwrap();
    let patch = json!([{"op": "add", "path": "/metadata/annotations", "value": {"note": PATCH}}]);
    let body = json!({"metadata": {"name": "patch"}, "spec": {"clusterSpecific": "false", "patchType": "json", "patchJson": patch}});
    client.ensure(&format!("{resources}/web/customizations"), &body).await.unwrap();
    client.ensure(&resources, &resource("more", "true", "Secret", "v1")).await.unwrap();
    let files = json!([{"name": "key", "content": STANDARD.encode(DATA)}]);
    let body = json!({"metadata": {"name": "data"}, "spec": {"clusterSpecific": "false"}, "files": files});
    client.ensure(&format!("{resources}/more/customizations"), &body).await.unwrap();
    let chosen = json!({"metadata": {"name": "changes"}, "spec": {"intent": {"genericK8sIntent": "changes"}}});
    client.ensure(&format!("{}/intents", group.path()), &chosen).await.unwrap();

    group.approve_as_uploaded(client).await.unwrap();
    let id = group.verb(client, "instantiate").await.unwrap();
    let operation: Operation = ended(client, &id).await.unwrap();
    succeeded(&operation);
    let member = system.member(&system.serves("web").await);
    let secrets: Api<Secret> = Api::namespaced(member.client.clone(), "default");
    let of = async |name: &str, key: &str| secrets.get(name).await.unwrap().data.unwrap()[key].0.clone();
    assert_eq!(of("keys", "b").await, ENCODED.as_bytes(), "the cluster has what was sealed");
    assert_eq!(of("more", "key").await, DATA.as_bytes());
    let deployment = member.deployments().get("web").await.unwrap();
    assert_eq!(deployment.metadata.annotations.unwrap()["note"], PATCH);
    let accept = client.http().get(client.base().join(&format!("{}/apps/web", group.composite())).unwrap());
    let file = accept.header(header::ACCEPT, "application/octet-stream").send().await.unwrap().text().await.unwrap();
    assert_eq!(file, manifests(&app), "a file is given out as it was");

    let tables = tables(system.database_url()).await;
    let holds = |text: &str| tables.iter().any(|(_, rows)| rows.iter().any(|row| row.contains(text)));
    assert!(holds("onprem") && holds("/v2/projects/shop"), "the search finds what is in clear text");
    for (table, rows) in &tables {
        for word in ALL {
            for form in forms(word) {
                let found = rows.iter().find(|row| row.contains(&form));
                assert!(found.is_none(), "{table} has {word:?} in clear text: {}", found.unwrap());
            }
        }
    }
    system.end().await;
}
