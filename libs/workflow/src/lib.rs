//! Durable workflows on Postgres: a table of steps, one pivot, undo.
//!
//! Not a replay engine: a workflow is an explicit list of named steps and a journal of what was started, so there are no rules
//! of determinism, and `GET /v2/operations/{id}` shows the journal as it is. No signals, no cron, no graphs, no priorities.
//!
//! ```text
//!             ┌──────── claim: lease by engine, fence from one sequence ────────┐
//!   parked ───┤                                                                 ├──▶ step, step, … ──▶ park | end
//!     ▲       └─ due, or woken by a key, or its engine is gone ─────────────────┘             │
//!     └───────────────────────────────────────────────────────────────────────────────────────┘
//!   before the pivot: failure and cancel undo the started steps in reverse · after it: only forward
//! ```
//!
//! Invariant: a journal write happens only under the fence of the row. Effects in the service's own tables are part of the
//! journal's transaction and happen exactly once; effects outside follow their journaled intent and carry the fence.
//!
//! Start reading at [`Workflow`]; failpoints are described in [`drover_store::failpoint`].

mod definition;
mod engine;
mod journal;
mod outcome;
mod points;
mod runner;
pub mod testing;
mod view;
mod wakes;

pub use definition::{Ctx, LocalFn, RemoteFn, Step, Steps, Workflow};
pub use engine::{CancelError, EndedWorkflow, Engine, Registry, Settings, StartError};
pub use outcome::{Child, ChildOutcome, Failure, Outcome, Park, StepError, StepResult};
pub use points::{Failpoint, failpoints};
pub use view::{ListFilter, StepView, WorkflowView};

/// The engine's tables, for the schema of the service that runs workflows: apply before the service's own set.
pub fn migrations() -> drover_store::MigrationSet {
    drover_store::MigrationSet::new("workflow", sqlx::migrate!("../../migrations/workflow"))
}
