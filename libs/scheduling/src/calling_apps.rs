//! The call graph of a deployment intent group: the apps to be placed, the apps that already run, and how apps are grouped.
//!
//! Members appear here only as the locations of apps. Apps are assigned to members in `call_placement.rs` and `planning/assignments.rs`.

use std::collections::{BTreeMap, BTreeSet};

use crate::calls::MICRO;
use crate::groups::{Call, CallGraph, Grouping, Limits, Service, Variant};
use crate::slot::Slot;
use crate::trial::total_on;
use crate::{CallTerms, Claim, DigRef, Ledger, MemberRoom};

/// Bytes of a MiB.
pub(crate) const MIB: f64 = 1_048_576.0;

/// The apps of a deployment intent group with their calls.
pub(crate) struct CallingApps<'a> {
    pub terms: &'a CallTerms,
    /// Names of the apps, by service index of the graph: the requested apps, then the running ones.
    pub apps: Vec<&'a str>,
    pub graph: CallGraph,
    pub grouping: Grouping,
    /// Running copies as (service, member). Copies on members of unknown capacity are left out.
    pub settled: Vec<(usize, &'a MemberRoom)>,
    /// Slots to be placed together, the largest request first. Each slot of an app with several slots is a unit of its own; these come
    /// first.
    pub units: Vec<Vec<usize>>,
}

impl<'a> CallingApps<'a> {
    /// The call graph of the group `dig`, or `None` if it has no calls. `at` names a member for which the request of a slot is summed.
    pub fn of(
        ledger: &'a Ledger,
        dig: &DigRef,
        requested: &[&'a str],
        slots: &[Slot<'a>],
        at: impl Fn(usize) -> Option<&'a MemberRoom>,
    ) -> Option<Self> {
        let running: Vec<&Claim> = ledger
            .claims_of_group(dig.id)
            .filter(|c| c.request.terms.calls.is_some() && !requested.contains(&c.request.app.as_str()))
            .collect();
        let said = slots.iter().map(|slot| slot.request).chain(running.iter().map(|claim| &*claim.request));
        let terms = said.clone().find_map(|request| request.terms.calls.as_ref())?;
        let mut apps = requested.to_vec();
        apps.extend(running.iter().map(|claim| claim.request.app.as_str()).collect::<BTreeSet<_>>());
        let index: BTreeMap<&str, usize> = apps.iter().enumerate().map(|(at, app)| (*app, at)).collect();
        let settled: Vec<(usize, &MemberRoom)> = running
            .iter()
            .filter_map(|claim| Some((index[claim.request.app.as_str()], ledger.room(&claim.member).filter(|room| room.sums().is_some())?)))
            .collect();

        let copies = |service: usize| match service < requested.len() {
            true => slots.iter().filter(|slot| slot.app == service).count(),
            false => settled.iter().filter(|(of, _)| *of == service).count(),
        };
        let services = apps.iter().enumerate().map(|(service, app)| Service {
            name: (*app).to_owned(),
            // The request of a running app already counts on its member.
            request: slots.iter().position(|slot| slot.app == service).map_or([0.0; 2], |slot| load(&slots[slot], at(slot))),
            replicas: copies(service).max(1),
        });
        let mut calls: BTreeMap<(usize, usize), f64> = BTreeMap::new();
        for request in said {
            for to in request.terms.calls.iter().flat_map(|calls| &calls.to) {
                if let (Some(from), Some(to_app)) = (index.get(request.app.as_str()), index.get(to.app.as_str())) {
                    // Each app declares its calls once, however many slots or copies it has.
                    calls.insert((*from, *to_app), to.micro_calls as f64 * MICRO);
                }
            }
        }
        let calls = calls.into_iter().map(|((from, to), calls)| Call { from, to, calls });
        let graph = CallGraph::new(services.collect(), calls).ok().filter(|graph| !graph.calls().is_empty())?;
        let grouping = Grouping::of(&graph, Some(terms.rho as usize), Variant::Merge, &Limits::default()).ok()?;
        let units = units(&grouping, &graph, slots);
        Some(Self { terms, apps, graph, grouping, settled, units })
    }

    /// The sum of calls between clusters, each multiplied by its latency, if the slots are placed at `homes`. Every copy of an app calls
    /// every copy of the other. Apps without a home count 0.
    pub fn waiting(&self, slots: &[Slot<'a>], homes: &[Option<&'a MemberRoom>]) -> f64 {
        let at = self.homes(slots, homes);
        let mean = |a: &[&MemberRoom], b: &[&MemberRoom]| {
            let sum: f64 = a.iter().flat_map(|a| b.iter().map(|b| self.terms.distance(&a.key, &b.key))).sum();
            sum / (a.len() * b.len()).max(1) as f64
        };
        self.graph.weights().into_iter().map(|(a, b, calls)| calls * mean(&at[a], &at[b])).sum()
    }

    /// The members of each service's copies.
    fn homes(&self, slots: &[Slot<'a>], homes: &[Option<&'a MemberRoom>]) -> Vec<Vec<&'a MemberRoom>> {
        let mut at = vec![Vec::new(); self.apps.len()];
        for (slot, home) in slots.iter().zip(homes) {
            at[slot.app].extend(*home);
        }
        self.settled.iter().for_each(|(service, room)| at[*service].push(*room));
        at
    }
}

/// The request of one copy of an app on `room`: CPU in millicores, memory in MiB.
fn load(slot: &Slot<'_>, room: Option<&MemberRoom>) -> [f64; 2] {
    room.map_or([0.0; 2], |room| {
        let total = total_on(&slot.request.demand, room);
        [total.cpu.max(0) as f64, total.memory.max(0) as f64 / MIB]
    })
}

fn units(grouping: &Grouping, graph: &CallGraph, slots: &[Slot<'_>]) -> Vec<Vec<usize>> {
    let of_app = |app: usize| (0..slots.len()).filter(move |slot| slots[*slot].app == app).collect::<Vec<_>>();
    let weight = |unit: &[usize]| -> f64 { unit.iter().map(|slot| graph.services()[slots[*slot].app].request).map(|q| q[0] + q[1]).sum() };
    let (mut several, mut units) = (Vec::new(), Vec::new());
    for group in &grouping.groups {
        let mut unit = Vec::new();
        for app in group {
            match of_app(*app).as_slice() {
                [only] => unit.push(*only),
                slots => several.extend(slots.iter().map(|slot| vec![*slot])),
            }
        }
        units.extend((!unit.is_empty()).then_some(unit));
    }
    units.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    several.extend(units);
    several
}
