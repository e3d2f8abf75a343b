//! Work on many items in one pass of a task, none of which may hold up the others.

use futures::{StreamExt, stream};
use uuid::Uuid;

/// How many items of a pass are worked on at once. Each may wait for another service until the call times out.
const CONCURRENCY: usize = 8;

/// Does `work` for each item, some at once. Returns each item's id with its outcome, in the order in which they ended.
pub async fn each<T, F, E>(items: Vec<(Uuid, T)>, work: impl Fn(T) -> F) -> Vec<(Uuid, Result<(), E>)>
where
    F: Future<Output = Result<(), E>>,
{
    stream::iter(items.into_iter().map(|(id, item)| {
        let done = work(item);
        async move { (id, done.await) }
    }))
    .buffer_unordered(CONCURRENCY)
    .collect()
    .await
}
