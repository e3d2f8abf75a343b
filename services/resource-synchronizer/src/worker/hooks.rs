//! Hooks of charts: objects that run before and after the others when an app is installed, upgraded, rolled back or deleted, as Helm means
//! them: one after the other, by weight; a Job or a Pod has to end before the next begins; a failed one fails the app. Deletion goes on all the same
//! (see [`super::deletion`]).
//!
//! Each step is recorded before it has an effect, so that after a crash no hook runs twice that had begun. A move installs the app at
//! its destination, so its installation hooks run there.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_members::objects::wave;
use drover_members::{Member, Object, ObjectId, labels};
use serde_json::Value;
use uuid::Uuid;

use super::binding_state::{BindingState, Failure};
use super::write::Write;
use super::{Outcome, Worker};
use crate::app::Error;
use crate::store::hooks::{Event, EventKind, Progress, Run, set};

/// When a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before the objects of the app are written.
    Pre,
    /// When all of them are ready.
    Post,
}

impl Moment {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Pre => "pre",
            Self::Post => "post",
        }
    }
}

/// An object that is a hook.
#[derive(Clone, Debug)]
pub struct Hook {
    /// The object.
    pub object: Object,
    /// Hooks with a lower weight run first.
    weight: i64,
    /// Whether it is deleted when all hooks of its moment have succeeded.
    pub(super) deleted_if_succeeded: bool,
    /// Whether it is deleted when it has failed.
    deleted_if_failed: bool,
}

/// Separates the hooks of a bundle from the objects of the app.
pub fn split(objects: Vec<Object>) -> (Vec<Object>, Vec<Hook>) {
    let (hooks, objects): (Vec<_>, Vec<_>) = objects.into_iter().partition(|object| !events(object).is_empty());
    (objects, hooks.into_iter().map(Hook::of).collect())
}

/// The events in which an object runs as a hook; empty for an object of the app.
fn events(object: &Object) -> &str {
    annotation(object, labels::HOOK)
}

fn annotation<'a>(object: &'a Object, name: &str) -> &'a str {
    object.value["metadata"]["annotations"][name].as_str().unwrap_or_default()
}

impl Hook {
    fn of(object: Object) -> Self {
        let policies = annotation(&object, "helm.sh/hook-delete-policy");
        let has = |policy: &str| policies.split(',').any(|one| one.trim() == policy);
        Self {
            weight: annotation(&object, "helm.sh/hook-weight").trim().parse().unwrap_or(0),
            deleted_if_succeeded: has("hook-succeeded"),
            deleted_if_failed: has("hook-failed"),
            object,
        }
    }

    pub(super) fn runs(&self, kind: EventKind, moment: Moment) -> bool {
        let event = match (kind, moment) {
            (EventKind::Install, Moment::Pre) => "pre-install",
            (EventKind::Install, Moment::Post) => "post-install",
            (EventKind::Upgrade, Moment::Pre) => "pre-upgrade",
            (EventKind::Upgrade, Moment::Post) => "post-upgrade",
            (EventKind::Rollback, Moment::Pre) => "pre-rollback",
            (EventKind::Rollback, Moment::Post) => "post-rollback",
            (EventKind::Delete, Moment::Pre) => "pre-delete",
            (EventKind::Delete, Moment::Post) => "post-delete",
            (EventKind::Test, Moment::Pre) => "test",
            (EventKind::Test, Moment::Post) => return false,
        };
        events(&self.object).split(',').any(|named| named == event)
    }

    /// Whether it runs only when tests are asked for.
    pub fn only_tests(&self) -> bool {
        events(&self.object).split(',').all(|event| event == "test")
    }

    /// Under which name its run is recorded: the same object may run before and after.
    pub(super) fn run(&self, moment: Moment) -> String {
        format!("{} {}", moment.word(), self.object.id)
    }
}

/// The hooks of a moment in their order: by weight, then kind, then name.
pub(super) fn in_order(hooks: &[Hook], kind: EventKind, moment: Moment) -> Vec<&Hook> {
    let mut due: Vec<&Hook> = hooks.iter().filter(|hook| hook.runs(kind, moment)).collect();
    due.sort_by_key(|hook| (hook.weight, wave(&hook.object.id.api_version, &hook.object.id.kind), hook.object.id.clone()));
    due
}

/// How a hook that was applied is doing.
#[derive(Debug, PartialEq, Eq)]
enum State {
    Runs,
    Succeeded,
    Failed(String),
}

/// A Job or a Pod runs until it ends; every other object has done its work by being there.
fn state_of(object: &Value) -> State {
    let condition = |kind: &str| {
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().find(|condition| condition["type"] == kind && condition["status"] == "True")
    };
    let message = |from: &Value| from["message"].as_str().filter(|text| !text.is_empty()).unwrap_or("it ended with an error").to_owned();
    match (object["apiVersion"].as_str(), object["kind"].as_str()) {
        (Some("batch/v1"), Some("Job")) => match (condition("Complete"), condition("Failed")) {
            (Some(_), _) => State::Succeeded,
            (None, Some(failed)) => State::Failed(message(failed)),
            (None, None) => State::Runs,
        },
        (Some("v1"), Some("Pod")) => match object["status"]["phase"].as_str() {
            Some("Succeeded") => State::Succeeded,
            Some("Failed") => State::Failed(message(&object["status"])),
            _ => State::Runs,
        },
        _ => State::Succeeded,
    }
}

impl BindingState {
    /// What has to be run for these hooks; none if nothing has. `Some(true)`: it has only just begun and is not recorded yet.
    pub(super) fn begin_hooks(&mut self, hooks: &[Hook]) -> Option<bool> {
        self.hooks_due = self.hooks_left(hooks);
        if !self.hooks_due {
            return None;
        }
        let desired = &self.row.desired;
        let progress = self.row.hooks.as_deref();
        if progress.and_then(|progress| progress.event.as_ref()).is_some_and(|event| event.fence == desired.fence) {
            return Some(false);
        }
        let is_hook = |id: &str| progress.is_some_and(|progress| progress.applied.contains(id));
        let was_there = self.inventory.iter().any(|(id, item)| item.applied.is_some() && !is_hook(&id.to_string()));
        let kind = match was_there {
            true if desired.rollback => EventKind::Rollback,
            true => EventKind::Upgrade,
            false => EventKind::Install,
        };
        let event = Event { fence: desired.fence, kind, runs: BTreeMap::new(), begun: None, test: None, logs: BTreeMap::new() };
        self.row.hooks.get_or_insert_default().event = Some(event);
        Some(true)
    }

    /// Whether hooks of the desired bundle have to run.
    pub(super) fn hooks_left(&self, hooks: &[Hook]) -> bool {
        let settled = self.row.hooks.as_ref().and_then(|progress| progress.settled.as_deref());
        !hooks.is_empty() && settled != Some(&*self.row.desired.digest)
    }

    /// Whether an object is a hook that was applied.
    pub(super) fn ran_hook(&self, object: &ObjectId) -> bool {
        self.row.hooks.as_ref().is_some_and(|progress| progress.applied.contains(&object.to_string()))
    }
}

impl Worker {
    /// Runs the hooks that come before the objects of the app. `None`: those may be written; else how the pass ends.
    pub(super) async fn hooks_before(&mut self, member: &Arc<Member>, id: Uuid, hooks: &[Hook]) -> Result<Option<Outcome>, Error> {
        match self.bound(id).begin_hooks(hooks) {
            None => return Ok(None),
            Some(false) => {}
            Some(true) => self.save(id).await?,
        }
        Box::pin(self.run_hooks(member, id, hooks, Moment::Pre)).await
    }

    /// Runs the hooks that come when the objects of the app are ready. `None`: none are left, or the objects are not ready yet.
    pub(super) async fn hooks_after(&mut self, member: &Arc<Member>, id: Uuid, hooks: &[Hook]) -> Result<Option<Outcome>, Error> {
        let bound = &self.bindings[&id];
        if !bound.hooks_due || !bound.is_ready(&self.view) {
            return Ok(None);
        }
        if let Some(outcome) = Box::pin(self.run_hooks(member, id, hooks, Moment::Post)).await? {
            return Ok(Some(outcome));
        }
        self.settle_hooks(id).await.map(|()| None)
    }

    /// Runs the hooks of a moment. `None`: all of them have succeeded; else how the pass ends.
    pub(super) async fn run_hooks(
        &mut self,
        member: &Arc<Member>,
        id: Uuid,
        hooks: &[Hook],
        moment: Moment,
    ) -> Result<Option<Outcome>, Error> {
        let Some(event) = self.progress(id).event.as_ref() else { return Ok(None) };
        // An object that ran before may be running again: what was left of the first run is no longer to be deleted.
        if moment == Moment::Pre && event.runs.keys().any(|run| run.starts_with(Moment::Post.word())) {
            return Ok(None);
        }
        let kind = event.kind;
        let due = in_order(hooks, kind, moment);
        for hook in &due {
            if kind == EventKind::Delete && self.gives_up(id, &hook.object.id, &hook.run(moment)).await? {
                continue;
            }
            if let Some(outcome) = self.run_hook(member, id, hook, &hook.run(moment)).await? {
                return Ok(Some(outcome));
            }
        }
        for hook in due.into_iter().filter(|hook| hook.deleted_if_succeeded) {
            if !self.delete_hook(member, id, hook).await? {
                return Ok(Some(Outcome::Again));
            }
        }
        self.bound(id).hook = None;
        Ok(None)
    }

    async fn run_hook(&mut self, member: &Arc<Member>, id: Uuid, hook: &Hook, run: &str) -> Result<Option<Outcome>, Error> {
        let object = &hook.object.id;
        let state = self.progress(id).event.as_ref().and_then(|event| event.runs.get(run)).cloned();
        match state {
            Some(Run::Succeeded | Run::Ignored) => Ok(None),
            Some(Run::Failed(reason)) => {
                if hook.deleted_if_failed && !self.delete_hook(member, id, hook).await? {
                    return Ok(Some(Outcome::Again));
                }
                if self.bindings[&id].tests_run() {
                    return Ok(Some(Outcome::Settled));
                }
                Ok(Some(self.fail(id, Failure::new("hook_failed", format!("hook {object}: {reason}")))))
            }
            // What an earlier run left is in the way, as for Helm (`before-hook-creation` is its default).
            None if !self.delete_hook(member, id, hook).await? => Ok(Some(Outcome::Again)),
            None => {
                self.progress(id).applied.insert(object.to_string());
                self.record(id, run, Run::Started).await?;
                self.write_hook(member, id, hook).await.map(Some)
            }
            Some(Run::Started) if self.uid(id, object).is_none() => self.write_hook(member, id, hook).await.map(Some),
            Some(Run::Started) => {
                let found = member.object(object).await?;
                let found = found.map(|found| serde_json::to_value(found).unwrap_or_default());
                // One that is gone has ended: its time to live after the end was over.
                let state = found.as_ref().map_or(State::Succeeded, state_of);
                if state != State::Runs && self.bindings[&id].tests_run() {
                    self.keep_log(member, id, hook).await;
                }
                match state {
                    State::Runs => {
                        self.bound(id).hook = Some(object.to_string().into());
                        Ok(Some(Outcome::Again))
                    }
                    State::Succeeded => self.record(id, run, Run::Succeeded).await.map(|()| None),
                    State::Failed(reason) => {
                        self.record(id, run, Run::Failed(reason)).await?;
                        Ok(Some(Outcome::Again))
                    }
                }
            }
        }
    }

    /// Records that all hooks have run: the bundle is brought in.
    async fn settle_hooks(&mut self, id: Uuid) -> Result<(), Error> {
        let digest = self.bound(id).row.desired.digest.to_string();
        let progress = self.progress(id);
        (progress.settled, progress.event) = (Some(digest), None);
        self.save(id).await?;
        let bound = self.bound(id);
        (bound.hooks_due, bound.hook) = (false, None);
        Ok(())
    }

    pub(super) fn progress(&mut self, id: Uuid) -> &mut Progress {
        self.bound(id).row.hooks.get_or_insert_default()
    }

    pub(super) async fn record(&mut self, id: Uuid, run: &str, state: Run) -> Result<(), Error> {
        if let Some(event) = &mut self.progress(id).event {
            event.runs.insert(run.to_owned(), state);
        }
        // There is progress: the next pass need not wait longer than the first.
        self.bound(id).attempts = 0;
        self.save(id).await
    }

    pub(super) async fn save(&self, id: Uuid) -> Result<(), Error> {
        match &self.bindings[&id].row.hooks {
            Some(progress) => Ok(set(&self.app.store, id, progress).await?),
            None => Ok(()),
        }
    }

    /// Deletes a hook that was applied. Returns whether it is gone.
    pub(super) async fn delete_hook(&mut self, member: &Member, id: Uuid, hook: &Hook) -> Result<bool, Error> {
        match self.bound(id).inventory.contains_key(&hook.object.id) {
            true => self.delete(member, id, vec![(*hook.object.id).clone()]).await,
            false => Ok(true),
        }
    }

    async fn write_hook(&mut self, member: &Arc<Member>, id: Uuid, hook: &Hook) -> Result<Outcome, Error> {
        let due = vec![hook.object.clone()];
        let shared = match self.sharers(member, id, &due).await? {
            Ok(shared) => shared,
            Err(None) => return Ok(Outcome::Again),
            Err(Some(failure)) => return Ok(self.fail(id, failure)),
        };
        let bound = self.bound(id);
        bound.hook = Some(hook.object.id.to_string().into());
        let desired = bound.row.desired.clone();
        let owner = self.owner(&self.bindings[&id]);
        let (app, member) = (self.app.clone(), member.clone());
        let write = Write { app, member, owner, desired, new: due.clone(), due, uids: vec![None], starting: vec![false], shared };
        Ok(self.begin(id, write))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_members::Owner;
    use serde_json::json;

    fn hook(name: &str, kind: &str, events: &str, weight: &str) -> Hook {
        let annotations = json!({labels::HOOK: events, "helm.sh/hook-weight": weight, "helm.sh/hook-delete-policy": "hook-succeeded"});
        let api_version = if kind == "Job" { "batch/v1" } else { "v1" };
        let value = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "annotations": annotations}});
        let owner = Owner { hub: Uuid::nil(), dig: Uuid::nil(), app: "web".into(), binding: Uuid::nil() };
        Hook::of(Object::new(value, true, "shop", &owner))
    }

    #[test]
    fn hooks_run_by_weight_then_kind_then_name_and_only_in_their_event() {
        let hooks = [
            hook("z", "Job", "pre-install", "-1"),
            hook("b", "Job", "pre-install,post-upgrade", "5"),
            hook("a", "Job", "pre-install", "5"),
            hook("settings", "ConfigMap", "pre-install", "5"),
            hook("later", "Job", "post-install", "-9"),
        ];
        let names = |kind, moment| {
            let due = in_order(&hooks, kind, moment);
            due.iter().map(|hook| hook.object.id.name.clone()).collect::<Vec<_>>()
        };

        assert_eq!(names(EventKind::Install, Moment::Pre), ["z", "settings", "a", "b"]);
        assert_eq!(names(EventKind::Install, Moment::Post), ["later"]);
        assert_eq!(names(EventKind::Upgrade, Moment::Pre), Vec::<String>::new());
        assert_eq!(names(EventKind::Upgrade, Moment::Post), ["b"]);
    }

    #[test]
    fn jobs_and_pods_run_until_they_end_and_other_objects_are_done_at_once() {
        let job = |kind: &str| {
            json!({"apiVersion": "batch/v1", "kind": "Job", "status": {"ready": 1, "conditions": [
            {"type": kind, "status": "True", "message": "too many failures"}]}})
        };
        assert_eq!(state_of(&job("Suspended")), State::Runs);
        assert_eq!(state_of(&job("Complete")), State::Succeeded);
        assert_eq!(state_of(&job("Failed")), State::Failed("too many failures".into()));
        let pod = |phase: &str| json!({"apiVersion": "v1", "kind": "Pod", "status": {"phase": phase}});
        assert_eq!(state_of(&pod("Running")), State::Runs);
        assert_eq!(state_of(&pod("Succeeded")), State::Succeeded);
        assert_eq!(state_of(&pod("Failed")), State::Failed("it ended with an error".into()));
        assert_eq!(state_of(&json!({"apiVersion": "v1", "kind": "ConfigMap"})), State::Succeeded);
    }
}
