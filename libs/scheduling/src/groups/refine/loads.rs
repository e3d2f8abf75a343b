//! How much of each place is used, in columns of f32, and what an unequal use costs.
//!
//! The objective is taken in units in which a place counts 1, and linear in the variance of the loads: then an exchange changes only the
//! terms of its two places. Invariant: the columns say what the layout says, because each change of a place is followed by
//! [`Loads::update`].

use super::super::instance::Place;
use super::super::layout::Layout;
use super::super::top::Top;

/// Places among which the partners of a place are chosen; in each round others.
const SAMPLE: usize = 128;
/// Places whose potential is computed together.
const LANES: usize = 8;
/// Partners of a place in a round.
pub const PARTNERS: usize = 4;

/// One place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlaceLoad {
    /// The used share of each resource.
    pub used: [f32; 2],
    /// 1 / capacity.
    pub inverse: [f32; 2],
    /// The most that may be used.
    pub ceiling: [f32; 2],
}

impl PlaceLoad {
    /// The used shares after some more is used.
    #[inline]
    pub fn with(&self, more: [f32; 2]) -> [f32; 2] {
        [self.used[0] + more[0] * self.inverse[0], self.used[1] + more[1] * self.inverse[1]]
    }

    /// Whether so much may be used.
    #[inline]
    pub fn allows(&self, used: [f32; 2]) -> bool {
        used[0] <= self.ceiling[0] && used[1] <= self.ceiling[1]
    }
}

/// What unequal use costs on one place.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Balance {
    mean: f32,
    square: f32,
    skew: f32,
}

impl Balance {
    /// That of a layout as it is.
    pub fn of(layout: &Layout<'_>) -> Self {
        let ((mean, deviation), weights) = (layout.balance(), layout.weights());
        Self { mean: mean as f32, square: (weights.cluster / (2.0 * deviation.max(1e-3))) as f32, skew: (weights.node / 2.0) as f32 }
    }

    /// What a place costs of which such shares are used.
    #[inline]
    pub fn cost(&self, used: [f32; 2]) -> f32 {
        let d = (used[0] + used[1]) * 0.5 - self.mean;
        self.square * d * d + self.skew * (used[0] - used[1]).abs()
    }
}

/// All places.
#[derive(Debug)]
pub struct Loads {
    places: Vec<PlaceLoad>,
    capacity: Vec<[f32; 2]>,
    /// What unequal use costs now.
    pub balance: Balance,
    turn: usize,
}

impl Loads {
    /// The places of a layout.
    pub fn of(layout: &Layout<'_>) -> Self {
        let places = layout.instance().places();
        let row = |of: &dyn Fn(usize) -> f64| [0, 1].map(|r| of(r) as f32);
        let load = |(p, place): (usize, &Place)| PlaceLoad {
            used: row(&|r| layout.used(p)[r] / place.capacity[r]),
            inverse: row(&|r| 1.0 / place.capacity[r]),
            ceiling: row(&|r| (place.taken[r] / place.capacity[r]).max(1.0) + 1e-6),
        };
        Self {
            places: places.iter().enumerate().map(load).collect(),
            capacity: places.iter().map(|place| row(&|r| place.capacity[r])).collect(),
            balance: Balance::of(layout),
            turn: 0,
        }
    }

    /// Takes over what is used on two places.
    pub fn update(&mut self, layout: &Layout<'_>, changed: [usize; 2]) {
        for place in changed {
            let (load, used) = (&mut self.places[place], layout.used(place));
            load.used = std::array::from_fn(|r| used[r] as f32 * load.inverse[r]);
        }
        self.balance = Balance::of(layout);
    }

    /// One place.
    pub fn place(&self, place: usize) -> PlaceLoad {
        self.places[place]
    }

    /// What the use of a place costs.
    pub fn cost(&self, place: usize) -> f32 {
        self.balance.cost(self.places[place].used)
    }

    /// All places, that whose use costs most first.
    pub fn worst_first(&self) -> Vec<usize> {
        let costs: Vec<f32> = (0..self.places.len()).map(|p| self.cost(p)).collect();
        let mut order: Vec<usize> = (0..costs.len()).collect();
        order.sort_unstable_by(|a, b| costs[*b].total_cmp(&costs[*a]).then(a.cmp(b)));
        order
    }

    /// What two places would gain if the amounts on them could be divided at will.
    #[inline]
    pub fn potential(&self, here: usize, there: usize) -> f32 {
        let [a, b] = [here, there].map(|place| (self.places[place].used, self.capacity[place]));
        self.divided(a, b)
    }

    #[inline]
    fn divided(&self, (here, a): ([f32; 2], [f32; 2]), (there, b): ([f32; 2], [f32; 2])) -> f32 {
        let divided = |r: usize| (here[r] * a[r] + there[r] * b[r]) / (a[r] + b[r]);
        self.balance.cost(here) + self.balance.cost(there) - 2.0 * self.balance.cost([divided(0), divided(1)])
    }

    /// The places of a sample that have most potential with a place, if it is more than `enough`.
    pub fn partners(&mut self, place: usize, enough: f32) -> Top<usize, PARTNERS> {
        self.turn += 1;
        let places = self.places.len();
        let stride = places.div_ceil(SAMPLE);
        let here = (self.places[place].used, self.capacity[place]);
        let mut best = Top::above(enough);
        let mut others = [0; LANES];
        let mut sample = self.turn % stride;
        while sample < places {
            let count = (places - sample).div_ceil(stride).min(LANES);
            // Some together, in columns, so that the loop uses the vector unit.
            let (mut used, mut capacity) = ([[0.0; LANES]; 2], [[1.0; LANES]; 2]);
            for (n, other) in others[..count].iter_mut().enumerate() {
                *other = sample + n * stride;
                (0..2).for_each(|r| (used[r][n], capacity[r][n]) = (self.places[*other].used[r], self.capacity[*other][r]));
            }
            let mut potential = [0.0; LANES];
            for (n, potential) in potential.iter_mut().enumerate() {
                *potential = self.divided(here, ([used[0][n], used[1][n]], [capacity[0][n], capacity[1][n]]));
            }
            let found = others[..count].iter().zip(potential).filter(|(other, _)| **other != place);
            found.for_each(|(other, potential)| best.offer(potential, *other));
            sample += LANES * stride;
        }
        best
    }
}
