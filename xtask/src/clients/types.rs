//! Which type of libs/api a schema of the documents stands for.

use anyhow::bail;

/// The path of the type. Schemas are named as their types are, but for the problem.
pub fn of(schema: &str) -> anyhow::Result<String> {
    let module = match schema {
        "BindingStatus" | "Bundle" | "DesiredBinding" => "bindings",
        "DigHolds" | "DigTerms" | "DocumentRef" => "digs",
        "ClaimHeads" | "Claims" | "ClusterCapacity" | "Explanation" | "LedgerReceipt" | "LedgerTransaction" => "ledger",
        "MemberCredential" => "members",
        "OperationList" | "OperationState" => "operations",
        "PlanAcceptance" | "PlanDocument" | "PlanList" | "PlanOrder" => "plans",
        "Decision" | "DecisionRequest" => "scheduling",
        "Problem" => return Ok("drover_api::problem::ProblemDocument".to_owned()),
        _ => bail!("no type of libs/api is known for the schema {schema}: name it in xtask/src/clients/types.rs"),
    };
    Ok(format!("drover_api::{module}::{schema}"))
}
