//! Services that an app exports are imported in the members of its pod network, on kubesim and on a real API server.

use drover_api::bindings::{DesiredBinding, DesiredState, Phase};
use drover_scheduling::{MemberKey, MemberState};
use drover_testkit::{crds, eventually};
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::real::real;
use crate::support::{MEMBER, PATIENCE, Stack, absent, binding, config, define, deployment, dig, loose, service};

const OTHER: &str = "onprem+b";
const THIRD: &str = "onprem+c";

/// Objects of a kind of multi-cluster Services.
fn api(client: kube::Client, namespace: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("multicluster.x-k8s.io", "v1alpha1", kind));
    Api::namespaced_with(client, namespace, &resource)
}

fn export() -> Value {
    json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceExport", "metadata": {"name": "cart"}})
}

/// What a member has of the import of `cart`.
#[derive(Clone, Debug, Default, PartialEq)]
struct Imported {
    uid: String,
    ips: Vec<String>,
    clusters: Vec<String>,
    /// The addresses in its slices, by source.
    pods: Vec<(String, String)>,
}

struct Member {
    client: kube::Client,
    namespace: String,
}

impl Member {
    fn of(stack: &Stack, member: &str) -> Self {
        Self { client: stack.sim.client(member), namespace: "default".into() }
    }

    async fn imported(&self) -> Option<Imported> {
        let import = api(self.client.clone(), &self.namespace, "ServiceImport").get_opt("cart").await.unwrap()?;
        let texts = |list: &Value, field: Option<&str>| -> Vec<String> {
            let all = list.as_array().into_iter().flatten();
            all.map(|value| field.map_or(value, |field| &value[field]).as_str().unwrap().to_owned()).collect()
        };
        Some(Imported {
            uid: import.metadata.uid.clone().unwrap(),
            ips: texts(&import.data["spec"]["ips"], None),
            clusters: texts(&import.data["status"]["clusters"], Some("cluster")),
            pods: self.slices().await,
        })
    }

    async fn slices(&self) -> Vec<(String, String)> {
        let slices: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &self.namespace);
        let of_service = ListParams::default().labels("multicluster.kubernetes.io/service-name=cart");
        let slices = slices.list(&of_service).await.unwrap();
        let of = |slice: EndpointSlice| {
            let labels = slice.metadata.labels.unwrap();
            assert!(!labels.contains_key("kubernetes.io/service-name"), "kube-proxy would take them for the Service's own: {labels:?}");
            let source = labels["multicluster.kubernetes.io/source-cluster"].clone();
            slice.endpoints.into_iter().flat_map(move |endpoint| {
                let source = source.clone();
                endpoint.addresses.into_iter().map(move |address| (source.clone(), address))
            })
        };
        let mut found: Vec<_> = slices.items.into_iter().flat_map(of).collect();
        found.sort();
        found
    }

    async fn cluster_ip(&self) -> Option<String> {
        let services: Api<Service> = Api::namespaced(self.client.clone(), &self.namespace);
        services.get_opt("cart").await.unwrap()?.spec?.cluster_ip
    }

    /// The addresses of the app's pods here, as those of this source.
    async fn pods(&self, source: &str) -> Vec<(String, String)> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let pods = pods.list(&ListParams::default().labels("app=cart")).await.unwrap();
        let mut found: Vec<_> = pods.items.into_iter().filter_map(|pod| Some((source.to_owned(), pod.status?.pod_ip?))).collect();
        found.sort();
        found
    }

    /// Waits until the import has the address that the Service has here, and leads to these pods.
    async fn imports(&self, sources: &[&str], mut pods: Vec<(String, String)>) -> Imported {
        pods.sort();
        let as_wanted =
            |found: &Imported, ip: &Option<String>| found.ips.first() == ip.as_ref() && found.clusters == sources && found.pods == pods;
        let reached = eventually(PATIENCE * 2, async || {
            let (found, ip) = (self.imported().await?, self.cluster_ip().await);
            (ip.is_some() && as_wanted(&found, &ip)).then_some(found)
        });
        match tokio::time::timeout(PATIENCE, reached).await {
            Ok(found) => found,
            Err(_) => panic!("{sources:?} with {pods:?}; found {:?}, address {:?}", self.imported().await, self.cluster_ip().await),
        }
    }

    async fn nothing(&self) {
        eventually(PATIENCE, async || (self.imported().await.is_none() && self.slices().await.is_empty()).then_some(())).await;
    }

    /// Waits until the export has these conditions, as type, status and reason.
    async fn says(&self, wanted: &[&str]) -> DynamicObject {
        let export = api(self.client.clone(), &self.namespace, "ServiceExport");
        let said = |export: &DynamicObject| {
            let all = export.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
            all.iter()
                .map(|it| ["type", "status", "reason"].map(|field| it[field].as_str().unwrap_or_default()).join(" "))
                .collect::<Vec<_>>()
        };
        let reached = eventually(PATIENCE * 2, async || export.get("cart").await.ok().filter(|export| said(export) == wanted));
        match tokio::time::timeout(PATIENCE, reached).await {
            Ok(export) => export,
            Err(_) => panic!("{wanted:?} is not said: {:?}", export.get("cart").await),
        }
    }
}

const VALID: [&str; 2] = ["Valid True Valid", "Conflict False NoConflicts"];

/// Three members of a pod network, two of which serve multi-cluster Services, and an app in each of them that may call.
async fn three() -> Stack {
    let stack = Stack::without_members().await;
    stack.labels.lock().unwrap().push("pod-network=flat".into());
    for member in [MEMBER, OTHER, THIRD] {
        stack.add_member(member);
        if member != THIRD {
            define(
                stack.sim.client(member),
                ["ServiceExport", "ServiceImport"].map(|kind| loose("multicluster.x-k8s.io", "v1alpha1", kind)).into(),
            )
            .await;
        }
    }
    stack.bundle("cart", vec![deployment("cart", 2, "100m"), service("cart"), export()]).await;
    stack.bundle("caller", vec![config("caller", "http://cart.default.svc.clusterset.local")]).await;
    for member in [MEMBER, OTHER, THIRD] {
        let caller = DesiredBinding { member: MemberKey(member.into()), ..binding("caller", "caller") };
        stack.desire(&caller).await;
        stack.reaches(&caller, Phase::Ready).await;
    }
    stack
}

/// A copy of the app of a group comes to a member.
async fn comes(stack: &Stack, group: &str, member: &str) -> DesiredBinding {
    let copy = DesiredBinding { id: Uuid::new_v4(), member: MemberKey(member.into()), names: true, ..binding(group, "cart") };
    stack.desire(&copy).await;
    stack.reaches(&copy, Phase::Ready).await;
    copy
}

async fn goes(stack: &Stack, copy: &DesiredBinding) {
    stack.desire(&absent(copy)).await;
    stack.reaches(&absent(copy), Phase::Gone).await;
}

#[tokio::test]
async fn exported_service_is_imported_in_each_member_of_the_pod_network_wherever_its_app_runs() {
    let stack = three().await;
    let (here, there) = (Member::of(&stack, MEMBER), Member::of(&stack, OTHER));
    let first = comes(&stack, "cart", MEMBER).await;
    let first_pods = here.pods("onprem-a").await;
    let import = here.imports(&["onprem-a"], first_pods.clone()).await;
    there.imports(&["onprem-a"], first_pods.clone()).await;
    let told = here.says(&VALID).await;
    // A member that does not serve the kinds has the name all the same.
    let third = Member::of(&stack, THIRD);
    eventually(PATIENCE, async || third.cluster_ip().await).await;
    assert!(third.slices().await.is_empty());

    let second = comes(&stack, "cart", OTHER).await;
    let second_pods = there.pods("onprem-b").await;
    for member in [&here, &there] {
        member.imports(&["onprem-a", "onprem-b"], [first_pods.clone(), second_pods.clone()].concat()).await;
    }
    goes(&stack, &first).await;
    for member in [&here, &there] {
        member.imports(&["onprem-b"], second_pods.clone()).await;
    }
    assert_eq!(here.imported().await.unwrap().uid, import.uid, "it was there at every moment");
    let again = there.says(&VALID).await;
    assert_ne!(told.metadata.uid, again.metadata.uid);

    goes(&stack, &second).await;
    for member in [&here, &there] {
        member.nothing().await;
    }
}

#[tokio::test]
async fn of_two_apps_that_export_a_name_the_older_one_has_it_and_the_other_is_told() {
    let stack = three().await;
    let mut groups = ["one", "two"];
    groups.sort_by_key(|group| dig(group).id);
    let [older, younger] = groups;
    let (here, there) = (Member::of(&stack, MEMBER), Member::of(&stack, OTHER));
    comes(&stack, younger, MEMBER).await;
    there.imports(&["onprem-a"], here.pods("onprem-a").await).await;
    here.says(&VALID).await;

    let before = comes(&stack, older, OTHER).await;
    let theirs = there.pods("onprem-b").await;
    there.imports(&["onprem-b"], theirs.clone()).await;
    there.says(&VALID).await;
    let refused = here.says(&["Valid True Valid", "Conflict True ExportedBefore"]).await;
    let message = refused.data["status"]["conditions"][1]["message"].as_str().unwrap();
    assert!(message.contains(&format!("web of default/{older}")), "{message}");
    // The Service here is that of the app that is told, so its address is not that of the import.
    eventually(PATIENCE, async || {
        let found = here.imported().await?;
        (found.ips.is_empty() && found.clusters == ["onprem-b"] && found.pods == theirs).then_some(())
    })
    .await;

    goes(&stack, &before).await;
    there.imports(&["onprem-a"], here.pods("onprem-a").await).await;
    here.says(&VALID).await;
}

#[tokio::test]
async fn import_of_somebody_else_stays_as_it_is_and_the_name_answers_all_the_same() {
    let stack = three().await;
    let (here, there) = (Member::of(&stack, MEMBER), Member::of(&stack, OTHER));
    let theirs = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport", "metadata": {"name": "cart"},
        "spec": {"type": "ClusterSetIP", "ips": ["10.9.9.9"], "ports": [{"port": 80}]}});
    let imports = api(here.client.clone(), "default", "ServiceImport");
    imports.create(&PostParams::default(), &serde_json::from_value(theirs).unwrap()).await.unwrap();
    let copy = comes(&stack, "cart", MEMBER).await;
    here.says(&["Valid True Valid", "Conflict True ImportedByOthers"]).await;
    there.imports(&["onprem-a"], here.pods("onprem-a").await).await;
    goes(&stack, &copy).await;
    there.nothing().await;
    let left = here.imported().await.unwrap();
    assert_eq!((left.ips, left.pods), (vec!["10.9.9.9".to_owned()], Vec::new()));
}

#[tokio::test]
async fn exported_service_is_imported_on_a_real_server() {
    let Some(stack) = real() else { return };
    let stack = stack.await;
    define(stack.client(), crds("mcs-api")).await;
    stack.labels.lock().unwrap().push("pod-network=flat".into());
    stack.tell(MEMBER, MemberState::Ready);
    let namespace = format!("drover-imports-{}", std::process::id());
    let member = Member { client: stack.client(), namespace: namespace.clone() };
    stack.bundle("cart", vec![deployment("cart", 2, "100m"), service("cart"), export()]).await;
    let copy = DesiredBinding { namespace: namespace.clone(), names: true, ..binding("cart", "cart") };
    stack.desire(&copy).await;
    stack.reaches(&copy, Phase::Ready).await;
    let pods = eventually(PATIENCE, async || Some(member.pods("onprem-a").await).filter(|pods| pods.len() == 2)).await;
    member.imports(&["onprem-a"], pods).await;
    member.says(&VALID).await;
    let gone = DesiredBinding { state: DesiredState::Absent, fence: 2, ..copy };
    stack.desire(&gone).await;
    stack.reaches(&gone, Phase::Gone).await;
    member.nothing().await;
    let _ = Api::<Namespace>::all(stack.client()).delete(&namespace, &DeleteParams::default()).await;
}
