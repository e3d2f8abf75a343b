//! Whom an app that moves calls, and who calls it. Which homes come first is for provider priority to say; among those of equal
//! priority the one where the fewest of its calls leave the cluster, each times its latency, then what holds without calls.

use crate::calls::MICRO;
use crate::terms::calls_between;
use crate::trial::Trial;
use crate::{CallTerms, Claim, ClaimState, MemberKey, MemberRoom};

/// Those of its group that an app calls or is called by.
#[derive(Default)]
pub(crate) struct Peers<'a> {
    terms: Option<&'a CallTerms>,
    /// How often, each copy of an app its part.
    calls: Vec<(&'a Claim, f64)>,
}

impl<'a> Peers<'a> {
    /// Nobody where no calls are known.
    pub fn of(claim: &'a Claim, siblings: &[&'a Claim]) -> Self {
        let Some(terms) = claim.request.terms.calls.as_ref() else { return Self::default() };
        // While an app is moved it is there twice; the copy that leaves is not there for long.
        let stay: Vec<&Claim> =
            siblings.iter().copied().filter(|c| c.request.app != claim.request.app && c.state != ClaimState::Leaving).collect();
        let copies = |app: &str| stay.iter().filter(|c| c.request.app == app).count() as f64;
        let calls = stay.iter().map(|c| (*c, calls_between(&claim.request, &c.request) as f64 * MICRO / copies(&c.request.app)));
        Self { terms: Some(terms), calls: calls.filter(|(_, calls)| *calls > 0.0).collect() }
    }

    /// `rooms` in the same order, but those with fewer calls between clusters first, as things stand in `trial`.
    pub fn fewest_calls_first(&self, mut rooms: Vec<&'a MemberRoom>, trial: &Trial<'a>) -> Vec<&'a MemberRoom> {
        if !self.calls.is_empty() {
            rooms.sort_by(|a, b| self.waiting(&a.key, trial).total_cmp(&self.waiting(&b.key, trial)));
        }
        rooms
    }

    /// Calls between clusters times their latency if it is on `to`. Who leaves and has no home yet counts nothing.
    fn waiting(&self, to: &MemberKey, trial: &Trial<'a>) -> f64 {
        let distance = |at: &MemberKey| self.terms.map_or(0.0, |terms| terms.distance(to, at));
        self.calls.iter().filter_map(|(peer, calls)| Some(calls * distance(trial.home_of(peer)?))).sum()
    }

    /// Share of its calls that stay in the cluster if it is on `to`; nothing where nobody calls anybody.
    pub fn kept(&self, to: &MemberKey, trial: &Trial<'a>) -> Option<f64> {
        let all: f64 = self.calls.iter().map(|(_, calls)| calls).sum();
        let here: f64 = self.calls.iter().filter(|(peer, _)| trial.home_of(peer) == Some(to)).map(|(_, calls)| calls).sum();
        (all > 0.0).then(|| here / all)
    }
}
