//! Durable workflows on Postgres: a list of steps with one pivot (the point of no return), and undo.
//!
//! This is not a replay engine: a workflow is an explicit list of named steps and a journal of the steps that were started. So the code of a
//! step need not be deterministic, and `GET /v2/operations/{id}` shows the journal as it is. There are no signals, timetables, graphs
//! or priorities.
//!
//! ```text
//!             ┌──────── claim: lease by engine, fence from one sequence ────────┐
//!   parked ───┤                                                                 ├──▶ step, step, … ──▶ park | end
//!     ▲       └─ due, or woken by a key, or its engine's lease ran out ─────────┘             │
//!     └───────────────────────────────────────────────────────────────────────────────────────┘
//!   before the pivot: failure and cancel undo the started steps in reverse order; after it: only forward
//! ```
//!
//! Invariant: the journal is written only if the writer's fence is the row's. Effects in the service's own tables are part of the
//! journal's transaction and happen exactly once. Effects outside come after their start was journaled, and carry the fence.
//!
//! Start reading at [`Workflow`]. The tests that every workflow gets without writing them are in [`testing`]; failpoints are described in
//! [`drover_store::failpoint`].

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
pub use engine::{CancelError, EndedWorkflow, Engine, Registry, Settings, StartError, Started};
pub use outcome::{Child, ChildOutcome, Failure, Outcome, Park, StepError, StepResult};
pub use points::{Failpoint, failpoints};
pub use view::{ListFilter, StepView, WorkflowView};

/// The migrations of the engine's tables, for the schema of the service that runs workflows. Apply them before the service's own.
pub fn migrations() -> drover_store::MigrationSet {
    drover_store::MigrationSet::new("workflow", sqlx::migrate!("../../migrations/workflow"))
}
