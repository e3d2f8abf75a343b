//! The decision process of an episode: each step takes the state of the cluster and places one copy of a group.
//!
//! The state holds for each place the used CPU and memory and, with `affinity`, the share of the unit's calls that go there. (The paper's
//! state knows no calls, so its policy can only memorise a queue.) Then follow the unit's request relative to the mean capacity, and the
//! share of the queue that is done. A unit that fits nowhere is split; a container that fits nowhere is left out and costs 1.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use drover_scheduling::groups::{Instance, Layout, Load, Weights};

/// The reward of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reward {
    /// -f after the step, as published. Its sum values the whole episode, not the final placement.
    Path,
    /// f before the step minus f after it. Its sum over an episode is minus the value of the final placement.
    Delta,
}

/// The present state of an episode.
#[derive(Clone, Debug)]
pub struct PlacementEpisode<'i> {
    layout: Layout<'i>,
    /// The copies of groups, or parts of them, that are still to be placed.
    queue: VecDeque<Vec<u32>>,
    steps: usize,
    /// Number of containers that fit nowhere.
    left_out: usize,
    /// The mean capacity of a place.
    mean: Load,
    reward: Reward,
    affinity: bool,
}

impl<'i> PlacementEpisode<'i> {
    /// A new episode: all copies of groups are in the queue, and nothing is placed.
    pub fn new(instance: &'i Instance, weights: &Weights, reward: Reward, affinity: bool) -> Self {
        let layout = crate::greedy::begin(instance, weights);
        let open = |unit: &Vec<u32>| unit.iter().copied().filter(|c| layout.at(*c).is_none()).collect::<Vec<_>>();
        let queue: VecDeque<Vec<u32>> = instance.groups().iter().map(open).filter(|u| !u.is_empty()).collect();
        let count = instance.places().len() as f64;
        let mean = std::array::from_fn(|r| instance.places().iter().map(|p| p.capacity[r]).sum::<f64>() / count);
        let mut episode = Self { layout, queue, steps: 0, left_out: 0, mean, reward, affinity };
        episode.settle();
        episode
    }

    /// The length of the state vector for this number of places.
    pub fn width(places: usize, affinity: bool) -> usize {
        places * if affinity { 3 } else { 2 } + 3
    }

    /// The next unit; `None` when the episode is over.
    pub fn unit(&self) -> Option<&[u32]> {
        self.queue.front().map(Vec::as_slice)
    }

    /// The layout of what has been placed so far.
    pub fn layout(&self) -> &Layout<'i> {
        &self.layout
    }

    /// The state as a vector of numbers around 1.
    pub fn state(&self) -> Vec<f32> {
        let instance = self.layout.instance();
        let unit = self.unit().unwrap_or(&[]);
        let mut state = Vec::with_capacity(Self::width(instance.places().len(), self.affinity));
        for (p, place) in instance.places().iter().enumerate() {
            state.extend((0..2).map(|r| (self.layout.used(p)[r] / place.capacity[r]) as f32));
        }
        if self.affinity {
            let calls: f64 = unit.iter().flat_map(|x| instance.near(*x)).map(|(_, w)| w).sum();
            let share = |p| if calls > 0.0 { (self.layout.calls_to(unit, p) / calls) as f32 } else { 0.0 };
            state.extend((0..instance.places().len()).map(share));
        }
        let asked = |r: usize| unit.iter().map(|c| instance.containers()[*c as usize].request[r]).sum::<f64>();
        state.extend((0..2).map(|r| (asked(r) / self.mean[r]) as f32));
        state.push(self.steps as f32 / (self.steps + self.queue.len()).max(1) as f32);
        state
    }

    /// Where the next unit fits: at least on one place, unless the episode is over.
    pub fn mask(&self) -> Vec<bool> {
        let places = 0..self.layout.instance().places().len();
        self.unit()
            .map_or_else(|| places.clone().map(|_| false).collect(), |unit| places.clone().map(|p| self.layout.fits(unit, p)).collect())
    }

    /// Puts the next unit on a place where it fits. Returns the reward.
    pub fn step(&mut self, place: usize) -> f64 {
        let before = self.worth();
        if let Some(unit) = self.queue.pop_front() {
            self.layout.put(&unit, place);
            self.steps += 1;
        }
        self.settle();
        match self.reward {
            Reward::Path => -self.worth(),
            Reward::Delta => before - self.worth(),
        }
    }

    /// The objective, with 1 for each container that was left out.
    fn worth(&self) -> f64 {
        self.layout.value() + self.left_out as f64
    }

    /// Splits or leaves out units that fit nowhere, until the next one fits somewhere.
    fn settle(&mut self) {
        while let Some(unit) = self.queue.front() {
            if (0..self.layout.instance().places().len()).any(|p| self.layout.fits(unit, p)) {
                return;
            }
            let unit = self.queue.pop_front().unwrap_or_default();
            if unit.len() > 1 {
                unit.into_iter().rev().for_each(|x| self.queue.push_front(vec![x]));
            } else {
                self.left_out += 1;
            }
        }
    }
}
