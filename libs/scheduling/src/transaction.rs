//! Transactions: explicit changes of the ledger, which are made all or not at all.
//!
//! A decision chooses members; a transaction names them. It is checked in `transact.rs`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{AppRequest, ClaimState, DigRef, MemberKey, PodsOnNode};

/// An atomic change of the ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LedgerTransaction {
    /// The operation that requests it.
    pub operation: Uuid,
    /// Fence of the writer. The transaction is refused if it changes a claim written with a higher fence.
    pub fence: i64,
    /// The changes. The state after all of them is checked. Each claim may be changed once.
    pub changes: Vec<LedgerChange>,
}

/// The change of one claim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum LedgerChange {
    /// held -> leaving. The claim must still be held on the member that the plan assumed.
    Leave {
        claim: Uuid,
        /// The member that the plan assumed.
        member: MemberKey,
    },
    /// leaving -> held, the undo of `leave`. It needs no room, since the pods still run.
    Stay { claim: Uuid },
    /// A new claim on a member. The ledger finds the nodes.
    Take {
        /// Id of the claim and of the binding.
        claim: Uuid,
        dig: DigRef,
        request: Arc<AppRequest>,
        member: MemberKey,
        /// `held` or `promised`. Absent: held if it fits now, promised if it only fits later.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<ClaimState>,
    },
    /// promised -> held; refused unless it fits now.
    Admit { claim: Uuid },
    /// Replaces the request of a claim. With `surge`, the larger of the old and the new demand plus the surge counts, for a running update.
    Resize {
        claim: Uuid,
        request: Arc<AppRequest>,
        /// Whether to count the surge and the larger of the old and the new demand.
        surge: bool,
    },
    /// Removes the claim. Accepted if there is none.
    Release { claim: Uuid },
}

/// The effect of a transaction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LedgerReceipt {
    /// Sequence of the ledger after it.
    pub seq: i64,
    /// The claims that it changed, without released ones.
    pub claims: Vec<ClaimReceipt>,
}

/// A claim after a transaction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ClaimReceipt {
    pub claim: Uuid,
    pub state: ClaimState,
    pub member: MemberKey,
    /// A packing that proves that its pods fit.
    pub pods: Vec<PodsOnNode>,
}

/// A difference between the ledger and what a transaction assumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Difference {
    /// `claim_missing`, `claim_moved`, `not_held`, `not_leaving`, `not_promised`, `claim_taken`, `stale_fence`,
    /// `member_unknown`, `member_awaited`, `not_allowed`, `changed_twice`, `no_room` or
    /// `room_taken`.
    pub code: String,
    /// The claim that differs.
    pub claim: Uuid,
    /// Text for users.
    pub detail: String,
}

impl Difference {
    /// Code for a member of unknown capacity that is expected soon. The refusal is not final.
    pub const AWAITED: &str = "member_awaited";
    /// Code for a claim that a transaction changes twice. The transaction itself is invalid, so the ledger's state does not matter and
    /// repeating is pointless: it is a bug of the caller.
    pub const CHANGED_TWICE: &str = "changed_twice";
    /// Code for a promised claim that would not fit even if every leaving claim had left: pods that Drover does not manage took its room.
    pub const ROOM_TAKEN: &str = "room_taken";
}
