//! Moves of apps that suffer where they run. Migration says where (policies, and what agents report); here a plan is asked for and carried
//! out as any other, as an operation of the kind `relocate` with the subject `relieve CLUSTER for PROJECT`.
//!
//! Every pass asks anew, so nothing is lost by a restart. The pause between two moves is read from the operations in the database; failed
//! attempts to plan, and what is shown to people of apps that suffer, are in memory only.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use drover_api::apps::AppSuffering;
use drover_api::plans::{PlanOrder, PlanState, Relief, SufferingApp};
use drover_api::scheduling::{Demand, MemberKey, PlanKind, RefusedDestination};
use drover_service::Problem;
use uuid::Uuid;

use super::{App, Error};
use crate::store::{binding, hold, overview, refused_destination};

/// What is known of apps that suffer, and what was tried. In memory only: after a restart each is tried once more.
#[derive(Default)]
pub struct ReliefAttempts(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// By subject.
    attempts: HashMap<String, Attempt>,
    /// As migration said last.
    suffering: Vec<SufferingApp>,
}

struct Attempt {
    /// Nothing is tried again until then.
    until: Instant,
    /// What it has led to, for people.
    outcome: String,
}

impl ReliefAttempts {
    fn rests(&self, subject: &str) -> bool {
        let mut known = self.lock();
        known.attempts.retain(|_, attempt| attempt.until > Instant::now());
        known.attempts.contains_key(subject)
    }

    /// Forgets all attempts, as a restart does.
    pub fn forget(&self) {
        *self.lock() = Known::default();
    }

    fn rest(&self, subject: String, pause: Duration, outcome: String) {
        self.lock().attempts.insert(subject, Attempt { until: Instant::now() + pause, outcome });
    }

    fn learn(&self, suffering: Vec<SufferingApp>) {
        self.lock().suffering = suffering;
    }

    /// Where the copies of apps suffer, by the ids of the copies.
    pub(super) fn suffering(&self) -> HashMap<Uuid, Vec<AppSuffering>> {
        let known = self.lock();
        let mut all: HashMap<Uuid, Vec<AppSuffering>> = HashMap::new();
        for app in &known.suffering {
            let attempt = known.attempts.get(&subject(&app.member, &app.project)).filter(|attempt| attempt.until > Instant::now());
            all.entry(app.claim).or_default().push(AppSuffering {
                member: app.member.clone(),
                policy: app.policy.clone(),
                reason: app.reason.clone(),
                seconds: app.seconds,
                for_seconds: app.for_seconds,
                attempt: attempt.map(|attempt| attempt.outcome.clone()),
            });
        }
        all
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The subject of the operations that move apps of a project off a cluster because they suffer.
fn subject(member: &MemberKey, project: &str) -> String {
    format!("relieve {member} for {project}")
}

/// A move of one of these apps of a project off a cluster.
pub(super) struct WantedMove {
    pub member: MemberKey,
    pub project: String,
    pub claims: Vec<Uuid>,
    /// What it needs by now, if that is more than it has claimed.
    pub demand: Option<Demand>,
    /// For people.
    pub reason: String,
}

impl App {
    /// Starts a move for each cluster where apps suffer, unless one was made or tried there not long ago.
    ///
    /// # Errors
    /// Migration does not answer, or the database cannot be used.
    pub async fn relieve(&self) -> Result<(), Problem> {
        let found = self.services.migration.reliefs().await.inspect_err(|_| self.relief_attempts.learn(Vec::new()))?;
        self.relief_attempts.learn(found.suffering);
        for relief in found.items {
            let Relief { project, policy, member, claims, avoid, reason, rest_seconds } = relief;
            let subject = subject(&member, &project);
            if self.relief_attempts.rests(&subject) || self.relieved_recently(&subject, rest_seconds).await? {
                continue;
            }
            // Also if what follows fails: the next attempt is not at once.
            let pause = Duration::from_secs(u64::from(rest_seconds));
            self.relief_attempts.rest(subject.clone(), pause, "an attempt to move one of them was begun".to_owned());
            let operation = Uuid::now_v7();
            let why = format!("{reason}; the policy {policy} makes that a reason to move an app");
            let wanted = WantedMove { member, project, claims, demand: None, reason: why };
            let order = self.relief_order(wanted, &avoid, operation).await?;
            let plan = self.services.migration.plan(Uuid::now_v7(), &order).await?;
            if plan.state != PlanState::Proposed {
                self.relief_attempts.rest(subject.clone(), pause, format!("no plan helps, as plan {} says", plan.id));
                tracing::info!(%subject, plan = %plan.id, reason, "apps suffer there, but no plan helps");
                continue;
            }
            self.start_moves(&plan, operation, subject.clone()).await?;
            self.relief_attempts.rest(subject.clone(), pause, format!("operation {operation} moves one of the apps that suffer there"));
            tracing::info!(%subject, %operation, plan = %plan.id, policy, reason, "an app is moved because it suffers");
        }
        Ok(())
    }

    /// Whether an operation of this subject runs, or has begun not longer ago than this.
    async fn relieved_recently(&self, subject: &str, seconds: u32) -> Result<bool, Error> {
        let mut db = self.store.acquire().await?;
        Ok(overview::is_recent(&mut db, subject, seconds).await?)
    }

    /// The order of a plan that makes this move, and not to the clusters to avoid.
    pub(super) async fn relief_order(&self, wanted: WantedMove, avoid: &[MemberKey], operation: Uuid) -> Result<PlanOrder, Error> {
        let WantedMove { member, project, claims, demand, reason } = wanted;
        let mut db = self.store.acquire().await?;
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
            kind: PlanKind::Relieve { member, project, claims, demand, reason },
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
