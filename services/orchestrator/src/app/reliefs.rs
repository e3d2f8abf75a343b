//! Moves of apps that suffer where they run. Migration says where (policies, and what agents report); here a plan is asked for and carried
//! out as any other, as an operation of the kind `relocate` with the subject `relieve CLUSTER for PROJECT`.
//!
//! Every pass asks anew, so nothing is lost by a restart. The pause between two moves is read from the operations in the database; failed
//! attempts to plan are remembered in memory only.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use drover_api::plans::{PlanOrder, PlanState, Relief};
use drover_api::scheduling::{Demand, MemberKey, PlanKind, RefusedDestination};
use drover_service::Problem;
use uuid::Uuid;

use super::{App, Error};
use crate::store::{binding, hold, overview, refused_destination};

/// Until when nothing is tried again, by subject. In memory only: after a restart each is tried once more.
#[derive(Default)]
pub struct ReliefAttempts(Mutex<HashMap<String, Instant>>);

impl ReliefAttempts {
    fn rests(&self, subject: &str) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, until| *until > Instant::now());
        all.contains_key(subject)
    }

    /// Forgets all attempts, as a restart does.
    pub fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn rest(&self, subject: String, pause: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(subject, Instant::now() + pause);
    }
}

impl App {
    /// Starts a move for each cluster where apps suffer, unless one was made or tried there not long ago.
    ///
    /// # Errors
    /// Migration does not answer, or the database cannot be used.
    pub async fn relieve(&self) -> Result<(), Problem> {
        for relief in self.services.migration.reliefs().await?.items {
            let Relief { project, policy, member, claims, avoid, reason, rest_seconds } = relief;
            let subject = format!("relieve {member} for {project}");
            if self.relief_attempts.rests(&subject) || self.relieved_recently(&subject, rest_seconds).await? {
                continue;
            }
            // Also if what follows fails: the next attempt is not at once.
            self.relief_attempts.rest(subject.clone(), Duration::from_secs(u64::from(rest_seconds)));
            let operation = Uuid::now_v7();
            let order = self.relief_order(member, project, claims, None, &avoid, operation).await?;
            let plan = self.services.migration.plan(Uuid::now_v7(), &order).await?;
            if plan.state != PlanState::Proposed {
                tracing::info!(%subject, plan = %plan.id, reason, "apps suffer there, but no plan helps");
                continue;
            }
            self.start_moves(&plan, operation, subject.clone()).await?;
            tracing::info!(%subject, %operation, plan = %plan.id, policy, reason, "an app is moved because it suffers");
        }
        Ok(())
    }

    /// Whether an operation of this subject runs, or has begun not longer ago than this.
    async fn relieved_recently(&self, subject: &str, seconds: u32) -> Result<bool, Error> {
        let mut db = self.store.pool().acquire().await?;
        Ok(overview::is_recent(&mut db, subject, seconds).await?)
    }

    /// The order of a plan that moves one of these apps of a project off a cluster, and not to those to avoid. `demand`: what it needs by now,
    /// if that is more than it has claimed.
    pub(super) async fn relief_order(
        &self,
        member: MemberKey,
        project: String,
        claims: Vec<Uuid>,
        demand: Option<Demand>,
        avoid: &[MemberKey],
        operation: Uuid,
    ) -> Result<PlanOrder, Error> {
        let mut db = self.store.pool().acquire().await?;
        let excluded = hold::busy(&mut db).await?;
        let mut refused = refused_destination::recent(&mut db).await?;
        for copy in binding::find(&mut db, &claims).await? {
            refused.extend(avoid.iter().map(|member| RefusedDestination {
                dig: copy.dig.id,
                app: copy.app.clone(),
                member: member.clone(),
                reason: "it would suffer there, too".to_owned(),
                refuses: false,
            }));
        }
        let movable_projects = Some(vec![project.clone()]);
        Ok(PlanOrder {
            kind: PlanKind::Relieve { member, project, claims, demand },
            excluded,
            refused,
            released: Vec::new(),
            dry_run: false,
            patient: false,
            operation: Some(operation),
            after_seq: None,
            search: Default::default(),
            movable_projects,
        })
    }
}
