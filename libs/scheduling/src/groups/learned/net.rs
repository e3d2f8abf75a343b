//! The network that scores one option: fully connected, ReLU between the layers, one output. It is applied to each option by itself, so
//! the scores do not depend on the number or the order of the places.
//!
//! Plain loops over f32 in a fixed order, which give the same result on every machine.

use serde::{Deserialize, Serialize};

use super::features::FEATURES;

/// The largest width of a layer that is read from a file.
const MAX_WIDTH: usize = 256;
/// The width of the hidden layers that is computed fastest.
const WIDTH: usize = 16;
/// The number of rows that are computed at once.
const TOGETHER: usize = 2;

/// The weights of a scoring network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScoreNet {
    /// Widths of the layers, from the number of features to 1.
    sizes: Vec<usize>,
    /// Layer by layer: the weights, one row per input, then the biases.
    params: Vec<f32>,
}

impl ScoreNet {
    /// A network with the given weights; `None` if they do not fit the layers or are not finite.
    pub fn new(sizes: Vec<usize>, params: Vec<f32>) -> Option<Self> {
        let net = Self { sizes, params };
        net.is_sound().then_some(net)
    }

    /// Whether the weights fit the layers, the layers fit the features, and every weight is finite.
    pub fn is_sound(&self) -> bool {
        let widths = self.sizes.len() >= 2 && self.sizes.iter().all(|w| (1..=MAX_WIDTH).contains(w));
        widths
            && self.sizes.first() == Some(&FEATURES)
            && self.sizes.last() == Some(&1)
            && self.params.len() == self.sizes.windows(2).map(|p| (p[0] + 1) * p[1]).sum::<usize>()
            && self.params.iter().all(|p| p.is_finite())
    }

    /// The weights in the order of the file.
    pub fn params(&self) -> &[f32] {
        &self.params
    }

    /// The widths of the layers.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// Scores rows of features, which follow each other in `rows`. `scores` is overwritten.
    ///
    /// Networks of the shipped form are computed for some rows at once; the result is the same to the last bit.
    pub fn score(&self, rows: &[f32], scores: &mut Vec<f32>) {
        if self.sizes == [FEATURES, WIDTH, WIDTH, 1] { self.score_together(rows, scores) } else { self.score_singly(rows, scores) }
    }

    /// As [`ScoreNet::score`], one row after the other, for layers of any width.
    pub fn score_singly(&self, rows: &[f32], scores: &mut Vec<f32>) {
        scores.clear();
        let mut here = [0.0_f32; MAX_WIDTH];
        let mut next = [0.0_f32; MAX_WIDTH];
        for row in rows.chunks_exact(FEATURES) {
            here[..FEATURES].copy_from_slice(row);
            let mut start = 0;
            for (l, pair) in self.sizes.windows(2).enumerate() {
                let (ins, outs) = (pair[0], pair[1]);
                let (weights, biases) = self.params[start..start + (ins + 1) * outs].split_at(ins * outs);
                let out = &mut next[..outs];
                out.copy_from_slice(biases);
                for (x, w) in here[..ins].iter().zip(weights.chunks_exact(outs)) {
                    out.iter_mut().zip(w).for_each(|(o, w)| *o += x * w);
                }
                if l + 2 < self.sizes.len() {
                    out.iter_mut().for_each(|o| *o = o.max(0.0));
                }
                here[..outs].copy_from_slice(&next[..outs]);
                start += (ins + 1) * outs;
            }
            scores.push(here[0]);
        }
    }

    /// Two hidden layers of [`WIDTH`], for [`TOGETHER`] rows at once: their sums stay in registers, and no sum waits for another.
    fn score_together(&self, rows: &[f32], scores: &mut Vec<f32>) {
        scores.clear();
        let (first, rest) = self.params.split_at((FEATURES + 1) * WIDTH);
        let (second, last) = rest.split_at((WIDTH + 1) * WIDTH);
        let ((first, _), (second, _)) = (first.as_chunks::<WIDTH>(), second.as_chunks::<WIDTH>());
        let (rows, _) = rows.as_chunks::<FEATURES>();
        let empty = [0.0; FEATURES];
        for some in rows.chunks(TOGETHER) {
            let rows: [&[f32; FEATURES]; TOGETHER] = std::array::from_fn(|n| some.get(n).unwrap_or(&empty));
            let hidden = layer(rows, first);
            let hidden = layer(hidden.each_ref(), second);
            for row in hidden.iter().take(some.len()) {
                let score = row.iter().zip(last).fold(last[WIDTH], |sum, (x, w)| sum + x * w);
                scores.push(score);
            }
        }
    }
}

/// A layer with ReLU. `params` has a row of weights for each input, and the biases.
#[inline(always)]
fn layer<const INS: usize>(rows: [&[f32; INS]; TOGETHER], params: &[[f32; WIDTH]]) -> [[f32; WIDTH]; TOGETHER] {
    let mut sums = [params[INS]; TOGETHER];
    for (i, weights) in params[..INS].iter().enumerate() {
        for (sum, row) in sums.iter_mut().zip(rows) {
            let x = row[i];
            for o in 0..WIDTH {
                sum[o] += x * weights[o];
            }
        }
    }
    for sum in &mut sums {
        for value in sum {
            *value = if *value > 0.0 { *value } else { 0.0 };
        }
    }
    sums
}
