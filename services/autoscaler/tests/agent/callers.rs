//! Every agent accepts statistics from accounts of the policy's namespace and from trusted ones, and refuses all others.

use drover_autoscaler::agent::callers::AUDIENCE;
use drover_testkit::eventually;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::support::{Agent, PATIENCE, TestNamespace, token};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statistics_are_accepted_only_from_namespace_and_trusted_accounts() {
    let Some(place) = TestNamespace::new("callers") else { return };
    let place = place.await;
    place.workload("web", 1).await;
    place.policy("web", "kpa", "recommend", json!({"periodSeconds": 1})).await;
    // Two accounts of another namespace; the agent trusts the second.
    let elsewhere: Api<ServiceAccount> = Api::namespaced(place.client.clone(), "default");
    let names = [format!("stranger-{}", std::process::id()), format!("trusted-{}", std::process::id())];
    for name in &names {
        let account = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        elsewhere.create(&PostParams::default(), &account).await.unwrap();
    }
    let of = async |name: &str, audience: &str| token(&place.client, "default", name, audience).await.unwrap();
    let (stranger, trusted) = (of(&names[0], AUDIENCE).await, of(&names[1], AUDIENCE).await);
    let for_another = token(&place.client, &place.namespace, "default", "somebody-else").await.unwrap();

    let trust = format!("default/{}", names[1]);
    let env = [("AUTOSCALER_TRUST", trust.as_str())];
    let kubeconfig = place.least_rights().await;
    let agents = [Agent::start(&place, "a", &kubeconfig, &env).await, Agent::start(&place, "b", &kubeconfig, &env).await];
    let push = json!({"namespace": place.namespace, "policy": "web", "reporter": "test", "values": {"queue": 1.0}});
    for agent in &agents {
        eventually(PATIENCE, async || agent.statistics(&push, Some(&place.token)).await.filter(|answer| answer.status() == 200)).await;
        // While no agent acts, or the API server does not answer in time, it is asked again.
        let told = async |token: Option<&str>| -> (u16, Value) {
            let answer = async || agent.statistics(&push, token).await.filter(|answer| answer.status() != 503);
            let answer = eventually(PATIENCE, answer).await;
            (answer.status().as_u16(), answer.json().await.unwrap())
        };
        assert_eq!(told(Some(&trusted)).await.0, 200);
        for (token, status, code, remedy) in [
            (None, 401, "unauthorized", "--audience"),
            (Some("made.up.token"), 401, "unauthorized", "--audience"),
            (Some(for_another.as_str()), 401, "unauthorized", "--audience"),
            (Some(stranger.as_str()), 403, "forbidden", "--trust"),
        ] {
            let (seen, problem) = told(token).await;
            assert_eq!((seen, problem["code"].as_str().unwrap()), (status, code), "{problem}");
            assert!(problem["detail"].as_str().unwrap().contains(remedy), "{problem}");
        }
        let malformed = json!({"policy": 1});
        let answer = async || agent.statistics(&malformed, Some(&place.token)).await.filter(|answer| answer.status() != 503);
        let answer = eventually(PATIENCE, answer).await;
        assert_eq!(answer.json::<Value>().await.unwrap()["code"], "malformed_json");
        // Decisions need a token, too.
        let url = format!("http://{}/v1/decisions/{}/web", agent.address, place.namespace);
        assert_eq!(reqwest::get(&url).await.unwrap().status(), 401);
    }
    for name in &names {
        elsewhere.delete(name, &DeleteParams::default()).await.unwrap();
    }
    place.done().await;
}
