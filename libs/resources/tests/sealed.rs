//! Files and texts of specs against a real Postgres: sealed, read as they were, and sealed again with the newest key.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests, though not functions with the attribute")]

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use drover_resources as resources;
use drover_store::{SealKey, Store, StoreConfig};
use drover_testkit::test_db;
use http::{HeaderMap, header};
use resources::{AnySpec, DocumentKind, Documents, File, Keep, NoHooks, PathParams, Put};
use secrecy::SecretString;
use serde_json::{Value, json};

static SAFE: DocumentKind = DocumentKind::of::<AnySpec>("safe", "Safe", "safes", &["safe"])
    .put(Put::Upsert)
    .sealed(&[&["values"], &["list", "*", "word"]])
    .filters(&[("room", "room")])
    .file(File { required: false, many: false, keep: Keep::Table, max_bytes: 1 << 20, content_type: "text/plain", check: |_| Ok(()) });
static KINDS: [&DocumentKind; 1] = [&SAFE];

const OLD: &str = "T2xkIGtleSBmb3IgdGVzdHMgd2l0aCAzMiBieXRlcyE=";
const NEW: &str = "TmV3IGtleSBmb3IgdGVzdHMgd2l0aCAzMiBieXRlcyE=";

fn document(word: &str) -> Value {
    json!({"metadata": {"name": "s"}, "spec": {"room": "cellar", "values": {"a": word}, "list": [{"word": word, "open": "yes"}]}})
}

/// The service with these keys in its file.
struct Service(Documents);

impl Service {
    async fn start(url: &SecretString, keys: &str) -> Self {
        let store = Store::connect(&StoreConfig::new("sealed-test", url.clone()), &[resources::migrations()]).await.unwrap();
        let store = store.with_key(Arc::new(SealKey::parse(&keys.into()).unwrap()));
        resources::seal_all(&store, &KINDS).await.unwrap();
        Self(Documents::new(store, NoHooks))
    }

    async fn put(&self, document: &Value) {
        let name = document["metadata"]["name"].as_str().unwrap();
        let path = PathParams(vec![("safe".into(), name.into())]);
        let request = Request::put(format!("/v2/safes/{name}")).header(header::CONTENT_TYPE, "application/json");
        let request = request.body(Body::from(document.to_string())).unwrap();
        resources::replace(&self.0, &SAFE, &path, &Vec::new(), request).await.unwrap();
    }

    async fn get(&self, accept: &str) -> String {
        self.get_of("s", accept).await
    }

    async fn get_of(&self, name: &str, accept: &str) -> String {
        let path = PathParams(vec![("safe".into(), name.into())]);
        let headers = HeaderMap::from_iter([(header::ACCEPT, accept.parse().unwrap())]);
        let answer = resources::get_one(&self.0, &SAFE, &path, &headers).await.unwrap();
        String::from_utf8(to_bytes(answer.into_body(), 1 << 20).await.unwrap().to_vec()).unwrap()
    }

    async fn spec(&self) -> Value {
        serde_json::from_str::<Value>(&self.get("application/json").await).unwrap()["spec"].clone()
    }

    async fn stored(&self) -> (Value, i64, Option<Vec<u8>>, Option<Vec<u8>>) {
        let sql = "select spec, version, sealed, bytes from resource join file on digest = file_digest";
        sqlx::query_as(sql).fetch_one(&mut *self.0.store.acquire().await.unwrap()).await.unwrap()
    }
}

#[tokio::test]
async fn files_and_specs_are_sealed_and_follow_the_key() {
    let db = test_db().await;
    let service = Service::start(&db.url, OLD).await;
    let mut sent = document("open sesame");
    sent["file"] = "Y2FiYmFnZQ==".into();
    service.put(&sent).await;
    assert_eq!(service.spec().await, sent["spec"]);
    assert_eq!(service.get("application/octet-stream").await, "cabbage");
    let listed = resources::list(&service.0, &SAFE, &PathParams::default(), &vec![("room".into(), "cellar".into())]).await.unwrap();
    let listed = String::from_utf8(to_bytes(listed.into_body(), 1 << 20).await.unwrap().to_vec()).unwrap();
    assert!(listed.contains("open sesame"), "{listed}");
    let (spec, _, sealed, bytes) = service.stored().await;
    assert!(!spec.to_string().contains("sesame") && bytes.is_none(), "{spec}");
    assert!(!String::from_utf8_lossy(&sealed.unwrap()).contains("cabbage"));
    assert_eq!((&spec["room"], &spec["list"][0]["open"]), (&json!("cellar"), &json!("yes")), "the rest can be searched");

    // The database as an earlier version left it, which sealed nothing.
    let plain = "update resource set spec = $1";
    sqlx::query(plain).bind(&sent["spec"]).execute(&mut *service.0.store.acquire().await.unwrap()).await.unwrap();
    sqlx::query("update file set sealed = null, bytes = 'cabbage'").execute(&mut *service.0.store.acquire().await.unwrap()).await.unwrap();
    assert_eq!((service.spec().await, &*service.get("application/octet-stream").await), (sent["spec"].clone(), "cabbage"));
    let (_, version, ..) = service.stored().await;
    let service = Service::start(&db.url, OLD).await;
    let (first, same, sealed, bytes) = service.stored().await;
    assert!(!first.to_string().contains("sesame") && sealed.is_some() && bytes.is_none(), "{first}");
    assert_eq!(same, version, "the document is the same, and so is its ETag");
    let service = Service::start(&db.url, OLD).await;
    assert_eq!(service.stored().await.0, first, "nothing is left to do");

    Service::start(&db.url, &format!("{NEW}\n{OLD}")).await;
    let service = Service::start(&db.url, NEW).await;
    assert_eq!((service.spec().await, &*service.get("application/octet-stream").await), (sent["spec"].clone(), "cabbage"));
    let store = service.0.store.clone().with_key(Arc::new(SealKey::parse(&OLD.into()).unwrap()));
    let refused = resources::seal_all(&store, &KINDS).await.unwrap_err().to_string();
    assert!(refused.contains("not in the key file"), "{refused}");

    // A sealed text that was copied into another document.
    sqlx::query("update resource set id = gen_random_uuid()").execute(&mut *service.0.store.acquire().await.unwrap()).await.unwrap();
    let path = PathParams(vec![("safe".into(), "s".into())]);
    assert!(resources::get_one(&service.0, &SAFE, &path, &HeaderMap::new()).await.is_err());
}

const MANY: usize = 250;

/// Lets the connection end, as if its process were killed, at the update with this number of a table; never again after that.
async fn cut_off(db: &Store, table: &str, at: usize) {
    let statements = format!(
        "create sequence cut_{table};
         create function cut_{table}() returns trigger language plpgsql as $$ begin
           if nextval('cut_{table}') = {at} then perform pg_terminate_backend(pg_backend_pid()); perform pg_sleep(60); end if;
           return new; end $$;
         create trigger cut before update on {table} for each row execute function cut_{table}()"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(statements)).execute(&mut *db.acquire().await.unwrap()).await.unwrap();
}

#[tokio::test]
async fn sealing_that_was_killed_in_the_middle_is_finished_by_the_next_start() {
    let db = test_db().await;
    let service = Service::start(&db.url, OLD).await;
    let store = &service.0.store;
    let contents: Vec<String> = (0..MANY).map(|n| format!("cabbage {n}")).collect();
    for (n, content) in contents.iter().enumerate() {
        let mut sent = document(&format!("open {n}"));
        sent["metadata"]["name"] = format!("s{n}").into();
        sent["file"] = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, content).into();
        service.put(&sent).await;
    }
    let left = async |table: &str, stale: &str| -> i64 {
        let sql = format!("select count(*) from {table} where {stale}");
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(&mut *store.acquire().await.unwrap()).await.unwrap()
    };
    let readable = async |service: &Service| {
        for n in [0, MANY / 2, MANY - 1] {
            let name = format!("s{n}");
            assert_eq!(service.get_of(&name, "application/octet-stream").await, contents[n]);
            let document: Value = serde_json::from_str(&service.get_of(&name, "application/json").await).unwrap();
            assert_eq!(document["spec"]["values"]["a"], format!("open {n}"));
        }
    };

    // Files as an earlier version left them, which sealed nothing.
    let plain = "update file set sealed = null, bytes = convert_to(content, 'UTF8') from unnest($1::text[]) content
        where digest = sha256(convert_to(content, 'UTF8'))";
    assert_eq!(
        sqlx::query(plain).bind(&contents).execute(&mut *store.acquire().await.unwrap()).await.unwrap().rows_affected(),
        MANY as u64
    );
    cut_off(&service.0.store, "file", 100).await;
    resources::seal_all(&service.0.store, &KINDS).await.expect_err("its connection ended");
    let rest = left("file", "sealed is null").await;
    assert!(rest > 0 && rest < MANY as i64, "{rest} of {MANY} are not sealed yet");
    readable(&service).await;
    let service = Service::start(&db.url, OLD).await;
    assert_eq!(left("file", "sealed is null or bytes is not null").await, 0);
    readable(&service).await;

    // Documents after a rotation.
    let both = format!("{NEW}\n{OLD}");
    cut_off(&service.0.store, "resource", 150).await;
    let rotating = service.0.store.clone().with_key(Arc::new(SealKey::parse(&both.as_str().into()).unwrap()));
    resources::seal_all(&rotating, &KINDS).await.expect_err("its connection ended");
    let refused = resources::seal_all(&service.0.store.clone().with_key(Arc::new(SealKey::parse(&NEW.into()).unwrap())), &KINDS).await;
    assert!(refused.unwrap_err().to_string().contains("not in the key file"), "some have the old key still");
    readable(&Service(Documents::new(rotating, NoHooks))).await;
    Service::start(&db.url, &both).await;
    readable(&Service::start(&db.url, NEW).await).await;
}
