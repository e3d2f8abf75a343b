//! Two agents: one acts. One that was stopped finds its time over before it writes.

use drover_testkit::eventually;
use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::{Agent, PATIENCE, Place, Pusher};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_agents_one_acts_and_the_other_takes_over() {
    let Some(place) = Place::new("two") else { return };
    let place = place.await;
    place.workload("web", 1).await;
    let kpa = json!({"target": 10, "targetUtilization": 1, "stableWindow": 6});
    place.policy("web", "kpa", "apply", json!({"kpa": kpa, "periodSeconds": 1})).await;
    let mut agents = [Agent::start(&place, "a", &place.kubeconfig, &[]).await, Agent::start(&place, "b", &place.kubeconfig, &[]).await];
    let acting = eventually(PATIENCE, async || {
        let acts = [agents[0].acts().await?, agents[1].acts().await?];
        assert_ne!(acts, [true, true], "both act");
        acts.iter().position(|acts| *acts)
    })
    .await;
    let [first, second] = [acting, 1 - acting];

    // Statistics reach the one that acts through the one that does not.
    eventually(PATIENCE, async || agents[second].push(&place, "web", 1.0).await).await;
    let pushed = Pusher::start(&place, "web", vec![agents[second].address.clone()], 25.0);
    place.reaches("web", |replicas| replicas == 3).await;

    // The first stands still, in the middle of whatever it does; the second takes over and scales.
    agents[first].signal(Signal::SIGSTOP);
    pushed.0.send_replace(35.0);
    place.reaches("web", |replicas| replicas == 4).await;
    assert_eq!(agents[second].acts().await, Some(true));

    // Awake again it knows that it must not act, and does not.
    agents[first].signal(Signal::SIGCONT);
    eventually(PATIENCE, async || agents[first].acts().await.filter(|acts| !acts)).await;
    assert_eq!(agents[second].acts().await, Some(true));

    // Killed without a word: the first acts again after the Lease's time, and scales nothing down on the way.
    agents[second].signal(Signal::SIGKILL);
    eventually(PATIENCE, async || agents[second].ended().then_some(())).await;
    eventually(PATIENCE, async || {
        assert_eq!(place.replicas("web").await, 4);
        agents[first].acts().await.filter(|acts| *acts)
    })
    .await;
    place.done().await;
}
