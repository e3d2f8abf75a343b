//! The start gate by NRI: the runtime asks before it creates a container. One that does not fit is refused, keeps its place in the queue,
//! and is asked about again when the kubelet tries again. Nothing is held, so nothing is journaled and nothing has to be let go.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use drover_memguard::{Activity, Container, ContainerId, Moment, Reading, Reason};

use super::Agent;
use crate::api::Say;
use crate::clock;
use crate::nri::{Newcomer, Question};
use crate::wire::Mode;

/// The kubelet tries again after 10 to 15 s; who does not come back for longer than this is not coming.
const LOST: Duration = Duration::from_secs(90);

/// One that was refused.
#[derive(Debug)]
pub(super) struct Waiting {
    container: Container,
    asked: Instant,
}

impl Agent {
    /// Answers at once: the runtime creates nothing else meanwhile.
    pub(super) fn on_question(&mut self, question: Question) {
        let verdict = self.may_be_created(&question.newcomer);
        if question.answer.send(verdict).is_err() {
            tracing::debug!("the answer came too late: the container is created");
        }
    }

    fn may_be_created(&mut self, newcomer: &Newcomer) -> Result<(), String> {
        // The next attempt has another id, and is the same pod.
        let id = ContainerId::from(format!("{}/{}", newcomer.sandbox.uid, newcomer.container));
        let before = self.waiting.remove(&id);
        self.seen.containers.retain(|container| container.id != id);
        self.state.admitted.remove(&id);
        let (allowed, _) = self.may_act();
        if !allowed || self.run.mode != Mode::Apply {
            return Ok(());
        }
        let now = clock::now();
        let since = before.as_ref().map_or(now, |waiting| waiting.container.started);
        let view = self.cluster.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut container = self.inventory.stranger(newcomer, &newcomer.id, &view, since);
        let verdict = match now.since(since) {
            held if held >= self.guard.safety.max_hold => Ok(Reason::held(held)),
            _ => self.guard.may_start(&mut self.state, &self.seen, &container, now),
        };
        match verdict {
            Ok(reason) => {
                if before.is_some() {
                    tracing::info!(container.name = %container.name, reason = %reason, "comes in");
                }
                self.note(&container.id, None, &reason, true);
                Ok(())
            }
            Err(reason) => {
                container.id = id.clone();
                // Nobody probes what does not exist.
                container.permission = container.permission.unprobed();
                if before.is_none() {
                    tracing::info!(container.name = %container.name, reason = %reason, "is refused at its creation");
                    self.shared.metrics.gated.inc();
                    self.tell_of(newcomer, &reason);
                }
                self.note(&id, None, &reason, true);
                self.waiting.insert(id, Waiting { container, asked: Instant::now() });
                Err(format!("memory guard: held at its start: {reason}"))
            }
        }
    }

    /// Those that were refused stand at the gate, as the guard sees it.
    pub(super) fn see_waiting(&mut self, now: Moment) {
        self.waiting.retain(|_, waiting| waiting.asked.elapsed() < LOST);
        self.seen.containers.extend(self.waiting.values().map(|waiting| {
            let since = waiting.container.started;
            Container { memory: Reading::seen(0, now), activity: Activity::AtGate { since }, ..waiting.container.clone() }
        }));
    }

    fn tell_of(&self, newcomer: &Newcomer, reason: &Reason) {
        let Some(say) = &self.say else { return };
        let event = Say::Event {
            pod: (newcomer.sandbox.namespace.clone(), newcomer.sandbox.pod.clone()),
            uid: newcomer.sandbox.uid.clone(),
            container: newcomer.container.clone(),
            reason: "MemoryGuardHeld",
            message: format!("held at its start: {reason}"),
        };
        if say.try_send(event).is_err() {
            tracing::debug!("an Event was dropped: too many wait");
        }
    }
}
