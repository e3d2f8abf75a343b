//! Supervised tasks of the agent, besides its loop.

use drover_tasks::{OnFailure, TaskEnd, Tasks};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Runs a task beside the agent's loop, again after each failure: none of them keeps what a panic could leave incomplete. None is waited
/// for at the end.
pub(crate) fn spawn<F, Fut>(tasks: &Tasks, name: &'static str, mut start: F)
where
    F: FnMut() -> Fut + Send + 'static,
    Fut: Future<Output: TaskEnd> + Send + 'static,
{
    tasks.spawn(&TaskTracker::new(), CancellationToken::new(), name, OnFailure::Restart, move |_| start());
}
