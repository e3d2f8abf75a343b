//! Destroy and repair (a large neighbourhood search): a part of a finished placement is taken out, and the network places it again, now
//! that everything else has its place.
//!
//! Invariant: the layout kept is, up to rounding, never worse than the one before, and containers that the placement began with are never
//! taken out.

use super::super::instance::Instance;
use super::super::layout::Layout;
use super::construct::{Construction, Pass, uniform};
use super::model::rank;
use super::net::ScoreNet;

/// The most of containers (or places, if there are more) times repairs.
const WORK: usize = 24_000;
/// The most repairs, and the fewest that are worth beginning.
const MOST: usize = 200;
const FEWEST: usize = 10;
/// [`Pass::noise`] of the repairs, in turn.
const NOISE: [f32; 4] = [0.0, 0.3, 0.6, 1.2];

/// The number of repairs of a placement.
pub(super) fn repairs(instance: &Instance) -> usize {
    let size = instance.containers().len().max(instance.places().len()).max(1);
    let many = (WORK / size).min(MOST);
    if many < FEWEST { 0 } else { many }
}

/// Takes in turn a copy of an application, and what is on two places, out of a layout, and places it again; the better layout is kept.
/// `start` is what the layout began with; `then` is done with each layout before it is judged, and ends the repairs when it returns false.
pub(super) fn repair<'i>(
    net: &ScoreNet,
    layout: &mut Layout<'i>,
    start: &Layout<'i>,
    times: usize,
    then: &mut dyn FnMut(&mut Layout<'i>) -> bool,
) {
    let instance = layout.instance();
    let (copies, places) = (instance.copies().len(), instance.places().len());
    if times == 0 || copies == 0 || places < 2 {
        return;
    }
    let mut random = 0;
    let mut pick = |of: usize| ((uniform(&mut random) * of as f32) as usize).min(of - 1);
    let mut best = rank(layout);
    for n in 0..times {
        let mut next = layout.clone();
        let part: Vec<u32> = if n % 2 == 0 {
            instance.copies()[pick(copies)].clone()
        } else {
            let (here, there) = (pick(places), pick(places));
            next.on(here).iter().chain(next.on(there).iter().filter(|_| here != there)).copied().collect()
        };
        part.iter().filter(|c| start.at(**c).is_none() && layout.at(**c).is_some()).for_each(|c| next.take(&[*c]));
        let mut construction = Construction::of(next, layout.weights());
        construction.finish(net, &Pass { noise: NOISE[n / 2 % NOISE.len()], seed: n as u64, ..Pass::default() });
        let mut next = construction.into_layout();
        let more = then(&mut next);
        let key = rank(&next);
        if key <= best {
            (best, *layout) = (key, next);
        }
        if !more {
            break;
        }
    }
    layout.resync();
}
