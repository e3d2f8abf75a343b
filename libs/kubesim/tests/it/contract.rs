//! The contract against kubesim and, if `DROVER_CONTRACT_KUBECONFIG` names one, a real API server.

use drover_kubesim::{ClusterSpec, Sim, contract};

async fn holds(client: kube::Client, where_: &str) {
    let filter = std::env::var("DROVER_CONTRACT_CASE").unwrap_or_default();
    let outcomes = contract::run_all(client, &filter).await.expect("the server can be used");
    assert!(!outcomes.is_empty(), "no case has {filter:?} in its name (DROVER_CONTRACT_CASE)");
    let mut broken = Vec::new();
    for (name, outcome, took) in &outcomes {
        match outcome {
            Ok(()) => println!("{where_}: ok      {name} ({took:.1?})"),
            Err(why) => {
                println!("{where_}: BROKEN  {name} ({took:.1?}): {why}");
                broken.push(format!("{name} ({took:.1?}): {why}"));
            }
        }
    }
    assert!(broken.is_empty(), "{} of {} cases are broken against {where_}: {}", broken.len(), outcomes.len(), broken.join("; "));
}

#[tokio::test]
async fn kubesim_fulfils_the_contract() {
    let sim = Sim::new();
    sim.add_cluster("a", ClusterSpec::default());
    holds(sim.client("a"), "kubesim").await;
}

#[tokio::test]
async fn real_server_fulfils_the_contract() {
    let Some(path) = drover_testkit::needs("DROVER_CONTRACT_KUBECONFIG") else { return };
    let kubeconfig = kube::config::Kubeconfig::read_from(path).expect("the kubeconfig can be read");
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.expect("the kubeconfig is usable");
    holds(kube::Client::try_from(config).expect("a client"), "real").await;
}
