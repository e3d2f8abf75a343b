//! Tests of a chart (hooks of the event `test`), run when they are asked for, as `helm test` runs them: one after the other by weight, and
//! none after one that has failed.
//!
//! A test says something about the app and changes nothing of it: whatever becomes of it, the binding stays as ready as it is. What the
//! pods of a test have printed is read before the test may be deleted.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::bindings::TestedHook;
use drover_members::{Member, ObjectId};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, LogParams};
use uuid::Uuid;

use super::binding_state::BindingState;
use super::hooks::{self, Hook, Moment};
use super::{Outcome, Worker};
use crate::app::Error;
use crate::store;
use crate::store::hooks::{Event, EventKind, Run, Tested};
use crate::store::tested::{event_of, so_far};

/// Label of the pods of a Job.
const JOB_NAME: &str = "batch.kubernetes.io/job-name";
/// How many lines, and how many bytes, are kept of what a container has printed.
const LINES: i64 = 200;
const BYTES: usize = 32 << 10;

impl BindingState {
    /// The run of tests that was asked for and has not ended.
    pub(super) fn test_due(&self) -> Option<Uuid> {
        let ended = self.row.hooks.as_ref().and_then(|progress| progress.tested.as_ref()).map(|tested| tested.run);
        self.row.test.filter(|run| self.present() && !self.row.gone && Some(*run) != ended)
    }

    /// Whether tests run at the moment: a refusal is then one of a test.
    pub(super) fn tests_run(&self) -> bool {
        self.test_event().is_some()
    }

    fn test_event(&self) -> Option<&Event> {
        event_of(&self.row)
    }
}

impl Worker {
    /// Runs the tests that were asked for. `None`: there is nothing to run; else how the pass ends.
    pub(super) async fn run_tests(&mut self, member: &Arc<Member>, id: Uuid) -> Result<Option<Outcome>, Error> {
        let Some(run) = self.bindings[&id].test_due() else {
            if self.bindings[&id].tests_run() {
                // Nobody asks for them any more.
                self.progress(id).event = None;
                self.save(id).await?;
            }
            return Ok(None);
        };
        let bound = &self.bindings[&id];
        let bundle = store::bundles::get(&self.app.store, &bound.row.desired.digest).await?.unwrap_or_default();
        let (_, hooks) = match self.prepared(member, bound, &bundle).await? {
            Ok(objects) => hooks::split(objects),
            // The app itself cannot be applied, which its status says.
            Err(_) => return Ok(None),
        };
        if bound.test_event().is_none_or(|event| event.test != Some(run)) {
            let fence = bound.row.desired.fence;
            self.progress(id).event =
                Some(Event { fence, kind: EventKind::Test, runs: BTreeMap::new(), begun: None, test: Some(run), logs: BTreeMap::new() });
            self.save(id).await?;
        }
        let outcome = Box::pin(self.run_hooks(member, id, &hooks, Moment::Pre)).await?;
        match outcome {
            // One has failed; those before it are deleted as if all had succeeded.
            Some(Outcome::Settled) => {
                for hook in hooks.iter().filter(|hook| hook.deleted_if_succeeded) {
                    let state = self.bindings[&id].test_event().and_then(|event| event.runs.get(&hook.run(Moment::Pre)));
                    if state == Some(&Run::Succeeded) && !self.delete_hook(member, id, hook).await? {
                        return Ok(Some(Outcome::Again));
                    }
                }
            }
            Some(outcome) => return Ok(Some(outcome)),
            None => {}
        }
        let tests = self.bindings[&id].test_event().map(|event| in_order(so_far(event), &hooks)).unwrap_or_default();
        let progress = self.progress(id);
        (progress.tested, progress.event) = (Some(Tested { run, tests }), None);
        self.bound(id).hook = None;
        self.save(id).await?;
        Ok(Some(Outcome::Settled))
    }

    /// Records a refusal of the cluster as the failure of the test that was being written.
    pub(super) async fn take_refusal(&mut self, id: Uuid) -> Result<(), Error> {
        let Some(event) = self.bindings.get(&id).and_then(|bound| bound.test_event()) else { return Ok(()) };
        let started = event.runs.iter().find(|(_, state)| **state == Run::Started).map(|(run, _)| run.clone());
        match (started, self.bound(id).failure.take()) {
            (Some(run), Some(failure)) => self.record(id, &run, Run::Failed(failure.reason)).await,
            _ => Ok(()),
        }
    }

    /// Keeps what the pods of a test have printed.
    pub(super) async fn keep_log(&mut self, member: &Member, id: Uuid, hook: &Hook) {
        let object = (*hook.object.id).clone();
        let text = match read(member, &object).await {
            Ok(text) => text,
            Err(error) => format!("(the log cannot be read: {error})"),
        };
        if let Some(event) = self.progress(id).event.as_mut().filter(|event| event.kind == EventKind::Test && !text.is_empty()) {
            event.logs.insert(object.to_string(), text);
        }
    }
}

/// In the order in which the tests ran.
fn in_order(mut tests: Vec<TestedHook>, hooks: &[Hook]) -> Vec<TestedHook> {
    let order: Vec<String> = hooks::in_order(hooks, EventKind::Test, Moment::Pre).iter().map(|hook| hook.object.id.to_string()).collect();
    tests.sort_by_key(|test| order.iter().position(|object| *object == test.object));
    tests
}

/// What the pods of a Pod or a Job have printed.
async fn read(member: &Member, object: &ObjectId) -> Result<String, kube::Error> {
    let pods: Api<Pod> = Api::namespaced(member.client(), &object.namespace);
    let found = match object.kind.as_str() {
        "Pod" => pods.get_opt(&object.name).await?.into_iter().collect(),
        "Job" => pods.list(&ListParams::default().labels(&format!("{JOB_NAME}={}", object.name))).await?.items,
        _ => Vec::new(),
    };
    let mut text = String::new();
    for pod in found {
        let (name, spec) = (pod.metadata.name.unwrap_or_default(), pod.spec.unwrap_or_default());
        for container in spec.containers.iter().map(|container| container.name.clone()) {
            let params = LogParams { container: Some(container), tail_lines: Some(LINES), ..LogParams::default() };
            let log = pods.logs(&name, &params).await?;
            text.push_str(end(&log));
            text.push_str(if text.is_empty() || text.ends_with('\n') { "" } else { "\n" });
        }
    }
    Ok(text)
}

/// The end of a text that is too long.
fn end(text: &str) -> &str {
    let from = text.len().saturating_sub(BYTES);
    let from = (from..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    &text[from..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_log_keeps_its_end_at_a_character() {
        let text = "ä".repeat(BYTES);
        assert_eq!(end(&text).len(), BYTES);
        assert_eq!(end(&format!("{text}x")).len(), BYTES - 1, "not in the middle of a character");
        assert_eq!(end("short"), "short");
    }
}
