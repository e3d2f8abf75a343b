//! The tests of a chart, as far as the row of a binding has them.

use drover_api::bindings::{TestResult, TestRun, TestedHook};

use super::bindings::Row;
use super::hooks::{Event, EventKind, Run, Tested};

/// The tests that run at the moment.
pub fn event_of(row: &Row) -> Option<&Event> {
    row.hooks.as_ref()?.event.as_ref().filter(|event| event.kind == EventKind::Test)
}

/// The run that was asked for last, as far as it is.
pub fn run_of(row: &Row) -> Option<TestRun> {
    let run = row.test?;
    let ended = row.hooks.as_ref().and_then(|progress| progress.tested.as_ref()).filter(|tested| tested.run == run);
    let under_way = || event_of(row).filter(|event| event.test == Some(run)).map(so_far).unwrap_or_default();
    Some(match ended {
        Some(Tested { tests, .. }) => TestRun { run, ended: true, tests: tests.clone() },
        None => TestRun { run, ended: false, tests: under_way() },
    })
}

/// The tests that have begun. Their names of runs are those of hooks.
pub fn so_far(event: &Event) -> Vec<TestedHook> {
    let of = |(run, state): (&String, &Run)| {
        let object = run.strip_prefix("pre ").unwrap_or(run).to_owned();
        let (result, reason) = match state {
            Run::Started | Run::Ignored => (TestResult::Running, None),
            Run::Succeeded => (TestResult::Succeeded, None),
            Run::Failed(reason) => (TestResult::Failed, Some(reason.clone())),
        };
        TestedHook { log: event.logs.get(&object).cloned(), object, result, reason }
    };
    event.runs.iter().map(of).collect()
}
