//! The list of a workflow's failpoints, derived from its list of steps, for tests that kill services from outside.
//! The engine passes the failpoints under the same names; those tests find a name in the list that it does not pass.

use std::fmt;

use crate::Workflow;
use crate::definition::{Effect, Step, StepKind};

/// The places in each step, in this order.
const MOMENTS: [&str; 3] = ["before", "after_effect", "after_journal"];

/// A place at which a workflow can be stopped. Displayed as the failpoint's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Failpoint {
    pub kind: &'static str,
    pub step: &'static str,
    /// Whether the place is in the undo of the step.
    pub undo: bool,
    /// `before`, `after_effect` or `after_journal`.
    pub moment: &'static str,
    /// The other service in which the step takes effect, if it is not the workflow's own.
    pub service: Option<&'static str>,
    /// Whether a transaction is open while the workflow is stopped there.
    pub in_transaction: bool,
    /// The workflow's pivot; without one it can be undone until its end.
    pub pivot: Option<&'static str>,
}

impl fmt::Display for Failpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.kind, self.step, if self.undo { "undo" } else { "do" }, self.moment)
    }
}

/// All failpoints of a workflow: those of its steps in their order, then those of the undos in the order of undoing.
pub fn failpoints<W: Workflow>() -> Vec<Failpoint> {
    let table = W::steps();
    let pivot = table.pivot.map(|at| table.steps[at].name);
    let of = |step: &Step<W>, undo: bool| {
        let effect = if undo { step.undo.as_ref() } else { Some(&step.effect) };
        let local = matches!(effect, Some(Effect::Local(_))) || !undo && step.kind == StepKind::Children;
        let (step, service) = (step.name, if undo { step.undo_at } else { step.at });
        MOMENTS.map(|moment| {
            let in_transaction = local && moment == "after_effect";
            Failpoint { kind: W::KIND, step, undo, moment, service, in_transaction, pivot }
        })
    };
    let forward = table.steps.iter().flat_map(|step| of(step, false));
    let back = table.steps.iter().rev().filter(|step| step.undo.is_some()).flat_map(|step| of(step, true));
    forward.chain(back).collect()
}
