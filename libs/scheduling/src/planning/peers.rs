//! The call peers of an app that moves: the apps that it calls or that call it. Among destinations of equal provider priority, the one
//! with the lowest sum of calls between clusters times latency comes first; ties are in the order without calls.

use crate::calls::MICRO;
use crate::terms::calls_between;
use crate::trial::Trial;
use crate::{CallTerms, Claim, ClaimState, MemberKey, MemberRoom};

/// The apps of the same group that an app calls or that call it.
#[derive(Default)]
pub(crate) struct CallPeers<'a> {
    terms: Option<&'a CallTerms>,
    /// Claims and rates of calls. The calls of an app are divided among its copies.
    calls: Vec<(&'a Claim, f64)>,
}

impl<'a> CallPeers<'a> {
    /// The peers of `claim`; empty if no calls are known.
    pub fn of(claim: &'a Claim, siblings: &[&'a Claim]) -> Self {
        let Some(terms) = claim.request.terms.calls.as_ref() else { return Self::default() };
        // During a move an app has two copies; the leaving one does not count.
        let stay: Vec<&Claim> =
            siblings.iter().copied().filter(|c| c.request.app != claim.request.app && c.state != ClaimState::Leaving).collect();
        let copies = |app: &str| stay.iter().filter(|c| c.request.app == app).count() as f64;
        let calls = stay.iter().map(|c| (*c, calls_between(&claim.request, &c.request) as f64 * MICRO / copies(&c.request.app)));
        Self { terms: Some(terms), calls: calls.filter(|(_, calls)| *calls > 0.0).collect() }
    }

    /// `rooms` by calls between clusters in the state of `trial`, and otherwise in their order.
    pub fn fewest_calls_first(
        &self,
        rooms: impl Iterator<Item = &'a MemberRoom> + 'a,
        trial: &Trial<'a>,
    ) -> Box<dyn Iterator<Item = &'a MemberRoom> + 'a> {
        if self.calls.is_empty() {
            return Box::new(rooms);
        }
        let mut rooms: Vec<&MemberRoom> = rooms.collect();
        rooms.sort_by(|a, b| self.waiting(&a.key, trial).total_cmp(&self.waiting(&b.key, trial)));
        Box::new(rooms.into_iter())
    }

    /// The sum of calls between clusters times latency if the app is on `to`. Peers without a decided destination count 0.
    fn waiting(&self, to: &MemberKey, trial: &Trial<'a>) -> f64 {
        let distance = |at: &MemberKey| self.terms.map_or(0.0, |terms| terms.distance(to, at));
        self.calls.iter().filter_map(|(peer, calls)| Some(calls * distance(trial.home_of(peer)?))).sum()
    }

    /// The share of its calls that stay in the cluster if it is on `to`. `None` if it has no calls.
    pub fn kept(&self, to: &MemberKey, trial: &Trial<'a>) -> Option<f64> {
        let all: f64 = self.calls.iter().map(|(_, calls)| calls).sum();
        let here: f64 = self.calls.iter().filter(|(peer, _)| trial.home_of(peer) == Some(to)).map(|(_, calls)| calls).sum();
        (all > 0.0).then(|| here / all)
    }
}
