//! The best exchanges of two places, computed for all their parts in f32.

use super::super::top::Top;
use super::loads::{Balance, PlaceLoad};
use super::parts::{PARTS, Part};

/// Columns are padded to a multiple of this, so that loops over them need no remainder.
const LANES: usize = 8;
/// Exchanges that are kept for an exact trial.
pub const TRIES: usize = 3;
/// A smaller gain is none.
const LEAST: f32 = 1e-6;
/// More than any sum of costs.
const NEVER: f32 = 1e9;
const DROPPED: u32 = u32::MAX;
/// More columns than there are parts, and a power of two, so that a place in them is found without a check.
const COLUMNS: usize = PARTS.next_power_of_two();

/// A part of the one place, a part of the other, and what they cost besides.
pub type Apart = (u32, u32, f32);

/// One of the two places.
#[derive(Clone, Copy, Debug)]
pub struct Side<'p> {
    pub load: PlaceLoad,
    /// Its parts, each at what its calls to both places cost if it goes to the other one.
    pub parts: &'p [Part],
}

/// The parts of a side that an exchange could gain with.
#[derive(Clone, Debug)]
struct Columns {
    count: usize,
    ask: [[f32; COLUMNS]; 2],
    cost: [f32; COLUMNS],
    part: [u32; COLUMNS],
    /// The column of each part; [`DROPPED`] if it has none.
    column: [u32; PARTS],
}

impl Columns {
    const EMPTY: Self = Self { count: 0, ask: [[0.0; COLUMNS]; 2], cost: [0.0; COLUMNS], part: [0; COLUMNS], column: [DROPPED; PARTS] };

    /// Keeps the parts of a side that cost less than `below`.
    fn fill(&mut self, side: &Side<'_>, below: f32) {
        let mut count = 0;
        for ((n, part), column) in (0..).zip(side.parts).zip(&mut self.column) {
            let at = count % COLUMNS;
            (self.cost[at], self.part[at]) = (part.cost, n);
            (self.ask[0][at], self.ask[1][at]) = (part.ask[0], part.ask[1]);
            let kept = part.cost < below;
            *column = if kept { at as u32 } else { DROPPED };
            count += usize::from(kept);
        }
        self.count = count;
        (count..self.padded()).for_each(|n| self.cost[n] = NEVER);
    }

    fn padded(&self) -> usize {
        self.count.next_multiple_of(LANES)
    }
}

/// Columns side by side of one exchange each.
type Lanes = [f32; LANES];

/// What the parts of the other place ask for, as shares of either place, and what they cost.
#[derive(Clone, Copy, Debug)]
struct Shares {
    here: [Lanes; 2],
    there: [Lanes; 2],
    cost: Lanes,
}

/// Finds exchanges. It keeps its columns, so that they are not made anew each time.
#[derive(Debug)]
pub struct Finder {
    from: Columns,
    to: Columns,
    shares: [Shares; COLUMNS / LANES],
    values: [f32; COLUMNS],
}

impl Finder {
    pub fn new() -> Self {
        let none = Shares { here: [[0.0; LANES]; 2], there: [[0.0; LANES]; 2], cost: [NEVER; LANES] };
        Self { from: Columns::EMPTY, to: Columns::EMPTY, shares: [none; COLUMNS / LANES], values: [0.0; COLUMNS] }
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
        let [cheapest, cheapest_there] =
            [here, there].map(|side| side.parts.iter().fold(0.0, |least, part| if part.cost < least { part.cost } else { least }));
        self.from.fill(here, now - cheapest_there);
        self.to.fill(there, now - cheapest);
        self.share(here.load.inverse, there.load.inverse);
        for n in 0..self.from.count {
            let (x, own) = (self.from.part[n], self.from.cost[n]);
            if own + cheapest_there >= now - best.needed() {
                continue;
            }
            let ask = [self.from.ask[0][n], self.from.ask[1][n]];
            let least = self.evaluate(ask, here, there, balance);
            while let Some((pair, rest)) = apart.split_first().filter(|(pair, _)| pair.0 <= x) {
                if pair.0 == x
                    && let Some(value) = self.values.get_mut(self.to.column[pair.1 as usize] as usize)
                {
                    // It can only become larger, so the least is at least what it was.
                    *value += pair.2;
                }
                apart = rest;
            }
            let most = now - own - best.needed();
            if least < most
                && let Some(m) = self.fitting(ask, here, there, most)
            {
                best.offer(now - own - self.values[m], (x as usize, self.to.part[m] as usize));
            }
        }
        best
    }

    /// Computes once what is the same for each part of the one place.
    fn share(&mut self, here: [f32; 2], there: [f32; 2]) {
        let blocks = self.to.padded() / LANES;
        for (b, shares) in self.shares[..blocks].iter_mut().enumerate() {
            for r in 0..2 {
                let (ask, _) = self.to.ask[r].as_chunks::<LANES>();
                shares.here[r] = ask[b].map(|ask| ask * here[r]);
                shares.there[r] = ask[b].map(|ask| ask * there[r]);
            }
            shares.cost = self.to.cost.as_chunks::<LANES>().0[b];
        }
    }

    /// What the exchange of a part against each part of the other place leads to: the cost of both places' use, and of the other's calls.
    /// Returns the least.
    fn evaluate(&mut self, ask: [f32; 2], here: &Side<'_>, there: &Side<'_>, balance: &Balance) -> f32 {
        let (left, right) = (here.load.with(ask.map(|q| -q)), there.load.with(ask));
        let mut least = [f32::INFINITY; LANES];
        let blocks = self.to.padded() / LANES;
        let (values, _) = self.values.as_chunks_mut::<LANES>();
        for (values, shares) in values.iter_mut().zip(&self.shares[..blocks]) {
            for n in 0..LANES {
                let after = [left[0] + shares.here[0][n], left[1] + shares.here[1][n]];
                let beyond = [right[0] - shares.there[0][n], right[1] - shares.there[1][n]];
                let value = balance.cost(after) + balance.cost(beyond) + shares.cost[n];
                least[n] = if value < least[n] { value } else { least[n] };
                values[n] = value;
            }
        }
        least.into_iter().fold(f32::INFINITY, |least, value| if value < least { value } else { least })
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
    use super::super::parts::{Collector, Parts};
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
            between.look_at(&layout, 1, [&parts[0], &parts[1]], &collector);
            let loads = Loads::of(&layout);
            let side = |n: usize| Side { load: loads.place(n), parts: &between.parts[n] };
            let found = Finder::new().best([&side(0), &side(1)], &loads.balance, &between.apart);
            let all = (0..parts[0].all().len()).flat_map(|x| (0..parts[1].all().len()).map(move |y| (x, y)));
            let all = all.filter_map(|(x, y)| gain(&layout, parts[0].part(x), parts[1].part(y)));
            let most = all.fold(0.0, f64::max);
            let first = found.items().next().map_or(0.0, |(x, y)| gain(&layout, parts[0].part(x), parts[1].part(y)).unwrap());
            assert!((first - most).abs() < 1e-4 * (1.0 + most), "found {first}, possible {most}");
            found_some += usize::from(first > 1e-3);
        }
        assert!(found_some > 100, "only {found_some} instances had an exchange that gains");
    }
}
