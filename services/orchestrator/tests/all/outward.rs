//! The public surface: the OpenAPI document must equal the checked-in one (`cargo run -p xtask -- openapi` writes it).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::{Stack, deployment, doc};

#[test]
fn openapi_document_equals_the_golden_file() {
    drover_testkit::openapi::assert_golden("orchestrator", &serde_json::to_value(drover_orchestrator::openapi()).unwrap());
}

#[tokio::test]
async fn intent_lists_accept_a_trailing_slash() {
    let stack = Stack::undocumented().await;
    let group = "/v2/projects/p/composite-apps/c/v1/deployment-intent-groups/d";
    for path in [format!("{group}/intents/?intent=i"), format!("{group}/generic-placement-intents/g/app-intents/?app=a")] {
        let answer = stack.call("GET", &path, None).await;
        assert!(
            answer.status == 404 && answer.body["detail"].as_str().unwrap().contains("not found"),
            "the group is missing, not the route: {}",
            answer.body
        );
    }
    let dig = stack.group("shop", &[("web", &deployment("web", "500m", 2))], &[("onprem", "a")]).await;
    stack.post(&format!("{dig}/generic-placement-intents"), doc("gpi", None), 201).await;
    let intent = json!({"app": "web", "intent": {"anyOf": [{"clusterProvider": "onprem", "cluster": "a"}]}});
    stack.post(&format!("{dig}/generic-placement-intents/gpi/app-intents"), doc("web", Some(intent)), 201).await;
    stack.post(&format!("{dig}/intents"), doc("i", Some(json!({"intent": {"genericPlacementIntent": "gpi"}}))), 201).await;
    let of_app = |query: &str| format!("{dig}/generic-placement-intents/gpi/app-intents/{query}");
    assert_eq!(stack.get(&format!("{dig}/intents/?intent=i")).await, json!({"intent": [{"genericPlacementIntent": "gpi"}]}));
    assert_eq!(stack.get(&of_app("?app=web")).await["app"], "web");
    for path in [of_app("?app-name=web"), of_app(""), "/v2/nothing".to_owned()] {
        let unknown = stack.call("GET", &path, None).await;
        assert_eq!(unknown.status, 404, "{path}: {}", unknown.body);
        assert!(unknown.body["detail"].as_str().unwrap().starts_with("404 page not found"), "{path}: {}", unknown.body);
    }
}

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/how-to/coming-from-emco.md");

/// The tables of docs/how-to/coming-from-emco.md follow the OpenAPI documents; `DROVER_ACCEPT=1` writes them.
#[test]
fn coming_from_emco_lists_every_path_of_emco() {
    let heading = "## Paths and verbs\n";
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (words, _) = page.split_once(heading).expect("the page has the heading of the tables");
    let wanted = format!("{words}{heading}\nThe tables are made from the services' OpenAPI documents; a test compares them.\n{}", tables());
    if std::env::var_os("DROVER_ACCEPT").is_some() {
        std::fs::write(PAGE, &wanted).unwrap();
    }
    assert!(page == wanted || std::env::var_os("DROVER_ACCEPT").is_some(), "the paths have changed; accept them with DROVER_ACCEPT=1");
}

fn tables() -> String {
    let own = serde_json::to_value(drover_orchestrator::openapi()).unwrap();
    let clusters = concat!(env!("CARGO_MANIFEST_DIR"), "/../../openapi/cluster-manager.json");
    let clusters: Value = serde_json::from_str(&std::fs::read_to_string(clusters).unwrap()).unwrap();
    let mut tables: BTreeMap<&str, String> = BTreeMap::new();
    for document in [clusters, own] {
        for (path, verbs) in document["paths"].as_object().unwrap() {
            let Some(controller) = controller(path) else { continue };
            let verbs: Vec<String> = verbs.as_object().unwrap().keys().map(|verb| verb.to_uppercase()).collect();
            let path = path.replace(
                "/composite-apps/{compositeApp}/{compositeAppVersion}/deployment-intent-groups/{deploymentIntentGroup}",
                "/…/{group}",
            );
            tables.entry(controller).or_default().push_str(&format!("| `{path}` | {} |\n", verbs.join(" ")));
        }
    }
    tables.into_iter().map(|(controller, rows)| format!("\n### {controller}\n\n| path | verbs |\n|---|---|\n{rows}")).collect()
}

/// The controller of EMCO that a path belongs to; none if it is not one of EMCO's.
fn controller(path: &str) -> Option<&'static str> {
    const GROUP: &str = "/deployment-intent-groups/{deploymentIntentGroup}/";
    let under_group = path.split_once(GROUP).map(|(_, rest)| rest.split('/').next().unwrap_or_default());
    match under_group {
        // EMCO has no routes; they are Drover's own.
        Some("routes") => return None,
        Some("traffic-group-intents") => return Some("dtc: traffic intents (carried out as network policies)"),
        Some("generic-k8s-intents") => return Some("gac: generic Kubernetes intents (carried out)"),
        Some("hpa-intents") => return Some("hpa-placement: hardware intents (carried out)"),
        Some("network-controller-intent") => return Some("ovnaction: network intents (kept)"),
        Some("network-chains" | "sfc-clients") => return Some("sfc, sfcclient: network chains (kept)"),
        Some("temporal-action-controller" | "temporal-workflow-intents") => return Some("tac, workflowmgr: Temporal (kept)"),
        Some("policy-intents") => return Some("policy (kept)"),
        _ => {}
    }
    let foreign = ["/internal/", "/v2/operations", "/v2/apps", "/v2/plans", "/v2/routes", "/v2/explain"];
    if foreign.iter().any(|start| path.starts_with(start))
        || path.contains("/call-graphs")
        || path.contains("/revisions")
        || path.contains("/clusters/{cluster}/link")
        || path.ends_with("/events")
    {
        return None;
    }
    Some(match path {
        _ if path.contains("/ca-certs") => "ca-certs: certificates (kept)",
        _ if path.contains("/clusters/{cluster}/networks") || path.contains("/provider-networks") => "ncm: networks of clusters (kept)",
        _ if path.starts_with("/v2/cluster-providers") && ["/apply", "/terminate", "/stop"].iter().any(|verb| path.ends_with(verb)) => {
            "ncm: networks of clusters (kept)"
        }
        _ if path.starts_with("/v2/cluster-providers") || path.starts_with("/v2/clm-controllers") => "clm: clusters",
        _ if path.contains("/logical-clouds") => "dcm: logical clouds",
        _ if path.starts_with("/v2/dtc-controllers") => "dtc: traffic intents (carried out as network policies)",
        _ => "orchestrator",
    })
}
