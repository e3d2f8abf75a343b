//! The whole input of a plan, compressed, so that it can be made again.

use std::io::{Read, Write};

use drover_scheduling::{Fleet, Ledger, PlanRequest, PlanResult, plan};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a plan is made of: `GET /internal/plans/{id}/input`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct PlanInput {
    /// Members, capacity, claims.
    pub fleet: Fleet,
    /// Sequence of the ledger.
    pub head: i64,
    /// What was asked, by whose rules.
    pub request: PlanRequest,
}

impl PlanInput {
    /// Makes the plan: the same input, the same plan.
    pub fn plan(&self) -> PlanResult {
        let mut ledger = Ledger::from(&self.fleet);
        ledger.seq = self.head;
        plan(&ledger, &self.request)
    }

    /// JSON, gzip.
    pub fn compressed(&self) -> std::io::Result<Vec<u8>> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        serde_json::to_writer(&mut encoder, self)?;
        encoder.flush()?;
        encoder.finish()
    }

    /// The same back.
    pub fn from_compressed(bytes: &[u8]) -> std::io::Result<Self> {
        let mut json = Vec::new();
        GzDecoder::new(bytes).read_to_end(&mut json)?;
        Ok(serde_json::from_slice(&json)?)
    }
}
