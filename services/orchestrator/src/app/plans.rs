//! Applies plans: by instantiating the newcomer with the plan, or by relocating the apps of a drained member.

use drover_api::plans::{PlanDocument, PlanState, PlanSubject};
use drover_api::scheduling::{Move, Plan};
use drover_service::{Problem, codes};
use uuid::Uuid;

use super::lifecycle::{Held, Placing};
use super::{App, Error, GroupPath, group};
use crate::store::revision::Requester;
use crate::workflows::{Relocate, relocate};

impl App {
    /// Reads a plan that can be applied.
    ///
    /// # Errors
    /// The plan does not exist, is no longer proposed or has several waves, or migration is unavailable.
    pub async fn open_plan(&self, id: Uuid) -> Result<PlanDocument, Problem> {
        let document = self.services.migration.plan_read(id).await?.ok_or_else(|| Error::NotFound { what: format!("plan {id}") })?;
        if document.state != PlanState::Proposed {
            let state = format!("{:?}", document.state).to_lowercase();
            let problem = codes::PLAN_NOT_PROPOSED.problem(format!("The plan is {state}; only a proposed one can be applied"));
            return Err(match document.operation {
                Some(operation) => problem.instance(format!("/v2/operations/{operation}")),
                None => problem,
            });
        }
        if let Some(plan) = &document.plan {
            one_wave(plan)?;
        }
        Ok(document)
    }

    /// Starts to carry out a plan and returns the id of the operation. The operation has the ledger check again what the plan
    /// assumed.
    ///
    /// # Errors
    /// As for [`App::open_plan`]; also: its group is in another state or is being changed by an operation, or the cluster to be drained
    /// cannot be cordoned.
    pub async fn apply_plan(&self, id: Uuid, by: &Requester) -> Result<Uuid, Problem> {
        let document = self.open_plan(id).await?;
        match &document.kind {
            PlanSubject::Newcomer(dig) => {
                let advice = self.advice(&GroupPath::of(dig), false).await?;
                let mut tx = self.store.begin().await?;
                let group = group::by_id(&mut tx, dig.id).await?;
                let held = Held::of(&mut tx, group).await?;
                let placing = Placing { by, changed: Vec::new(), advice, plan: Some(id) };
                let started = self.instantiate_in(&mut tx, &held, &placing).await?;
                tx.commit().await.map_err(Error::from)?;
                Ok(started.run())
            }
            PlanSubject::Relieve(member) => self.start_moves(&document, Uuid::now_v7(), format!("relieve {member}")).await,
            PlanSubject::Drain(member) => {
                // First, so that nothing new is placed there while it is emptied. It stays closed when the relocation is undone, too:
                // whoever drains a cluster wants it empty, and opening it is one command.
                self.services.cluster_manager.cordon(member, &format!("drained by plan {id}")).await?;
                self.start_moves(&document, Uuid::now_v7(), format!("drain {member}")).await
            }
        }
    }

    /// Starts the operation that carries out the moves of a plan without a newcomer, and returns its id.
    ///
    /// # Errors
    /// The plan has several waves, or a query failed.
    pub(super) async fn start_moves(&self, document: &PlanDocument, operation: Uuid, subject: String) -> Result<Uuid, Problem> {
        let moves = document.plan.as_ref().map(one_wave).transpose()?.unwrap_or_default();
        let order = document.plan.as_ref().and_then(|plan| plan.scheduling.as_ref()).map(|scheduling| scheduling.order.clone());
        let order = relocate::Order { plan: document.id, subject, moves, order: order.unwrap_or_default(), newcomer: None };
        let mut tx = self.store.begin().await?;
        self.engine.start_in_tx::<Relocate>(&mut tx, operation, &order).await.map_err(Error::from)?;
        tx.commit().await.map_err(Error::from)?;
        self.engine.nudge();
        Ok(operation)
    }
}

fn one_wave(plan: &Plan) -> Result<Vec<Move>, Error> {
    relocate::single_wave(plan).map_err(|_| Error::NotYet("carrying out a plan of several waves"))
}
