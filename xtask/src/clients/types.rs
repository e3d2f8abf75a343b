//! The type of libs/api for each schema of the documents.

use anyhow::bail;

/// Path of the type in libs/api. Schemas have the names of their types, except for the problem.
///
/// # Errors
/// The schema is not known.
pub fn of(schema: &str) -> anyhow::Result<String> {
    let module = match schema {
        "AgentOrders" => "agents",
        "BindingStatus" | "BoundsOrder" | "DesiredBindings" | "Preflight" | "PreflightAnswer" | "TestOrder" | "TestRun"
        | "VolumeAnswer" | "VolumeQuestion" => "bindings",
        "DigHolds" | "DigTerms" | "DocumentRef" => "digs",
        "ClaimHeads" | "Claims" | "ClusterCapacity" | "ExplainQuestion" | "Explanation" | "LedgerReceipt" | "LedgerTransaction" => "ledger",
        "CordonOrder" | "MemberCredential" | "UserKubeconfig" | "UserOrder" | "UserState" => "members",
        "Operation" | "OperationList" | "OperationState" => "operations",
        "PlanAcceptance" | "PlanDocument" | "PlanList" | "PlanOrder" | "ReliefList" => "plans",
        "Cordon" | "Decision" | "MemberLink" | "DecisionRequest" => "scheduling",
        "Problem" => return Ok("drover_api::problem::ProblemDocument".to_owned()),
        _ => bail!("no type of libs/api is known for the schema {schema}: add it in xtask/src/clients/types.rs"),
    };
    Ok(format!("drover_api::{module}::{schema}"))
}
