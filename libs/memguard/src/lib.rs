//! Decisions of the memory guard: on a node whose memory runs out, it holds the containers that are about to allocate, so that the kernel
//! kills none.
//!
//! This crate is pure: an [`Observation`] and a [`GuardState`] go in, [`Decision`]s come out. It has no clock and does no I/O. The agent
//! of a node (services/memory-guard) and the simulator (lab/memguard) run the same [`Guard::step`].
//!
//! ```text
//! facts about a pod ── eligibility::judge ──▶ Permission ┐
//! cgroup files, /proc/meminfo ── Reading ────────────────┴▶ Observation ─▶ Guard::step ─▶ [Decision { action, reason }]
//!                                                               policy proposes ─▶ safety rules decide
//! ```
//!
//! Terms used throughout:
//!
//! * *Hold*: whatever keeps a container from allocating: a pause, a `memory.high` lease, or waiting at the start gate.
//! * *Pause*: the container is stopped by a *lever*: the freezer, or a CPU quota so small that it hardly runs.
//! * *`memory.high` lease*: the container runs but may not grow past a `memory.high` that the guard set for a limited time (cgroup v2).
//! * *Start gate*: a container waits before it allocates until the expected demand of all containers fits ([`Policy::GateBank`]).
//! * *Bank*: the policy [`Policy::Bank`], after the banker's algorithm: free memory is lent only so far that one container can finish.
//! * *Need*: the memory that a container may still take: its limit minus its working set.
//! * *Sacrifice*: the guard kills one container so that the others can continue. It is off by default.
//! * *Probe budget*: how long the liveness and startup probes of a container may go unanswered before the kubelet restarts it.

mod action;
pub mod eligibility;
mod governor;
mod guard;
mod observation;
mod policy;
mod settings;
mod state;
mod time;

pub use action::{Action, Decision, Reason};
pub use eligibility::{Denial, Levers, PAUSABLE, Permission, PodFacts, Probe, ProbeBudget, QosClass, judge};
pub use guard::{Guard, needs};
pub use observation::{Activity, Container, ContainerId, Lever, MemoryHighLease, NodeMemory, Observation, Reading};
pub use settings::{BankSettings, GateBankSettings, GateSettings, PaperSettings, Policy, Sacrifices, Safety};
pub use state::{AdmittedContainer, ContainerTrack, DemandEstimate, GuardState, ProbeSilence};
pub use time::{Moment, seconds};
