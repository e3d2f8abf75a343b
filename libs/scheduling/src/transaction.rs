//! Explicit changes of the ledger, as they travel: all of a transaction or none.
//!
//! Decisions choose members; a transaction is told them. How it is judged: `transact.rs`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{AppRequest, ClaimState, DigRef, MemberKey, PodsOnNode};

/// One atomic change of the ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LedgerTransaction {
    /// Operation on whose behalf.
    pub operation: Uuid,
    /// Fence of the writer; a claim written with a higher one refuses.
    pub fence: i64,
    /// The changes, judged together after all of them; each claim changes once at most.
    pub changes: Vec<LedgerChange>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum LedgerChange {
    /// A victim that must still be as the plan saw it (held, there): held -> leaving.
    Leave {
        /// Claim.
        claim: Uuid,
        /// Where the plan saw it.
        member: MemberKey,
    },
    /// Undo of `leave`: leaving -> held. Never refused for want of room: its pods are there.
    Stay {
        /// Claim.
        claim: Uuid,
    },
    /// New room at a member; the ledger finds the nodes.
    Take {
        /// Claim id = binding id.
        claim: Uuid,
        /// Whose.
        dig: DigRef,
        /// The app.
        request: Arc<AppRequest>,
        /// Where.
        member: MemberKey,
        /// `held`; `promised`; absent: held where it fits now, promised where it only fits later.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<ClaimState>,
    },
    /// promised -> held, if it fits now.
    Admit {
        /// Claim.
        claim: Uuid,
    },
    /// A claim's demand (and terms) become these; with `surge`, the larger of old and new plus surge is counted while an update runs.
    Resize {
        /// Claim.
        claim: Uuid,
        /// The new request.
        request: Arc<AppRequest>,
        /// Count the surge and the larger of old and new.
        surge: bool,
    },
    /// The claim goes. Absent already: fine.
    Release {
        /// Claim.
        claim: Uuid,
    },
}

/// What a transaction did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LedgerReceipt {
    /// Ledger sequence after it.
    pub seq: i64,
    /// Claims that it wrote, as they are now (released ones are missing).
    pub claims: Vec<ClaimReceipt>,
}

/// A claim as written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ClaimReceipt {
    /// Claim.
    pub claim: Uuid,
    /// Its state now.
    pub state: ClaimState,
    /// Its member.
    pub member: MemberKey,
    /// Its witness.
    pub pods: Vec<PodsOnNode>,
}

/// What stands against a transaction: how the world differs from what it assumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Difference {
    /// `claim_missing`, `claim_moved`, `not_held`, `not_leaving`, `not_promised`, `claim_taken`, `stale_fence`,
    /// `member_unknown`, `member_awaited`, `not_allowed`, `changed_twice` or `no_room`.
    pub code: String,
    /// The claim it is about.
    pub claim: Uuid,
    /// For people.
    pub detail: String,
}

impl Difference {
    /// Code: nothing is known of the member, but it may soon be heard of. No final word.
    pub const AWAITED: &str = "member_awaited";
}
