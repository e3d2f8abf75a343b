//! Applying bindings: sends bundles and bindings to resource-synchronizer in the order of their dependencies, then checks the
//! status of each. Called in every pass of a waiting step; each binding is sent once per journaled state.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::bindings::{Bundle, DesiredBinding, DesiredBindings, DesiredState, Preflight, PreflightAnswer, Share};
use drover_store::Timestamp;
use drover_workflow::StepError;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::OnceCell;
use uuid::Uuid;

use super::readiness::{self, Readiness, Sent};
use super::{After, now};
use crate::config::Deadlines;
use crate::environment::{Environment, Lease, binding_key};
use crate::peers::PeerError;
use crate::render::sent_digest;
use crate::store::binding::Binding;
use crate::store::bundle;
use crate::store::grants::{self, Rights};

/// Bindings that are sent with one request.
pub const TOGETHER: usize = 100;
/// Bundles that are sent at the same time.
const AT_ONCE: usize = 8;

/// How far a set of bindings is. Part of a workflow's state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ApplyProgress {
    sent: BTreeMap<Uuid, Sent>,
    /// When all bindings of an app were first seen applied, and first seen ready.
    reached: BTreeMap<String, Reached>,
    /// Whether the bindings are those of an earlier revision to which somebody goes back.
    #[serde(default)]
    pub rollback: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Reached {
    applied: Option<Timestamp>,
    ready: Option<Timestamp>,
}

/// How far a set of bindings is after a pass.
#[derive(Clone, Debug, PartialEq)]
pub enum Applied {
    /// All are ready.
    All,
    /// Some are not ready yet.
    Waiting {
        /// Keys to park on.
        keys: Vec<String>,
        /// The next deadline: check again by then.
        until: Timestamp,
        /// What is waited for, in words for people.
        note: String,
    },
    /// Terminal failure of one binding.
    Failed {
        binding: Uuid,
        /// Stable error code.
        code: String,
        /// Why, in words for people.
        reason: String,
        /// Another member may accept its objects.
        elsewhere: bool,
        /// What speaks against it there and does not end by itself.
        lasting: Option<String>,
    },
    /// The pods of one binding found no node until the deadline.
    Unschedulable {
        binding: Uuid,
        /// The scheduler's message.
        reason: String,
    },
}

/// Sends a binding that is to be present, with its bundle.
///
/// # Errors
///
/// Fails for good if the request itself is refused; every other error, a stale fence included, is a retry.
pub async fn send(environment: &Environment, binding: &Binding, fence: i64) -> Result<(), StepError> {
    send_present(environment, binding, binding.desired(DesiredState::Present, fence)).await
}

/// Like [`send`], for a copy that runs only this part of the app.
///
/// # Errors
///
/// See [`send`].
pub async fn send_share(environment: &Environment, binding: &Binding, share: Arc<Share>, fence: i64) -> Result<(), StepError> {
    let desired = DesiredBinding { share: Some(share), ..binding.desired(DesiredState::Present, fence) };
    send_present(environment, binding, desired).await
}

async fn send_present(environment: &Environment, binding: &Binding, desired: DesiredBinding) -> Result<(), StepError> {
    put(environment, binding, async { Ok(vec![with_rights(environment, binding, desired).await?]) }).await
}

/// Sends bindings with the bundle that they have in common, that of `one` of them. It is read while the bindings are made, and goes with
/// the first request.
async fn put(
    environment: &Environment,
    one: &Binding,
    bindings: impl Future<Output = Result<Vec<DesiredBinding>, StepError>>,
) -> Result<(), StepError> {
    let (objects, mut bindings) = tokio::try_join!(objects(environment, one), bindings)?;
    let mut bundle = Some(Bundle { digest: sent_digest(&one.digest, &one.member).into(), objects });
    while !bindings.is_empty() {
        let rest = bindings.split_off(bindings.len().min(TOGETHER));
        let some = DesiredBindings { bundle: bundle.take(), bindings: std::mem::replace(&mut bindings, rest) };
        environment.services.synchronizer.put_bindings(&some).await.map_err(refused)?;
    }
    Ok(())
}

async fn objects(environment: &Environment, binding: &Binding) -> Result<Vec<Value>, StepError> {
    let (mut connection, key) = (environment.store.acquire().await?, environment.store.key()?);
    Ok(bundle::objects_in(&mut connection, key, &binding.digest, &binding.member).await?)
}

async fn with_rights(environment: &Environment, binding: &Binding, desired: DesiredBinding) -> Result<DesiredBinding, StepError> {
    Ok(limited(desired, rights(environment, binding.dig.id).await?))
}

/// Bindings of these groups with their rights, which are read once.
async fn with_known_rights(
    environment: &Environment,
    bindings: Vec<(Uuid, DesiredBinding)>,
    known: &BTreeMap<Uuid, OnceCell<Rights>>,
) -> Result<Vec<DesiredBinding>, StepError> {
    let mut all = Vec::new();
    for (dig, desired) in bindings {
        let rights = known[&dig].get_or_try_init(|| rights(environment, dig)).await?;
        all.push(limited(desired, rights.clone()));
    }
    Ok(all)
}

async fn rights(environment: &Environment, dig: Uuid) -> Result<Rights, StepError> {
    Ok(grants::of_group(&mut *environment.store.acquire().await?, dig).await?)
}

fn limited(desired: DesiredBinding, rights: Rights) -> DesiredBinding {
    DesiredBinding { grants: rights.grants.map(Arc::new), act_as: rights.act_as.map(Into::into), ..desired }
}

/// What speaks against a binding in its member. Nothing is written there.
///
/// # Errors
///
/// Every error is a retry.
pub async fn preflight(environment: &Environment, binding: &Binding) -> Result<PreflightAnswer, StepError> {
    let objects = objects(environment, binding).await?;
    let desired = with_rights(environment, binding, binding.desired(DesiredState::Present, 0)).await?;
    Ok(environment.services.synchronizer.preflight(&Preflight { binding: desired, objects }).await?)
}

/// A request that is wrong stays wrong when it is repeated. A stale fence only means that another engine took over.
fn refused(error: PeerError) -> StepError {
    match &error {
        PeerError::Refused { .. } if !error.is_retryable() && error.code() != Some("stale_fence") => {
            StepError::fail("apply_failed", error.to_string())
        }
        _ => error.into(),
    }
}

impl ApplyProgress {
    /// Forgets bindings that are being removed, so that others of their apps are sent.
    pub fn forget(&mut self, bindings: &[Binding]) {
        bindings.iter().for_each(|binding| drop(self.sent.remove(&binding.id)));
        self.reached.clear();
    }

    /// Sends the bindings whose dependencies are fulfilled and assesses all of them by `deadlines`.
    ///
    /// # Errors
    ///
    /// See [`send`].
    pub async fn advance(
        &mut self,
        environment: &Environment,
        lease: Lease,
        bindings: &[Binding],
        after: &BTreeMap<String, Vec<After>>,
        deadlines: Deadlines,
    ) -> Result<Applied, StepError> {
        let may_start = |binding: &&Binding| self.may_start(after.get(&binding.app).map_or(&[], Vec::as_slice), bindings).is_ok();
        let due: Vec<&Binding> = bindings.iter().filter(|binding| !self.sent.contains_key(&binding.id)).filter(may_start).collect();
        if !due.is_empty() {
            self.send_all(environment, lease, &due).await?;
        }
        Ok(self.assess(environment, bindings, after, deadlines))
    }

    /// Sends these bindings, those with the same bundle together. After an error none counts as sent: it is sent again.
    async fn send_all(&mut self, environment: &Environment, lease: Lease, due: &[&Binding]) -> Result<(), StepError> {
        let fence = environment.first_fence(lease).await?;
        let known: BTreeMap<Uuid, OnceCell<Rights>> = due.iter().map(|binding| (binding.dig.id, OnceCell::new())).collect();
        let mut by_bundle: BTreeMap<String, Vec<&Binding>> = BTreeMap::new();
        for binding in due {
            by_bundle.entry(sent_digest(&binding.digest, &binding.member)).or_default().push(binding);
        }
        let sent = |binding: &Binding| DesiredBinding { rollback: self.rollback, ..binding.desired(DesiredState::Present, fence) };
        let puts: Vec<_> = by_bundle
            .values()
            .map(|bindings| {
                let desired = bindings.iter().map(|binding| (binding.dig.id, sent(binding))).collect();
                put(environment, bindings[0], with_known_rights(environment, desired, &known))
            })
            .collect();
        stream::iter(puts).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        self.sent.extend(due.iter().map(|binding| (binding.id, Sent { fence, digest: binding.digest.clone(), at: now(), trouble: None })));
        Ok(())
    }

    /// What the statuses of the bindings say. Remembers when each app was applied and ready everywhere, which dependencies wait for.
    fn assess(
        &mut self,
        environment: &Environment,
        bindings: &[Binding],
        after: &BTreeMap<String, Vec<After>>,
        deadlines: Deadlines,
    ) -> Applied {
        let now = now();
        let (mut waiting, mut until, mut notes, mut ready) = (Vec::new(), None::<Timestamp>, Vec::new(), 0);
        environment.statuses.await_each(bindings.iter().map(|binding| binding.id));
        let mut apps: BTreeMap<&str, (bool, bool)> = BTreeMap::new();
        for binding in bindings {
            let (all_applied, all_ready) = apps.entry(&binding.app).or_insert((true, true));
            let Some(sent) = self.sent.get_mut(&binding.id) else {
                (*all_applied, *all_ready) = (false, false);
                continue;
            };
            let status = environment.statuses.get(binding.id);
            match readiness::assess(sent, status.as_deref(), now, &deadlines) {
                Readiness::Ready => ready += 1,
                Readiness::Waiting { until: deadline, applied, note } => {
                    (*all_applied, *all_ready) = (*all_applied && applied, false);
                    waiting.push((binding.id, status));
                    until = Some(until.map_or(deadline, |until| Timestamp(until.0.min(deadline.0))));
                    notes.extend(note.map(|note| format!("{} on {}: {note}", binding.app, binding.member)));
                }
                Readiness::Failed { code, reason, elsewhere, lasting } => {
                    return Applied::Failed {
                        binding: binding.id,
                        code,
                        elsewhere,
                        lasting,
                        reason: format!("{} on {}: {reason}", binding.app, binding.member),
                    };
                }
                Readiness::Unschedulable(reason) => {
                    return Applied::Unschedulable {
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
            return Applied::All;
        }
        // Those not sent yet wait for the end of a dependency's delay, not for a status.
        let unsent: Vec<&Binding> = bindings.iter().filter(|binding| !self.sent.contains_key(&binding.id)).collect();
        for binding in &unsent {
            let when = self
                .may_start(after.get(&binding.app).map_or(&[], Vec::as_slice), bindings)
                .err()
                .flatten()
                .unwrap_or(readiness::after(now, std::time::Duration::from_secs(1)));
            until = Some(until.map_or(when, |until| Timestamp(until.0.min(when.0))));
        }
        // While some are not sent, each that is ready may let others start. When all are sent, nothing follows until all are ready.
        if unsent.is_empty() {
            environment.statuses.await_together(&waiting);
        }
        let keys = waiting.iter().map(|(id, _)| binding_key(*id)).collect();
        notes.insert(0, format!("{ready} of {} ready", bindings.len()));
        Applied::Waiting { keys, until: until.unwrap_or_else(|| readiness::after(now, deadlines.ready)), note: notes.join("; ") }
    }

    /// Whether every dependency is fulfilled. If not, the error is the time at which it will be, where that is known.
    fn may_start(&self, after: &[After], bindings: &[Binding]) -> Result<(), Option<Timestamp>> {
        let now = now();
        let (mut open, mut when) = (false, None::<Timestamp>);
        for dependency in after.iter().filter(|dependency| bindings.iter().any(|binding| binding.app == dependency.app)) {
            let reached = self.reached.get(&dependency.app);
            let since = reached.and_then(|reached| if dependency.ready { reached.ready } else { reached.applied.or(reached.ready) });
            let due = since.map(|since| readiness::after(since, std::time::Duration::from_secs(dependency.wait_s.into())));
            match due {
                Some(due) if due <= now => {}
                Some(due) => (open, when) = (true, Some(when.map_or(due, |when| Timestamp(when.0.max(due.0))))),
                None => open = true,
            }
        }
        if open { Err(when) } else { Ok(()) }
    }
}
