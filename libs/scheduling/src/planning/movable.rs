//! An app that may move, with its destinations in order of preference.

use std::cell::OnceCell;

use super::copies::Copies;
use super::destinations::{Destination, Destinations};
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
    pub scores: Vec<Score>,
    pub total: Option<f64>,
    /// The apps that it calls or that call it.
    pub peers: CallPeers<'a>,
    best: OnceCell<Option<&'a MemberRoom>>,
    best_priority: OnceCell<Option<u8>>,
}

impl<'a> Movable<'a> {
    /// An app without scores.
    pub fn new(
        claim: &'a Claim,
        room: &'a MemberRoom,
        priority: u8,
        (destinations, copies): (Destinations<'a>, Copies<'a>),
        peers: CallPeers<'a>,
    ) -> Self {
        Self {
            claim,
            room,
            priority,
            destinations,
            copies,
            scores: Vec::new(),
            total: None,
            peers,
            best: OnceCell::new(),
            best_priority: OnceCell::new(),
        }
    }

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

    fn open<'d>(&'d self, equals: &'d [Destination<'a>], trial: &'d Trial<'a>) -> impl Iterator<Item = &'a MemberRoom> + 'd {
        let open = self.destinations.not_full(equals, &self.claim.request.demand, trial);
        open.filter(|room| self.copies.allow(&room.key, trial))
    }

    fn rank(&self, equals: &[Destination<'a>], trial: &Trial<'a>) -> impl Iterator<Item = &'a MemberRoom> + use<'a> {
        let open: Vec<&MemberRoom> = self.open(equals, trial).collect();
        let ranked = rank_equals(&open, &self.claim.request, trial).map(|(room, _)| room);
        self.peers.fewest_calls_first(ranked, trial)
    }

    /// The destination that it would get if no other app moved.
    pub fn best(&self) -> Option<&'a MemberRoom> {
        *self.best.get_or_init(|| match self.best_priority.get() {
            Some(None) => None,
            _ => self.best_in(&Trial::default()),
        })
    }

    /// The provider priority of [`Self::best`]. Found without ranking equal destinations, since it orders hundreds of candidates.
    pub fn best_priority(&self) -> Option<u8> {
        let nothing = Trial::default();
        let fits = |room: &&MemberRoom| nothing.fit(room, self.ask()).is_some();
        let of = |room: Option<&MemberRoom>| room.map(MemberRoom::priority);
        *self.best_priority.get_or_init(|| match self.claim.request.demand.groups.as_slice() {
            [_] => of(self.destinations.equals().find_map(|equals| self.open(equals, &nothing).find(fits))),
            // Different pods are not cheap to fit, and the ranking begins where that is likely to succeed.
            _ => of(self.best()),
        })
    }

    /// Whether it has room elsewhere if no other app moves.
    pub fn has_room(&self) -> bool {
        self.best_priority().is_some()
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
