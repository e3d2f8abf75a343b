//! What the random walk believes: which groups run with how many pods, and what each act may have made of that. Pure.

use std::collections::BTreeMap;

use drover_api::operations::{Operation, OperationState};
use drover_e2e::apps::App;
use drover_e2e::emco::Group;
use proptest::prelude::*;

/// One node each, so that a member's sums are its node's. The last is the least preferred.
pub const MEMBERS: [(&str, &str, u8); 3] = [("north", "onprem", 1), ("south", "onprem", 1), ("cloud", "aws", 5)];
/// CPUs of each.
pub const CPUS: u32 = 4;
/// Together they want about twice of what there is.
pub const GROUPS: usize = 12;

/// What is done to one group.
#[derive(Clone, Copy, Debug)]
pub enum Deed {
    Deploy { replicas: u32 },
    Update { replicas: u32 },
    Terminate,
}

/// A deed, and whether its doer changes her mind at once.
#[derive(Clone, Copy, Debug)]
pub struct Act {
    pub group: usize,
    pub deed: Deed,
    pub cancelled: bool,
}

/// What a member does to everybody for a while.
#[derive(Clone, Copy, Debug)]
pub enum Trouble {
    Silent,
    Refuses,
    Errors,
    Throttles,
    LosesAnswers,
    CutsWatches,
    Forgets,
    LocksOut,
}

/// What happens at once; the next step begins when all of it has ended.
#[derive(Clone, Debug)]
pub struct Step {
    pub acts: Vec<Act>,
    /// Everything is to leave this member.
    pub drain: Option<usize>,
    pub trouble: Option<(usize, Trouble)>,
}

/// A walk of so many steps. None of them is left out; a shorter walk has gaps.
pub fn walks(steps: usize) -> impl Strategy<Value = Vec<Option<Step>>> {
    let deed = prop_oneof![
        4 => (1..=2_u32).prop_map(|replicas| Deed::Deploy { replicas }),
        2 => (1..=2_u32).prop_map(|replicas| Deed::Update { replicas }),
        3 => Just(Deed::Terminate),
    ];
    let act = (0..GROUPS, deed, prop::bool::weighted(0.1)).prop_map(|(group, deed, cancelled)| Act { group, deed, cancelled });
    let trouble = prop::sample::select(vec![
        Trouble::Silent,
        Trouble::Refuses,
        Trouble::Errors,
        Trouble::Throttles,
        Trouble::LosesAnswers,
        Trouble::CutsWatches,
        Trouble::Forgets,
        Trouble::LocksOut,
    ]);
    let step = (
        prop::collection::vec(act, 1..=3),
        prop::option::weighted(0.1, 0..MEMBERS.len()),
        prop::option::weighted(0.2, (0..MEMBERS.len(), trouble)),
    );
    let step = step.prop_map(|(acts, drain, trouble)| Step { acts, drain, trouble });
    prop::collection::vec(prop::option::weighted(0.999_999_999, step), steps)
}

/// What a group is, always.
pub struct Nature {
    pub name: String,
    pub cpu_m: u32,
    /// Indices of members.
    pub on: Vec<usize>,
    pub movable: bool,
}

impl Nature {
    /// Of the group with this number.
    pub fn of(at: usize) -> Self {
        let on = [vec![0], vec![0, 1], vec![1, 2], vec![0, 1, 2], vec![1], vec![0, 2]][at % 6].clone();
        Self { name: format!("g-{at}"), cpu_m: [500, 1000, 1500][at % 3], on, movable: at % 4 != 3 }
    }

    /// Its documents; `revision` makes its pods differ from those before.
    pub fn group(&self, replicas: u32, revision: u32) -> Group {
        let place = |at: &usize| format!("{}/{}", MEMBERS[*at].1, MEMBERS[*at].0);
        let all: Vec<String> = (0..MEMBERS.len()).map(|at| place(&at)).collect();
        let on: Vec<String> = self.on.iter().map(place).collect();
        let app = App::new(&self.name, self.cpu_m).replicas(replicas).annotated("drover.test/revision", &revision.to_string());
        let group = Group::new(&self.name, app).in_project("walk");
        let group = group.among(&all.iter().map(String::as_str).collect::<Vec<_>>()).on(&on.iter().map(String::as_str).collect::<Vec<_>>());
        if self.movable { group.movable(5) } else { group }
    }
}

/// Who runs, with how many pods.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub running: BTreeMap<usize, u32>,
}

/// What was said to an act.
#[derive(Debug)]
pub enum Said {
    /// No, with this code.
    Refused(String),
    /// Yes, and this came of it.
    Ended(Box<Operation>),
}

impl Model {
    /// Takes in what was said to an act. Wrong: it could not have been said.
    pub fn hear(&mut self, act: Act, said: &Said) -> Result<(), String> {
        let runs = self.running.contains_key(&act.group);
        let possible = matches!(act.deed, Deed::Deploy { .. }) != runs;
        let operation = match said {
            // Somebody may be moving it just now.
            Said::Refused(code) if code == "busy" || (code == "wrong_state" && !possible) => return Ok(()),
            Said::Refused(code) => return Err(format!("{act:?} was refused: {code}")),
            Said::Ended(_) if !possible => return Err(format!("{act:?} was accepted, which the group's state forbids")),
            Said::Ended(operation) => operation,
        };
        match (operation.state, act.deed) {
            (OperationState::Succeeded, Deed::Deploy { replicas } | Deed::Update { replicas }) => {
                self.running.insert(act.group, replicas);
            }
            (OperationState::Succeeded, Deed::Terminate) => {
                self.running.remove(&act.group);
            }
            // Also a terminate, if it had not let go of anything yet.
            (OperationState::Cancelled, _) if act.cancelled => {}
            (OperationState::Failed, Deed::Deploy { .. } | Deed::Update { .. })
                if operation.code.is_some() && !operation.message.is_empty() => {}
            _ => return Err(format!("{act:?} ended as it may not: {operation:#?}")),
        }
        Ok(())
    }

    /// Whether a group that does not run must find room now, nobody else being about: `free` milli-cores by member.
    pub fn must_fit(&self, group: usize, replicas: u32, free: &[i64]) -> bool {
        let nature = Nature::of(group);
        nature.on.iter().any(|at| free[*at] >= i64::from(nature.cpu_m * replicas))
    }
}
