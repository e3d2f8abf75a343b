//! Bounds that count for all clusters of an app: divided among its copies, following demand, never promised twice.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use drover_testkit::eventually;
use serde_json::{Value, json};

use crate::base::member;
use crate::fakes::{Behaviour, Fakes};
use crate::scenarios::{approved, approved_with, expect_state, plan, run, stack};
use crate::support::{Stack, deployment, doc};

const PATIENCE: Duration = Duration::from_secs(60);

/// An autoscaler of the Deployment of this name, between two and ten pods.
fn policy(name: &str, annotations: &str) -> String {
    format!(
        "---\napiVersion: drover.io/v1alpha1\nkind: ScalingPolicy\nmetadata:\n  name: {name}\n  annotations: {{{annotations}}}\nspec:\n  \
         target: {{apiVersion: apps/v1, kind: Deployment, name: {name}}}\n  policy: threshold\n  minReplicas: 2\n  maxReplicas: 10\n"
    )
}

/// A group of one app that is to run on a and b, with an autoscaler.
async fn scaled_app(stack: &Stack, annotations: &str) -> String {
    let manifests = deployment("web", "10m", 1) + &policy("web", annotations);
    let dig = stack.group("web", &[("web", &manifests)], &[("onprem", "a"), ("onprem", "b")]).await;
    stack.post(&format!("{dig}/generic-placement-intents"), doc("gpi", None), 201).await;
    let all_of: Vec<_> = ["a", "b"].iter().map(|name| json!({"clusterProvider": member(name).provider(), "cluster": name})).collect();
    let spec = json!({"app": "web", "intent": {"allOf": all_of}});
    stack.post(&format!("{dig}/generic-placement-intents/gpi/app-intents"), doc("web", Some(spec)), 201).await;
    dig
}

async fn running(stack: &Stack, annotations: &str) -> String {
    let dig = scaled_app(stack, annotations).await;
    assert_eq!(stack.call("POST", &format!("{dig}/approve"), None).await.status, 202);
    expect_state(&run(stack, &format!("{dig}/instantiate")).await, "succeeded");
    dig
}

/// Makes passes until the clusters act upon these upper bounds. After each, all of them together are within the bounds.
async fn divided(fakes: &Fakes, stack: &Stack, wanted: &[(&str, u32)]) {
    let wanted: BTreeMap<String, u32> = wanted.iter().map(|(cluster, max)| ((*cluster).to_owned(), *max)).collect();
    eventually(PATIENCE, async || {
        stack.app.divide_bounds().await.unwrap();
        let now = fakes.members.upper_bounds("web");
        assert!(now.values().sum::<u32>() <= 10, "{now:?}");
        (now == wanted).then_some(())
    })
    .await;
}

/// What the list of apps says of the share in a cluster.
async fn said(stack: &Stack, cluster: &str) -> Value {
    let apps = stack.get("/v2/apps").await;
    let bindings = apps["items"][0]["bindings"].as_array().unwrap().clone();
    bindings.into_iter().find(|binding| binding["member"] == member(cluster).0.as_str()).unwrap()["bounds"][0].clone()
}

#[tokio::test]
async fn bounds_over_all_clusters_are_divided_and_follow_demand() {
    let (fakes, stack) = stack().await;
    running(&stack, "drover.io/bounds: all-clusters").await;
    divided(&fakes, &stack, &[("a", 5), ("b", 5)]).await;
    eventually(PATIENCE, async || (said(&stack, "a").await["confirmed"] == true).then_some(())).await;
    let share = json!({"kind": "ScalingPolicy", "policy": "shop/web", "min": 1, "max": 5, "confirmed": true});
    assert_eq!(said(&stack, "a").await, share);

    // a is full, b runs one pod: a gets one more, and both an equal part of the rest.
    fakes.members.scale("web", "a", Some(5));
    divided(&fakes, &stack, &[("a", 8), ("b", 2)]).await;

    // a has no load any more but does not answer. b is full, and gets nothing that a may still be using.
    fakes.members.cut_off("a", true);
    fakes.members.scale("web", "a", Some(1));
    fakes.members.scale("web", "b", Some(2));
    eventually(PATIENCE, async || {
        stack.app.divide_bounds().await.unwrap();
        assert_eq!(fakes.members.upper_bounds("web"), BTreeMap::from([("a".to_owned(), 8), ("b".to_owned(), 2)]));
        let told = said(&stack, "a").await;
        (told["confirmed"] == false && told["max"] == 4).then_some(())
    })
    .await;
    fakes.members.cut_off("a", false);
    divided(&fakes, &stack, &[("a", 4), ("b", 6)]).await;
}

#[tokio::test]
async fn budget_limits_the_pods_of_all_clusters_and_bad_annotations_are_refused() {
    let (_, stack) = stack().await;
    let dig = scaled_app(&stack, "drover.io/bounds: everywhere").await;
    let refused = stack.call("POST", &format!("{dig}/approve"), None).await;
    assert_eq!(refused.status, 422, "{}", refused.body);
    assert!(refused.body.to_string().contains("drover.io/bounds is all-clusters or cluster"), "{}", refused.body);
    drop(stack);

    // Each pod requests 10m of CPU: six pods.
    let (fakes, stack) = crate::scenarios::stack().await;
    running(&stack, "drover.io/bounds: all-clusters, drover.io/budget: cpu=60m").await;
    divided(&fakes, &stack, &[("a", 3), ("b", 3)]).await;
}

#[tokio::test]
async fn copy_that_moves_has_the_share_of_the_one_that_it_replaces() {
    let (fakes, stack) = stack().await;
    let manifests = deployment("victim", "600m", 1) + &policy("victim", "drover.io/bounds: all-clusters");
    let victim = approved_with(&stack, "victim", &manifests, &["a", "b"], None).await;
    expect_state(&run(&stack, &format!("{victim}/instantiate")).await, "succeeded");
    let bounds = async |wanted: &[(&str, u32)]| {
        let wanted: BTreeMap<String, u32> = wanted.iter().map(|(cluster, max)| ((*cluster).to_owned(), *max)).collect();
        eventually(PATIENCE, async || {
            stack.app.divide_bounds().await.unwrap();
            (fakes.members.upper_bounds("victim") == wanted).then_some(())
        })
        .await;
    };
    bounds(&[("a", 10)]).await;
    let newcomer = approved(&stack, "newcomer", "900m", &["a"], None).await;
    fakes.members.behave("victim", "b", Behaviour::Stuck);
    let again = fakes.clone();
    fakes.plans.then(move || plan(&again, "victim", "b", &[], "newcomer"));
    let answer = stack.call("POST", &format!("{newcomer}/instantiate"), None).await;
    // While the new copy starts, both may have as many pods as the one had.
    bounds(&[("a", 10), ("b", 10)]).await;
    fakes.members.behave("victim", "b", Behaviour::Ready);
    expect_state(&stack.ended(answer.headers["location"].to_str().unwrap()).await, "succeeded");
    bounds(&[("b", 10)]).await;
}

#[tokio::test]
async fn room_of_a_copy_that_goes_is_given_away_when_it_is_gone() {
    let (fakes, stack) = stack().await;
    let dig = running(&stack, "drover.io/bounds: all-clusters").await;
    divided(&fakes, &stack, &[("a", 5), ("b", 5)]).await;
    // The next version, with other objects, runs on a only. In b the pods of the earlier one take long to end.
    fakes.members.behave("web", "b", Behaviour::Lingering);
    let manifests = deployment("web", "20m", 1) + &policy("web", "drover.io/bounds: all-clusters");
    let mut app = doc("web", None);
    app["file"] = base64::engine::general_purpose::STANDARD.encode(manifests).into();
    assert_eq!(stack.call("PUT", "/v2/projects/p/composite-apps/web/v1/apps/web", Some(app)).await.status, 201);
    let only_a = json!({"app": "web", "intent": {"allOf": [{"clusterProvider": member("a").provider(), "cluster": "a"}]}});
    let intent = format!("{dig}/generic-placement-intents/gpi/app-intents/web");
    assert_eq!(stack.call("PUT", &intent, Some(doc("web", Some(only_a)))).await.status, 200);
    let operation = stack.call("POST", &format!("{dig}/update"), None).await;
    eventually(PATIENCE, async || (fakes.members.present() == ["web@a"]).then_some(())).await;
    for _ in 0..20 {
        stack.app.divide_bounds().await.unwrap();
        assert_eq!(fakes.members.upper_bounds("web"), BTreeMap::from([("a".to_owned(), 5)]));
    }
    fakes.members.behave("web", "b", Behaviour::Ready);
    expect_state(&stack.ended(operation.headers["location"].to_str().unwrap()).await, "succeeded");
    divided(&fakes, &stack, &[("a", 10)]).await;
}
