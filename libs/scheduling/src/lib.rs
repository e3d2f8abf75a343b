//! Placement decisions and relocation plans: where an app goes, which apps must move for it, and why.
//!
//! Pure: a [`Fleet`] and a request go in, a [`Decision`] or a [`Plan`] comes out. There is no I/O, no clock and no randomness; the same
//! input gives the same result, whatever order its parts arrive in. A [`WorkMeter`] of the caller limits the search for a plan. The types
//! are also the wire types (feature `schema` adds OpenAPI schemas), so services convert nothing.
//!
//! ```text
//! Fleet ── Member ── Node            DecisionRequest ── AppRequest ── Demand ── PodGroup
//!   └──── Claim ──── PodsOnNode                              └────── PlacementTerms
//! ```

mod amounts;
mod builtin;
mod call_choice;
mod call_draft;
mod call_learned;
mod call_placement;
mod calling_apps;
mod calls;
mod cel;
mod decision;
mod demand;
mod displaced;
mod expand;
mod explanations;
mod fit;
mod fleet;
mod grant;
pub mod groups;
mod growing;
mod identity;
mod images;
mod interner;
mod ledger;
mod matching;
mod misfit;
mod named;
mod permits;
mod place;
mod plan;
mod planning;
mod policy;
mod reachability;
mod relief;
mod resize;
mod room;
mod scheduler;
mod simulation;
mod slot;
mod storage;
mod terms;
mod transact;
mod transaction;
mod trial;
mod usage;
mod work;

pub use amounts::{Amounts, Extra, quantity};
pub use builtin::{builtin_algorithms, builtin_parameters};
pub use calls::{
    CallGroup, CallStory, CallTerms, CallTo, GroupPolicy, Latency, LoadChange, PolicyStep, PolicyStory, ScoredMember, SearchMove,
};
pub use cel::{Expression, ExpressionError, parse_expression, validate_expression};
pub use decision::{AppDecision, Considered, Decision, DecisionRequest, GroupDecision, Outcome, Placement, Verdict};
pub use demand::{Demand, NodeRequirement, Operator, PodGroup, PodsOnNode, Toleration};
pub use fit::{Ask, Free, pack};
pub use fleet::{
    Capacity, Claim, ClaimState, Cordon, Fleet, FleetMember, Images, MemberLink, MemberState, Node, Observed, Taint, pod_network,
};
pub use identity::{AGENTS_PROJECT, DigRef, MemberKey};
pub use images::ImageNames;
pub use interner::Interner;
pub use ledger::{Ledger, Undo};
pub use matching::{Refusal, admits};
pub use misfit::{Misfit, explain};
pub use named::{ByNode, Labels, Named};
pub use place::binding_id;
pub use plan::{
    Candidate, Dependant, Exclusion, Holds, Infeasible, Move, Plan, PlanKind, PlanRequest, PlanResult, PlanScheduling, RefusedDestination,
    Score, WhyNot,
};
pub use planning::{plan, plan_within, policy_test};
pub use policy::{
    Algorithm, AlgorithmUse, Missing, MissingPlace, Movability, Parameter, ParameterScope, ParameterSource, Policy, PolicyMode, Prefer,
};
pub use reachability::{Reachability, UnknownReachability};
pub use relief::{ReliefDue, ReliefLook, ReliefMetric, ReliefReading, ReliefRule, ReliefRules, ReliefWatch, Suffering};
pub use resize::{Growth, room_beside, room_of_update};
pub use room::MemberRoom;
pub use scheduler::outlook;
pub use storage::{BoundVolume, StatefulPods, Storage, claim_name};
pub use terms::{Advice, AppRequest, Element, Intent, Packing, PlacementTerms, WhenFull};
pub use transaction::{ClaimReceipt, Difference, LedgerChange, LedgerReceipt, LedgerTransaction};
pub use work::{RecordingMeter, ReplayMeter, StepMeter, WorkMeter};
