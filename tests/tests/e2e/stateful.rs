//! An app with volumes moves to another cluster and back: each pod finds its own volume, and no two clusters have one at the same time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use drover_api::operations::Operation;
use drover_e2e::apps::App;
use drover_e2e::emco::{Group, ended, operation_id};
use drover_e2e::members::Member;
use drover_e2e::volumes::{CLASS, class, volume};
use drover_e2e::{Backend, System, scenario, succeeded};
use drover_testkit::eventually;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use reqwest::Method;
use serde_json::json;

use super::drains;

const A_OR_C: [&str; 2] = ["onprem/private-a", "aws/public-c"];
const PATIENCE: Duration = Duration::from_secs(180);

/// The claims in a member with the directory of each.
async fn directories(member: &Member) -> BTreeMap<String, String> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(member.client.clone(), "default");
    let volumes: Api<PersistentVolume> = Api::all(member.client.clone());
    let volumes: BTreeMap<String, String> = volumes
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
        .into_iter()
        .filter_map(|volume| Some((volume.metadata.name?, volume.spec?.host_path?.path)))
        .collect();
    let claims = claims.list(&ListParams::default()).await.unwrap().items.into_iter();
    claims.filter_map(|claim| Some((claim.metadata.name?, volumes.get(&claim.spec?.volume_name?)?.clone()))).collect()
}

/// Looks all the time at who may write: a pod that exists in a member and was bound to a node.
struct Audit {
    two_writers: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Audit {
    fn start(members: Vec<Member>, pods: Vec<String>) -> Self {
        let two_writers: Arc<Mutex<Vec<String>>> = Arc::default();
        let found = two_writers.clone();
        let task = tokio::spawn(async move {
            loop {
                for pod in &pods {
                    let there = futures::future::join_all(members.iter().map(|member| async {
                        let pod = member.pods().get_opt(pod).await.ok().flatten()?;
                        let ended = pod.status.as_ref().and_then(|status| status.phase.as_deref()).is_some_and(|phase| phase == "Failed");
                        (pod.spec?.node_name.is_some() && !ended).then_some(member.name)
                    }));
                    let there: Vec<_> = there.await.into_iter().flatten().collect();
                    if there.len() > 1 {
                        found.lock().unwrap().push(format!("{pod} on {}", there.join(" and ")));
                    }
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        Self { two_writers, task }
    }

    fn end(self) {
        self.task.abort();
        let found = self.two_writers.lock().unwrap();
        assert!(found.is_empty(), "{found:?}");
    }
}

pub async fn drain(system: &System, provider: &str, cluster: &str) -> Operation {
    let order = json!({"kind": "drain", "clusterProvider": provider, "cluster": cluster});
    // Volumes are read every few seconds.
    let plan = eventually(PATIENCE, async || {
        let plan = system.client.post("/v2/plans", Some(&order)).await.unwrap().body;
        plan["id"].as_str().filter(|_| plan["state"] == "proposed").map(str::to_owned)
    })
    .await;
    let id = operation_id(&system.client, Method::POST, &format!("/v2/plans/{plan}/apply")).await.unwrap();
    let operation = ended(&system.client, &id).await.unwrap();
    system.client.delete(&format!("/v2/cluster-providers/{provider}/clusters/{cluster}/cordon")).await.unwrap();
    system.opened(cluster).await;
    operation
}

async fn tidy(system: &System) {
    for member in system.members() {
        let all = ListParams::default();
        let sets: Api<StatefulSet> = Api::namespaced(member.client.clone(), "default");
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(member.client.clone(), "default");
        let (classes, volumes): (Api<StorageClass>, Api<PersistentVolume>) =
            (Api::all(member.client.clone()), Api::all(member.client.clone()));
        let now = DeleteParams::default();
        let _ = sets.delete_collection(&now, &all).await;
        let _ = claims.delete_collection(&now, &all).await;
        let _ = volumes.delete_collection(&now, &all).await;
        let _ = classes.delete(CLASS, &now).await;
    }
}

async fn pods_of_a_moved_stateful_set_keep_their_volumes(system: &System) {
    let (a, c) = (system.member("private-a"), system.member("public-c"));
    class(a, true).await;
    class(c, true).await;
    let app = "db";
    for ordinal in 0..2 {
        volume(a, app, ordinal, &format!("/srv/db/{ordinal}")).await;
    }
    let group = Group::new(app, App::new(app, 300).replicas(2).stateful(CLASS)).on(&A_OR_C).movable(5);
    succeeded(&group.deploy(&system.client).await.unwrap());
    let own = directories(a).await;
    let wanted = [("data-db-0", "/srv/db/0"), ("data-db-1", "/srv/db/1")].map(|(claim, path)| (claim.to_owned(), path.to_owned()));
    assert_eq!(own, BTreeMap::from(wanted));

    let audit = Audit::start(vec![a.clone(), c.clone()], vec!["db-0".into(), "db-1".into()]);
    let operation = drain(system, "onprem", "private-a").await;
    succeeded(&operation);
    assert_eq!((directories(c).await, directories(a).await), (own.clone(), BTreeMap::new()));
    assert_eq!(system.home(app).await, "public-c");
    succeeded(&drain(system, "aws", "public-c").await);
    assert_eq!((directories(a).await, directories(c).await), (own, BTreeMap::new()));
    audit.end();
    let id = group.verb(&system.client, "terminate").await.unwrap();
    succeeded(&ended(&system.client, &id).await.unwrap());
    assert_eq!(directories(a).await.len(), 2, "as in Kubernetes, the data outlives the app");
    tidy(system).await;
}
scenario!(pods_of_a_moved_stateful_set_keep_their_volumes);

/// With one pod, so that there is a gap unless it starts there before it stops here.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn pod_whose_volumes_may_be_shared_is_ready_at_every_moment_of_its_move() {
    let system = System::new(Backend::Simulated).await;
    let (a, c) = (system.member("private-a"), system.member("public-c"));
    class(a, true).await;
    class(c, true).await;
    for (app, overlaps) in [("shared", true), ("alone", false)] {
        volume(a, app, 0, &format!("/srv/{app}")).await;
        let pod = App::new(app, 300).stateful(CLASS);
        let group = Group::new(app, if overlaps { pod.overlapping() } else { pod }).on(&A_OR_C).movable(5);
        succeeded(&group.deploy(&system.client).await.unwrap());
        let recorder = system.sim().unwrap().record_ready(None, &format!("app={app}")).unwrap();
        assert_eq!(recorder.now(), 1);
        let plan = drains::plan(&system, "onprem", "private-a").await;
        let says = plan["plan"].to_string().contains("its pod starts there before it stops on onprem+private-a");
        assert_eq!(says, overlaps, "{plan:#}");
        succeeded(&drains::end(&system, &drains::begin(&system, &plan).await, "onprem", "private-a").await);
        assert_eq!((system.home(app).await.as_str(), recorder.now()), ("public-c", 1));
        assert_eq!((recorder.min(), recorder.max()), if overlaps { (1, 2) } else { (0, 1) }, "{app}");
        assert_eq!(directories(a).await, BTreeMap::new());
        let id = group.verb(&system.client, "terminate").await.unwrap();
        succeeded(&ended(&system.client, &id).await.unwrap());
    }
    system.end().await;
}

async fn app_whose_volumes_no_other_cluster_reaches_is_no_candidate(system: &System) {
    let a = system.member("private-a");
    class(a, true).await;
    volume(a, "db", 0, "/srv/db/0").await;
    let group = Group::new("db", App::new("db", 300).stateful(CLASS)).on(&A_OR_C).movable(5);
    succeeded(&group.deploy(&system.client).await.unwrap());
    let order = json!({"kind": "drain", "clusterProvider": "onprem", "cluster": "private-a"});
    eventually(PATIENCE, async || {
        let plan = match system.client.post("/v2/plans", Some(&order)).await {
            Ok(answer) => answer.body.to_string(),
            Err(error) => format!("{error:#}"),
        };
        plan.contains("not there or not labelled drover.io/shared=true").then_some(())
    })
    .await;
    let id = group.verb(&system.client, "terminate").await.unwrap();
    succeeded(&ended(&system.client, &id).await.unwrap());
    tidy(system).await;
}
scenario!(app_whose_volumes_no_other_cluster_reaches_is_no_candidate);
