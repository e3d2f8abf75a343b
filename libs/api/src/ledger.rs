//! The ledger of placement: transactions, claims, decisions, room.
//!
//! A decision chooses the members; in a transaction the caller names them. A transaction is applied completely or not at all. The caller
//! chooses the id of both, so that they can be repeated.

use std::borrow::Cow;
use std::sync::Arc;

use drover_scheduling::{AppRequest, CallStory, Claim, ClaimState, DigRef, MemberKey, PodsOnNode, RefusedDestination};
pub use drover_scheduling::{ClaimReceipt, Difference, LedgerChange, LedgerReceipt, LedgerTransaction};
use serde::{Deserialize, Serialize};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{PartialSchema, ToSchema};
use uuid::Uuid;

/// A list of claims, for the orchestrator's sweep and for tests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Claims {
    pub items: Vec<Claim>,
}

/// A claim without the request of its app, which is by far the largest part of a claim in a large logical cloud.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClaimHead {
    /// The id of the claim, which is also the id of the binding.
    pub id: Uuid,
    /// Id of the deployment intent group.
    pub dig: Uuid,
    pub app: String,
    /// The cluster, as `<provider>+<cluster>`.
    pub member: String,
    /// The operation that wrote the claim last.
    pub operation: Uuid,
}

impl From<&Claim> for ClaimHead {
    fn from(claim: &Claim) -> Self {
        let (app, member) = (claim.request.app.clone(), claim.member.0.clone());
        Self { id: claim.id, dig: claim.dig.id, app, member, operation: claim.operation }
    }
}

/// A list of all claims, for the orchestrator's sweep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClaimHeads {
    pub items: Vec<ClaimHead>,
}

/// An item in the answer of `GET /v2/clusters?view=capacity`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterCapacity {
    /// The cluster, as `<provider>+<cluster>`.
    pub member: MemberKey,
    #[serde(rename = "clusterProvider")]
    pub provider: String,
    pub cluster: String,
    /// Priority of the provider, from 1 (filled first) to 10.
    pub priority: u8,
    pub state: drover_scheduling::MemberState,
    /// Explanation for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Set while the cluster is closed to new copies of apps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordoned: Option<drover_scheduling::Cordon>,
    /// Set for a cluster that is reached through the connection of its agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<drover_scheduling::MemberLink>,
    /// The sums over all nodes.
    pub total: Room,
    pub nodes: Vec<NodeRoom>,
    pub apps: Vec<AppRoom>,
    /// Age of this information in milliseconds; absent if nothing is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
}

/// What a cluster or a node offers, and what is taken of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Room {
    /// What pods can request in total.
    pub allocatable: drover_scheduling::Amounts,
    /// What is requested now: by pods that are not Drover's, and by claims that are held or leaving.
    pub requested: drover_scheduling::Amounts,
    /// What is promised to apps that wait until others have left.
    pub reserved: drover_scheduling::Amounts,
    /// The reported use; absent if the cluster has no metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<drover_scheduling::Amounts>,
    /// `allocatable` minus `requested`.
    pub free: drover_scheduling::Amounts,
}

/// Room of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeRoom {
    pub name: String,
    /// Whether the node is cordoned: no new pods are scheduled there.
    #[serde(default)]
    pub unschedulable: bool,
    #[serde(flatten)]
    pub room: Room,
}

/// Room that an app takes in a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AppRoom {
    /// The id of the claim, which is also the id of the binding.
    pub claim: Uuid,
    pub dig: DigRef,
    pub app: String,
    pub state: ClaimState,
    /// What its pods request in total.
    pub requested: drover_scheduling::Amounts,
    /// The reported use of its pods; absent if the cluster has no metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<drover_scheduling::Amounts>,
}

/// A claim in the feed `fleet`. It shares the memory of the writer's copy; in JSON it is a `FleetClaimDocument`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "FleetClaimDocument", into = "FleetClaimDocument")]
pub struct FleetClaim {
    /// The claim; after reading it from JSON, without the request of its app.
    pub claim: Arc<Claim>,
    /// The app's request, the item `request/<uuid>` of this feed. It is sent before the first claim that names it.
    pub request: Uuid,
}

impl FleetClaim {
    /// A claim whose request is the item `request/<request>` of the feed.
    pub fn new(claim: Arc<Claim>, request: Uuid) -> Self {
        Self { claim, request }
    }

    /// The claim with the request of its app.
    pub fn with(self, request: Arc<AppRequest>) -> Claim {
        Claim { request, ..Arc::unwrap_or_clone(self.claim) }
    }
}

/// A claim in the feed `fleet`. The request of its app is an item of its own, because it is by far the largest part and the same in
/// all claims of an app.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(as = FleetClaim)]
struct FleetClaimDocument {
    /// The id of the claim, which is also the id of the binding.
    id: Uuid,
    /// The group that the app belongs to.
    dig: Arc<DigRef>,
    /// The app's request, the item `request/<uuid>` of this feed. It is sent before the first claim that names it.
    request: Uuid,
    member: MemberKey,
    state: ClaimState,
    /// An assignment of the pods to nodes that fits. The cluster's scheduler may choose another one.
    pods: Vec<PodsOnNode>,
    /// Whether the claim includes the surge pods of an update that is running.
    surging: bool,
    /// Fence of the last write.
    fence: i64,
    /// The operation that wrote the claim last.
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
        // The request is an item of its own: see `with`.
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

/// An item of the feed `fleet`. It is tagged with its type; without the tag a reader would have to parse each item several times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FleetItem {
    /// A claim; its key is `claim/<uuid>`.
    Claim(FleetClaim),
    /// The request of an app, as long as a claim names it; its key is `request/<uuid>`.
    Request(Arc<AppRequest>),
    /// Capacity of a cluster; its key is `capacity/<member>`. Without this item nothing is known of the cluster's room at present.
    Capacity(Arc<drover_scheduling::Capacity>),
    /// A cluster; its key is `member/<member>`.
    Member(Box<drover_scheduling::FleetMember>),
    /// The last entry of the ledger; its key is `head`. It is published after the claims of that entry.
    Head(LedgerHead),
}

/// The position of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LedgerHead {
    /// Sequence number of the last entry.
    pub seq: i64,
}

/// Answer of `GET /v2/decisions/{id}`: the request, what was considered, and the result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecisionRecord {
    #[serde(flatten)]
    pub decision: drover_scheduling::Decision,
    /// The request; absent in answers that were only computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<drover_scheduling::DecisionRequest>,
    /// Time in RFC 3339.
    pub created_at: String,
}

/// A question: why does an app run where it does?
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExplainQuestion {
    pub project: String,
    /// Name of its composite app or of its deployment intent group.
    pub group: String,
    pub app: String,
    /// Members that refused the objects of apps of the group. They are left out of what would be decided now.
    #[serde(default)]
    pub refused: Vec<RefusedDestination>,
}

/// Answer of `GET /v2/explain`: why an app runs where it does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    pub project: String,
    /// The group that the app belongs to.
    pub dig: DigRef,
    pub app: String,
    /// Where the app has room now; empty if it has none.
    pub room: Vec<ClaimReceipt>,
    /// Whether the app was moved since the decision.
    pub moved: bool,
    /// The last decision that placed or refused the app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<ExplainedDecision>,
    /// The decision that would be made now if the app had no room yet. Members that refused its objects are left out, with the reason and
    /// the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<ExplainedDecision>,
    /// The groups of apps that call each other; absent if no calls are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<ExplainedCalls>,
}

/// Groups of apps that call each other: as they run, and as they could be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedCalls {
    /// The groups as they run; absent if the apps do not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<CallStory>,
    /// The groups in the decision that placed the app; absent if a plan placed it. Its `chosenBy` says what the policy saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<CallStory>,
    /// The decision that would be made now for each limit of the groups' size (rho) if none of the apps had room yet.
    pub by_rho: Vec<CallStory>,
    /// The decision that would be made now by each policy if none of the apps had room yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_policy: Vec<CallStory>,
}

/// The part of a decision that is about one app.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedDecision {
    /// Id of the decision; absent if it was not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    /// Time in RFC 3339.
    pub at: String,
    /// Sequence number of the ledger.
    pub seq: i64,
    /// Result of the decision for all apps of the group.
    pub outcome: drover_scheduling::Outcome,
    pub decision: drover_scheduling::AppDecision,
}
