//! Whether the pods of a plan get nodes although the schedulers of the members do not know its packing.

use std::collections::{BTreeMap, BTreeSet};

use super::problem::RoomProblem;
use super::starting::Starting;
use crate::scheduler::Arrivals;
use crate::trial::Trial;
use crate::{Amounts, ClaimState, Demand, Holds, MemberRoom, PlanScheduling, PodGroup, WhyNot};

/// An app that is applied to a member.
#[derive(Clone, Copy)]
enum Applied {
    /// The new copy of a victim, by its position in the moves.
    Moved(usize),
    /// A newcomer's app, by its slot.
    New(usize),
}

/// The apps that are applied to one member at the same time.
struct Scene<'a> {
    room: &'a MemberRoom,
    apps: Vec<Applied>,
    /// Pods of other operations that have no nodes yet.
    starting: Vec<Starting<'a>>,
    arrivals: Arrivals<'a>,
}

/// The moves with the newcomer, all of which are in `trial`.
pub(crate) struct Outlook<'w, 'a> {
    problem: &'w RoomProblem<'w, 'a>,
    moves: &'w [(usize, &'a MemberRoom)],
    trial: &'w Trial<'a>,
}

impl<'w, 'a> Outlook<'w, 'a> {
    /// The outlook for these moves, each as the position of a movable app and its destination.
    pub fn new(problem: &'w RoomProblem<'w, 'a>, moves: &'w [(usize, &'a MemberRoom)], trial: &'w Trial<'a>) -> Self {
        Self { problem, moves, trial }
    }

    /// New copies start now, beside the old ones; the newcomer's apps start when the victims have left.
    fn scenes(&self) -> Vec<Scene<'a>> {
        let mut moved: BTreeMap<_, (&'a MemberRoom, Vec<Applied>)> = BTreeMap::new();
        for (at, (_, to)) in self.moves.iter().enumerate() {
            moved.entry(&to.key).or_insert_with(|| (*to, Vec::new())).1.push(Applied::Moved(at));
        }
        let mut new: BTreeMap<_, (&'a MemberRoom, Vec<Applied>)> = BTreeMap::new();
        for (slot, home) in self.problem.homes.iter().enumerate() {
            let Some(home) = *home else { continue };
            let there = || moved.get(&home.key).map_or_else(Vec::new, |(_, apps)| apps.clone());
            new.entry(&home.key).or_insert_with(|| (home, there())).1.push(Applied::New(slot));
        }
        let first = moved.into_values().map(|(room, apps)| self.scene(room, room.free().now.to_vec(), apps, false));
        first.chain(new.into_values().map(|(room, apps)| self.scene(room, self.trial.later(room), apps, true))).collect()
    }

    fn scene(&self, room: &'a MemberRoom, mut free: Vec<Amounts>, apps: Vec<Applied>, later: bool) -> Scene<'a> {
        let demands: Vec<&'a Demand> = apps.iter().map(|app| self.demand(*app)).collect();
        let counts = |pods: &&Starting<'a>| {
            (later || pods.claim.state == ClaimState::Held) && self.trial.home_of(pods.claim).is_some_and(|home| *home == room.key)
        };
        let starting: Vec<Starting<'a>> = self.problem.context.starting.on(&room.key).iter().filter(counts).copied().collect();
        starting.iter().for_each(|pods| free[pods.node].add(&pods.group.requests, pods.count.into()));
        let groups: Vec<(&'a PodGroup, u32)> = starting.iter().map(|pods| (pods.group, pods.count)).collect();
        let arrivals = Arrivals::new(room.nodes(), free, &demands, &groups);
        Scene { room, apps, starting, arrivals }
    }

    fn demand(&self, app: Applied) -> &'a Demand {
        match app {
            Applied::Moved(at) => &self.problem.movable[self.moves[at].0].claim.request.demand,
            Applied::New(slot) => &self.problem.slots[slot].request.demand,
        }
    }

    /// For which orders of pods all of them get nodes.
    pub fn holds(&self) -> Holds {
        self.scenes().iter().map(|scene| scene.arrivals.holds()).min().unwrap_or(Holds::Any)
    }

    /// The same for the plan document, with the order of application and the reasons.
    pub fn describe(&self) -> PlanScheduling {
        let mut told = PlanScheduling { holds: Holds::Any, ..PlanScheduling::default() };
        for scene in self.scenes() {
            let (holds, order) = scene.arrivals.outlook();
            told.holds = told.holds.min(holds);
            let names = |order: &[usize]| order.iter().map(|app| self.name(scene.apps[*app])).collect::<Vec<_>>().join(", ");
            let reason = match (holds, &order) {
                (Holds::Any, _) => continue,
                (Holds::Likely, None) => {
                    "the pods get nodes as the default scheduler is expected to place them, but not in every order".to_owned()
                }
                (_, Some(order)) => {
                    format!("the pods are only expected to get nodes if the apps are applied in this order: {}", names(order))
                }
                (Holds::One, None) if !scene.starting.is_empty() => {
                    told.starting.push(scene.room.key.clone());
                    let apps: BTreeSet<&str> = scene.starting.iter().map(|pods| pods.claim.request.app.as_str()).collect();
                    let apps = apps.into_iter().collect::<Vec<_>>().join(", ");
                    format!("whether the pods get nodes depends on the nodes of pods that are starting there, of {apps}")
                }
                (Holds::One, None) => "the pods fit in some packing, but the default scheduler is not expected to find one".to_owned(),
            };
            told.reasons.push(WhyNot { member: scene.room.key.clone(), reason });
            for app in order.iter().flatten() {
                match scene.apps[*app] {
                    Applied::Moved(at) => {
                        let claim = self.problem.movable[self.moves[at].0].claim.id;
                        if !told.order.contains(&claim) {
                            told.order.push(claim);
                        }
                    }
                    Applied::New(slot) => told.newcomer_order.push(self.problem.slots[slot].request.app.clone()),
                }
            }
        }
        told
    }

    fn name(&self, app: Applied) -> &'a str {
        match app {
            Applied::Moved(at) => &self.problem.movable[self.moves[at].0].claim.request.app,
            Applied::New(slot) => &self.problem.slots[slot].request.app,
        }
    }
}
