//! The calls between places: which places have most, and what the parts of two places win if they change sides.

use super::super::layout::Layout;
use super::exchange::Apart;
use super::parts::{Collector, Part, Parts, bits};

/// With more calling pairs than these, what a part wins is not corrected for the parts that it changes sides with: each pair counts little.
const PAIRS: usize = 16;

/// The pairs of places with most calls between them and these calls, those with most calls first, at most `most`. `outside`: the calls that
/// leave a place, in the order of its containers, where they are known.
pub fn linked<'p>(layout: &Layout<'_>, most: usize, outside: impl Fn(usize) -> Option<&'p [(u32, u32, f64)]>) -> Vec<(usize, usize, f64)> {
    let instance = layout.instance();
    let places = instance.places().len();
    let mut all = Vec::with_capacity(2 * places);
    // One more than there are places: what does not count is added there, because whether it counts cannot be foreseen.
    let mut calls = vec![0.0; places + 1];
    let (mut others, mut count) = (vec![0; places + 1], 0);
    for here in 0..places {
        let mut add = |y: u32, rate: f64| {
            let there = layout.at(y).filter(|there| *there > here).unwrap_or(places);
            others[count] = there;
            count += usize::from(calls[there] == 0.0 && there < places);
            calls[there] += rate;
        };
        match outside(here) {
            Some(known) => known.iter().for_each(|(_, y, rate)| add(*y, *rate)),
            None => layout.on(here).iter().flat_map(|x| instance.near(*x)).for_each(|(y, rate)| add(*y, *rate)),
        }
        all.extend(others[..count].iter().map(|there| (here, *there, std::mem::take(&mut calls[*there]))));
        count = 0;
    }
    let order = |a: &(usize, usize, f64), b: &(usize, usize, f64)| b.2.total_cmp(&a.2).then((a.0, a.1).cmp(&(b.0, b.1)));
    if all.len() > most {
        all.select_nth_unstable_by(most, order);
        all.truncate(most);
    }
    all.sort_unstable_by(order);
    all
}

/// What the parts of two places cost if they change sides, by the calls of both places.
#[derive(Debug, Default)]
pub struct Between {
    pairs: Vec<Apart>,
    /// The parts of both, at the cost of the calls that each leaves behind, less those that it comes to.
    pub parts: [Vec<Part>; 2],
    /// What pairs of parts cost besides: they call each other, and have been counted as if each came to the other. In the order of the parts.
    pub apart: Vec<Apart>,
}

impl Between {
    /// Looks at the calls of a place with another one, whose parts come second.
    pub fn look_at(&mut self, layout: &Layout<'_>, there: usize, parts: [&Parts; 2], of: &Collector) {
        self.pairs.clear();
        self.apart.clear();
        for (own, parts) in self.parts.iter_mut().zip(parts) {
            own.clear();
            own.extend_from_slice(parts.all());
        }
        for (x, y, rate) in parts[0].outside() {
            self.pairs.push((*x, *y, of.cost(*rate)));
            self.pairs.truncate(self.pairs.len() - usize::from(!layout.is_at(*y, there)));
        }
        for (x, y, cost) in &self.pairs {
            bits(of.parts_with(*x)).for_each(|p| self.parts[0][p].cost -= cost);
            bits(of.parts_with(*y)).for_each(|q| self.parts[1][q].cost -= cost);
            if self.pairs.len() <= PAIRS {
                let others = |p: usize| bits(of.parts_with(*y)).map(move |q| (p as u32, q as u32, 2.0 * cost));
                self.apart.extend(bits(of.parts_with(*x)).flat_map(others));
            }
        }
        self.apart.sort_unstable_by_key(|pair| (pair.0, pair.1));
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{CallGraph, Grouping, Instance, Layout, Limits, Place, Rules, Service, Traffic, Variant, Weights};
    use super::*;

    /// On places with few containers, and on places with more than are looked at as parts.
    #[test]
    fn calls_that_leave_the_places_say_the_same_as_all_calls() {
        let mut rng = fastrand::Rng::with_seed(7);
        for replicas in [3, 40] {
            let service = |n: usize| Service { name: format!("s{n}"), request: [1.0, 1.0], replicas };
            let calls = [("s0", "s1", 5.0), ("s1", "s2", 2.0), ("s0", "s3", 1.0), ("s3", "s4", 3.0)];
            let graph = CallGraph::named((0..5).map(service).collect(), calls).unwrap();
            let grouping = Grouping::of(&graph, Some(3), Variant::Merge, &Limits::default()).unwrap();
            let places = (0..4).map(|n| Place::new(format!("n{n}"), [500.0, 500.0], 0)).collect();
            let instance = Instance::new(&graph, Traffic::Local, &grouping, places, Rules::default()).unwrap();
            // Some have no place.
            let at: Vec<Option<usize>> = instance.containers().iter().map(|_| Some(rng.usize(0..5)).filter(|place| *place < 4)).collect();
            let layout = Layout::of(&instance, Weights::default(), &at);
            let mut collector = Collector::new(1.0, at.len());
            let mut parts = vec![Parts::default(); 4];
            parts.iter_mut().enumerate().for_each(|(place, parts)| collector.collect(&layout, place, parts));
            let searched = linked(&layout, 5, |_| None);
            assert!(searched.len() > 2, "{searched:?}");
            assert_eq!(linked(&layout, 5, |place| Some(parts[place].outside())), searched);
        }
    }
}
