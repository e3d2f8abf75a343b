//! The latest status of each binding, as resource-synchronizer reports it, and which of them workflows wait for.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

use drover_api::bindings::{BindingStatus, Phase};
use drover_api::scheduling::Interner;
use drover_store::Timestamp;
use uuid::Uuid;

use crate::render::digest_of_app;

/// The latest status of each binding, from the feed of resource-synchronizer. In memory only: after a restart the feed sends
/// all of them again.
#[derive(Clone, Default)]
pub struct Statuses(Arc<RwLock<Known>>);

#[derive(Default)]
struct Known {
    statuses: HashMap<Uuid, Arc<BindingStatus>>,
    /// Since when the members of bindings have not answered, as far as this process has seen.
    unreachable: HashMap<Uuid, Timestamp>,
    /// Bindings for which a workflow waits together and that have not been reported as ready since it assessed them, each with all for which
    /// it waited then.
    awaited: HashMap<Uuid, Arc<[Uuid]>>,
    /// Shared by all bindings of an app.
    digests: Interner<str>,
}

/// What was known of a binding when it was assessed.
pub type Assessed = (Uuid, Option<Arc<BindingStatus>>);

/// What a new status means for a workflow that waits for its binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It may go on now, or a deadline starts or ends.
    Decisive,
    /// The binding is ready, but others for which it waits, too, are not.
    ReadyBeforeOthers,
    /// It has to wait on; users may want to see how far it is.
    Progress,
}

impl Statuses {
    /// The latest status of a binding, if one was reported.
    pub fn get(&self, binding: Uuid) -> Option<Arc<BindingStatus>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).statuses.get(&binding).cloned()
    }

    /// Since when the member of a binding has not answered, without a pause; `None` if it answers.
    pub fn unreachable_since(&self, binding: Uuid) -> Option<Timestamp> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).unreachable.get(&binding).copied()
    }

    /// The bindings of which other field managers have scaled workloads.
    pub fn scaled(&self) -> Vec<Uuid> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.statuses.iter().filter(|(_, status)| !status.scaled.is_empty()).map(|(id, _)| *id).collect()
    }

    /// A workflow waits until all these bindings are ready, so that it need not be woken for each. Nothing is recorded if one of them has
    /// another status than the assessed one by now: then it is woken for each. So it is by other processes, which do not know of this.
    pub fn await_together(&self, waiting: &[Assessed]) {
        let mut known = self.write();
        let as_assessed = |(id, status): &Assessed| known.statuses.get(id).map(Arc::as_ptr) == status.as_ref().map(Arc::as_ptr);
        if waiting.iter().all(as_assessed) {
            let together: Arc<[Uuid]> = waiting.iter().map(|(id, _)| *id).collect();
            known.awaited.extend(together.iter().map(|id| (*id, together.clone())));
        }
    }

    /// Workflows that wait for one of these bindings are woken for each change that may matter.
    pub fn await_each(&self, bindings: impl IntoIterator<Item = Uuid>) {
        let mut known = self.write();
        bindings.into_iter().for_each(|id| drop(known.awaited.remove(&id)));
    }

    /// Replaces the status of a binding; `None` means that resource-synchronizer no longer has the binding. Returns what that means for a
    /// workflow that waits for it.
    pub fn set(&self, binding: Uuid, status: Option<BindingStatus>) -> News {
        let mut known = self.write();
        let phase = status.as_ref().map_or(Phase::Gone, |status| status.phase);
        if phase == Phase::Unreachable {
            known.unreachable.entry(binding).or_insert_with(drover_store::now);
        } else {
            known.unreachable.remove(&binding);
        }
        let before = known.statuses.get(&binding).cloned();
        let is_in_trouble = [before.as_deref(), status.as_ref()].into_iter().flatten().any(is_in_trouble);
        let answers = status.as_ref().is_some_and(|status| answers(before.as_deref(), status));
        match status {
            Some(mut status) => {
                // serde_json allocates room for four elements; most bindings have one object.
                status.objects.shrink_to_fit();
                // Workflows compare it with the digest of the app, which is the same in all members.
                status.digest = known.digests.intern(digest_of_app(&status.digest));
                known.statuses.insert(binding, Arc::new(status));
            }
            None => drop(known.statuses.remove(&binding)),
        }
        let news = match phase {
            Phase::Ready if known.is_last_to_be_ready(binding) => News::Decisive,
            Phase::Ready => News::ReadyBeforeOthers,
            Phase::Failed | Phase::Gone => {
                known.forget_those_awaited_with(binding);
                News::Decisive
            }
            _ => News::Progress,
        };
        if is_in_trouble || answers { News::Decisive } else { news }
    }

    /// Forgets all statuses, because the feed starts over. Returns the bindings that had one.
    pub fn reset(&self) -> Vec<Uuid> {
        let mut known = self.write();
        known.unreachable.clear();
        known.awaited.clear();
        known.statuses.drain().map(|(id, _)| id).collect()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Known> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Records that a binding is ready. False if others for which a workflow waits, too, are not.
    fn is_last_to_be_ready(&mut self, binding: Uuid) -> bool {
        let together = self.awaited.remove(&binding);
        together.is_none_or(|together| !together.iter().any(|other| self.awaited.contains_key(other)))
    }

    /// A wait has ended in another way than was expected: what follows for the other bindings is not known.
    fn forget_those_awaited_with(&mut self, binding: Uuid) {
        for other in self.awaited.remove(&binding).iter().flat_map(|together| together.iter()) {
            self.awaited.remove(other);
        }
    }
}

/// Whether a deadline runs for it.
fn is_in_trouble(status: &BindingStatus) -> bool {
    status.phase == Phase::Unreachable || status.unschedulable.is_some()
}

/// Whether a status says that what was asked for beside readiness is done: its tests have ended, or it has given something up.
fn answers(before: Option<&BindingStatus>, now: &BindingStatus) -> bool {
    let ended = |status: &BindingStatus| status.tested.as_ref().filter(|tested| tested.ended).map(|tested| tested.run);
    ended(now) != before.and_then(ended) || now.released[..] != *before.map_or(&[][..], |before| &before.released)
}

/// The status of a binding in this phase, with nothing else to say.
#[cfg(test)]
pub(crate) fn in_phase(id: Uuid, phase: Phase) -> BindingStatus {
    BindingStatus {
        id,
        member: Default::default(),
        digest: "d".into(),
        fence: 5,
        phase,
        code: None,
        reason: None,
        elsewhere: false,
        lasting: None,
        unschedulable: None,
        objects: vec![],
        scaled: vec![],
        kept: vec![],
        released: vec![],
        serving_after: 0,
        tested: None,
        bounds: None,
    }
}

#[cfg(test)]
mod tests {
    use drover_api::bindings::TestRun;

    use super::*;

    const BINDINGS: [Uuid; 3] = [Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3)];

    fn report(statuses: &Statuses, id: Uuid, phase: Phase) -> News {
        statuses.set(id, Some(in_phase(id, phase)))
    }

    fn assessed(statuses: &Statuses) -> Vec<Assessed> {
        BINDINGS.map(|id| (id, statuses.get(id))).to_vec()
    }

    #[test]
    fn only_the_last_of_those_awaited_together_is_decisive_when_ready() {
        let (statuses, [a, b, c]) = (Statuses::default(), BINDINGS);
        assert_eq!(report(&statuses, a, Phase::Ready), News::Decisive, "nobody has said what else is awaited");
        assert_eq!(report(&statuses, a, Phase::Applied), News::Progress);
        statuses.await_together(&assessed(&statuses));
        assert_eq!(report(&statuses, b, Phase::Ready), News::ReadyBeforeOthers);
        assert_eq!(report(&statuses, b, Phase::Applied), News::Progress, "it is not ready any more");
        assert_eq!(report(&statuses, a, Phase::Ready), News::ReadyBeforeOthers);
        assert_eq!(report(&statuses, c, Phase::Ready), News::Decisive, "its workflow finds that b is not ready, and waits for it again");
        assert_eq!(report(&statuses, b, Phase::Ready), News::Decisive);
    }

    #[test]
    fn a_wait_that_ends_otherwise_is_forgotten() {
        for end in [Phase::Failed, Phase::Gone] {
            let (statuses, [a, b, c]) = (Statuses::default(), BINDINGS);
            statuses.await_together(&assessed(&statuses));
            assert_eq!(report(&statuses, a, Phase::Ready), News::ReadyBeforeOthers);
            assert_eq!(statuses.set(b, (end != Phase::Gone).then(|| in_phase(b, end))), News::Decisive);
            assert_eq!(statuses.0.read().unwrap().awaited, HashMap::new());
            assert_eq!(report(&statuses, c, Phase::Ready), News::Decisive, "{end:?}");
        }
        let (statuses, [a, ..]) = (Statuses::default(), BINDINGS);
        statuses.await_together(&assessed(&statuses));
        statuses.await_each([BINDINGS[1], BINDINGS[2]]);
        assert_eq!(report(&statuses, a, Phase::Ready), News::Decisive);
        statuses.await_together(&assessed(&statuses));
        assert_eq!(statuses.reset(), [a]);
        assert_eq!(report(&statuses, a, Phase::Ready), News::Decisive, "the feed starts over");
    }

    #[test]
    fn what_was_assessed_too_early_is_not_awaited() {
        let (statuses, [a, b, _]) = (Statuses::default(), BINDINGS);
        let early = assessed(&statuses);
        report(&statuses, a, Phase::Ready);
        statuses.await_together(&early);
        assert_eq!(report(&statuses, b, Phase::Ready), News::Decisive, "a will not become ready a second time");
    }

    #[test]
    fn start_and_end_of_trouble_are_decisive() {
        let (statuses, [a, ..]) = (Statuses::default(), BINDINGS);
        statuses.await_together(&assessed(&statuses));
        assert_eq!(report(&statuses, a, Phase::Unreachable), News::Decisive);
        assert!(statuses.unreachable_since(a).is_some());
        assert_eq!(report(&statuses, a, Phase::Applied), News::Decisive);
        assert_eq!(statuses.unreachable_since(a), None);
        let stuck = BindingStatus { unschedulable: Some("0/3 nodes".into()), ..in_phase(a, Phase::Applied) };
        assert_eq!(statuses.set(a, Some(stuck)), News::Decisive);
        assert_eq!(report(&statuses, a, Phase::Ready), News::Decisive, "others are not ready, but a deadline ends");
    }

    #[test]
    fn what_was_asked_for_beside_readiness_is_decisive_once_it_is_done() {
        let (statuses, [a, ..]) = (Statuses::default(), BINDINGS);
        let of = |tested: Option<bool>, released: &[&str]| BindingStatus {
            tested: tested.map(|ended| TestRun { run: Uuid::nil(), ended, tests: vec![] }),
            released: released.iter().map(|name| (*name).to_owned()).collect(),
            ..in_phase(a, Phase::Applied)
        };
        let news = [of(Some(false), &[]), of(Some(true), &[]), of(Some(true), &[]), of(Some(true), &["data"]), of(None, &["data"])];
        let news = news.map(|status| statuses.set(a, Some(status)));
        assert_eq!(news, [News::Progress, News::Decisive, News::Progress, News::Decisive, News::Decisive]);
    }
}
