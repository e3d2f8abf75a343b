//! What a search for victims has to solve, and whether given moves do. Nothing is chosen here.

use std::collections::BTreeMap;

use super::context::PlanningContext;
use super::movable::Movable;
use crate::fit::Ask;
use crate::slot::Slot;
use crate::trial::{Tenant, Trial};
use crate::{MemberKey, MemberRoom};

/// Victims, as indices into the candidates, with their destinations.
pub(crate) type Moves<'a> = Vec<(usize, &'a MemberRoom)>;

/// The newcomer with the members that an assignment gives it, and the apps that may move for it.
#[derive(Clone, Copy)]
pub(crate) struct RoomProblem<'w, 'a> {
    pub context: &'w PlanningContext<'a>,
    /// The newcomer's apps.
    pub slots: &'w [Slot<'a>],
    /// The member of each slot; `None`: satisfied by another slot of its app.
    pub homes: &'w [Option<&'a MemberRoom>],
    /// The candidates, in the order in which they are taken.
    pub movable: &'w [Movable<'a>],
}

impl<'a> RoomProblem<'_, 'a> {
    /// The members of the assignment, sorted by key.
    pub fn members(&self) -> Vec<&'a MemberRoom> {
        let by_key: BTreeMap<_, _> = self.homes.iter().flatten().map(|room| (&room.key, *room)).collect();
        by_key.into_values().collect()
    }

    /// The slots of the newcomer that are assigned to a member.
    pub fn slots_on(&self, room: &MemberRoom) -> impl Iterator<Item = usize> {
        (0..self.homes.len()).filter(|slot| self.homes[*slot].is_some_and(|home| home.key == room.key))
    }

    /// Adds the newcomer's apps (only those on `only`, if given), all or none. They need room later, since they wait for leaving apps.
    pub fn add_newcomer(&self, trial: &mut Trial<'a>, only: Option<&'a MemberRoom>) -> bool {
        for (i, home) in self.homes.iter().enumerate() {
            let Some(home) = home.filter(|home| only.is_none_or(|o| o.key == home.key)) else { continue };
            if !trial.add(home, Tenant::New(i), Ask::promised(&self.slots[i].request.demand)) {
                self.remove_newcomer(trial, only);
                return false;
            }
        }
        true
    }

    /// Undoes [`Self::add_newcomer`].
    pub fn remove_newcomer(&self, trial: &mut Trial<'a>, only: Option<&'a MemberRoom>) {
        for (i, home) in self.homes.iter().enumerate() {
            if let Some(home) = home.filter(|home| only.is_none_or(|o| o.key == home.key)) {
                trial.remove(home, Tenant::New(i));
            }
        }
    }

    /// The members where the newcomer does not fit without moves.
    pub fn open(&self) -> Vec<&'a MemberRoom> {
        self.place_what_fits(&mut Trial::default())
    }

    /// Adds the newcomer's apps to the members where they fit; returns the others.
    pub fn place_what_fits(&self, trial: &mut Trial<'a>) -> Vec<&'a MemberRoom> {
        self.members().into_iter().filter(|home| !self.add_newcomer(trial, Some(home))).collect()
    }

    /// A trial with these moves and the newcomer, or `None` if they do not all fit at once.
    pub fn build(&self, moves: &[(usize, &'a MemberRoom)]) -> Option<Trial<'a>> {
        let mut trial = Trial::default();
        for (j, _) in moves {
            trial.leave(self.movable[*j].room, self.movable[*j].claim);
        }
        for (j, to) in moves {
            if !trial.add(to, self.movable[*j].tenant(), self.movable[*j].ask()) {
                return None;
            }
        }
        (self.keeps_intents(moves, &trial) && self.add_newcomer(&mut trial, None)).then_some(trial)
    }

    /// Whether the intents of moved apps with several copies still hold. All moves are made in `trial`.
    pub fn keeps_intents(&self, moves: &[(usize, &'a MemberRoom)], trial: &Trial<'a>) -> bool {
        moves.iter().all(|(j, to)| self.movable[*j].copies.allow(&to.key, trial))
    }

    /// The packing on nodes that proves that a victim fits at its destination.
    pub fn pods(&self, trial: &Trial<'a>, candidate: usize, to: &MemberRoom) -> Vec<crate::PodsOnNode> {
        trial.pods(to, self.movable[candidate].tenant())
    }

    /// By member, the first of the newcomer's apps that does not fit in `trial`, as text.
    pub fn why_not(&self, trial: &mut Trial<'a>) -> BTreeMap<MemberKey, String> {
        let mut why = BTreeMap::new();
        for member in self.members() {
            let mut added = Vec::new();
            for i in self.slots_on(member) {
                let ask = Ask::promised(&self.slots[i].request.demand);
                if !trial.add(member, Tenant::New(i), ask) {
                    why.insert(member.key.clone(), format!("{}: {}", self.slots[i].request.app, trial.why_not(member, ask).reason()));
                    break;
                }
                added.push(i);
            }
            for i in added {
                trial.remove(member, Tenant::New(i));
            }
        }
        why
    }
}
