//! The service that each path belongs to. Pure.

use http::Method;

/// A service behind the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upstream {
    ClusterManager,
    Orchestrator,
    Placement,
    Migration,
    ResourceSynchronizer,
}

impl Upstream {
    /// All services behind the gateway.
    pub const ALL: [Self; 5] = [Self::ClusterManager, Self::Orchestrator, Self::Placement, Self::Migration, Self::ResourceSynchronizer];

    /// Name of the service.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClusterManager => "cluster-manager",
            Self::Orchestrator => "orchestrator",
            Self::Placement => "placement",
            Self::Migration => "migration",
            Self::ResourceSynchronizer => "resource-synchronizer",
        }
    }
}

/// The service that answers `method path`, for a path below `/v2`.
pub fn upstream(method: &Method, path: &str) -> Upstream {
    let segments: Vec<&str> = path.trim_matches('/').split('/').skip(1).collect();
    match segments.as_slice() {
        ["cluster-providers" | "cluster-checks" | "clm-controllers" | "agents", ..] => Upstream::ClusterManager,
        ["decisions" | "clusters", ..] => Upstream::Placement,
        ["plans", _, "apply"] if method == Method::POST => Upstream::Orchestrator,
        ["plans" | "policy-tests" | "migration-algorithms" | "migration-parameters", ..] => Upstream::Migration,
        ["projects", _, "migration-policies", ..] => Upstream::Migration,
        ["projects", _, "composite-apps", _, _, "deployment-intent-groups", _, "migration-intents", ..] => Upstream::Migration,
        _ => Upstream::Orchestrator,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_public_operation_is_routed_to_the_service_that_documents_it() {
        for service in Upstream::ALL {
            let path = format!("{}/../../openapi/{}.json", env!("CARGO_MANIFEST_DIR"), service.name());
            let document: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
            for (path, item) in document["paths"].as_object().unwrap().iter().filter(|(path, _)| path.starts_with("/v2/")) {
                for method in item.as_object().unwrap().keys() {
                    let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
                    assert_eq!(upstream(&method, path), service, "{method} {path}");
                }
            }
        }
    }

    #[test]
    fn upstream_of_each_path() {
        let cases = [
            ("GET", "/v2/cluster-providers/p/clusters/c/labels", Upstream::ClusterManager),
            ("POST", "/v2/clm-controllers", Upstream::ClusterManager),
            ("PUT", "/v2/agents/autoscaler", Upstream::ClusterManager),
            ("GET", "/v2/agent-copies", Upstream::Orchestrator),
            ("POST", "/v2/cluster-checks", Upstream::ClusterManager),
            ("GET", "/v2/clusters", Upstream::Placement),
            ("GET", "/v2/explain", Upstream::Orchestrator),
            ("POST", "/v2/plans", Upstream::Migration),
            ("POST", "/v2/plans/x/apply", Upstream::Orchestrator),
            ("GET", "/v2/plans/x", Upstream::Migration),
            ("GET", "/v2/projects/p/migration-policies", Upstream::Migration),
            ("POST", "/v2/projects/p/composite-apps/a/v1/deployment-intent-groups/d/migration-intents/i/app-intents", Upstream::Migration),
            ("POST", "/v2/projects/p/composite-apps/a/v1/deployment-intent-groups/d/instantiate", Upstream::Orchestrator),
            ("GET", "/v2/operations", Upstream::Orchestrator),
            ("GET", "/v2/projects/migration-policies/logical-clouds", Upstream::Orchestrator),
        ];
        for (method, path, wanted) in cases {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(upstream(&method, path), wanted, "{method} {path}");
        }
    }
}
