//! The whole input of a plan, compressed, so that the plan can be reproduced.

use std::io::{Read, Write};

use drover_scheduling::{Fleet, Ledger, PlanRequest, PlanResult, RecordingMeter, ReplayMeter, WorkMeter, plan, plan_within};
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
    /// Steps of each search that the time limit allowed. Absent if the plan was made by a version without a time limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub searches: Option<Vec<u64>>,
}

impl PlanInput {
    /// Makes the plan for the first time and records the steps of its searches.
    pub fn make(fleet: Fleet, head: i64, request: PlanRequest, meter: impl WorkMeter) -> (Self, PlanResult) {
        let mut meter = RecordingMeter::new(meter);
        let mut input = Self { fleet, head, request, searches: None };
        let result = plan_within(&input.ledger(), &input.request, &mut meter);
        input.searches = Some(meter.into_searches());
        (input, result)
    }

    /// Makes the plan again, with as many steps as the first time. The same input gives the same plan; another
    /// version of the planner may search in another order and find another plan.
    pub fn plan(&self) -> PlanResult {
        match &self.searches {
            Some(searches) => plan_within(&self.ledger(), &self.request, &mut ReplayMeter::new(searches)),
            None => plan(&self.ledger(), &self.request),
        }
    }

    fn ledger(&self) -> Ledger {
        let mut ledger = Ledger::from(&self.fleet);
        ledger.seq = self.head;
        ledger
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
