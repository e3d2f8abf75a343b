//! What a request holds until its answer has ended.

use super::meter::UnderWay;
use super::throttler::Permit;

/// What a request holds until its answer has ended.
#[derive(Debug, Default)]
pub struct RequestGuards {
    /// Counts the request in the measured concurrency.
    pub under_way: Option<UnderWay>,
    /// The slot that it uses.
    pub permit: Option<Permit>,
}
