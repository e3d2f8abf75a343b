//! An app that may move, with its destinations in order of preference.

use super::copies::Copies;
use super::destinations::Destinations;
use super::peers::CallPeers;
use crate::fit::Ask;
use crate::slot::rank_equals;
use crate::trial::{Tenant, Trial};
use crate::{Claim, MemberRoom, Score};

/// An app that may move.
pub(crate) struct Movable<'a> {
    pub claim: &'a Claim,
    pub room: &'a MemberRoom,
    pub priority: u8,
    pub destinations: Destinations<'a>,
    /// Other copies of the app.
    pub copies: Copies<'a>,
    /// The destination that it would get if no other app moved.
    pub best: Option<&'a MemberRoom>,
    pub scores: Vec<Score>,
    pub total: Option<f64>,
    /// The apps that it calls or that call it.
    pub peers: CallPeers<'a>,
}

impl<'a> Movable<'a> {
    pub fn tenant(&self) -> Tenant {
        Tenant::Moved(self.claim.id)
    }

    pub fn ask(&self) -> Ask<'a> {
        Ask::held(&self.claim.request.demand)
    }

    /// Its destinations in order of preference in the state of `trial`. Obviously full ones are left out.
    pub fn ranked(&self, trial: &Trial<'a>) -> Vec<&'a MemberRoom> {
        self.destinations.equals().flat_map(|equals| self.rank(equals, trial)).collect()
    }

    fn rank(&self, equals: &[&'a MemberRoom], trial: &Trial<'a>) -> impl Iterator<Item = &'a MemberRoom> + use<'a> {
        let open = self.destinations.others(equals).filter(|room| trial.may_fit(room, self.ask()));
        let open: Vec<&MemberRoom> = open.filter(|room| self.copies.allow(&room.key, trial)).collect();
        let ranked = rank_equals(&open, &self.claim.request, trial).map(|(room, _)| room);
        self.peers.fewest_calls_first(ranked, trial)
    }

    /// The first destination with room in `trial`.
    pub fn best_in(&self, trial: &Trial<'a>) -> Option<&'a MemberRoom> {
        let fits = |room: &&'a MemberRoom| trial.fit(room, self.ask()).is_some();
        self.destinations.equals().find_map(|equals| self.rank(equals, trial).find(fits))
    }

    /// Adds it to the first destination with room that is not in `except`.
    pub fn settle(&self, trial: &mut Trial<'a>, except: &[&'a MemberRoom]) -> Option<&'a MemberRoom> {
        self.destinations.equals().find_map(|equals| {
            let elsewhere = |to: &&'a MemberRoom| except.iter().all(|room| room.key != to.key);
            self.rank(equals, trial).filter(elsewhere).find(|to| trial.add(to, self.tenant(), self.ask()))
        })
    }
}
