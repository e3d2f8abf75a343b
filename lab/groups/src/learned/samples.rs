//! Labelled decisions, and the training of a network on them by cross-entropy.

use crate::ddpg::{Adam, Mlp};
use drover_scheduling::groups::learned::FEATURES;

/// One decision: the features of its options, and the probability that the teacher gives to each.
#[derive(Clone, Debug)]
pub struct Sample {
    rows: Vec<f32>,
    wanted: Vec<f32>,
}

impl Sample {
    /// A decision for one option.
    pub fn labelled(rows: &[f32], option: usize) -> Self {
        let mut wanted = vec![0.0; rows.len() / FEATURES];
        wanted[option] = 1.0;
        Self { rows: rows.to_vec(), wanted }
    }

    /// A decision with a probability for each option.
    pub fn weighted(rows: Vec<f32>, wanted: Vec<f32>) -> Self {
        Self { rows, wanted }
    }
}

/// A limited number of samples; a new one replaces a random one when it is full.
pub struct Samples {
    all: Vec<Sample>,
    limit: usize,
}

impl Samples {
    /// No samples yet.
    pub fn new(limit: usize) -> Self {
        Self { all: Vec::new(), limit }
    }

    /// Adds a sample. A decision with one option teaches nothing.
    pub fn add(&mut self, sample: Sample, rng: &mut fastrand::Rng) {
        if sample.wanted.len() < 2 {
            return;
        }
        if self.all.len() < self.limit {
            self.all.push(sample);
        } else {
            let n = rng.usize(0..self.limit);
            self.all[n] = sample;
        }
    }

    /// Takes some steps of Adam, as soon as there are enough samples for them.
    pub fn train(&self, net: &mut Mlp, adam: &mut Adam, steps: usize, batch: usize, rng: &mut fastrand::Rng) {
        if self.all.len() >= 8 * batch {
            (0..steps).for_each(|_| self.step(net, adam, batch, rng));
        }
    }

    /// One step of Adam on a random batch.
    fn step(&self, net: &mut Mlp, adam: &mut Adam, batch: usize, rng: &mut fastrand::Rng) {
        let picked: Vec<&Sample> = (0..batch).map(|_| &self.all[rng.usize(0..self.all.len())]).collect();
        let rows: Vec<f32> = picked.iter().flat_map(|s| s.rows.iter().copied()).collect();
        let count = rows.len() / FEATURES;
        let tape = net.forward(&rows, count);
        let mut by = Vec::with_capacity(count);
        let mut start = 0;
        for sample in &picked {
            let n = sample.wanted.len();
            let shares = softmax(&tape.output()[start..start + n]);
            by.extend(shares.iter().zip(&sample.wanted).map(|(p, t)| (p - t) / batch as f32));
            start += n;
        }
        let mut gradient = vec![0.0; net.params.len()];
        net.backward(&tape, &by, Some(&mut gradient));
        adam.step(net, &gradient);
    }
}

/// The softmax of some scores.
pub fn softmax(scores: &[f32]) -> Vec<f32> {
    let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let e: Vec<f32> = scores.iter().map(|s| (s - most).exp()).collect();
    let sum: f32 = e.iter().sum();
    e.into_iter().map(|x| x / sum).collect()
}
