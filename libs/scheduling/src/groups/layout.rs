//! A placement under construction, with the objective updated at each move.
//!
//! Invariant: the sums agree with [`Terms::of`] (a test makes 10^5 random moves). A move costs O(1) per place and O(calls) per container,
//! independent of the size of the instance.

use super::graph::{Load, RESOURCES};
use super::instance::Instance;
use super::objective::{Terms, Weights};

/// Marks a container that is not placed.
const NOWHERE: u32 = u32::MAX;
/// Tolerance for rounding errors when capacities are compared, as a share of the capacity.
pub const SLACK: f64 = 1e-9;

/// The contribution of a place to the sums.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    load: f64,
    skew: f64,
    over: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    load: f64,
    square: f64,
    skew: f64,
    cut: f64,
    /// Sum of the amounts by which places exceed their capacity, as shares of the capacity.
    over: f64,
}

/// The effect of an exchange of containers between two places (or a move from one to the other). Valid until the next change of the
/// layout.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    from: usize,
    to: usize,
    used: [Load; 2],
    share: [Share; 2],
    sums: Sums,
    moved: isize,
    /// The objective after it.
    pub value: f64,
}

impl Change {
    /// The excess over capacities after it, as in [`Layout::over`].
    pub fn over(&self) -> f64 {
        self.sums.over
    }
}

/// The places of all containers. A change is cheap; a copy costs as much as the instance is large.
#[derive(Clone, Debug)]
pub struct Layout<'i> {
    instance: &'i Instance,
    weights: Weights,
    at: Vec<u32>,
    on: Vec<Vec<u32>>,
    slot: Vec<u32>,
    used: Vec<Load>,
    inverse: Vec<Load>,
    /// Limit on the used share of each resource: 1, or more if others use more than the capacity.
    ceiling: Vec<Load>,
    share: Vec<Share>,
    sums: Sums,
    /// Number of containers whose place differs from their current one.
    moved: usize,
    per_domain: Vec<Option<usize>>,
    in_domain: std::collections::BTreeMap<(usize, usize), usize>,
    has_rules: bool,
    mark: Vec<u32>,
    stamp: u32,
}

impl<'i> Layout<'i> {
    /// A layout without placed containers.
    pub fn empty(instance: &'i Instance, weights: Weights) -> Self {
        let places = instance.places();
        let services = instance.containers().iter().map(|c| c.service + 1).max().unwrap_or(0);
        let mut per_domain = vec![None; services];
        instance.rules.per_domain.iter().for_each(|(s, most)| per_domain[*s] = Some(*most));
        let n = instance.containers().len();
        let mut layout = Self {
            instance,
            weights,
            at: vec![NOWHERE; n],
            on: vec![Vec::new(); places.len()],
            slot: vec![0; n],
            used: places.iter().map(|p| p.taken).collect(),
            inverse: places.iter().map(|p| p.capacity.map(|c| 1.0 / c)).collect(),
            ceiling: places.iter().map(|p| std::array::from_fn(|r| (p.taken[r] / p.capacity[r]).max(1.0) + SLACK)).collect(),
            share: vec![Share::default(); places.len()],
            sums: Sums::default(),
            moved: 0,
            has_rules: !instance.rules.apart.is_empty() || !instance.rules.per_domain.is_empty(),
            per_domain,
            in_domain: std::collections::BTreeMap::new(),
            mark: vec![0; n],
            stamp: 0,
        };
        layout.resync();
        layout
    }

    /// A layout with the containers on the given places.
    pub fn of(instance: &'i Instance, weights: Weights, at: &[Option<usize>]) -> Self {
        let mut layout = Self::empty(instance, weights);
        for (c, place) in at.iter().enumerate() {
            if let Some(p) = place {
                layout.put(&[c as u32], *p);
            }
        }
        layout
    }

    /// The instance.
    pub fn instance(&self) -> &'i Instance {
        self.instance
    }
    /// The weights of the objective.
    pub fn weights(&self) -> Weights {
        self.weights
    }
    /// The place of a container.
    pub fn at(&self, container: u32) -> Option<usize> {
        (self.at[container as usize] != NOWHERE).then_some(self.at[container as usize] as usize)
    }
    /// Whether a container is on a place.
    #[inline]
    pub(super) fn is_at(&self, container: u32, place: usize) -> bool {
        self.at[container as usize] == place as u32
    }
    /// The places of all containers.
    pub fn placement(&self) -> Vec<Option<usize>> {
        (0..self.at.len()).map(|c| self.at(c as u32)).collect()
    }
    /// The containers on a place.
    pub fn on(&self, place: usize) -> &[u32] {
        &self.on[place]
    }
    /// The amounts used on a place.
    pub fn used(&self, place: usize) -> Load {
        self.used[place]
    }
    /// The load L_i of a place.
    pub fn load(&self, place: usize) -> f64 {
        self.share[place].load
    }
    /// The imbalance s_i of a place.
    pub fn skew(&self, place: usize) -> f64 {
        self.share[place].skew
    }
    /// The load and the imbalance of a place after `unit` is added.
    pub fn after(&self, unit: &[u32], place: usize) -> (f64, f64) {
        let share = self.share_of(place, self.with(place, unit, 1.0));
        (share.load, share.skew)
    }
    /// The value of the objective.
    pub fn value(&self) -> f64 {
        self.value_of(&self.sums)
    }
    /// The mean and the standard deviation of the loads of all places.
    pub fn balance(&self) -> (f64, f64) {
        let m = self.share.len() as f64;
        let mean = self.sums.load / m;
        (mean, (self.sums.square / m - mean * mean).max(0.0).sqrt())
    }
    /// Calls between places, each multiplied by its distance.
    pub fn calls(&self) -> f64 {
        self.sums.cut
    }
    /// The sum of the amounts by which places exceed their capacity, as shares of the capacity. 0 unless a search is repairing a placement.
    pub fn over(&self) -> f64 {
        self.sums.over
    }
    /// The amount by which a place exceeds its capacity, as a share of the capacity.
    pub fn over_at(&self, place: usize) -> f64 {
        self.share[place].over
    }
    /// The terms of the objective, computed from scratch.
    pub fn terms(&self) -> Terms {
        Terms::of(self.instance, &self.placement())
    }

    /// Whether an unplaced unit may be put on a place: there is room, and the rules allow it.
    pub fn fits(&self, unit: &[u32], place: usize) -> bool {
        self.share_of(place, self.with(place, unit, 1.0)).over <= self.share[place].over && self.allows(unit, place)
    }

    /// Whether the rules allow an unplaced unit on a place, whatever its room.
    pub fn allows(&self, unit: &[u32], place: usize) -> bool {
        if !self.has_rules {
            return true;
        }
        let apart = |x: &u32| !self.on[place].iter().chain(unit).any(|other| self.instance.repel(*x, *other));
        unit.iter().all(apart) && unit.iter().all(|x| self.domain_ok(*x, place, unit, None))
    }

    /// Whether the failure domain of `place` may take all containers of `coming` while `leaving` (containers and their new domain) leave.
    fn domain_ok(&self, x: u32, place: usize, coming: &[u32], leaving: Option<(&[u32], usize)>) -> bool {
        let service = |c: u32| self.instance.containers()[c as usize].service;
        let (s, domain) = (service(x), self.instance.places()[place].domain);
        let Some(most) = self.per_domain[s] else { return true };
        let come = coming.iter().filter(|c| service(**c) == s).count();
        let go = match leaving {
            Some((_, theirs)) if theirs == domain => return true,
            Some((ys, _)) => ys.iter().filter(|c| service(**c) == s).count(),
            None => 0,
        };
        self.in_domain.get(&(s, domain)).copied().unwrap_or(0) + come <= most + go
    }

    /// The value of the objective after an unplaced unit is put on a place.
    pub fn value_with(&self, unit: &[u32], place: usize) -> f64 {
        let share = self.share_of(place, self.with(place, unit, 1.0));
        let mut sums = self.replaced(place, share, self.sums);
        sums.cut += self.calls_away(unit, place);
        self.value_of(&sums)
    }

    /// Calls of an unplaced unit that would leave the place.
    pub fn calls_away(&self, unit: &[u32], place: usize) -> f64 {
        let mut cut = 0.0;
        let plain = !self.instance.has_distances();
        for x in unit {
            for (n, w) in self.instance.near(*x) {
                let at = self.at[*n as usize];
                if plain {
                    cut += if at != NOWHERE && at != place as u32 { *w } else { 0.0 };
                } else if at != NOWHERE {
                    cut += w * self.instance.apart(place, at as usize);
                }
            }
        }
        cut
    }

    /// Calls between an unplaced unit and the containers on a place.
    pub fn calls_to(&self, unit: &[u32], place: usize) -> f64 {
        unit.iter().flat_map(|x| self.instance.near(*x)).filter(|(n, _)| self.at[*n as usize] == place as u32).map(|(_, w)| w).sum()
    }

    /// Puts an unplaced unit on a place.
    pub fn put(&mut self, unit: &[u32], place: usize) {
        let used = self.with(place, unit, 1.0);
        self.sums.cut += self.calls_away(unit, place);
        self.set_used(place, used);
        unit.iter().for_each(|x| self.link(*x, place));
        self.moved += self.strangers(unit, place);
    }

    /// Removes a unit from its place. All its containers must be on the same place.
    pub fn take(&mut self, unit: &[u32]) {
        let Some(place) = unit.first().and_then(|x| self.at(*x)) else { return };
        let used = self.with(place, unit, -1.0);
        unit.iter().for_each(|x| self.unlink(*x));
        self.sums.cut -= self.calls_away(unit, place);
        self.set_used(place, used);
        self.moved -= self.strangers(unit, place);
    }

    /// Computes the effect of an exchange: `xs` (on `from`) go to `to`, `ys` (on `to`) go to `from`. `None` if a rule forbids it, or if it
    /// would exceed a capacity while none is exceeded now; else the caller must check [`Change::over`].
    pub fn probe(&mut self, from: usize, xs: &[u32], to: usize, ys: &[u32]) -> Option<Change> {
        let (mut a, mut b) = (self.used[from], self.used[to]);
        for (unit, sign) in [(xs, 1.0), (ys, -1.0)] {
            for x in unit {
                let q = self.instance.facts(*x).request;
                for r in 0..RESOURCES {
                    a[r] -= sign * q[r];
                    b[r] += sign * q[r];
                }
            }
        }
        let (left, right) = (self.share_of(from, a), self.share_of(to, b));
        if self.sums.over == 0.0 && left.over + right.over > 0.0 {
            return None;
        }
        let moved = self.moves(xs, from, to) + self.moves(ys, to, from);
        if moved > 0 && self.instance.rules.moves.is_some_and(|most| self.moved as isize + moved > most as isize) {
            return None;
        }
        if self.has_rules && !self.exchange_allowed(from, xs, to, ys) {
            return None;
        }
        let mut sums = self.replaced(from, left, self.sums);
        sums = self.replaced(to, right, sums);
        if sums.over < SLACK {
            sums.over = 0.0;
        }
        sums.cut += self.cut_change(from, xs, to, ys);
        Some(Change { from, to, used: [a, b], share: [left, right], sums, moved, value: self.value_of(&sums) })
    }

    /// Makes a change that was probed with the same containers.
    pub fn commit(&mut self, change: &Change, xs: &[u32], ys: &[u32]) {
        for (unit, place) in [(xs, change.to), (ys, change.from)] {
            for x in unit {
                self.unlink(*x);
                self.link(*x, place);
            }
        }
        for (i, place) in [change.from, change.to].into_iter().enumerate() {
            self.used[place] = change.used[i];
            self.share[place] = change.share[i];
        }
        self.sums = change.sums;
        self.moved = self.moved.saturating_add_signed(change.moved);
    }

    /// Computes all sums again from the places, which removes accumulated rounding errors.
    pub fn resync(&mut self) {
        self.used = super::objective::used(self.instance, &self.placement());
        self.sums = Sums::default();
        for place in 0..self.used.len() {
            self.share[place] = self.share_of(place, self.used[place]);
            let s = self.share[place];
            self.sums.load += s.load;
            self.sums.square += s.load * s.load;
            self.sums.skew += s.skew;
            self.sums.over += s.over;
        }
        self.sums.cut = (0..self.at.len() as u32).filter_map(|x| Some(self.calls_away(&[x], self.at(x)?))).sum::<f64>() / 2.0;
    }

    fn with(&self, place: usize, unit: &[u32], sign: f64) -> Load {
        let mut used = self.used[place];
        for x in unit {
            let q = self.instance.facts(*x).request;
            (0..RESOURCES).for_each(|r| used[r] += sign * q[r]);
        }
        used
    }

    #[inline]
    fn share_of(&self, place: usize, used: Load) -> Share {
        let inverse = self.inverse[place];
        let (u, v) = (used[0] * inverse[0], used[1] * inverse[1]);
        let over = |u: f64, most: f64| if u > most { u - most + SLACK } else { 0.0 };
        let ceiling = self.ceiling[place];
        Share { load: (u + v) / 2.0, skew: (u - v).abs() / 2.0, over: over(u, ceiling[0]) + over(v, ceiling[1]) }
    }

    #[inline]
    fn replaced(&self, place: usize, new: Share, mut sums: Sums) -> Sums {
        let old = self.share[place];
        sums.load += new.load - old.load;
        sums.square += new.load * new.load - old.load * old.load;
        sums.skew += new.skew - old.skew;
        sums.over += new.over - old.over;
        sums
    }

    #[inline]
    fn value_of(&self, sums: &Sums) -> f64 {
        let m = self.share.len() as f64;
        let mean = sums.load / m;
        let cut = if self.instance.total_calls() > 0.0 { sums.cut / self.instance.total_calls() } else { 0.0 };
        self.weights.cluster * (sums.square / m - mean * mean).max(0.0).sqrt()
            + self.weights.node * sums.skew / m
            + self.weights.container * cut
    }

    fn set_used(&mut self, place: usize, used: Load) {
        let share = self.share_of(place, used);
        self.sums = self.replaced(place, share, self.sums);
        self.used[place] = used;
        self.share[place] = share;
    }

    fn cut_change(&mut self, from: usize, xs: &[u32], to: usize, ys: &[u32]) -> f64 {
        self.stamp += 1;
        xs.iter().chain(ys).for_each(|x| self.mark[*x as usize] = self.stamp);
        let mut change = 0.0;
        let plain = !self.instance.has_distances();
        for (unit, here, there) in [(xs, from, to), (ys, to, from)] {
            for x in unit {
                for (n, w) in self.instance.near(*x) {
                    let at = self.at[*n as usize];
                    if self.mark[*n as usize] == self.stamp || at == NOWHERE {
                        continue;
                    }
                    if plain {
                        change += w * (f64::from(u8::from(at as usize == here)) - f64::from(u8::from(at as usize == there)));
                    } else {
                        change += w * (self.instance.apart(there, at as usize) - self.instance.apart(here, at as usize));
                    }
                }
            }
        }
        change
    }

    fn exchange_allowed(&self, from: usize, xs: &[u32], to: usize, ys: &[u32]) -> bool {
        let domain = |p: usize| self.instance.places()[p].domain;
        let one = |coming: &[u32], place: usize, leaving: &[u32], theirs: usize| {
            let apart = |x: &u32| !self.on[place].iter().any(|o| self.instance.repel(*x, *o) && !leaving.contains(o));
            coming.iter().all(|x| apart(x) && self.domain_ok(*x, place, coming, Some((leaving, domain(theirs)))))
        };
        one(xs, to, ys, from) && one(ys, from, xs, to)
    }

    fn moves(&self, unit: &[u32], from: usize, to: usize) -> isize {
        if self.instance.rules.moves.is_none() {
            return 0; // without a limit the count is not needed
        }
        let now = |x: &u32| self.instance.now()[*x as usize];
        unit.iter().map(|x| isize::from(now(x) == Some(from)) - isize::from(now(x) == Some(to))).sum()
    }

    /// The number of containers of `unit` whose current place is not `place`.
    fn strangers(&self, unit: &[u32], place: usize) -> usize {
        if self.instance.rules.moves.is_none() {
            return 0; // without a limit the count is not needed
        }
        unit.iter().filter(|x| self.instance.now()[**x as usize].is_some_and(|now| now != place)).count()
    }

    fn link(&mut self, x: u32, place: usize) {
        self.at[x as usize] = place as u32;
        self.slot[x as usize] = self.on[place].len() as u32;
        self.on[place].push(x);
        self.count(x, place, 1);
    }

    fn unlink(&mut self, x: u32) {
        let place = self.at[x as usize] as usize;
        let slot = self.slot[x as usize] as usize;
        self.on[place].swap_remove(slot);
        if let Some(other) = self.on[place].get(slot) {
            self.slot[*other as usize] = slot as u32;
        }
        self.at[x as usize] = NOWHERE;
        self.count(x, place, -1);
    }

    fn count(&mut self, x: u32, place: usize, by: isize) {
        if !self.has_rules {
            return;
        }
        let service = self.instance.containers()[x as usize].service;
        if self.per_domain[service].is_some() {
            let n = self.in_domain.entry((service, self.instance.places()[place].domain)).or_default();
            *n = n.saturating_add_signed(by);
        }
    }
}
