//! Attacks from outside that need a real API server or a whole system. Those on single services are in their own tests.

use drover_e2e::{Backend, members};
use drover_members::Reach;
use drover_members::kubeconfig::vet;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams};
use kube::config::Kubeconfig;

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
