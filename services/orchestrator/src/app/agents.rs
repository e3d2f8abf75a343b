//! Carrying out what cluster-manager's documents say about agents: starts an operation per cluster, one after the other.
//!
//! An agent in a cluster is a deployment intent group without documents (`store::agent`), so that the workflows of apps claim its room,
//! apply it, wait until it is ready, and undo it. Level-triggered: a pass reads everything it needs, and a second pass at the same time
//! finds the group held.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use drover_api::agents::{AgentCopy, AgentDocument, AgentList, AgentMember, AgentOrder, AgentReport, AgentView};
use drover_api::bindings::Phase;
use drover_api::scheduling::{AppRequest, Element, Intent, MemberKey, MemberState, PlacementTerms};
use drover_store::Timestamp;
use drover_workflow::Workflow;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{App, Error};
use crate::agents::manifests::{self, NAMESPACE};
use crate::agents::rollout::{self, Copy, Next, Stage, Target};
use crate::demand;
use crate::render::Rendered;
use crate::store::agent::{self, Attempt, CopyRow, Rollout};
use crate::store::binding::{self, Role};
use crate::store::deployment::{self, ApprovedApp, DeploymentState};
use crate::store::revision::{self, NewRevision, Requester, RevisionApp};
use crate::store::{bundle, hold};
use crate::workflows::readiness::describe;
use crate::workflows::{Delivery, Instantiate, Terminate, Update, instantiate, terminate, update};

/// A failed attempt in a cluster is repeated after this many seconds, where it stops no rollout.
const REST: i64 = 60;

/// What agents reported last, by agent and cluster. In memory only: the next pass reads all of it again.
#[derive(Default)]
pub struct Reports(Mutex<HashMap<(String, MemberKey), AgentReport>>);

impl Reports {
    fn replace(&self, orders: &[AgentDocument]) {
        let of = |document: &AgentDocument, member: &AgentMember| {
            let report = member.report.clone()?;
            Some(((document.name.clone(), member.member.clone()), report))
        };
        let all = orders.iter().flat_map(|document| document.members.iter().filter_map(|member| of(document, member)));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = all.collect();
    }

    /// What an agent reported last in a cluster.
    pub(super) fn of(&self, agent: &str, member: &MemberKey) -> Option<AgentReport> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&(agent.to_owned(), member.clone())).cloned()
    }
}

/// An agent as it would be in clusters with the same settings.
struct Made {
    rendered: Rendered,
    app: ApprovedApp,
}

impl App {
    /// One pass over all agents.
    ///
    /// # Errors
    /// Cluster-manager does not answer, or the database cannot be used.
    pub async fn roll_out_agents(&self) -> Result<(), Error> {
        let orders = self.services.cluster_manager.agents().await?.items;
        self.agent_reports.replace(&orders);
        let mut tx = self.store.begin().await?;
        let known = agent::rollouts(&mut tx).await?;
        for document in &orders {
            if known.iter().all(|rollout| rollout.agent != document.name || rollout.generation != document.generation) {
                agent::begin(&mut tx, &document.name, document.generation, &document.order).await?;
            }
            let known: BTreeSet<String> = agent::copies(&mut tx, &document.name).await?.into_iter().map(|copy| copy.member).collect();
            let new = document.members.iter().map(|member| &member.member).filter(|member| !known.contains(&member.0));
            let new: Vec<MemberKey> = new.cloned().collect();
            if !new.is_empty() {
                agent::expect(&mut tx, &document.name, &new).await?;
            }
        }
        let known = agent::rollouts(&mut tx).await?;
        tx.commit().await?;
        let mut first = Ok(());
        for rollout in &known {
            let document = orders.iter().find(|document| document.name == rollout.agent);
            if let Err(error) = self.roll_out(rollout, document).await {
                tracing::warn!(agent = rollout.agent, error = %drover_service::problem::chain(&error), "an agent could not be rolled out, will retry");
                first = first.and(Err(error));
            }
        }
        first
    }

    async fn roll_out(&self, rollout: &Rollout, document: Option<&AgentDocument>) -> Result<(), Error> {
        let name = rollout.agent.as_str();
        let mut tx = self.store.begin().await?;
        self.settle_copies(&mut tx, name).await?;
        let rows = agent::copies(&mut tx, name).await?;
        tx.commit().await?;
        let wanted: &[AgentMember] = document.map_or(&[][..], |document| document.members.as_slice());
        let names: BTreeSet<&str> = wanted.iter().map(|member| member.member.0.as_str()).collect();
        for row in rows.iter().filter(|row| !row.busy && !names.contains(row.member.as_str())) {
            self.remove_agent(name, &MemberKey(row.member.clone())).await?;
        }
        let Some(document) = document else {
            let mut tx = self.store.begin().await?;
            agent::end(&mut tx, name).await?;
            tx.commit().await?;
            return Ok(());
        };
        let stage = match rollout.state.as_str() {
            "rolling" => Stage::Rolling,
            "done" => Stage::Done,
            _ => Stage::Stopped,
        };
        let runs: BTreeSet<&str> = rows.iter().filter(|row| row.digest.is_some()).map(|row| row.member.as_str()).collect();
        // A version that failed goes back where it runs; where nothing runs, nothing is to go back to.
        let (order, wanted): (Option<&AgentOrder>, Vec<&AgentMember>) = match stage {
            Stage::Stopped => (rollout.good.as_ref(), wanted.iter().filter(|member| runs.contains(&*member.member.0)).collect()),
            _ => (Some(&document.order), wanted.iter().collect()),
        };
        let Some(order) = order else { return Ok(()) };
        // Most clusters have no settings of their own, so the objects are made once for all of them.
        let mut made = BTreeMap::new();
        let mut targets = Vec::with_capacity(wanted.len());
        for member in &wanted {
            let own = order.members.get(&member.member.0);
            let made = match made.entry(own) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(make(name, order, &member.member)?),
            };
            targets.push(target(member, made));
        }
        let copies = self.known_copies(name, &rows).await?;
        let next = rollout::next(stage, document.order.paused, &targets, &copies);
        let mut tx = self.store.begin().await?;
        match next {
            Next::Start(member) => {
                agent::set_state(&mut tx, name, &rollout.state, rollout.reason.as_deref().filter(|_| stage == Stage::Stopped), None)
                    .await?;
                tx.commit().await?;
                return self.change_agent(name, order, &member, &made[&order.members.get(&member.0)]).await;
            }
            Next::Wait(why) if stage != Stage::Stopped => agent::set_state(&mut tx, name, &rollout.state, Some(&why), None).await?,
            Next::Stop(why) => {
                tracing::warn!(agent = name, version = order.version, why, "a version of an agent failed: it goes back");
                agent::set_state(&mut tx, name, "stopped", Some(&why), None).await?;
            }
            Next::Settled if stage != Stage::Stopped => agent::set_state(&mut tx, name, "done", None, Some(order)).await?,
            Next::Wait(_) | Next::Settled => {}
        }
        tx.commit().await?;
        Ok(())
    }

    /// Records how the operations of copies have ended.
    async fn settle_copies(&self, tx: &mut PgConnection, name: &str) -> Result<(), Error> {
        for row in agent::copies(&mut *tx, name).await? {
            if !row.busy {
                continue;
            }
            let Some(operation) = row.operation else { continue };
            let Some(view) = self.engine.get_in(&mut *tx, operation).await? else { continue };
            if view.ended_at.is_none() {
                continue;
            }
            let failed = (view.status != "done").then(|| match &view.failure {
                Some(failure) => failure.message.clone(),
                None => view.message.clone().unwrap_or_else(|| view.status.clone()),
            });
            match (row.removing, &failed) {
                (true, None) => agent::forget(&mut *tx, name, &MemberKey(row.member.clone())).await?,
                _ => agent::ended(&mut *tx, name, &row, failed.as_deref()).await?,
            }
        }
        Ok(())
    }

    /// What is known of the copies; records since when each is healthy.
    async fn known_copies(&self, name: &str, rows: &[CopyRow]) -> Result<BTreeMap<MemberKey, Copy>, Error> {
        let mut db = self.store.acquire().await?;
        let now = drover_store::now();
        let mut copies = BTreeMap::new();
        for row in rows {
            let member = MemberKey(row.member.clone());
            let ready = self.phase_of(row).map(|(phase, _)| phase == Phase::Ready);
            if row.digest.is_some() && !row.busy && row.healthy_since.is_some() != (ready == Some(true)) {
                agent::set_healthy(&mut db, name, &row.member, ready == Some(true)).await?;
            }
            let rested = row.tried_at.is_none_or(|at| seconds_between(at, now) >= REST);
            let copy = Copy {
                runs: row.digest.clone(),
                tried: row.tried_digest.clone(),
                failed: row.failed.clone(),
                rested,
                busy: row.busy,
                ready,
            };
            copies.insert(member, copy);
        }
        Ok(copies)
    }

    /// Phase of a copy and why it is not ready, if that is known.
    fn phase_of(&self, row: &CopyRow) -> Option<(Phase, String)> {
        let status = self.environment.statuses.get(row.binding?)?;
        Some((status.phase, describe(&status)))
    }

    /// Starts to install or update an agent in a cluster.
    async fn change_agent(&self, name: &str, order: &AgentOrder, member: &MemberKey, made: &Made) -> Result<(), Error> {
        let group = agent::group(name, member);
        let operation = Uuid::now_v7();
        let mut tx = self.store.begin().await?;
        agent::put_group(&mut tx, name, &group).await?;
        let before = deployment::load(&mut tx, group.id, true).await?;
        if hold::take(&mut tx, operation, &[group.id]).await?.is_err() {
            // An operation that somebody else started, such as a relocation; the next pass looks again.
            return Ok(());
        }
        bundle::put(&mut tx, self.store.key()?, &made.rendered).await?;
        if before.state == DeploymentState::Created {
            deployment::reach(&mut tx, group.id, DeploymentState::Approved, before.revision, None).await?;
        }
        let terms = only(member);
        let request = AppRequest { app: made.app.app.clone(), demand: made.app.demand.clone(), terms: terms.clone() };
        let running = binding::of_dig(&mut tx, group.id).await?.into_iter().find(|binding| binding.role == Role::Current);
        let kind = if running.is_some() { Update::KIND } else { Instantiate::KIND };
        let new = NewRevision {
            dig: group.id,
            operation,
            kind,
            from_revision: None,
            requested_by: &Requester { name: "drover".to_owned(), ..Requester::default() },
            description: &order.version,
            controllers: &[],
            with_approved_actions: false,
            apps: &[RevisionApp { app: made.app.clone(), terms: terms.clone() }],
        };
        let revision = revision::draw(&mut tx, &new).await?;
        match running {
            Some(old) => {
                let order = update::Order {
                    dig: group,
                    from_revision: before.revision,
                    revision,
                    kept: vec![update::Kept { old, digest: made.rendered.digest.clone(), request }],
                    added: Vec::new(),
                    together: BTreeMap::new(),
                    dropped: Vec::new(),
                    approved: vec![made.app.clone()],
                    after: BTreeMap::new(),
                    changed: Vec::new(),
                    rollback: false,
                };
                self.engine.start_in_tx::<Update>(&mut tx, operation, &order).await?;
            }
            None => {
                deployment::approve_apps(&mut tx, group.id, std::slice::from_ref(&made.app)).await?;
                let delivery =
                    Delivery { request, digest: made.rendered.digest.clone(), namespace: NAMESPACE.to_owned(), after: Vec::new() };
                let order = instantiate::Order { dig: group, revision, apps: vec![delivery], plan: None, changed: Vec::new() };
                self.engine.start_in_tx::<Instantiate>(&mut tx, operation, &order).await?;
            }
        }
        agent::tried(&mut tx, name, member, &Attempt { operation, to: Some((&made.rendered.digest, &order.version)) }).await?;
        tx.commit().await?;
        self.engine.nudge();
        Ok(())
    }

    /// Starts to remove an agent from a cluster.
    async fn remove_agent(&self, name: &str, member: &MemberKey) -> Result<(), Error> {
        let group = agent::group(name, member);
        let operation = Uuid::now_v7();
        let mut tx = self.store.begin().await?;
        let before = deployment::load(&mut tx, group.id, true).await?;
        if before.state != DeploymentState::Instantiated {
            agent::forget(&mut tx, name, member).await?;
            tx.commit().await?;
            return Ok(());
        }
        if hold::take(&mut tx, operation, &[group.id]).await?.is_err() {
            return Ok(());
        }
        let order = terminate::Order { dig: group, revision: before.revision, after: BTreeMap::new(), delete_volumes: false };
        self.engine.start_in_tx::<Terminate>(&mut tx, operation, &order).await?;
        agent::tried(&mut tx, name, member, &Attempt { operation, to: None }).await?;
        tx.commit().await?;
        self.engine.nudge();
        Ok(())
    }

    /// All agents with their copies.
    ///
    /// # Errors
    /// A query failed.
    pub async fn agents(&self) -> Result<AgentList, Error> {
        let mut db = self.store.acquire().await?;
        let mut items = Vec::new();
        for rollout in agent::rollouts(&mut db).await? {
            let mut copies = Vec::new();
            for row in agent::copies(&mut db, &rollout.agent).await? {
                let member = MemberKey(row.member.clone());
                let status = self.phase_of(&row);
                let report = self.agent_reports.of(&rollout.agent, &member);
                copies.push(AgentCopy { report, ..copy_view(row, status) });
            }
            let state = match rollout.state.as_str() {
                "rolling" if rollout.spec.paused => "Paused",
                "rolling" => "Rolling",
                "done" => "Done",
                _ => "Stopped",
            };
            items.push(AgentView {
                name: rollout.agent,
                version: rollout.spec.version,
                generation: rollout.generation,
                state: state.to_owned(),
                reason: rollout.reason,
                copies,
            });
        }
        Ok(AgentList { items })
    }
}

fn copy_view(row: CopyRow, status: Option<(Phase, String)>) -> AgentCopy {
    let ready = status.as_ref().is_some_and(|(phase, _)| *phase == Phase::Ready);
    let state = match (row.busy, row.digest.is_some()) {
        (true, _) if row.removing => "Removing",
        (true, false) => "Installing",
        (true, true) => "Updating",
        (false, true) if ready => "Healthy",
        (false, true) => "NotReady",
        (false, false) if row.failed.is_some() => "Failed",
        (false, false) => "Waiting",
    };
    let attempt = row.failed.map(|why| match row.tried_version {
        Some(version) if row.version.as_ref() != Some(&version) => format!("{version}: {why}"),
        _ => why,
    });
    let unready = status.filter(|_| !ready && !row.busy).map(|(_, why)| why);
    AgentCopy {
        member: MemberKey(row.member),
        version: row.version,
        state: state.to_owned(),
        healthy_since: row.healthy_since.filter(|_| ready).map(|since| since.to_string()),
        reason: attempt.or(unready),
        operation: row.operation,
        report: None,
    }
}

fn seconds_between(earlier: Timestamp, later: Timestamp) -> i64 {
    later.0.duration_since(earlier.0).as_secs()
}

fn target(member: &AgentMember, made: &Made) -> Target {
    let unavailable = (member.state != MemberState::Ready).then(|| format!("is {:?}", member.state));
    let closed = member.cordoned.then(|| "is cordoned".to_owned());
    Target { member: member.member.clone(), digest: made.rendered.digest.clone(), unavailable, closed }
}

/// An agent as the order wants it in a cluster.
fn make(name: &str, order: &AgentOrder, member: &MemberKey) -> Result<Made, Error> {
    let internal = |reason: String| Error::Internal(format!("agent {name}: {reason}"));
    let rendered = Rendered::of(manifests::of(name, order, member).map_err(internal)?).map_err(internal)?;
    let demand = demand::of(&rendered.objects, NAMESPACE).map_err(|error| Error::Demand { app: name.to_owned(), source: error })?;
    let app = ApprovedApp { app: name.to_owned(), digest: rendered.digest.clone(), namespace: NAMESPACE.to_owned(), demand };
    Ok(Made { rendered, app })
}

/// Allows an agent in its cluster alone.
fn only(member: &MemberKey) -> PlacementTerms {
    let element =
        Element { cluster_provider: Some(member.provider().to_owned()), cluster: Some(member.cluster().to_owned()), ..Element::default() };
    PlacementTerms {
        intent: Intent { all_of: Vec::new(), any_of: vec![element] },
        logical_cloud: [member.clone()].into_iter().collect(),
        ..PlacementTerms::default()
    }
}
