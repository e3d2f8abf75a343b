//! Explicit changes of the ledger (placement): all operations of a transaction or none.
//!
//! Decisions choose members; a transaction is told them. Both are idempotent by an id that the caller chose.

use std::borrow::Cow;
use std::sync::Arc;

use drover_scheduling::{AppRequest, CallStory, Claim, ClaimState, DigRef, MemberKey, PodsOnNode};
pub use drover_scheduling::{ClaimReceipt, Difference, LedgerChange, LedgerReceipt, LedgerTransaction};
use serde::{Deserialize, Serialize};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{PartialSchema, ToSchema};
use uuid::Uuid;

/// Claims, for sweeps and tests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Claims {
    /// The claims.
    pub items: Vec<Claim>,
}

/// A claim without what its app asks for, which is a thousand times as large in a large logical cloud.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClaimHead {
    /// Claim id = binding id.
    pub id: Uuid,
    /// Its deployment intent group.
    pub dig: Uuid,
    /// App.
    pub app: String,
    /// Where, `<provider>+<cluster>`.
    pub member: String,
    /// Operation that wrote it last.
    pub operation: Uuid,
}

impl From<&Claim> for ClaimHead {
    fn from(claim: &Claim) -> Self {
        let (app, member) = (claim.request.app.clone(), claim.member.0.clone());
        Self { id: claim.id, dig: claim.dig.id, app, member, operation: claim.operation }
    }
}

/// All claims, for sweeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClaimHeads {
    /// The claims.
    pub items: Vec<ClaimHead>,
}

/// `GET /v2/clusters?view=capacity`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterCapacity {
    /// `<provider>+<cluster>`.
    pub member: MemberKey,
    /// Provider.
    #[serde(rename = "clusterProvider")]
    pub provider: String,
    /// Cluster.
    pub cluster: String,
    /// Priority of its provider.
    pub priority: u8,
    /// State.
    pub state: drover_scheduling::MemberState,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Sums over its nodes.
    pub total: Room,
    /// Node by node.
    pub nodes: Vec<NodeRoom>,
    /// Apps on it.
    pub apps: Vec<AppRoom>,
    /// Age of what is known, milliseconds; absent: nothing is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
}

/// Room: allocatable, requested (foreign + held + leaving), reserved (promised), used, free (allocatable - requested).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Room {
    /// What pods may request.
    pub allocatable: drover_scheduling::Amounts,
    /// foreign + held + leaving.
    pub requested: drover_scheduling::Amounts,
    /// promised.
    pub reserved: drover_scheduling::Amounts,
    /// Reported use; absent: no metrics there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<drover_scheduling::Amounts>,
    /// allocatable - requested.
    pub free: drover_scheduling::Amounts,
}

/// Room of one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeRoom {
    /// Node.
    pub name: String,
    /// No new pods go there.
    #[serde(default)]
    pub unschedulable: bool,
    /// Its room.
    #[serde(flatten)]
    pub room: Room,
}

/// Room that one app takes on a member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AppRoom {
    /// Claim = binding.
    pub claim: Uuid,
    /// Whose.
    pub dig: DigRef,
    /// App.
    pub app: String,
    /// State.
    pub state: ClaimState,
    /// What it requests.
    pub requested: drover_scheduling::Amounts,
    /// What it uses, where reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<drover_scheduling::Amounts>,
}

/// A claim in the feed `fleet`, which who tells it shares with the feed; as JSON a `FleetClaimDocument`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "FleetClaimDocument", into = "FleetClaimDocument")]
pub struct FleetClaim {
    /// The claim; where it was read, without what its app asks for.
    pub claim: Arc<Claim>,
    /// `request/<uuid>` of this feed, told before the first claim that names it.
    pub request: Uuid,
}

impl FleetClaim {
    /// A claim whose request is told as `request/<request>`.
    pub fn new(claim: Arc<Claim>, request: Uuid) -> Self {
        Self { claim, request }
    }

    /// The claim with what its app asks for.
    pub fn with(self, request: Arc<AppRequest>) -> Claim {
        Claim { request, ..Arc::unwrap_or_clone(self.claim) }
    }
}

/// A claim in the feed `fleet`: a [`Claim`] whose request has a key of its own, for it is by far the largest part and the same in
/// all claims of an app.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(as = FleetClaim)]
struct FleetClaimDocument {
    /// Claim id = binding id.
    id: Uuid,
    /// Whose it is.
    dig: Arc<DigRef>,
    /// `request/<uuid>` of this feed, told before the first claim that names it.
    request: Uuid,
    /// Where.
    member: MemberKey,
    /// State.
    state: ClaimState,
    /// The witness that a packing exists.
    pods: Vec<PodsOnNode>,
    /// Counts surge too (an update runs).
    surging: bool,
    /// Fence of the last writer.
    fence: i64,
    /// Operation that wrote it last.
    operation: Uuid,
}

impl From<FleetClaim> for FleetClaimDocument {
    fn from(FleetClaim { claim, request }: FleetClaim) -> Self {
        let Claim { id, dig, request: _, member, state, pods, surging, fence, operation } = Arc::unwrap_or_clone(claim);
        Self { id, dig, request, member, state, pods, surging, fence, operation }
    }
}

impl From<FleetClaimDocument> for FleetClaim {
    fn from(document: FleetClaimDocument) -> Self {
        let FleetClaimDocument { id, dig, request, member, state, pods, surging, fence, operation } = document;
        // What it asks for is told on its own: see `with`.
        let claim = Claim { id, dig, request: Arc::default(), member, state, pods, surging, fence, operation };
        Self { claim: Arc::new(claim), request }
    }
}

impl PartialSchema for FleetClaim {
    fn schema() -> RefOr<Schema> {
        FleetClaimDocument::schema()
    }
}

impl ToSchema for FleetClaim {
    fn name() -> Cow<'static, str> {
        FleetClaimDocument::name()
    }
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        FleetClaimDocument::schemas(schemas);
    }
}

/// A value of the feed `fleet`, tagged with what it is: a reader that had to try would build each capacity as a tree first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FleetItem {
    /// `claim/<uuid>`.
    Claim(FleetClaim),
    /// `request/<uuid>`: what an app asks for, while a claim names it.
    Request(Arc<AppRequest>),
    /// `capacity/<key>`; no entry: nothing is known of the member's room now.
    Capacity(Arc<drover_scheduling::Capacity>),
    /// `member/<key>`.
    Member(Box<drover_scheduling::FleetMember>),
    /// `head`: published after the claims of its entries.
    Head(LedgerHead),
}

/// How far the ledger is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LedgerHead {
    /// Sequence of the last entry.
    pub seq: i64,
}

/// `GET /v2/decisions/{id}`: what was asked, what was found, what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DecisionRecord {
    /// The decision.
    #[serde(flatten)]
    pub decision: drover_scheduling::Decision,
    /// What was asked; absent in answers that were only computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<drover_scheduling::DecisionRequest>,
    /// RFC 3339.
    pub created_at: String,
}

/// `GET /v2/explain`: why an app is where it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// Project.
    pub project: String,
    /// Whose app.
    pub dig: DigRef,
    /// App.
    pub app: String,
    /// Where it has room now; empty: nowhere.
    pub room: Vec<ClaimReceipt>,
    /// It is no longer where the decision put it (it was moved).
    pub moved: bool,
    /// The decision that placed or refused it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<ExplainedDecision>,
    /// What would be decided now, as if it had no room yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<ExplainedDecision>,
    /// The groups of apps that call each other; absent: no calls are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<ExplainedCalls>,
}

/// Groups of apps that call each other, and what others there could be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedCalls {
    /// As it runs; absent: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<CallStory>,
    /// What would be decided now for each bound on the groups' size (rho), as if nothing of it had room yet.
    pub by_rho: Vec<CallStory>,
}

/// One app's part of a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedDecision {
    /// Decision id; absent: not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    /// RFC 3339.
    pub at: String,
    /// Ledger sequence.
    pub seq: i64,
    /// Result of the whole decision.
    pub outcome: drover_scheduling::Outcome,
    /// The app's part.
    pub decision: drover_scheduling::AppDecision,
}
