//! EMCO's verbs of a cluster's networks, which Drover does not carry out.

use drover_service::{Problem, codes};
use http::StatusCode;

fn refused(verb: &str) -> Problem {
    codes::NOT_YET
        .problem(format!("{verb} is not carried out: networks of clusters are only kept; Drover attaches no additional networks to pods"))
}

/// Not carried out, answers 501: EMCO's creation of a cluster's networks.
#[utoipa::path(post, path = "/v2/cluster-providers/{clusterProvider}/clusters/{cluster}/apply", operation_id = "cluster_networks_apply", tag = "kept",
    params(("clusterProvider" = String, Path), ("cluster" = String, Path)), responses((status = 202, description = "Never")))]
pub async fn apply() -> Result<StatusCode, Problem> {
    Err(refused("apply"))
}

/// Not carried out, answers 501: EMCO's removal of a cluster's networks.
#[utoipa::path(post, path = "/v2/cluster-providers/{clusterProvider}/clusters/{cluster}/terminate", operation_id = "cluster_networks_terminate", tag = "kept",
    params(("clusterProvider" = String, Path), ("cluster" = String, Path)), responses((status = 202, description = "Never")))]
pub async fn terminate() -> Result<StatusCode, Problem> {
    Err(refused("terminate"))
}

/// Not carried out, answers 501: EMCO's stop of a cluster's networks.
#[utoipa::path(post, path = "/v2/cluster-providers/{clusterProvider}/clusters/{cluster}/stop", operation_id = "cluster_networks_stop", tag = "kept",
    params(("clusterProvider" = String, Path), ("cluster" = String, Path)), responses((status = 202, description = "Never")))]
pub async fn stop() -> Result<StatusCode, Problem> {
    Err(refused("stop"))
}
