//! A trained network with what it was trained on: the file of a learned policy, and the one that is shipped.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::super::instance::Instance;
use super::super::layout::Layout;
use super::super::objective::Weights;
use super::super::refine::Refinement;
use super::construct::{Construction, MAX_PASSES, Pass};
use super::net::ScoreNet;
use super::repair::{repair, repairs};

/// The version of the file format. It changes with the features too.
const FORMAT: u32 = 1;
/// Containers times places of all passes together.
const WORK: usize = 30_000;

/// The effort of all refinements together, see [`Layout::refine`].
pub const REFINEMENT: u64 = 2_500_000;
/// After the refinement, repairs that are refined too are made: this many times fewer than before it.
const REFINED_LESS: usize = 2;
/// The most placements that are refined.
const CANDIDATES: usize = 6;
/// Objectives that differ by less are equal.
const EQUAL: f64 = 1e-12;

/// Where a model comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// Seed of the training.
    pub seed: u64,
    /// What it was trained on, and how, in words.
    pub trained: String,
}

/// A trained network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LearnedModel {
    format: u32,
    /// FNV-1a of the weights as little-endian f32, in hexadecimal digits.
    checksum: String,
    /// Where it comes from.
    pub provenance: Provenance,
    net: ScoreNet,
}

/// Why a file is not a usable model.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The text is not the JSON of a model.
    #[error("this is not a learned placement policy: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// The file was written by another version.
    #[error(
        "this policy has format {0}, this version reads format {FORMAT}; train it again with `drover experiment groups --save-learned FILE`"
    )]
    Format(u32),
    /// The weights do not fit together, or were changed.
    #[error("this policy is damaged: its weights do not have the expected number or checksum; train it again")]
    Damaged,
}

/// What the passes of a model have found.
#[derive(Clone, Debug)]
pub struct LearnedLayout<'i> {
    /// The best layout: fewest containers left out, then the lowest objective.
    pub layout: Layout<'i>,
    /// Passes made.
    pub passes: usize,
    /// The pass that found it.
    pub pass: Pass,
    /// Options taken in that pass.
    pub steps: usize,
    /// What was changed afterwards.
    pub refinement: Refinement,
}

impl LearnedModel {
    /// A model with a trained network.
    pub fn new(net: ScoreNet, provenance: Provenance) -> Self {
        Self { format: FORMAT, checksum: checksum(net.params()), provenance, net }
    }

    /// The model that is shipped. `make learned-groups` reproduces it.
    pub fn shipped() -> &'static Self {
        static MODEL: OnceLock<LearnedModel> = OnceLock::new();
        MODEL.get_or_init(|| {
            Self::load(include_str!("shipped.json")).unwrap_or_else(|e| unreachable!("a test loads the shipped model: {e}"))
        })
    }

    /// Reads a model.
    ///
    /// # Errors
    /// The text is no model, has another version, or is damaged.
    pub fn load(text: &str) -> Result<Self, ModelError> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let version: Version = serde_json::from_str(text)?;
        if version.format != FORMAT {
            return Err(ModelError::Format(version.format));
        }
        let model: Self = serde_json::from_str(text)?;
        if model.net.is_sound() && model.checksum == checksum(model.net.params()) { Ok(model) } else { Err(ModelError::Damaged) }
    }

    /// Writes a model.
    ///
    /// # Errors
    /// A number cannot be written.
    pub fn save(&self) -> Result<String, ModelError> {
        Ok(serde_json::to_string(self)?)
    }

    /// The network.
    pub fn net(&self) -> &ScoreNet {
        &self.net
    }

    /// Places what `start` does not place, as [`LearnedModel::chosen`], and refines the result and the best of the single passes: a placement
    /// that is not the best at first may be it in the end. Parts of the best one are then placed again, and what comes of it is refined.
    pub fn complete<'i>(&self, start: &Layout<'i>, weights: &Weights) -> LearnedLayout<'i> {
        let mut effort = REFINEMENT;
        let mut refined = |layout: &mut Layout<'i>, most: u64| {
            let refinement = layout.refine(effort.min(most));
            effort = effort.saturating_sub(refinement.effort);
            (refinement, effort > 0)
        };
        let mut candidates = self.several(start, weights, &network_passes(start.instance()), CANDIDATES);
        let repaired = self.repaired(candidates.remove(0), start);
        let mut best = best(std::iter::once(repaired).chain(candidates).map(|mut found| {
            found.refinement = refined(&mut found.layout, REFINEMENT).0;
            found
        }));
        let times = repairs(start.instance()) / REFINED_LESS;
        repair(&self.net, &mut best.layout, start, times, &mut |layout| refined(layout, REFINEMENT / 10).1);
        best.refinement.after = best.layout.value();
        best
    }

    /// What the network alone chooses, without refinement: the best of as many passes as the size of the instance allows, after some parts of
    /// it were placed again.
    pub fn chosen<'i>(&self, start: &Layout<'i>, weights: &Weights) -> LearnedLayout<'i> {
        let passes = network_passes(start.instance());
        self.repaired(best(self.several(start, weights, &passes, 1)), start)
    }

    fn repaired<'i>(&self, mut found: LearnedLayout<'i>, start: &Layout<'i>) -> LearnedLayout<'i> {
        repair(&self.net, &mut found.layout, start, repairs(start.instance()), &mut |_| true);
        found
    }

    /// The best of a given number of passes (1 to [`MAX_PASSES`]).
    pub fn chosen_in<'i>(&self, start: &Layout<'i>, weights: &Weights, passes: usize) -> LearnedLayout<'i> {
        let passes: Vec<Pass> = (0..passes.clamp(1, MAX_PASSES)).map(Pass::nth).collect();
        best(self.several(start, weights, &passes, 1))
    }

    /// The best placements of some passes, at most `most`, the best first. Of equally good ones it is the first.
    pub fn several<'i>(&self, start: &Layout<'i>, weights: &Weights, passes: &[Pass], most: usize) -> Vec<LearnedLayout<'i>> {
        let mut start = Some(Construction::of(start.clone(), *weights));
        let mut found: Vec<((usize, f64), LearnedLayout<'i>)> = Vec::new();
        for (n, pass) in passes.iter().enumerate() {
            // The last pass takes what is copied for the others.
            let Some(mut construction) = (if n + 1 == passes.len() { start.take() } else { start.clone() }) else { break };
            construction.finish(&self.net, pass);
            let (steps, layout) = (construction.steps(), construction.into_layout());
            let key = rank(&layout);
            let at = found.partition_point(|(other, _)| other.0 < key.0 || (other.0 == key.0 && other.1 < key.1 - EQUAL));
            let known = found.get(at).is_some_and(|(other, _)| other.0 == key.0 && other.1 <= key.1 + EQUAL);
            if at < most && !known {
                found.truncate(most - 1);
                let refinement = Refinement::default();
                found.insert(at, (key, LearnedLayout { layout, passes: passes.len(), pass: *pass, steps, refinement }));
            }
        }
        found.into_iter().map(|(_, layout)| layout).collect()
    }
}

/// The best of some placements, the first among equals.
fn best<'i>(of: impl IntoIterator<Item = LearnedLayout<'i>>) -> LearnedLayout<'i> {
    let better = |best: LearnedLayout<'i>, next: LearnedLayout<'i>| if rank(&next.layout) < rank(&best.layout) { next } else { best };
    of.into_iter().reduce(better).unwrap_or_else(|| unreachable!("at least one pass is made, and one placement kept"))
}

/// The order of layouts: fewer containers left out, then the lower objective.
pub fn rank(layout: &Layout<'_>) -> (usize, f64) {
    let containers = layout.instance().containers().len() as u32;
    ((0..containers).filter(|c| layout.at(*c).is_none()).count(), layout.value())
}

/// The passes for the size of an instance.
fn network_passes(instance: &Instance) -> Vec<Pass> {
    let passes = WORK / (instance.containers().len() * instance.places().len().min(20)).max(1);
    (0..passes.clamp(1, MAX_PASSES)).map(Pass::nth).collect()
}

fn checksum(params: &[f32]) -> String {
    let bytes = params.iter().flat_map(|p| p.to_le_bytes());
    let sum = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{sum:016x}")
}
