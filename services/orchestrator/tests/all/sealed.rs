//! Bundles are sealed, with the newest key after each start, and found by the names of hosts in them.

use std::sync::Arc;

use drover_api::scheduling::MemberKey;
use drover_orchestrator::render::Rendered;
use drover_orchestrator::store::bundle;
use drover_store::{SealKey, Store};
use serde_json::{Value, json};

use crate::base::Base;

const NEW: &str = "TmV3IGtleSBmb3IgdGVzdHMgd2l0aCAzMiBieXRlcyE=";

fn objects(word: &str) -> Vec<Value> {
    let container = json!({"name": "c", "image": "i", "env": [{"name": "URL", "value": "http://cart.shop.svc:80/"}]});
    vec![
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": word}}),
    ]
}

/// All rows of bundles and variants as text.
async fn rows(store: &Store) -> String {
    let sql = "select string_agg(bundle::text || coalesce(variant::text, ''), ' ')
        from bundle left join bundle_variant variant on variant.digest = bundle.digest";
    sqlx::query_scalar(sql).fetch_one(store.pool()).await.unwrap()
}

async fn opened(store: &Store, rendered: &Rendered, member: &MemberKey) -> (Vec<Value>, Vec<Value>) {
    let mut tx = store.begin().await.unwrap();
    let key = store.key().unwrap();
    let everywhere = bundle::objects(&mut tx, key, &rendered.digest).await.unwrap();
    let there = bundle::objects_in(&mut tx, key, &rendered.digest, member).await.unwrap();
    assert_eq!(bundle::variants(&mut tx, key, &rendered.digest).await.unwrap(), rendered.variants);
    (everywhere, there)
}

#[tokio::test]
async fn start_seals_bundles_again_with_the_newest_key() {
    let base = Base::fresh().await;
    let store = &base.environment.store;
    let member = MemberKey::new("onprem", "a");
    let rendered = Rendered::of(objects("sesame")).unwrap().with_variants([(member.clone(), objects("sesame-there"))].into()).unwrap();
    let mut tx = store.begin().await.unwrap();
    bundle::put(&mut tx, store.key().unwrap(), &rendered).await.unwrap();
    tx.commit().await.unwrap();
    let as_rendered = (objects("sesame"), objects("sesame-there"));
    let hosts = async || {
        let sql = "select hosts from bundle where digest = $1";
        sqlx::query_scalar::<_, Vec<i64>>(sql).bind(&rendered.digest).fetch_one(store.pool()).await.unwrap()
    };
    assert_eq!(opened(store, &rendered, &member).await, as_rendered);
    assert!(!rows(store).await.contains("sesame"));
    assert!(hosts().await.contains(&store.key().unwrap().word("cart.shop")));

    // As a version left them that sealed nothing.
    sqlx::query("update bundle set objects = $1, sealed = null, hosts = '{}'")
        .bind(json!(objects("sesame")))
        .execute(store.pool())
        .await
        .unwrap();
    sqlx::query("update bundle_variant set objects = $1, sealed = null")
        .bind(json!(objects("sesame-there")))
        .execute(store.pool())
        .await
        .unwrap();
    assert_eq!(opened(store, &rendered, &member).await, as_rendered, "it is read in both forms");
    bundle::seal_all(store).await.unwrap();
    assert!(!rows(store).await.contains("sesame"));
    assert!(hosts().await.contains(&store.key().unwrap().word("cart.shop")));

    let of = |keys: &str| store.clone().with_key(Arc::new(SealKey::parse(&keys.into()).unwrap()));
    let old = drover_testkit::seal_key();
    let both = of(&format!("{NEW}\n{}", secrecy::ExposeSecret::expose_secret(&old)));
    bundle::seal_all(&both).await.unwrap();
    let newest = of(NEW);
    assert_eq!(opened(&newest, &rendered, &member).await, as_rendered);
    assert_eq!(hosts().await.iter().filter(|hash| **hash == newest.key().unwrap().word("cart.shop")).count(), 1);
    let mut tx = store.begin().await.unwrap();
    let refused = bundle::objects(&mut tx, store.key().unwrap(), &rendered.digest).await.unwrap_err();
    assert!(refused.to_string().contains("not in the key file"), "the old key is refused: {refused}");
    let again = rows(store).await;
    bundle::seal_all(&newest).await.unwrap();
    assert_eq!(rows(store).await, again, "nothing is left to do");
}
