//! The whole input of a plan, compressed, so that the plan can be reproduced.

use std::io::{Read, Write};

use drover_scheduling::{Fleet, Ledger, PlanRequest, PlanResult, plan};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The input of a plan: `GET /internal/plans/{id}/input`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct PlanInput {
    /// The fleet.
    pub fleet: Fleet,
    /// Sequence number of the ledger.
    pub head: i64,
    /// The request with the policy and the consent of owners.
    pub request: PlanRequest,
}

impl PlanInput {
    /// Makes the plan. The same input gives the same plan.
    pub fn plan(&self) -> PlanResult {
        let mut ledger = Ledger::from(&self.fleet);
        ledger.seq = self.head;
        plan(&ledger, &self.request)
    }

    /// The input as compressed JSON (gzip).
    ///
    /// # Errors
    /// The input cannot be serialised.
    pub fn compressed(&self) -> std::io::Result<Vec<u8>> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        serde_json::to_writer(&mut encoder, self)?;
        encoder.flush()?;
        encoder.finish()
    }

    /// Reads compressed JSON.
    ///
    /// # Errors
    /// The bytes are not gzip, or the JSON is not an input of a plan.
    pub fn from_compressed(bytes: &[u8]) -> std::io::Result<Self> {
        let mut json = Vec::new();
        GzDecoder::new(bytes).read_to_end(&mut json)?;
        Ok(serde_json::from_slice(&json)?)
    }
}
