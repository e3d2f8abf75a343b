//! Bundles are sealed, with the newest key after each start, and found by the names of hosts in them.

use std::sync::Arc;

use drover_api::scheduling::MemberKey;
use drover_orchestrator::render::Rendered;
use drover_orchestrator::store::bundle;
use drover_store::{SealKey, Store};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::base::Base;

const NEW: &str = "TmV3IGtleSBmb3IgdGVzdHMgd2l0aCAzMiBieXRlcyE=";

/// Objects of an app that calls a host.
fn objects(word: &str, host: &str) -> Vec<Value> {
    let container = json!({"name": "c", "image": "i", "env": [{"name": "URL", "value": format!("http://{host}.shop.svc:80/")}]});
    vec![
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": word}}),
    ]
}

/// All rows of bundles and variants as text.
async fn rows(store: &Store) -> String {
    let sql = "select string_agg(bundle::text || coalesce(variant::text, ''), ' ')
        from bundle left join bundle_variant variant on variant.digest = bundle.digest";
    sqlx::query_scalar(sql).fetch_one(&mut *store.acquire().await.unwrap()).await.unwrap()
}

async fn opened(store: &Store, rendered: &Rendered, member: &MemberKey) -> (Vec<Value>, Vec<Value>) {
    let mut tx = store.begin().await.unwrap();
    let key = store.key().unwrap();
    let everywhere = bundle::objects(&mut tx, key, &rendered.digest).await.unwrap();
    let there = bundle::objects_in(&mut tx, key, &rendered.digest, member).await.unwrap();
    assert_eq!(bundle::variants(&mut tx, key, &rendered.digest).await.unwrap(), rendered.variants);
    (everywhere, there)
}

/// A binding of an app with this bundle.
async fn runs(store: &Store, rendered: &Rendered, member: &MemberKey) {
    let sql =
        "insert into binding (id, dig_id, project, composite_app, version, dig, app, member, namespace, digest, request, role, operation)
        values ($1, $1, 'p', 'shop', 'v1', 'd', 'till', $2, 'shop', $3, '{}', 'current', $1)";
    sqlx::query(sql)
        .bind(Uuid::new_v4())
        .bind(&member.0)
        .bind(&rendered.digest)
        .execute(&mut *store.acquire().await.unwrap())
        .await
        .unwrap();
}

/// Whether the app is found as a caller of `cart`, of `stock` and of another Service.
async fn callers(store: &Store) -> [bool; 3] {
    let mut tx = store.begin().await.unwrap();
    let mut found = [false; 3];
    for (found, service) in found.iter_mut().zip(["cart", "stock", "other"]) {
        let service = [format!("shop/{service}")];
        let running = bundle::running_elsewhere(&mut tx, store.key().unwrap(), Uuid::new_v4(), &service).await.unwrap();
        *found = !running.is_empty();
    }
    found
}

#[tokio::test]
async fn start_seals_bundles_again_with_the_newest_key() {
    let base = Base::fresh().await;
    let store = &base.environment.store;
    let member = MemberKey::new("onprem", "a");
    let as_rendered = (objects("sesame", "cart"), objects("sesame-there", "stock"));
    let rendered = Rendered::of(as_rendered.0.clone()).unwrap().with_variants([(member.clone(), as_rendered.1.clone())].into()).unwrap();
    let mut tx = store.begin().await.unwrap();
    bundle::put(&mut tx, store.key().unwrap(), &rendered).await.unwrap();
    tx.commit().await.unwrap();
    runs(store, &rendered, &member).await;
    let calls_both = [true, true, false];
    assert_eq!(opened(store, &rendered, &member).await, as_rendered);
    assert!(!rows(store).await.contains("sesame"));
    assert_eq!(callers(store).await, calls_both);

    // As a version left them that sealed nothing.
    sqlx::query("update bundle set objects = $1, sealed = null, hosts = '{}'")
        .bind(json!(as_rendered.0))
        .execute(&mut *store.acquire().await.unwrap())
        .await
        .unwrap();
    sqlx::query("update bundle_variant set objects = $1, sealed = null, hosts = null")
        .bind(json!(as_rendered.1))
        .execute(&mut *store.acquire().await.unwrap())
        .await
        .unwrap();
    assert_eq!(opened(store, &rendered, &member).await, as_rendered, "it is read in both forms");
    bundle::seal_all(store).await.unwrap();
    assert!(!rows(store).await.contains("sesame"));
    assert_eq!(callers(store).await, calls_both);

    let of = |keys: &str| store.clone().with_key(Arc::new(SealKey::parse(&keys.into()).unwrap()));
    let old = drover_testkit::seal_key();
    let both = of(&format!("{NEW}\n{}", secrecy::ExposeSecret::expose_secret(&old)));
    bundle::seal_all(&both).await.unwrap();
    let newest = of(NEW);
    assert_eq!(opened(&newest, &rendered, &member).await, as_rendered);
    assert_eq!(callers(&newest).await, calls_both);
    let mut tx = store.begin().await.unwrap();
    let refused = bundle::objects(&mut tx, store.key().unwrap(), &rendered.digest).await.unwrap_err();
    assert!(refused.to_string().contains("not in the key file"), "the old key is refused: {refused}");
    let again = rows(store).await;
    bundle::seal_all(&newest).await.unwrap();
    assert_eq!(rows(store).await, again, "nothing is left to do");
}
