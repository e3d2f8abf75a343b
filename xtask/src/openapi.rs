//! `openapi/<service>.json`: the OpenAPI document of each service.

use crate::{File, root};

/// One file per service.
///
/// # Errors
/// A document cannot be written as JSON.
pub fn files() -> anyhow::Result<Vec<File>> {
    let services = [
        ("cluster-manager", drover_cluster_manager::openapi()),
        ("gateway", drover_gateway::openapi()),
        ("migration", drover_migration::openapi()),
        ("orchestrator", drover_orchestrator::openapi()),
        ("placement", drover_placement::openapi()),
        ("resource-synchronizer", drover_resource_synchronizer::openapi()),
        ("traffic", drover_traffic::openapi()),
    ];
    let files = services.into_iter().map(|(name, document)| {
        let value = serde_json::to_value(document)?;
        Ok(File { path: root().join("openapi").join(format!("{name}.json")), text: format!("{value:#}\n") })
    });
    files.collect()
}
