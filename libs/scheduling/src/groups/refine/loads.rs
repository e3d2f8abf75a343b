//! How much of each place is used, in columns of f32, and what an unequal use costs.
//!
//! The objective is taken in units in which a place counts 1, and linear in the variance of the loads: then an exchange changes only the
//! terms of its two places. Invariant: the columns say what the layout says, because each change of a place is followed by
//! [`Loads::update`].

use super::super::layout::Layout;
use super::super::top::Top;

/// Places among which the partners of a place are chosen; in each round others.
const SAMPLE: usize = 128;
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
    used: [Vec<f32>; 2],
    capacity: [Vec<f32>; 2],
    inverse: [Vec<f32>; 2],
    ceiling: [Vec<f32>; 2],
    /// What unequal use costs now.
    pub balance: Balance,
    turn: usize,
}

impl Loads {
    /// The places of a layout.
    pub fn of(layout: &Layout<'_>) -> Self {
        let places = layout.instance().places();
        let columns = |of: &dyn Fn(usize, usize) -> f64| [0, 1].map(|r| (0..places.len()).map(|p| of(p, r) as f32).collect::<Vec<f32>>());
        Self {
            used: columns(&|p, r| layout.used(p)[r] / places[p].capacity[r]),
            capacity: columns(&|p, r| places[p].capacity[r]),
            inverse: columns(&|p, r| 1.0 / places[p].capacity[r]),
            ceiling: columns(&|p, r| (places[p].taken[r] / places[p].capacity[r]).max(1.0) + 1e-6),
            balance: Balance::of(layout),
            turn: 0,
        }
    }

    /// Takes over what is used on two places.
    pub fn update(&mut self, layout: &Layout<'_>, changed: [usize; 2]) {
        for place in changed {
            (0..2).for_each(|r| self.used[r][place] = layout.used(place)[r] as f32 * self.inverse[r][place]);
        }
        self.balance = Balance::of(layout);
    }

    /// One place.
    pub fn place(&self, place: usize) -> PlaceLoad {
        let row = |of: &[Vec<f32>; 2]| [of[0][place], of[1][place]];
        PlaceLoad { used: row(&self.used), inverse: row(&self.inverse), ceiling: row(&self.ceiling) }
    }

    /// What the use of a place costs.
    pub fn cost(&self, place: usize) -> f32 {
        self.balance.cost([self.used[0][place], self.used[1][place]])
    }

    /// All places, that whose use costs most first.
    pub fn worst_first(&self) -> Vec<usize> {
        let costs: Vec<f32> = (0..self.used[0].len()).map(|p| self.cost(p)).collect();
        let mut order: Vec<usize> = (0..costs.len()).collect();
        order.sort_unstable_by(|a, b| costs[*b].total_cmp(&costs[*a]).then(a.cmp(b)));
        order
    }

    /// What two places would gain if the amounts on them could be divided at will.
    #[inline]
    pub fn potential(&self, here: usize, there: usize) -> f32 {
        let divided = |r: usize| {
            let [a, b] = [here, there].map(|p| self.capacity[r][p]);
            (self.used[r][here] * a + self.used[r][there] * b) / (a + b)
        };
        self.cost(here) + self.cost(there) - 2.0 * self.balance.cost([divided(0), divided(1)])
    }

    /// The places of a sample that have most potential with a place, if it is more than `enough`.
    pub fn partners(&mut self, place: usize, enough: f32) -> Top<usize, PARTNERS> {
        self.turn += 1;
        let places = self.used[0].len();
        let stride = places.div_ceil(SAMPLE);
        let mut best = Top::above(enough);
        for other in (self.turn % stride..places).step_by(stride).filter(|other| *other != place) {
            best.offer(self.potential(place, other), other);
        }
        best
    }
}
