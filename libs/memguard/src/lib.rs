//! The memory guard: on a node that runs out of memory, pause the containers that are about to allocate, so that none is OOM-killed.
//!
//! Pure: an [`Observation`] and a [`State`] go in, [`Decision`]s come out. No clock, no I/O. The agent of the node
//! (services/memory-guard) and the simulator (lab/memguard) run the same [`Guard::step`].
//!
//! ```text
//! facts about a pod ── eligibility::judge ──▶ Permission ┐
//! cgroup files, /proc/meminfo ── Reading ────────────────┴▶ Observation ─▶ Guard::step ─▶ [Decision { action, reason }]
//!                                                               Policy (wishes) ─▶ Safety (what of it happens)
//! ```

mod action;
pub mod eligibility;
mod governor;
mod guard;
mod observation;
mod policy;
mod pressure;
mod settings;
mod state;
mod time;

pub use action::{Action, Decision, Reason};
pub use eligibility::{Denial, Facts, Handler, Levers, PAUSABLE, Patience, Permission, Probe, Qos, judge};
pub use guard::{Guard, needs};
pub use observation::{Activity, Container, ContainerId, HighLease, Lever, NodeMemory, Observation, Reading};
pub use pressure::{Pressure, pressure};
pub use settings::{BankSettings, GateBankSettings, GateSettings, PaperSettings, Policy, Sacrifices, Safety};
pub use state::{Admitted, Demand, Probing, State, Track};
pub use time::{Moment, seconds};
