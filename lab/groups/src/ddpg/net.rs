//! A small fully connected network with its gradient, and the Adam optimiser. They are plain loops over f32, which give the same result
//! on every machine (kernels chosen at run time are faster but round differently).

use serde::{Deserialize, Serialize};

/// A network with layers of the given sizes, ReLU between them, and a linear last layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mlp {
    sizes: Vec<usize>,
    /// Layer by layer: the weights, one row per input, then the biases.
    pub(crate) params: Vec<f32>,
}

/// The activations of a batch, layer by layer, beginning with the input. The backward pass needs them.
pub struct Tape {
    batch: usize,
    layers: Vec<Vec<f32>>,
}

impl Tape {
    /// The outputs of the batch.
    pub fn output(&self) -> &[f32] {
        self.layers.last().map_or(&[], Vec::as_slice)
    }
}

impl Mlp {
    /// Random weights, uniform within 1/sqrt(inputs). Those of the last layer are within 0.003, so that no output is preferred at first.
    pub fn new(sizes: &[usize], rng: &mut fastrand::Rng) -> Self {
        let mut params = Vec::new();
        for (l, pair) in sizes.windows(2).enumerate() {
            let bound = if l + 2 == sizes.len() { 3e-3 } else { 1.0 / (pair[0] as f32).sqrt() };
            params.extend((0..(pair[0] + 1) * pair[1]).map(|_| (rng.f32() * 2.0 - 1.0) * bound));
        }
        Self { sizes: sizes.to_vec(), params }
    }

    /// A network with given weights.
    pub(crate) fn with(sizes: &[usize], params: &[f32]) -> Self {
        Self { sizes: sizes.to_vec(), params: params.to_vec() }
    }

    /// The widths of the layers.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    pub(super) fn sound(&self) -> bool {
        self.sizes.len() > 1
            && self.params.len() == self.sizes.windows(2).map(|p| (p[0] + 1) * p[1]).sum::<usize>()
            && self.params.iter().all(|p| p.is_finite())
    }

    /// Computes the outputs of a batch of inputs, which follow each other in `input`.
    pub fn forward(&self, input: &[f32], batch: usize) -> Tape {
        let mut layers = vec![input.to_vec()];
        let mut start = 0;
        for (l, pair) in self.sizes.windows(2).enumerate() {
            let (ins, outs) = (pair[0], pair[1]);
            let (weights, biases) = self.params[start..start + (ins + 1) * outs].split_at(ins * outs);
            let mut out = Vec::with_capacity(batch * outs);
            for row in layers[l].chunks_exact(ins) {
                let first = out.len();
                out.extend_from_slice(biases);
                combine(&mut out[first..], row, weights);
                if l + 2 < self.sizes.len() {
                    out[first..].iter_mut().for_each(|v| *v = v.max(0.0));
                }
            }
            layers.push(out);
            start += (ins + 1) * outs;
        }
        Tape { batch, layers }
    }

    /// Given the gradient of a loss with respect to the output, returns its gradient with respect to the input, and adds the one with
    /// respect to the parameters to `gradient`, which has as many elements as there are parameters; `None` if it is not needed.
    pub fn backward(&self, tape: &Tape, by_output: &[f32], mut gradient: Option<&mut [f32]>) -> Vec<f32> {
        let mut by = by_output.to_vec();
        let mut end = self.params.len();
        for l in (0..self.sizes.len() - 1).rev() {
            let (ins, outs) = (self.sizes[l], self.sizes[l + 1]);
            let start = end - (ins + 1) * outs;
            let weights = &self.params[start..start + ins * outs];
            if l + 2 < self.sizes.len() {
                by.iter_mut().zip(&tape.layers[l + 1]).filter(|(_, out)| **out <= 0.0).for_each(|(b, _)| *b = 0.0);
            }
            let mut next = vec![0.0; tape.batch * ins];
            for s in 0..tape.batch {
                let by = &by[s * outs..(s + 1) * outs];
                let input = &tape.layers[l][s * ins..(s + 1) * ins];
                if let Some(gradient) = gradient.as_deref_mut() {
                    let (into, biases) = gradient[start..end].split_at_mut(ins * outs);
                    for (row, x) in into.chunks_exact_mut(outs).zip(input).filter(|(_, x)| **x != 0.0) {
                        row.iter_mut().zip(by).for_each(|(g, b)| *g += x * b);
                    }
                    biases.iter_mut().zip(by).for_each(|(g, b)| *g += b);
                }
                for (n, row) in next[s * ins..(s + 1) * ins].iter_mut().zip(weights.chunks_exact(outs)) {
                    *n = dot(row, by);
                }
            }
            by = next;
            end = start;
        }
        by
    }

    /// Moves the parameters towards those of `other`: theta' <- tau theta + (1 - tau) theta'. (The published line lacks the theta.)
    pub fn follow(&mut self, other: &Self, tau: f32) {
        self.params.iter_mut().zip(&other.params).for_each(|(mine, theirs)| *mine += tau * (theirs - *mine));
    }
}

/// out += row * weights, four inputs at a time.
fn combine(out: &mut [f32], row: &[f32], weights: &[f32]) {
    let outs = out.len();
    let mut quads = row.chunks_exact(4);
    let mut start = 0;
    for x in &mut quads {
        let (a, rest) = weights[start..start + 4 * outs].split_at(outs);
        let (b, rest) = rest.split_at(outs);
        let (c, d) = rest.split_at(outs);
        for ((((o, a), b), c), d) in out.iter_mut().zip(a).zip(b).zip(c).zip(d) {
            *o += x[0] * a + x[1] * b + x[2] * c + x[3] * d;
        }
        start += 4 * outs;
    }
    for (x, w) in quads.remainder().iter().zip(weights[start..].chunks_exact(outs)) {
        out.iter_mut().zip(w).for_each(|(o, w)| *o += x * w);
    }
}

/// The dot product in eight partial sums, so that the compiler may use vector instructions without changing the order of additions from
/// machine to machine.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0_f32; 8];
    let (mut x, mut y) = (a.chunks_exact(8), b.chunks_exact(8));
    for (a, b) in (&mut x).zip(&mut y) {
        (0..8).for_each(|i| sums[i] += a[i] * b[i]);
    }
    let rest: f32 = x.remainder().iter().zip(y.remainder()).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

/// The Adam optimiser (Kingma and Ba 2015) with its usual constants.
#[derive(Clone, Debug)]
pub struct Adam {
    rate: f32,
    /// Moving mean of the gradient.
    first: Vec<f32>,
    /// Moving mean of the squared gradient.
    second: Vec<f32>,
    steps: i32,
}

impl Adam {
    /// An optimiser for the parameters of the network `of`.
    pub fn new(of: &Mlp, rate: f32) -> Self {
        Self { rate, first: vec![0.0; of.params.len()], second: vec![0.0; of.params.len()], steps: 0 }
    }

    /// Takes one step against the gradient.
    pub fn step(&mut self, net: &mut Mlp, gradient: &[f32]) {
        self.steps += 1;
        let (b1, b2) = (0.9_f32, 0.999_f32);
        let rate = self.rate * (1.0 - b2.powi(self.steps)).sqrt() / (1.0 - b1.powi(self.steps));
        for (((p, g), m), v) in net.params.iter_mut().zip(gradient).zip(&mut self.first).zip(&mut self.second) {
            *m += (1.0 - b1) * (g - *m);
            *v += (1.0 - b2) * (g * g - *v);
            *p -= rate * *m / (v.sqrt() + 1e-8);
        }
    }
}
