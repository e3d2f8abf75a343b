//! Bringing bindings up: bundles and bindings to the synchronizer in the order of their dependencies, then waiting for its
//! word on each. Called again and again; sends each binding once per journaled state.

use std::collections::{BTreeMap, BTreeSet};

use drover_api::bindings::{Bundle, DesiredState};
use drover_store::Timestamp;
use drover_workflow::StepError;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::judge::{self, Sent, Verdict};
use super::{After, now};
use crate::config::Deadlines;
use crate::environment::{Environment, binding_key};
use crate::peers::PeerError;
use crate::store::binding::Binding;
use crate::store::bundle;

/// How far a set of bindings is; part of a workflow's state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Bindings that were sent.
    sent: BTreeMap<Uuid, Sent>,
    /// When all bindings of an app were first seen applied, and ready.
    reached: BTreeMap<String, Reached>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Reached {
    applied: Option<Timestamp>,
    ready: Option<Timestamp>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Brought {
    /// All of them serve.
    All,
    /// Wait for these.
    Waiting {
        /// Keys to be woken by.
        keys: Vec<String>,
        /// When to look at the latest.
        until: Timestamp,
        /// For people.
        note: String,
    },
    /// One will not do.
    Failed {
        /// Which.
        binding: Uuid,
        /// Stable code.
        code: String,
        /// For people.
        reason: String,
    },
    /// The pods of one find no node.
    Unschedulable {
        /// Which.
        binding: Uuid,
        /// The scheduler's words.
        reason: String,
    },
}

/// Tells the synchronizer that a binding shall be present; its bundle first.
pub async fn send(world: &Environment, binding: &Binding, fence: i64) -> Result<(), StepError> {
    store(world, binding).await?;
    order(world, binding, fence).await
}

async fn store(world: &Environment, binding: &Binding) -> Result<(), StepError> {
    let objects = bundle::objects(&mut *world.store.pool().acquire().await?, &binding.digest).await?;
    world.services.synchronizer.put_bundle(&binding.digest, &Bundle { objects }).await.map_err(refused)
}

async fn order(world: &Environment, binding: &Binding, fence: i64) -> Result<(), StepError> {
    world.services.synchronizer.put_binding(&binding.desired(DesiredState::Present, fence)).await.map_err(refused)
}

/// What is wrong with the request itself is as wrong when it is repeated; a stale fence only says that another hand is at work.
fn refused(error: PeerError) -> StepError {
    match &error {
        PeerError::Refused { .. } if !error.is_retryable() && error.code() != Some("stale_fence") => {
            StepError::fail("apply_failed", error.to_string())
        }
        _ => error.into(),
    }
}

impl Progress {
    /// Sends what may be sent, looks at what was, with so much patience.
    pub async fn bring(
        &mut self,
        world: &Environment,
        fence: i64,
        bindings: &[Binding],
        after: &BTreeMap<String, Vec<After>>,
        patience: Deadlines,
    ) -> Result<Brought, StepError> {
        let mut stored = BTreeSet::new();
        for binding in bindings {
            let due = self.may_start(after.get(&binding.app).map_or(&[], Vec::as_slice), bindings);
            if !self.sent.contains_key(&binding.id) && due.is_ok() {
                if stored.insert(&binding.digest) {
                    store(world, binding).await?;
                }
                order(world, binding, fence).await?;
                self.sent.insert(binding.id, Sent { fence, digest: binding.digest.clone(), at: now(), trouble: None });
            }
        }
        Ok(self.look(world, bindings, after, patience))
    }

    fn look(&mut self, world: &Environment, bindings: &[Binding], after: &BTreeMap<String, Vec<After>>, patience: Deadlines) -> Brought {
        let now = now();
        let (mut keys, mut until, mut notes, mut ready) = (Vec::new(), None::<Timestamp>, Vec::new(), 0);
        let mut apps: BTreeMap<&str, (bool, bool)> = BTreeMap::new();
        for binding in bindings {
            let (all_applied, all_ready) = apps.entry(&binding.app).or_insert((true, true));
            let Some(sent) = self.sent.get_mut(&binding.id) else {
                (*all_applied, *all_ready) = (false, false);
                continue;
            };
            match judge::judge(sent, world.statuses.get(binding.id).as_deref(), now, &patience) {
                Verdict::Ready => ready += 1,
                Verdict::Waiting { until: look, applied, note } => {
                    (*all_applied, *all_ready) = (*all_applied && applied, false);
                    keys.push(binding_key(binding.id));
                    until = Some(until.map_or(look, |until| Timestamp(until.0.min(look.0))));
                    notes.extend(note.map(|note| format!("{} on {}: {note}", binding.app, binding.member)));
                }
                Verdict::Failed { code, reason } => {
                    return Brought::Failed {
                        binding: binding.id,
                        code,
                        reason: format!("{} on {}: {reason}", binding.app, binding.member),
                    };
                }
                Verdict::Unschedulable(reason) => {
                    return Brought::Unschedulable {
                        binding: binding.id,
                        reason: format!("{} on {}: {reason}", binding.app, binding.member),
                    };
                }
            }
        }
        for (app, (all_applied, all_ready)) in apps {
            let reached = self.reached.entry(app.to_owned()).or_default();
            reached.applied = reached.applied.or((all_applied || all_ready).then_some(now));
            reached.ready = reached.ready.or(all_ready.then_some(now));
        }
        if ready == bindings.len() {
            return Brought::All;
        }
        // Some wait for a dependency's moment rather than for the synchronizer.
        for binding in bindings.iter().filter(|binding| !self.sent.contains_key(&binding.id)) {
            let when = self
                .may_start(after.get(&binding.app).map_or(&[], Vec::as_slice), bindings)
                .err()
                .flatten()
                .unwrap_or(judge::after(now, std::time::Duration::from_secs(1)));
            until = Some(until.map_or(when, |until| Timestamp(until.0.min(when.0))));
        }
        notes.insert(0, format!("{ready} of {} ready", bindings.len()));
        Brought::Waiting { keys, until: until.unwrap_or_else(|| judge::after(now, patience.ready)), note: notes.join("; ") }
    }

    /// Whether every dependency is fulfilled; if not, when it will be, where that is known.
    fn may_start(&self, after: &[After], bindings: &[Binding]) -> Result<(), Option<Timestamp>> {
        let now = now();
        let (mut open, mut when) = (false, None::<Timestamp>);
        for dependency in after.iter().filter(|dependency| bindings.iter().any(|binding| binding.app == dependency.app)) {
            let reached = self.reached.get(&dependency.app);
            let since = reached.and_then(|reached| if dependency.ready { reached.ready } else { reached.applied.or(reached.ready) });
            let due = since.map(|since| judge::after(since, std::time::Duration::from_secs(dependency.wait_s.into())));
            match due {
                Some(due) if due <= now => {}
                Some(due) => (open, when) = (true, Some(when.map_or(due, |when| Timestamp(when.0.max(due.0))))),
                None => open = true,
            }
        }
        if open { Err(when) } else { Ok(()) }
    }
}
