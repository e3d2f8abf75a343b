//! The model of the random walk: which groups run with how many pods, and which results each act may have. No I/O.

use std::collections::{BTreeMap, BTreeSet};

use drover_api::operations::{Operation, OperationState};
use drover_e2e::apps::App;
use drover_e2e::emco::Group;
use proptest::prelude::*;

/// Name, provider and priority. Each has one node, so that the sums of a member are those of its node. The last one is the least preferred.
pub const MEMBERS: [(&str, &str, u8); 3] = [("north", "onprem", 1), ("south", "onprem", 1), ("cloud", "aws", 5)];
/// The number of CPUs of each member.
pub const CPUS: u32 = 4;
/// The number of groups. Together they request about twice the CPUs that there are.
pub const GROUPS: usize = 12;

/// What is done to a group.
#[derive(Clone, Copy, Debug)]
pub enum Deed {
    Deploy { replicas: u32 },
    Update { replicas: u32 },
    Terminate,
}

/// What is done to which group, and whether it is cancelled at once.
#[derive(Clone, Copy, Debug)]
pub struct Act {
    pub group: usize,
    pub deed: Deed,
    pub cancelled: bool,
}

/// A fault of a member that lasts for a step.
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

/// What happens at the same time. The next step begins when all of it has ended.
#[derive(Clone, Debug)]
pub struct Step {
    pub acts: Vec<Act>,
    /// The member that is drained.
    pub drain: Option<usize>,
    pub trouble: Option<(usize, Trouble)>,
}

/// Random walks of so many steps. Shrinking removes steps by replacing them with `None`.
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

/// The properties of a group that never change.
pub struct Nature {
    pub name: String,
    pub cpu_m: u32,
    /// The indices in [`MEMBERS`] of the members where it may run.
    pub on: Vec<usize>,
    pub movable: bool,
}

impl Nature {
    /// The properties of the group with this number.
    pub fn of(at: usize) -> Self {
        let on = [vec![0], vec![0, 1], vec![1, 2], vec![0, 1, 2], vec![1], vec![0, 2]][at % 6].clone();
        Self { name: format!("g-{at}"), cpu_m: [500, 1000, 1500][at % 3], on, movable: at % 4 != 3 }
    }

    /// Its documents. A new `revision` makes its pods differ from the earlier ones.
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

/// What is known of the groups after each step.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// The running groups with the number of their pods.
    pub running: BTreeMap<usize, u32>,
    /// The groups whose last operation is an instantiation that did not succeed: they may be terminated, too.
    failed: BTreeSet<usize>,
}

/// The result of an act.
#[derive(Debug)]
pub enum ActResult {
    /// The request was refused with this code.
    Refused(String),
    /// The request was accepted, and its operation has ended.
    Ended(Box<Operation>),
}

impl Model {
    /// Updates the model by the result of an act.
    ///
    /// # Errors
    /// The act cannot have this result in the current state.
    pub fn apply(&mut self, act: Act, result: &ActResult) -> Result<(), String> {
        let runs = self.running.contains_key(&act.group);
        let possible = match act.deed {
            Deed::Deploy { .. } => !runs,
            Deed::Update { .. } => runs,
            Deed::Terminate => runs || self.failed.contains(&act.group),
        };
        let operation = match result {
            // Another operation may be moving it just now.
            ActResult::Refused(code) if code == "busy" || (code == "wrong_state" && !possible) => return Ok(()),
            ActResult::Refused(code) => return Err(format!("{act:?} was refused: {code}")),
            ActResult::Ended(_) if !possible => return Err(format!("{act:?} was accepted, which the state of the group does not allow")),
            ActResult::Ended(operation) => operation,
        };
        if operation.state != OperationState::Succeeded && matches!(act.deed, Deed::Deploy { .. }) {
            self.failed.insert(act.group);
        } else {
            self.failed.remove(&act.group);
        }
        match (operation.state, act.deed) {
            (OperationState::Succeeded, Deed::Deploy { replicas } | Deed::Update { replicas }) => {
                self.running.insert(act.group, replicas);
            }
            (OperationState::Succeeded, Deed::Terminate) => {
                self.running.remove(&act.group);
            }
            // A terminate can be cancelled, too, as long as it has not released anything.
            (OperationState::Cancelled, _) if act.cancelled => {}
            (OperationState::Failed, Deed::Deploy { .. } | Deed::Update { .. })
                if operation.code.is_some() && !operation.message.is_empty() => {}
            _ => return Err(format!("{act:?} must not end like this: {operation:#?}")),
        }
        Ok(())
    }

    /// Whether a group that does not run must be placed now if nothing else happens; `free` has the free millicores of each member.
    pub fn must_fit(&self, group: usize, replicas: u32, free: &[i64]) -> bool {
        let nature = Nature::of(group);
        nature.on.iter().any(|at| free[*at] >= i64::from(nature.cpu_m * replicas))
    }
}
