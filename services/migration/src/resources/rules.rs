//! Rules between documents: expressions use existing parameters, a project has at most one active policy, and the intents of a group that
//! an operation holds cannot change. Also copies the parts of intents that planning reads into columns.

use async_trait::async_trait;
use drover_api::digs::DigHold;
use drover_resources::{Change, Document, DocumentKind, Foreign, Hooks, Verb, of_kind};
use drover_scheduling::{Movability, validate_expression};
use drover_service::clients::orchestrator;
use drover_service::{Answer, PeerError, Problem, codes};
use drover_store::Tx;
use uuid::Uuid;

use super::algorithm::{ALGORITHM, AlgorithmSpec};
use super::intent::{APP_INTENT, AppIntentSpec, MIGRATION_INTENT};
use super::parameter::{PARAMETER, ParameterSpec};
use super::policy::{POLICY, PolicySpec};
use crate::store::side;

/// The rules; see the module.
pub struct Rules {
    /// Client of the service that owns projects and deployment intent groups.
    pub orchestrator: orchestrator::Client,
}

#[async_trait]
impl Hooks for Rules {
    async fn before(&self, kind: &'static DocumentKind, path: &str, _: bool) -> Result<(), Problem> {
        match [MIGRATION_INTENT.name, APP_INTENT.name].contains(&kind.name) {
            true => self.check_not_held(path).await,
            false => Ok(()),
        }
    }

    async fn guard(&self, tx: &mut Tx, change: &Change<'_>) -> Result<(), Problem> {
        match change.after {
            Some(after) if change.kind.name == ALGORITHM.name => known_parameters(tx, after).await,
            _ => Ok(()),
        }
    }

    async fn written(&self, tx: &mut Tx, change: &Change<'_>) -> Result<(), Problem> {
        // The rows of deleted documents in side tables are deleted by the database.
        let Some(after) = change.after.filter(|_| change.verb != Verb::Delete) else { return Ok(()) };
        if change.kind.name == APP_INTENT.name {
            let AppIntentSpec { app, migration, priority } = spec_of(after)?;
            side::set_movability(tx, after.id, &Movability { dig: owner(after)?, app, migration, priority }).await?;
        } else if change.kind.name == POLICY.name {
            let spec: PolicySpec = spec_of(after)?;
            if !side::set_active(tx, owner(after)?, after.id, spec.active).await? {
                return Err(codes::WRONG_STATE.problem("Another policy of the project is active; deactivate it first"));
            }
        }
        Ok(())
    }

    async fn foreign_parent(&self, _: &Foreign, path: &str) -> Result<Option<Uuid>, Problem> {
        Ok(lookup(&self.orchestrator, path).await?)
    }
}

impl Rules {
    /// Refuses a change of an intent while an operation holds its group.
    async fn check_not_held(&self, path: &str) -> Result<(), Problem> {
        let held = self.orchestrator.hold_list().await.answer(&self.orchestrator)?.items;
        let above = |group: &str| path.strip_prefix(group).is_some_and(|below| below.starts_with('/'));
        match held.into_iter().find(|hold| above(&hold.path)) {
            None => Ok(()),
            Some(DigHold { operation, .. }) => Err(codes::BUSY
                .problem(format!("operation {operation} holds this deployment intent group; wait for it or cancel it"))
                .instance(format!("/v2/operations/{operation}"))),
        }
    }
}

/// The UUID of a document of orchestrator, or `None` if it does not exist.
///
/// # Errors
/// Orchestrator is unavailable.
pub async fn lookup(orchestrator: &orchestrator::Client, path: &str) -> Result<Option<Uuid>, PeerError> {
    let found = orchestrator.document_lookup(path).await.found(orchestrator)?;
    Ok(found.map(|found| found.id))
}

async fn known_parameters(tx: &mut Tx, algorithm: &Document) -> Result<(), Problem> {
    let spec: AlgorithmSpec = spec_of(algorithm)?;
    let parameters = of_kind::<ParameterSpec>(tx, &PARAMETER).await?;
    validate_expression(&spec.expression, parameters.iter().map(|parameter| parameter.name.as_str()))
        .map_err(|error| codes::EXPRESSION_INVALID.problem(format!("spec.expression: {error}")))
}

fn spec_of<T: serde::de::DeserializeOwned>(document: &Document) -> Result<T, Problem> {
    document.spec().map_err(Problem::internal)
}

fn owner(document: &Document) -> Result<Uuid, Problem> {
    document.foreign_parent.ok_or_else(|| Problem::internal(format!("{} has no parent", document.path)))
}
