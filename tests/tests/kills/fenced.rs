//! Two orchestrators and two placements run at the same time. The first of each is stopped (SIGSTOP) in the middle of its work for longer than its
//! lease, the second of each finishes that work, and then the first ones continue where they were stopped.

use std::time::{Duration, Instant};

use drover_e2e::processes::Processes;
use futures::future::join_all;
use nix::sys::signal::Signal;

use super::case::{self, Case, Job};
use super::check;
use super::run::{Journey, begin_all, ended};
use super::stage::Stage;

const TIMEOUT: Duration = Duration::from_secs(300);
/// What the engine logs when it finds that another engine has its workflow.
const FENCED_OFF: &str = "another engine has taken this workflow over";

/// The cases in which the orchestrator is just about to write to another service.
fn about_to_write() -> Vec<Case> {
    let points =
        case::points().into_iter().filter(|(case, owner)| *owner != case.process && case.moment == "before" && case.turn.is_none());
    points.map(|(case, _)| case).collect()
}

/// The case in which placement is just about to commit a decision that will be outdated when it continues.
fn about_to_commit() -> Case {
    let (case, _) = case::points()
        .into_iter()
        .find(|(case, _)| case.point == "ledger/commit/before" && case.job == Job::MakeRoom)
        .expect("it is there");
    case
}

pub async fn scenario() {
    let mut journeys = Journey::single(about_to_write());
    Journey::side_by_side(&mut journeys);
    let slots = journeys.iter().map(|journey| journey.slot + 2).max().unwrap_or(0);
    let mut stage = Stage::simulated(slots).await;
    let mut watches = Vec::new();
    for slot in 0..slots {
        watches.push(stage.watch(slot).await);
    }
    let mut begun = begin_all(&mut stage, &journeys).await;
    // Last, because it pauses the first placement for all operations.
    let committing = Journey { slot: slots - 1, stops: vec![about_to_commit()] };
    begun.extend(begin_all(&mut stage, std::slice::from_ref(&committing)).await);
    journeys.push(committing);
    let cases: Vec<(usize, Case)> =
        journeys.into_iter().flat_map(|journey| journey.stops.into_iter().map(move |case| (journey.slot, case))).collect();
    let ids: Vec<String> =
        begun.into_iter().zip(&cases).map(|(begun, (_, case))| begun.unwrap_or_else(|error| panic!("{}: {error}", case.point))).collect();

    second_pair(&mut stage.processes).await;
    stage.processes.signal("orchestrator", Signal::SIGSTOP);
    stage.processes.signal("placement", Signal::SIGSTOP);
    until_taken_over(&stage).await;
    wake(&stage.processes, "placement").await;
    let second = stage.processes.client("orchestrator-1");
    for (id, (_, case)) in ids.iter().zip(&cases) {
        ended(&second, id).await.unwrap_or_else(|error| panic!("the second orchestrator does not take over {}: {error}", case.point));
    }
    wake(&stage.processes, "orchestrator").await;
    until_fenced_off(&stage.processes, cases.len()).await;
    let mut wrong = Vec::new();
    for (slot, case) in &cases {
        match check::settled(&stage, *slot, case.job, &stage.slots[*slot].outcomes(case.job, false)).await {
            Ok(state) => stage.slots[*slot].adopt(case.job, state),
            Err(why) => wrong.push(format!("{}: {why}", case.point)),
        }
    }
    wrong.extend(check::at_rest(&stage).await.err());
    wrong
        .extend(watches.into_iter().flat_map(|watch| watch.interrupted()).map(|app| format!("{app} had a moment without a ready replica")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    // Both pairs still work: they share the next operations.
    let client = stage.client.clone();
    let next = join_all(stage.slots.iter_mut().map(|slot| slot.prepare(Job::MakeRoom, &client))).await;
    next.into_iter().for_each(|prepared| prepared.unwrap());
    stage.end().await;
}

async fn wake(processes: &Processes, name: &str) {
    processes.forget(name);
    processes.signal(name, Signal::SIGCONT);
    processes.until_ready(name).await;
}

/// Waits until the second orchestrator has taken all workflows over, and the second placement has decided what the first one was about to commit.
async fn until_taken_over(stage: &Stage) {
    let left = "select count(*) from drover_orchestrator.workflow
        where ended_at is null and (worker = 'orchestrator-0' or kind = 'instantiate' and step = 'decide')";
    drover_testkit::eventually(TIMEOUT, async || {
        let left: i64 = sqlx::query_scalar(left).fetch_one(&stage.database).await.ok()?;
        (left == 0).then_some(())
    })
    .await;
}

/// Starts the second processes, with a migration whose peers are these and not the stopped ones.
async fn second_pair(processes: &mut Processes) {
    let seconds = [("placement-1", "placement"), ("migration-1", "migration"), ("orchestrator-1", "orchestrator")];
    processes.also(&seconds, |name| vec![("DROVER_INSTANCE".to_owned(), name.to_owned())]).await;
}

/// Waits until the first orchestrator has found for each of its workflows that it was taken over.
async fn until_fenced_off(processes: &Processes, operations: usize) {
    let give_up = Instant::now() + TIMEOUT;
    loop {
        let found = processes.logged("orchestrator", FENCED_OFF);
        if found >= operations {
            return;
        }
        assert!(
            Instant::now() < give_up,
            "{found} of {operations} workflows were found to be taken over:\n{}",
            processes.log("orchestrator")
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
