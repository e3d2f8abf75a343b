//! Hooks that a chart runs when its app is deleted: `pre-delete` while everything is there, `post-delete` when the rest is gone.
//!
//! Whoever deletes an app wants it to go: a hook that fails, or does not end in time, is named in the result and holds up nothing. Only an
//! app that was brought in completely runs them, and one that is moved runs them where it was, as it runs the others where it goes.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use drover_members::{Member, ObjectId, labels};
use uuid::Uuid;

use super::hooks::{self, Moment};
use super::{Outcome, Worker};
use crate::app::Error;
use crate::store;
use crate::store::hooks::{Event, EventKind, Run};

/// How long all hooks of a deletion may take; as long as Helm waits by default.
const PATIENCE: Duration = Duration::from_secs(300);

impl Worker {
    /// Runs the hooks of one moment of a deletion. `None`: nothing is left to be done; else how the pass ends.
    pub(super) async fn deletion_hooks(&mut self, member: &Arc<Member>, id: Uuid, moment: Moment) -> Result<Option<Outcome>, Error> {
        let bound = &self.bindings[&id];
        let brought_in = bound.row.hooks.as_ref().is_some_and(|progress| progress.settled.is_some());
        if !brought_in {
            return Ok(None);
        }
        let Some(mut bundle) = store::bundles::get(&self.app.store, &bound.row.desired.digest).await? else { return Ok(None) };
        // Kinds of other objects may be gone with their definitions.
        bundle.retain(|object| object["metadata"]["annotations"][labels::HOOK].is_string());
        let Ok(objects) = self.prepared(member, bound, &bundle).await? else { return Ok(None) };
        let (_, hooks) = hooks::split(objects);
        if !hooks.iter().any(|hook| hook.runs(EventKind::Delete, moment)) {
            return Ok(None);
        }
        let fence = bound.row.desired.fence;
        let is_deletion = |event: &Event| event.kind == EventKind::Delete;
        if !self.progress(id).event.as_ref().is_some_and(is_deletion) {
            let event = Event {
                fence,
                kind: EventKind::Delete,
                runs: Default::default(),
                begun: Some(now()),
                test: None,
                logs: Default::default(),
            };
            self.progress(id).event = Some(event);
            self.save(id).await?;
        }
        Box::pin(self.run_hooks(member, id, &hooks, moment)).await
    }

    /// Whether a hook that runs after the objects has begun: from then on what is there belongs to hooks.
    pub(super) fn deletion_is_over(&mut self, id: Uuid) -> bool {
        let event = self.progress(id).event.as_ref();
        event.is_some_and(|event| event.kind == EventKind::Delete && event.runs.keys().any(|run| run.starts_with(Moment::Post.word())))
    }

    /// Whether the deletion goes on without this hook: it has failed, or the time is over.
    pub(super) async fn gives_up(&mut self, id: Uuid, object: &ObjectId, run: &str) -> Result<bool, Error> {
        let refused = self.bound(id).failure.take().map(|failure| failure.reason);
        let Some(event) = self.progress(id).event.clone() else { return Ok(false) };
        let why = match event.runs.get(run) {
            Some(Run::Ignored) => return Ok(true),
            Some(Run::Succeeded) => return Ok(false),
            Some(Run::Failed(why)) => why.clone(),
            Some(Run::Started) if refused.is_some() => refused.unwrap_or_default(),
            _ if event.begun.is_some_and(|begun| now() - begun > PATIENCE.as_secs() as i64) => {
                format!("it has not ended within {} s", PATIENCE.as_secs())
            }
            _ => return Ok(false),
        };
        let why = format!("hook {object} of the deletion failed: {why}");
        tracing::warn!(cluster.id = %self.key, binding.id = %id, %why, "a hook did not do its work");
        store::hooks::note(&self.app.store, id, &why).await?;
        self.bound(id).row.kept.push(why);
        self.record(id, run, Run::Ignored).await?;
        Ok(true)
    }
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}
