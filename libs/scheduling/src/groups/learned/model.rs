//! A trained network with what it was trained on: the file of a learned policy, and the one that is shipped.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::super::instance::Instance;
use super::super::layout::Layout;
use super::super::objective::Weights;
use super::super::refine::Refinement;
use super::construct::{Construction, MAX_PASSES, Pass};
use super::net::ScoreNet;

/// The version of the file format. It changes with the features too.
const FORMAT: u32 = 1;
/// Containers times places of all passes together: about 10 ms of work.
const WORK: usize = 60_000;

/// The effort of the refinement, see [`Layout::refine`].
pub const REFINEMENT: u64 = 2_500_000;

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

    /// Places what `start` does not place, in as many passes as the size of the instance allows in about 10 ms, and refines the best.
    pub fn complete<'i>(&self, start: &Layout<'i>, weights: &Weights) -> LearnedLayout<'i> {
        let mut found = self.chosen(start, weights);
        found.refinement = found.layout.refine(REFINEMENT);
        found
    }

    /// As [`LearnedModel::complete`], without the refinement: what the network alone chooses.
    pub fn chosen<'i>(&self, start: &Layout<'i>, weights: &Weights) -> LearnedLayout<'i> {
        self.chosen_in(start, weights, passes(start.instance()))
    }

    /// As [`LearnedModel::chosen`], in a given number of passes (1 to [`MAX_PASSES`]).
    pub fn chosen_in<'i>(&self, start: &Layout<'i>, weights: &Weights, passes: usize) -> LearnedLayout<'i> {
        let start = Construction::of(start.clone(), *weights);
        let passes = passes.clamp(1, MAX_PASSES);
        let one = |pass: &Pass| {
            let mut construction = start.clone();
            construction.finish(&self.net, pass);
            let steps = construction.steps();
            LearnedLayout { layout: construction.into_layout(), passes, pass: *pass, steps, refinement: Refinement::default() }
        };
        let mut best = one(&Pass::nth(0));
        for n in 1..passes {
            let next = one(&Pass::nth(n));
            if rank(&next.layout) < rank(&best.layout) {
                best = next;
            }
        }
        best
    }
}

/// The order of layouts: fewer containers left out, then the lower objective.
pub fn rank(layout: &Layout<'_>) -> (usize, f64) {
    let containers = layout.instance().containers().len() as u32;
    ((0..containers).filter(|c| layout.at(*c).is_none()).count(), layout.value())
}

fn passes(instance: &Instance) -> usize {
    (WORK / (instance.containers().len() * instance.places().len().min(20)).max(1)).max(1)
}

fn checksum(params: &[f32]) -> String {
    let bytes = params.iter().flat_map(|p| p.to_le_bytes());
    let sum = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{sum:016x}")
}
