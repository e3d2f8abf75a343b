//! Attacks from outside that need a real API server or a whole system. Those on single services are in their own tests.

use drover_e2e::apps::App;
use drover_e2e::emco::{Group, ended};
use drover_e2e::{Backend, System, failed, members, succeeded};
use drover_members::Reach;
use drover_members::kubeconfig::vet;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::config::Kubeconfig;
use serde_json::json;

use super::stateful::drain;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubeconfig_that_acts_as_a_user_has_the_rights_of_that_user_only() {
    if !Backend::real_is_built() {
        return;
    }
    let members = members::start(Backend::Real).await;
    let text = String::from_utf8(members.each[0].kubeconfig.clone()).unwrap();
    let list = async |acts_as: Option<&str>| {
        let mut kubeconfig = Kubeconfig::from_yaml(&text).unwrap();
        for user in &mut kubeconfig.auth_infos {
            user.auth_info.as_mut().unwrap().impersonate = acts_as.map(str::to_owned);
        }
        let vetted = vet(&serde_json::to_string(&kubeconfig).unwrap()).unwrap();
        let client = drover_members::clients::connect(&vetted, Reach::Anywhere).await.unwrap();
        Api::<ConfigMap>::namespaced(client, "kube-system").list(&ListParams::default()).await
    };
    list(None).await.expect("the administrator may list");
    match list(Some("jane")).await {
        Err(kube::Error::Api(status)) => assert_eq!((status.code, status.message.contains("\"jane\"")), (403, true), "{status:?}"),
        other => panic!("a user without rights gets {other:?}"),
    }
}

const NAMESPACE: &str = "e2e-acting";

/// Makes an account in a member that may write Deployments in its namespace, and nothing else.
async fn deployer(member: &members::Member) {
    use serde_json::from_value;
    let (client, new, metadata) = (&member.client, PostParams::default(), json!({"name": "deployer"}));
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.create(&new, &from_value(json!({"metadata": {"name": NAMESPACE}})).unwrap()).await.unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    accounts.create(&new, &from_value(json!({ "metadata": metadata })).unwrap()).await.unwrap();
    let roles: Api<Role> = Api::namespaced(client.clone(), NAMESPACE);
    let rules = json!([{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["create", "patch", "delete"]}]);
    roles.create(&new, &from_value(json!({"metadata": metadata, "rules": rules})).unwrap()).await.unwrap();
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), NAMESPACE);
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "deployer"});
    let subject = json!({"kind": "ServiceAccount", "name": "deployer", "namespace": NAMESPACE});
    bindings.create(&new, &from_value(json!({"metadata": metadata, "roleRef": role, "subjects": [subject]})).unwrap()).await.unwrap();
}

/// The members where a Deployment is, in the namespace of the account.
async fn homes(system: &System, name: &str) -> Vec<&'static str> {
    let mut found = Vec::new();
    for member in system.members() {
        let deployments: Api<Deployment> = Api::namespaced(member.client.clone(), NAMESPACE);
        if deployments.get_opt(name).await.unwrap().is_some() {
            found.push(member.name);
        }
    }
    found
}

/// The credential of Drover itself may do everything in these members.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn apps_are_deployed_moved_and_deleted_with_the_rights_of_the_account_of_their_cloud() {
    if !Backend::real_is_built() {
        return;
    }
    let system = System::new(Backend::Real).await;
    for member in system.members() {
        deployer(member).await;
    }
    let client = &system.client;
    client.ensure("/v2/projects", &json!({"metadata": {"name": "acting"}})).await.unwrap();
    let spec = json!({"namespace": NAMESPACE, "level": "0", "actAs": {"serviceAccount": "deployer"}});
    client.post("/v2/projects/acting/logical-clouds", Some(&json!({"metadata": {"name": "all"}, "spec": spec}))).await.unwrap();

    let places = ["onprem/private-a", "aws/public-c"];
    let web = Group::new("web", App::new("web", 100)).in_project("acting").on(&places).movable(5);
    succeeded(&web.deploy(client).await.unwrap());
    assert_eq!(homes(&system, "web").await, ["private-a"]);

    // A Service is one kind more than the account may write.
    let shop = Group::new("shop", App::new("shop", 100).serving(80)).in_project("acting").on(&places[..1]);
    shop.approve(client).await.unwrap();
    let dry = client.post(&format!("{}/instantiate?dryRun=All", shop.path()), None).await.unwrap().body;
    assert!(dry["refusals"].to_string().contains("Service/e2e-acting/shop"), "{dry:#}");
    let id = shop.verb(client, "instantiate").await.unwrap();
    let operation = ended(client, &id).await.unwrap();
    failed(&operation, "account_refused");
    let message = &operation.message;
    assert!(
        message.contains("Service/e2e-acting/shop: the account e2e-acting/deployer of the logical cloud may not patch it"),
        "{message}"
    );
    assert_eq!(homes(&system, "shop").await, Vec::<&str>::new(), "nothing is written, what the account may write neither");

    succeeded(&drain(&system, "onprem", "private-a").await);
    assert_eq!(homes(&system, "web").await, ["public-c"]);
    let id = web.verb(client, "terminate").await.unwrap();
    succeeded(&ended(client, &id).await.unwrap());
    assert_eq!(homes(&system, "web").await, Vec::<&str>::new());

    for member in system.members() {
        Api::<Namespace>::all(member.client.clone()).delete(NAMESPACE, &DeleteParams::default()).await.unwrap();
    }
    system.end().await;
}
