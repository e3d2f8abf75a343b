//! The best exchanges of two places, computed for all their parts in f32.

use super::super::top::Top;
use super::loads::{Balance, PlaceLoad};
use super::parts::{PARTS, Parts};

/// Columns are padded to a multiple of this, so that loops over them need no remainder.
const LANES: usize = 8;
/// Exchanges that are kept for an exact trial.
pub const TRIES: usize = 3;
/// A smaller gain is none.
const LEAST: f32 = 1e-6;
/// More than any sum of costs.
const NEVER: f32 = 1e9;
const DROPPED: u32 = u32::MAX;

/// A part of the one place, a part of the other, and what they cost besides.
pub type Apart = (u32, u32, f32);

/// One of the two places.
#[derive(Clone, Copy, Debug)]
pub struct Side<'p> {
    pub load: PlaceLoad,
    pub parts: &'p Parts,
    /// What each part costs if it goes to the other place, by the calls of both: at most as many as parts.
    pub costs: &'p [f32],
}

/// The parts of a side that an exchange could gain with.
#[derive(Clone, Debug)]
struct Columns {
    count: usize,
    ask: [[f32; PARTS]; 2],
    cost: [f32; PARTS],
    part: [u32; PARTS],
    /// The column of each part; [`DROPPED`] if it has none.
    column: [u32; PARTS],
}

impl Columns {
    const EMPTY: Self = Self { count: 0, ask: [[0.0; PARTS]; 2], cost: [0.0; PARTS], part: [0; PARTS], column: [DROPPED; PARTS] };

    /// Keeps the parts of a side that cost less than `below`.
    fn fill(&mut self, side: &Side<'_>, below: f32) {
        let mut count = 0;
        for (n, cost) in side.costs.iter().enumerate() {
            (self.cost[count], self.part[count]) = (*cost, n as u32);
            (0..2).for_each(|r| self.ask[r][count] = side.parts.ask[r][n]);
            let kept = *cost < below;
            self.column[n] = if kept { count as u32 } else { DROPPED };
            count += usize::from(kept);
        }
        self.count = count;
        (count..self.padded()).for_each(|n| self.cost[n] = NEVER);
    }

    fn padded(&self) -> usize {
        self.count.next_multiple_of(LANES)
    }
}

/// Finds exchanges. It keeps its columns, so that they are not made anew each time.
#[derive(Debug)]
pub struct Finder {
    from: Columns,
    to: Columns,
    values: [f32; PARTS],
}

impl Finder {
    pub fn new() -> Self {
        Self { from: Columns::EMPTY, to: Columns::EMPTY, values: [0.0; PARTS] }
    }

    /// The number of exchanges that were considered last.
    pub fn considered(&self) -> u64 {
        (self.from.count * self.to.padded()) as u64
    }

    /// The exchanges that gain most: a part of the one place, and one of the other. `apart` adds, in the order of the parts, what a pair of
    /// them costs besides, because they call each other and would still be on two places.
    ///
    /// Equal use costs nothing at best, so parts whose calls cost more than the present use cannot be of an exchange that gains.
    pub fn best(&mut self, [here, there]: [&Side<'_>; 2], balance: &Balance, mut apart: &[Apart]) -> Top<(usize, usize), TRIES> {
        let now = balance.cost(here.load.used) + balance.cost(there.load.used);
        let mut best = Top::above(LEAST);
        let [cheapest, cheapest_there] = [here, there].map(|side| side.costs.iter().copied().fold(0.0, f32::min));
        self.from.fill(here, now - cheapest_there);
        self.to.fill(there, now - cheapest);
        let padded = self.to.padded();
        for n in 0..self.from.count {
            let (x, own) = (self.from.part[n], self.from.cost[n]);
            if own + cheapest_there >= now - best.needed() {
                continue;
            }
            let ask = [self.from.ask[0][n], self.from.ask[1][n]];
            self.evaluate(ask, here, there, balance);
            while let Some((pair, rest)) = apart.split_first().filter(|(pair, _)| pair.0 <= x) {
                if pair.0 == x
                    && let Some(value) = self.values.get_mut(self.to.column[pair.1 as usize] as usize)
                {
                    *value += pair.2;
                }
                apart = rest;
            }
            let most = now - own - best.needed();
            if self.least(padded) < most
                && let Some(m) = self.fitting(ask, here, there, most)
            {
                best.offer(now - own - self.values[m], (x as usize, self.to.part[m] as usize));
            }
        }
        best
    }

    /// What the exchange of a part against each part of the other place leads to: the cost of both places' use, and of the other's calls.
    fn evaluate(&mut self, ask: [f32; 2], here: &Side<'_>, there: &Side<'_>, balance: &Balance) {
        let padded = self.to.padded();
        let (here, there) = (here.load, there.load);
        let (left, right) = (here.with(ask.map(|q| -q)), there.with(ask));
        let columns = self.to.ask[0][..padded].iter().zip(&self.to.ask[1][..padded]).zip(&self.to.cost[..padded]);
        for (value, ((y0, y1), cost)) in self.values[..padded].iter_mut().zip(columns) {
            let after = [left[0] + y0 * here.inverse[0], left[1] + y1 * here.inverse[1]];
            let beyond = [right[0] - y0 * there.inverse[0], right[1] - y1 * there.inverse[1]];
            *value = balance.cost(after) + balance.cost(beyond) + cost;
        }
    }

    fn least(&self, padded: usize) -> f32 {
        let mut least = [f32::INFINITY; LANES];
        for block in self.values[..padded].chunks_exact(LANES) {
            least.iter_mut().zip(block).for_each(|(least, value)| *least = if value < least { *value } else { *least });
        }
        least.into_iter().fold(f32::INFINITY, f32::min)
    }

    /// The part of the other place for which there is room, with the least value below `most`.
    fn fitting(&self, ask: [f32; 2], here: &Side<'_>, there: &Side<'_>, mut most: f32) -> Option<usize> {
        let mut found = None;
        for m in 0..self.to.count {
            if self.values[m] < most {
                let change = [self.to.ask[0][m] - ask[0], self.to.ask[1][m] - ask[1]];
                if here.load.allows(here.load.with(change)) && there.load.allows(there.load.with(change.map(|q| -q))) {
                    (most, found) = (self.values[m], Some(m));
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{CallGraph, Grouping, Instance, Layout, Limits, Place, Rules, Service, Terms, Traffic, Variant, Weights};
    use super::super::calls::Between;
    use super::super::loads::Loads;
    use super::super::parts::Collector;
    use super::*;

    /// Two places of different sizes, and containers of which many call each other.
    fn instance(rng: &mut fastrand::Rng) -> Instance {
        let mut service = |n: usize| Service {
            name: format!("s{n}"),
            request: [20.0 + 80.0 * rng.f64(), 20.0 + 80.0 * rng.f64()],
            replicas: 1 + rng.usize(0..3),
        };
        let services: Vec<Service> = (0..6).map(&mut service).collect();
        let calls = [("s0", "s1", 5.0), ("s1", "s2", 2.0), ("s0", "s3", 1.0), ("s4", "s5", 3.0)];
        let graph = CallGraph::named(services, calls).unwrap();
        let grouping = Grouping::of(&graph, Some(3), Variant::Merge, &Limits::default()).unwrap();
        let places = (0..2).map(|n| Place::new(format!("n{n}"), [500.0 + 400.0 * rng.f64(), 500.0 + 400.0 * rng.f64()], 0)).collect();
        Instance::new(&graph, Traffic::Local, &grouping, places, Rules::default()).unwrap()
    }

    /// What an exchange gains as it is defined, in f64, linear in the variance; `None` if there is no room for it.
    fn gain(layout: &Layout<'_>, xs: &[u32], ys: &[u32]) -> Option<f64> {
        let (instance, weights) = (layout.instance(), layout.weights());
        let mut at = layout.placement();
        xs.iter().for_each(|x| at[*x as usize] = Some(1));
        ys.iter().for_each(|y| at[*y as usize] = Some(0));
        let after = Layout::of(instance, weights, &at);
        let (mean, deviation) = layout.balance();
        let cost = |layout: &Layout<'_>| {
            let place =
                |p: usize| weights.cluster * (layout.load(p) - mean).powi(2) / (2.0 * deviation.max(1e-3)) + weights.node * layout.skew(p);
            place(0) + place(1) + 2.0 * weights.container * Terms::of(instance, &layout.placement()).container
        };
        (after.over() == 0.0).then(|| cost(layout) - cost(&after))
    }

    #[test]
    fn best_exchange_is_the_best_of_all_by_definition() {
        let mut rng = fastrand::Rng::with_seed(11);
        let mut found_some = 0;
        for _ in 0..400 {
            let instance = instance(&mut rng);
            let weights = Weights::default();
            let mut layout = Layout::empty(&instance, weights);
            for x in 0..instance.containers().len() as u32 {
                let place = rng.usize(0..2);
                if layout.fits(&[x], place) {
                    layout.put(&[x], place);
                }
            }
            let mut collector = Collector::new(2.0 * weights.container / instance.total_calls(), instance.containers().len());
            let mut parts = [Parts::default(), Parts::default()];
            parts.iter_mut().enumerate().for_each(|(place, parts)| collector.collect(&layout, place, parts));
            let mut between = Between::default();
            between.look_at(&layout, [0, 1], [&parts[0], &parts[1]], &collector);
            let loads = Loads::of(&layout);
            let side = |n: usize| Side { load: loads.place(n), parts: &parts[n], costs: &between.costs[n] };
            let found = Finder::new().best([&side(0), &side(1)], &loads.balance, &between.apart);
            let all = (0..parts[0].len()).flat_map(|x| (0..parts[1].len()).map(move |y| (x, y)));
            let all = all.filter_map(|(x, y)| gain(&layout, parts[0].part(x), parts[1].part(y)));
            let most = all.fold(0.0, f64::max);
            let first = found.items().next().map_or(0.0, |(x, y)| gain(&layout, parts[0].part(x), parts[1].part(y)).unwrap());
            assert!((first - most).abs() < 1e-4 * (1.0 + most), "found {first}, possible {most}");
            found_some += usize::from(first > 1e-3);
        }
        assert!(found_some > 100, "only {found_some} instances had an exchange that gains");
    }
}
