//! Apps that somebody uses move while services are killed: on real kubelets an app under load and one whose pods write into volumes of their own,
//! and in simulated clusters one whose requests come by a gateway.

use std::path::Path;
use std::sync::{Arc, Mutex};

use drover_e2e::apps::App;
use drover_e2e::emco::{Group, free_port};
use drover_e2e::members::{MEMBERS, Members, Shape, simulated};
use drover_e2e::processes::SERVICES;
use drover_e2e::volumes::Directories;
use drover_e2e::{Backend, Member, gateways, stand_in, succeeded};
use serde_json::json;

use super::case;
use super::moves::{Made, Stage};

/// Requests per second. Not what the data path can do, but what a machine carries on which services are started all the time.
const RATE: f64 = 50.0;
const ON: [&str; 2] = ["onprem/private-a", "aws/public-c"];

/// Both apps move together: one whose users notice a request that fails, and one that must never write a volume from two places.
pub async fn on_kubelets(folder: &Path) {
    let kept = Members::with_kubelets(vec![stand_in::image(folder)]).await;
    let members: [Member; 2] = kept.each.clone().try_into().unwrap_or_else(|_| panic!("there are two"));
    let volumes = Directories::shared_by(&members).await;
    let mut stage = Stage::start(members).await;
    stage.processes.carry_routes().await;
    let (client, port) = (stage.client.clone(), free_port());
    let pair = Group::new("db", Directories::app()).on(&ON).movable(5).among(&ON);
    succeeded(&pair.deploy(&client).await.unwrap());
    let web = Group::new("web", stand_in::answering("web")).on(&ON).movable(5).among(&ON);
    let route = json!({"host": stand_in::HOST, "port": port, "shift": {"drainSeconds": 3600}});
    succeeded(&web.deploy_with_route(&client, route).await.unwrap());
    volumes.are_served(stage.home()).await;

    let load = stand_in::load(&client, "web", port, RATE).await;
    let mut passages = 0;
    let moves = stage
        .journeys(case::of_moves(&SERVICES), 2, async |made: Made<'_>| {
            passages += made.passages;
            volumes.are_served(made.home).await;
            let seen = load.so_far();
            if seen.failed > 0 {
                return Err(format!("{} requests failed and {} were served: {:#?}", seen.failed, seen.served, seen.failures));
            }
            for (ordinal, (writers, _)) in volumes.writers()?.into_iter().enumerate() {
                // The first one began before any move.
                if writers.len() != passages + 1 {
                    return Err(format!("volume {ordinal} passed {passages} times, and its writers were {writers:?}"));
                }
            }
            Ok(())
        })
        .await;
    let served = load.end().await;
    assert_eq!(served.failed, 0, "{} were served: {:#?}", served.served, served.failures);
    let [(_, first), (_, second)] = volumes.writers().unwrap();
    println!("{moves} moves, {passages} passages: {} requests served, none failed; no volume had two writers", served.served);
    println!("at most {first:.2} and {second:.2} s without a writer");
    stage.processes.end().await;
    kept.end().await;
}

/// What was wrong with the weights at any moment.
struct Watch {
    wrong: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Watch {
    /// Looks all the time whether some backend gets requests.
    fn start(member: Member) -> Self {
        let wrong: Arc<Mutex<Vec<String>>> = Arc::default();
        let found = wrong.clone();
        let task = tokio::spawn(async move {
            loop {
                let weights = gateways::weights(&member).await;
                if weights.iter().sum::<u64>() == 0 {
                    found.lock().unwrap().push(format!("{weights:?}"));
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        });
        Self { wrong, task }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An app moves to a cluster that Drover reaches through its link, and back, while cluster-manager, in which the link ends, is killed.
pub async fn through_a_link() {
    let shape = Shape { members: vec![MEMBERS[0], MEMBERS[2]], ..Shape::default() };
    let kept = simulated(&shape).await;
    let members: [Member; 2] = kept.each.clone().try_into().unwrap_or_else(|_| panic!("there are two"));
    let ready = kept.simulated.as_ref().unwrap().sim.record_ready(None, "app=web").unwrap();
    let mut stage = Stage::start_linked(members).await;
    let group = Group::new("web", App::new("web", 300)).on(&ON).movable(5).among(&ON);
    succeeded(&group.deploy(&stage.client).await.unwrap());
    ready.arm();
    let other = stage.members.clone();
    let moves = stage
        .journeys(case::of_moves(&["cluster-manager"]), 1, async |made: Made<'_>| {
            if ready.min() < 1 {
                return Err("there was a moment without a ready pod".to_owned());
            }
            let empty = other.iter().find(|member| member.name != made.home.name).unwrap();
            match (made.home.ready("web").await, empty.deployed().await.is_empty()) {
                (1, true) => Ok(()),
                found => Err(format!("ready pods in {}, and whether {} is empty: {found:?}", made.home.name, empty.name)),
            }
        })
        .await;
    println!("{moves} moves through a link, cluster-manager killed at each point: the app was ready all the time");
    stage.processes.end().await;
}

/// The weights of an `HTTPRoute` are where the app is after each move, whenever orchestrator was killed, and never 0 all together.
pub async fn behind_a_gateway() {
    let shape = Shape { members: vec![MEMBERS[0], MEMBERS[2]], ..Shape::default() };
    let kept = simulated(&shape).await;
    let members: [Member; 2] = kept.each.clone().try_into().unwrap_or_else(|_| panic!("there are two"));
    let at = members[0].clone();
    gateways::define(&at, Backend::Simulated).await;
    gateways::set_backends(&at, &["web", "web-aws-public-c"]).await;
    let mut stage = Stage::start(members).await;
    let gateway = json!({"cluster": "onprem+private-a", "namespace": "default", "httpRoute": gateways::NAME});
    let route = json!({"host": "shop.example", "port": free_port(), "gateway": gateway, "shift": {"steps": [50], "pauseSeconds": 0, "drainSeconds": 1}});
    let group = Group::new("web", App::new("web", 300).serving(8080)).on(&ON).movable(5).among(&ON);
    succeeded(&group.deploy_with_route(&stage.client, route).await.unwrap());
    gateways::weigh(&at, &[100, 0]).await;
    let watch = Watch::start(at.clone());
    let moves = stage
        .journeys(case::of_moves(&["orchestrator"]), 1, async |made: Made<'_>| {
            let wanted = if made.home.name == at.name { [100, 0] } else { [0, 100] };
            gateways::weigh(&at, &wanted).await;
            assert!(!watch.task.is_finished(), "the watch has ended");
            let wrong = watch.wrong.lock().unwrap();
            if wrong.is_empty() { Ok(()) } else { Err(format!("no backend got requests: {wrong:?}")) }
        })
        .await;
    println!("{moves} moves: the weights were those of the app after each, and never 0 all together");
    drop(watch);
    stage.processes.end().await;
}
