//! The failpoints of a workflow, as its table of steps gives them: what tests that kill services from outside go through.
//! The engine passes them by the same names; a list made here that it does not pass is found by those tests.

use std::fmt;

use crate::Workflow;
use crate::definition::{Effect, Step, StepKind};

/// Where each step can be stopped, in this order.
const MOMENTS: [&str; 3] = ["before", "after_effect", "after_journal"];

/// One place at which a workflow can be stopped. Displayed as its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Failpoint {
    /// Kind of the workflow.
    pub kind: &'static str,
    /// Step.
    pub step: &'static str,
    /// On the way back.
    pub undo: bool,
    /// `before`, `after_effect` or `after_journal`.
    pub moment: &'static str,
    /// The service that the effect is in, where that is not the workflow's own.
    pub service: Option<&'static str>,
    /// A transaction is open while it stops there.
    pub in_transaction: bool,
    /// The workflow's pivot: until it is done there is a way back; none: there always is.
    pub pivot: Option<&'static str>,
}

impl fmt::Display for Failpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.kind, self.step, if self.undo { "undo" } else { "do" }, self.moment)
    }
}

/// All failpoints of a workflow: of each step forward, in order, then of each undo, in the order of undoing.
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
