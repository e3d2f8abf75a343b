//! Of two agents only one acts. One that was suspended finds that its time is over before it writes.

use drover_testkit::eventually;
use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::{Agent, PATIENCE, Pusher, SHORT_LEASE, TestNamespace};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_agents_acts_and_the_other_takes_over() {
    let Some(place) = TestNamespace::new("two") else { return };
    let place = place.await;
    place.workload("web", 1).await;
    let kpa = json!({"target": 10, "targetUtilization": 1, "stableWindow": 6});
    place.policy("web", "kpa", "apply", json!({"kpa": kpa, "periodSeconds": 1})).await;
    let start = async |name: &str| Agent::start(&place, name, &place.kubeconfig, &[SHORT_LEASE]).await;
    let mut agents = [start("a").await, start("b").await];
    let acting = eventually(PATIENCE, async || {
        let acts = [agents[0].acts().await?, agents[1].acts().await?];
        assert_ne!(acts, [true, true], "both act");
        acts.iter().position(|acts| *acts)
    })
    .await;
    let [first, second] = [acting, 1 - acting];

    // Statistics reach the acting agent through the other one.
    eventually(PATIENCE, async || agents[second].push(&place, "web", 1.0).await).await;
    let pushed = Pusher::start(&place, "web", vec![agents[second].address.clone()], 25.0);
    place.reaches("web", |replicas| replicas == 3).await;

    // The first is suspended at an arbitrary point; the second takes over and scales.
    agents[first].signal(Signal::SIGSTOP);
    pushed.0.send_replace(35.0);
    place.reaches("web", |replicas| replicas == 4).await;
    eventually(PATIENCE, async || agents[second].acts().await.filter(|acts| *acts)).await;

    // When it continues, it does not act.
    agents[first].signal(Signal::SIGCONT);
    eventually(PATIENCE, async || agents[first].acts().await.filter(|acts| !acts)).await;
    eventually(PATIENCE, async || agents[second].acts().await.filter(|acts| *acts)).await;

    // After the second is killed, the first acts again once the Lease has expired, and scales nothing down.
    agents[second].signal(Signal::SIGKILL);
    eventually(PATIENCE, async || agents[second].ended().then_some(())).await;
    eventually(PATIENCE, async || {
        assert_eq!(place.replicas("web").await, 4);
        agents[first].acts().await.filter(|acts| *acts)
    })
    .await;
    place.done().await;
}
