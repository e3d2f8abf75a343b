//! The calls between places: which places have most, and what the parts of two places win if they change sides.

use super::super::layout::Layout;
use super::exchange::Apart;
use super::parts::{Collector, Parts, bits};

/// With more calling pairs than these, what a part wins is not corrected for the parts that it changes sides with: each pair counts little.
const PAIRS: usize = 16;

/// The pairs of places with most calls between them and these calls, those with most calls first, at most `most`.
pub fn linked(layout: &Layout<'_>, most: usize) -> Vec<(usize, usize, f64)> {
    let instance = layout.instance();
    let places = instance.places().len();
    let mut calls = vec![0.0; places];
    let (mut others, mut all) = (Vec::new(), Vec::new());
    for here in 0..places {
        for (y, rate) in layout.on(here).iter().flat_map(|x| instance.near(*x)) {
            if let Some(there) = layout.at(*y).filter(|there| *there > here) {
                if calls[there] == 0.0 {
                    others.push(there);
                }
                calls[there] += rate;
            }
        }
        all.extend(others.drain(..).map(|there| (here, there, std::mem::take(&mut calls[there]))));
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
    /// What the calls of each part cost that it leaves behind, less those that it comes to.
    pub costs: [Vec<f32>; 2],
    /// What pairs of parts cost besides: they call each other, and have been counted as if each came to the other. In the order of the parts.
    pub apart: Vec<Apart>,
}

impl Between {
    /// Looks at the calls between two places. `per_call`: what a call between two places costs.
    pub fn look_at(&mut self, layout: &Layout<'_>, [here, there]: [usize; 2], parts: [&Parts; 2], of: &Collector) {
        self.pairs.clear();
        self.apart.clear();
        for (costs, parts) in self.costs.iter_mut().zip(parts) {
            costs.clear();
            costs.extend_from_slice(&parts.cost);
        }
        for x in layout.on(here) {
            let near = layout.instance().near(*x).iter().filter(|(y, _)| layout.at(*y) == Some(there));
            self.pairs.extend(near.map(|(y, rate)| (*x, *y, of.cost(*rate))));
        }
        for (x, y, cost) in &self.pairs {
            bits(of.parts_with(*x)).for_each(|p| self.costs[0][p] -= cost);
            bits(of.parts_with(*y)).for_each(|q| self.costs[1][q] -= cost);
            if self.pairs.len() <= PAIRS {
                let others = |p: usize| bits(of.parts_with(*y)).map(move |q| (p as u32, q as u32, 2.0 * cost));
                self.apart.extend(bits(of.parts_with(*x)).flat_map(others));
            }
        }
        self.apart.sort_unstable_by_key(|pair| (pair.0, pair.1));
    }
}
