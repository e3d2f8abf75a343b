//! The start gate by NRI: the runtime asks before it creates a container. One that does not fit is refused, keeps its place in the queue,
//! and is considered again when the kubelet tries again. Nothing is held, so nothing is written to the journal and nothing has to be
//! released.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use drover_memguard::{Activity, Container, ContainerId, Moment, Reading, Reason};

use super::Agent;
use crate::api::ApiWrite;
use crate::clock;
use crate::nri::{CreationRequest, NewContainer};
use crate::wire::Mode;

/// The kubelet tries again after 10 to 15 s. A container that does not come back for longer than this has been given up.
const GIVEN_UP: Duration = Duration::from_secs(90);

/// A container that was refused at its creation.
#[derive(Debug)]
pub(super) struct RefusedContainer {
    container: Container,
    asked: Instant,
}

/// The id of a container at the start gate. Each attempt to create it has another one in the runtime, but the same pod and name.
fn gate_id(new_container: &NewContainer) -> ContainerId {
    ContainerId::from(format!("{}/{}", new_container.sandbox.uid, new_container.container))
}

impl Agent {
    /// Answers at once, because the runtime creates nothing else in the meantime.
    pub(super) fn on_question(&mut self, question: CreationRequest) {
        let id = gate_id(&question.new_container);
        if question.answer.is_closed() {
            // The runtime has created it meanwhile.
            self.forget_refusal(&id);
            return;
        }
        let verdict = self.may_be_created(&question.new_container);
        if question.answer.send(verdict).is_err() {
            tracing::debug!("the answer came too late, so the container is created");
            self.forget_refusal(&id);
        }
    }

    /// The container is no longer at the start gate. Returns what was known of it if it was refused.
    fn forget_refusal(&mut self, id: &ContainerId) -> Option<RefusedContainer> {
        self.observation.containers.retain(|container| container.id != *id);
        self.state.admitted.remove(id);
        self.refused.remove(id)
    }

    fn may_be_created(&mut self, new_container: &NewContainer) -> Result<(), String> {
        let id = gate_id(new_container);
        let before = self.forget_refusal(&id);
        let (allowed, _) = self.may_act();
        if !allowed || self.run.mode != Mode::Apply {
            return Ok(());
        }
        let now = clock::now();
        let since = before.as_ref().map_or(now, |refused| refused.container.started);
        let view = self.cluster.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut container = self.inventory.describe_before_creation(new_container, &new_container.id, &view, since);
        let verdict = match now.since(since) {
            held if held >= self.guard.safety.max_hold => Ok(Reason::held(held)),
            _ => self.guard.may_start(&mut self.state, &self.observation, &container, now),
        };
        match verdict {
            Ok(reason) => {
                if before.is_some() {
                    tracing::info!(container.name = %container.name, reason = %reason, "a refused container is allowed now");
                }
                self.note(&container.id, None, &reason, true);
                Ok(())
            }
            Err(reason) => {
                container.id = id.clone();
                // A container that does not exist has no probes.
                container.permission = container.permission.unprobed();
                if before.is_none() {
                    tracing::info!(container.name = %container.name, reason = %reason, "a container is refused at its creation");
                    self.shared.metrics.gated.inc();
                    self.send_event_about(new_container, &reason);
                }
                self.note(&id, None, &reason, true);
                self.refused.insert(id, RefusedContainer { container, asked: Instant::now() });
                Err(format!("memory guard: held at its start: {reason}"))
            }
        }
    }

    /// Adds the refused containers to the observation as containers at the start gate.
    pub(super) fn observe_refused(&mut self, now: Moment) {
        self.refused.retain(|_, refused| refused.asked.elapsed() < GIVEN_UP);
        self.observation.containers.extend(self.refused.values().map(|waiting| {
            let since = waiting.container.started;
            Container { memory: Reading::seen(0, now), activity: Activity::AtGate { since }, ..waiting.container.clone() }
        }));
    }

    fn send_event_about(&self, new_container: &NewContainer, reason: &Reason) {
        let Some(writes) = &self.api_writes else { return };
        let event = ApiWrite::Event {
            pod: (new_container.sandbox.namespace.clone(), new_container.sandbox.pod.clone()),
            uid: new_container.sandbox.uid.clone(),
            container: new_container.container.clone(),
            reason: "MemoryGuardHeld",
            message: format!("held at its start: {reason}"),
        };
        if writes.try_send(event).is_err() {
            tracing::debug!("an Event was dropped because too many are queued");
        }
    }
}
