//! The quick computation of the learned policy beside its definition: features and scores one by one, in f64.

use drover_scheduling::groups::learned::*;
use drover_scheduling::groups::*;
use proptest::prelude::*;

/// Features and scores in f32 are as far as this from those in f64.
const CLOSE: f64 = 2e-4;
/// Scores that differ by less are equal.
const EQUAL: f64 = 4e-3;

fn squash(x: f64) -> f64 {
    x.max(0.0) / (1.0 + x.max(0.0))
}

fn deviation(loads: &[f64]) -> f64 {
    let mean = loads.iter().sum::<f64>() / loads.len() as f64;
    (loads.iter().map(|load| (load - mean).powi(2)).sum::<f64>() / loads.len() as f64).sqrt()
}

/// A unit, and what is the same for all its options.
struct Question<'q> {
    layout: &'q Layout<'q>,
    unit: &'q Unit<'q>,
    target: f64,
    demand: Load,
    /// What a call between two places costs.
    per_call: f64,
}

impl Question<'_> {
    /// The features of an option as they are defined; the cost that is compared with the best option is left as it is.
    fn features(&self, option: Option<usize>) -> [f64; FEATURES] {
        let (layout, unit, instance) = (self.layout, self.unit, self.layout.instance());
        let places = instance.places();
        let all: Vec<f64> = (0..places.len()).map(|p| layout.load(p)).collect();
        let calls = |wanted: &dyn Fn(u32) -> bool| -> f64 {
            let near = unit.containers.iter().flat_map(|x| instance.near(*x));
            near.filter(|(y, _)| wanted(*y)).map(|(_, rate)| rate).sum()
        };
        let inside = |y: u32| unit.containers.contains(&y);
        let mut row = [0.0; FEATURES];
        row[9] = squash(self.per_call * calls(&|y| layout.at(y).is_none() && !inside(y)));
        row[10] = squash(self.per_call * calls(&inside) / 2.0);
        row[14] = 1.0 - (unit.left[0] / self.demand[0] + unit.left[1] / self.demand[1]) / 2.0;
        row[15] = self.target;
        row[16] = 3.0 * deviation(&all);
        row[18] = f64::from(u8::from(unit.kind == UnitKind::Copy));
        row[19] = f64::from(u8::from(unit.kind == UnitKind::Container));
        row[22] = all.iter().sum::<f64>() / all.len() as f64;
        let Some(place) = option else {
            row[8] = squash(self.per_call * calls(&|y| layout.at(y).is_some()));
            row[17] = 1.0;
            return row;
        };
        let capacity = places[place].capacity;
        let share = |amounts: Load| [amounts[0] / capacity[0], amounts[1] / capacity[1]];
        let (used, ask) = (layout.used(place), request(instance, unit.containers));
        let ([u, v], [p, q]) = (share(used), share([used[0] + ask[0], used[1] + ask[1]]));
        let (was, is) = ((u + v) / 2.0, (p + q) / 2.0);
        let mut then = all.clone();
        then[place] = is;
        let weights = layout.weights();
        let cluster = weights.cluster * places.len() as f64 * (deviation(&then) - deviation(&all));
        let skew = (p - q).abs() / 2.0 - (u - v).abs() / 2.0;
        let [a, b] = share(unit.rest);
        let rest = (a / ((1.0 - p).max(0.0) + 1e-9)).max(b / ((1.0 - q).max(0.0) + 1e-9));
        let (away, to) =
            (self.per_call * layout.calls_away(unit.containers, place), self.per_call * layout.calls_to(unit.containers, place));
        let mean = |of: &dyn Fn(usize) -> f64| (0..places.len()).map(of).sum::<f64>() / places.len() as f64;
        let size = |r: usize| capacity[r] / mean(&|p| places[p].capacity[r]);
        row[0] = 3.0 * (is - self.target);
        row[1] = 3.0 * (was - self.target);
        (row[2], row[3]) = (3.0 * (u - v), 3.0 * (p - q));
        (row[4], row[5]) = (3.0 * (p - q).abs(), 6.0 * skew);
        row[6] = cluster.clamp(-2.0, 2.0);
        (row[7], row[8]) = (squash(away), squash(to));
        (row[11], row[12]) = (squash(rest), (size(0) + size(1)) / 2.0 - 1.0);
        row[13] = squash(3.0 * (is - was));
        row[20] = cluster + weights.node * skew + away;
        row[21] = 1.0 - p.max(q);
        row[23] = f64::from(u8::from(rest > 0.0 && rest <= 1.0));
        row
    }

    fn rows(&self, options: &[Option<usize>]) -> Vec<[f64; FEATURES]> {
        let mut rows: Vec<[f64; FEATURES]> = options.iter().map(|option| self.features(*option)).collect();
        let places = || options.iter().enumerate().filter(|(_, option)| option.is_some()).map(|(n, _)| n);
        let least = places().map(|n| rows[n][20]).fold(f64::INFINITY, f64::min);
        places().for_each(|n| rows[n][20] = squash(2.0 * (rows[n][20] - least)));
        rows
    }
}

/// The network as it is defined: layer by layer, ReLU between them.
fn score(net: &ScoreNet, row: &[f64; FEATURES]) -> f64 {
    let (mut here, mut params) = (row.to_vec(), net.params());
    let last = net.sizes().len() - 2;
    for (l, outs) in net.sizes()[1..].iter().enumerate() {
        let (weights, rest) = params.split_at(here.len() * outs);
        let (biases, rest) = rest.split_at(*outs);
        let sum = |o: usize| here.iter().enumerate().map(|(i, x)| x * f64::from(weights[i * outs + o])).sum::<f64>() + f64::from(biases[o]);
        here = (0..*outs).map(sum).map(|sum| if l < last { sum.max(0.0) } else { sum }).collect();
        params = rest;
    }
    here[0]
}

fn instance(rng: &mut fastrand::Rng, places: usize) -> Instance {
    let mut service = |n: usize| Service {
        name: format!("s{n}"),
        request: [50.0 + 200.0 * rng.f64(), 50.0 + 200.0 * rng.f64()],
        replicas: 1 + rng.usize(0..4),
    };
    let services: Vec<Service> = (0..5).map(&mut service).collect();
    let calls = [("s0", "s1", 7.0), ("s1", "s2", 3.0), ("s0", "s3", 5.0), ("s3", "s4", 1.0)];
    let graph = CallGraph::named(services, calls).unwrap();
    let grouping = Grouping::of(&graph, Some(3), Variant::Merge, &Limits::default()).unwrap();
    let places = (0..places).map(|n| Place::new(format!("n{n}"), [900.0 + 900.0 * rng.f64(), 900.0 + 900.0 * rng.f64()], 0)).collect();
    Instance::new(&graph, if rng.bool() { Traffic::Local } else { Traffic::Uniform }, &grouping, places, Rules::default()).unwrap()
}

proptest! {
    #[test]
    fn scores_and_choices_are_those_of_the_definition(seed in any::<u64>(), places in 2_usize..40) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let instance = instance(&mut rng, places);
        let mut layout = Layout::empty(&instance, Weights::default());
        let units = instance.groups();
        let unit = &units[rng.usize(0..units.len())];
        for x in (0..instance.containers().len() as u32).filter(|x| !unit.contains(x)) {
            let place = rng.usize(0..places);
            if rng.bool() && layout.fits(&[x], place) {
                layout.put(&[x], place);
            }
        }
        let all: Vec<u32> = (0..instance.containers().len() as u32).collect();
        let waiting: Vec<u32> = all.iter().copied().filter(|x| layout.at(*x).is_none()).collect();
        let of_copy: Vec<u32> =
            waiting.iter().copied().filter(|x| instance.copy_of(*x) == instance.copy_of(unit[0]) && !unit.contains(x)).collect();
        let kind = [UnitKind::Copy, UnitKind::Group, UnitKind::Container][rng.usize(0..3)];
        let described = Unit { containers: unit, kind, rest: request(&instance, &of_copy), left: request(&instance, &waiting) };
        let outlook = Outlook::of(&instance, Weights::default());
        let mut calls = UnitCalls::default();
        calls.collect(&layout, unit);
        let options: Vec<Option<usize>> = (0..places).filter(|p| layout.fits(unit, *p)).map(Some).chain([None]).collect();
        let (mut rows, mut scores) = (Vec::new(), Vec::new());
        outlook.describe(&layout, &described, &calls, &options, &mut rows);
        LearnedModel::shipped().net().score(&rows, &mut scores);

        let per_call = places as f64 * layout.weights().container / instance.total_calls();
        let question = Question { layout: &layout, unit: &described, target: outlook.target(), demand: request(&instance, &all), per_call };
        let plain = question.rows(&options);
        let mut plainly: Vec<f64> = Vec::new();
        for (n, row) in plain.iter().enumerate() {
            for (f, feature) in row.iter().enumerate() {
                let quick = f64::from(rows[n * FEATURES + f]);
                prop_assert!((quick - feature).abs() < CLOSE, "feature {} of option {}: {} and {}", f, n, quick, feature);
            }
            plainly.push(score(LearnedModel::shipped().net(), row));
            prop_assert!((f64::from(scores[n]) - plainly[n]).abs() < EQUAL / 2.0, "option {}: {} and {}", n, scores[n], plainly[n]);
        }
        let chosen = best(&scores);
        prop_assert!(plainly.iter().all(|score| *score <= plainly[chosen] + EQUAL), "{} of {:?}", chosen, plainly);
    }
}
