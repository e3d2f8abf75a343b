//! Runs the cases in waves. In a wave, an operation in each slot is paused at a failpoint, one fault happens, all operations continue, and each of them
//! is checked.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use drover::hub::Client;
use drover_api::operations::{Operation, OperationState};
use drover_e2e::emco::operation_id;
use drover_e2e::processes::Processes;
use futures::future::join_all;
use reqwest::Method;

use super::case::{Case, Fault, Job, Turn};
use super::check::{self, Created};
use super::slot::SlotState;
use super::stage::{Stage, Watch};

/// How long an operation may take to reach a failpoint, or to end after the restart. It only guards against hanging.
const TIMEOUT: Duration = Duration::from_secs(300);
/// How many of a service's ten connections paused transactions may take. The others are needed to continue.
const TRANSACTIONS_AT_ONCE: usize = 4;

/// A case, and what is wrong if it failed.
pub type Outcome = (Case, Result<(), String>);

/// An operation and the cases at which it is paused, one after the other. They have the same step and the same fault.
#[derive(Clone, Debug)]
pub struct Journey {
    pub slot: usize,
    /// The cases in their order, at least one.
    pub stops: Vec<Case>,
}

impl Journey {
    /// A journey for each case.
    pub fn single(cases: Vec<Case>) -> Vec<Self> {
        cases.into_iter().map(|case| Self { slot: 0, stops: vec![case] }).collect()
    }

    /// A journey for each step and fault, through all of its failpoints.
    pub fn through_steps(cases: Vec<Case>) -> Vec<Self> {
        let mut journeys: Vec<Self> = Vec::new();
        for case in cases {
            match journeys.iter_mut().find(|journey| (&journey.stops[0].row, journey.stops[0].fault) == (&case.row, case.fault)) {
                Some(journey) => journey.stops.push(case),
                None => journeys.push(Self { slot: 0, stops: vec![case] }),
            }
        }
        journeys
    }

    /// Gives each journey a slot. An update and another job can share a slot, because they use different members.
    pub fn side_by_side(journeys: &mut [Self]) {
        let mut lanes = Lanes::default();
        for journey in journeys {
            journey.slot = lanes.next(journey.job());
            lanes.take(journey.job());
        }
    }

    fn job(&self) -> Job {
        self.stops[0].job
    }
}

/// How many slots are taken: their members `a` and `b`, and their member `d`.
#[derive(Clone, Copy, Default)]
struct Lanes {
    rooms: usize,
    updates: usize,
}

impl Lanes {
    /// The next slot in which the members of a job are free.
    fn next(self, job: Job) -> usize {
        match job {
            Job::Update => self.updates,
            Job::Detour => self.rooms.max(self.updates),
            _ => self.rooms,
        }
    }

    fn take(&mut self, job: Job) {
        let taken = self.next(job) + 1;
        if job != Job::Update {
            self.rooms = taken;
        }
        if matches!(job, Job::Update | Job::Detour) {
            self.updates = taken;
        }
    }
}

/// Sorts journeys into waves: each wave has one fault and no more journeys than the slots allow. A journey with a failpoint in another service
/// has a wave of its own, because that service is then paused for all operations.
pub fn waves(journeys: Vec<Journey>, slots: usize) -> Vec<Vec<Journey>> {
    let mut waves = Vec::new();
    let mut left = journeys;
    while let Some(fault) = left.first().map(|journey| journey.stops[0].fault) {
        let (mut wave, mut lanes, mut transactions): (Vec<Journey>, _, _) = (Vec::new(), Lanes::default(), 0);
        left.retain(|journey| {
            let (first, in_transaction) = (&journey.stops[0], journey.stops.iter().any(|case| case.in_transaction));
            let fits = wave.first().is_none_or(|other| !other.stops[0].inside() && !first.inside());
            let takes = fits
                && first.fault == fault
                && lanes.next(journey.job()) < slots
                && (!in_transaction || transactions < TRANSACTIONS_AT_ONCE);
            if takes {
                wave.push(journey.clone());
                lanes.take(journey.job());
                transactions += usize::from(in_transaction);
            }
            !takes
        });
        Journey::side_by_side(&mut wave);
        waves.push(wave);
    }
    waves
}

/// Starts the operations and waits until each is paused at its first failpoint. Returns their ids.
pub async fn begin_all(stage: &mut Stage, journeys: &[Journey]) -> Vec<Result<String, String>> {
    let (journeys, broken) = prepare(stage, journeys.to_vec()).await;
    assert!(broken.is_empty(), "{broken:?}");
    let arms = ArmedFailpoints::new(&stage.processes);
    let begun = join_all(journeys.iter().map(|journey| begin(stage, &arms, journey))).await;
    begun.into_iter().map(|begun| begun.map(|begun| begun.id)).collect()
}

/// Runs a wave.
pub async fn wave(stage: &mut Stage, journeys: Vec<Journey>) -> Vec<Outcome> {
    let Some(fault) = journeys.first().map(|journey| journey.stops[0].fault) else { return Vec::new() };
    let (journeys, mut outcomes) = prepare(stage, journeys).await;
    let mut watches = Vec::new();
    for slot in journeys.iter().map(|journey| journey.slot).collect::<BTreeSet<_>>() {
        watches.push((slot, stage.watch(slot).await));
    }
    let arms = ArmedFailpoints::new(&stage.processes);
    let mut begun = join_all(journeys.iter().map(|journey| begin(stage, &arms, journey))).await;
    drop(arms);
    for stop in 1..=journeys.iter().map(|journey| journey.stops.len()).max().unwrap_or(0) {
        strike(stage, fault, &journeys, stop).await;
        let arms = ArmedFailpoints::new(&stage.processes);
        let arrived = journeys.iter().zip(&begun).map(async |(journey, begun)| match journey.stops.get(stop) {
            Some(case) if begun.is_ok() => arms.until_paused(case.process, &named(stage, journey.slot, case, &case.point)).await,
            _ => Ok(()),
        });
        let arrived: Vec<Result<(), String>> = join_all(arrived).await;
        for (begun, arrived) in begun.iter_mut().zip(arrived) {
            if let Err(never) = arrived {
                *begun = Err(never);
            }
        }
    }
    let ended = join_all(begun.into_iter().zip(&journeys).map(async |(begun, journey)| end(stage, journey, begun?).await)).await;
    let rest = check::at_rest(stage).await;
    stage.processes.until_ready("gateway").await;
    let interrupted: Vec<(usize, Vec<String>)> =
        watches.into_iter().map(|(slot, watch): (usize, Watch)| (slot, watch.interrupted())).collect();

    for (journey, result) in journeys.into_iter().zip(ended) {
        let result = result.and_then(|(state, made_once)| {
            stage.slots[journey.slot].adopt(journey.job(), state);
            let stopped: Vec<&String> = interrupted.iter().filter(|(at, _)| *at == journey.slot).flat_map(|(_, apps)| apps).collect();
            if !stopped.is_empty() {
                return Err(format!("{stopped:?} had a moment without a ready replica"));
            }
            made_once.and(rest.clone())
        });
        outcomes.extend(journey.stops.into_iter().map(|case| (case, result.clone())));
    }
    outcomes
}

/// Brings the slots into the state that their journeys need. Returns the journeys that can start, and failed outcomes for the others.
async fn prepare(stage: &mut Stage, journeys: Vec<Journey>) -> (Vec<Journey>, Vec<Outcome>) {
    let client = stage.client.clone();
    let each = stage.slots.iter_mut().enumerate().map(|(number, slot)| {
        let jobs: Vec<Job> = journeys.iter().filter(|journey| journey.slot == number).map(Journey::job).collect();
        let client = &client;
        async move {
            for job in jobs {
                slot.prepare(job, client).await.map_err(|error| format!("the slot could not be prepared: {error:#}"))?;
            }
            Ok::<_, String>(())
        }
    });
    let prepared = join_all(each).await;
    let (ready, broken): (Vec<_>, Vec<_>) = journeys.into_iter().partition(|journey| prepared[journey.slot].is_ok());
    let broken = broken.into_iter().flat_map(|journey| journey.stops.into_iter().map(move |case| (case, journey.slot)));
    (ready, broken.map(|(case, slot)| (case, prepared[slot].clone())).collect())
}

/// An operation that is paused at its first failpoint.
struct Begun {
    id: String,
    created: Created,
}

/// The name of the failpoint for this operation alone; in another service, for all operations.
fn named(stage: &Stage, slot: usize, case: &Case, point: &str) -> String {
    let (group, _) = stage.slots[slot].target(case.job);
    match case.inside() {
        true => point.to_owned(),
        false => format!("{point}@{}/{}/v1/{}", group.project, group.name, group.name),
    }
}

async fn begin(stage: &Stage, arms: &ArmedFailpoints<'_>, journey: &Journey) -> Result<Begun, String> {
    let (slot, case) = (journey.slot, &journey.stops[0]);
    let created = check::created(stage, slot, case.job);
    let (group, verb) = stage.slots[slot].target(case.job);
    let point = named(stage, slot, case, &case.point);
    match &case.turn {
        None => arms.set(case.process, &[(&point, "pause")]),
        Some(Turn::Cancelled(at)) => arms.set(case.process, &[(&named(stage, slot, case, at), "pause")]),
        Some(Turn::Failed(at)) => arms.set(case.process, &[(&named(stage, slot, case, at), "fatal"), (&point, "pause")]),
    }
    let id = match case.job {
        Job::Scale => stage.scaled(slot).await?,
        _ => operation_id(&stage.client, Method::POST, &format!("{}/{verb}", group.path()))
            .await
            .map_err(|error| format!("{verb} is refused: {error:#}"))?,
    };
    if let Some(Turn::Cancelled(at)) = &case.turn {
        let at = named(stage, slot, case, at);
        arms.until_paused(case.process, &at).await?;
        let cancel = operation_id(&stage.client, Method::POST, &format!("/v2/operations/{id}/cancel")).await;
        cancel.map_err(|error| format!("cancel is refused: {error:#}"))?;
        until_cancelled(stage, &id).await?;
        arms.set(case.process, &[(&point, "pause")]);
        arms.clear(case.process, &at);
    }
    if let Err(never) = arms.until_paused(case.process, &point).await {
        return Err(format!("{never}: {}", describe(&stage.client, &id).await));
    }
    Ok(Begun { id, created })
}

/// The state of an operation that does not reach its failpoint, for messages.
async fn describe(client: &Client, id: &str) -> String {
    let operation = client.get::<Operation>(&format!("/v2/operations/{id}")).await;
    operation.map_or_else(|error| format!("{error:#}"), |it| format!("{:?}, {}, {:?}", it.state, it.message, it.reasons))
}

/// Waits until the cancel was requested of the operation's workflow and of its children, so that none of them goes forward any more.
async fn until_cancelled(stage: &Stage, id: &str) -> Result<(), String> {
    let not_cancelled = "select count(*) from drover_orchestrator.workflow
        where (id = $1::uuid or parent_id = $1::uuid) and ended_at is null and not cancel_requested";
    let give_up = Instant::now() + TIMEOUT;
    loop {
        let left: i64 = sqlx::query_scalar(not_cancelled).bind(id).fetch_one(&stage.database).await.map_err(|error| error.to_string())?;
        if left == 0 {
            return Ok(());
        }
        if Instant::now() > give_up {
            return Err("the cancel does not reach the children".to_owned());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Makes the fault happen, and lets all operations continue to their next failpoint meanwhile.
async fn strike(stage: &mut Stage, fault: Fault, journeys: &[Journey], stop: usize) {
    let armed: BTreeSet<&'static str> = journeys.iter().map(|journey| journey.stops[0].process).collect();
    let next: Vec<(&'static str, String)> = journeys
        .iter()
        .filter_map(|journey| Some((journey, journey.stops.get(stop)?)))
        .map(|(journey, case)| (case.process, named(stage, journey.slot, case, &case.point)))
        .collect();
    let processes = &mut stage.processes;
    // The next failpoints are set in the same write that clears the current ones, so that no operation passes them.
    let continue_all = |processes: &Processes| {
        for process in &armed {
            let of_process = next.iter().filter(|(of, _)| of == process);
            let settings: Vec<String> = of_process.map(|(_, point)| format!("{point}=pause")).collect();
            processes.rearm(process, &settings);
        }
    };
    let refused = processes.postgres.proxy.refused();
    match fault {
        Fault::Killed(service) => {
            processes.kill(service);
            continue_all(processes);
            processes.run(service);
        }
        Fault::PostgresKilled => {
            processes.postgres.kill().await;
            continue_all(processes);
            noticed(processes, refused).await;
            processes.postgres.restart().await;
        }
        Fault::ConnectionsCut => {
            processes.postgres.proxy.cut();
            continue_all(processes);
            noticed(processes, refused).await;
            processes.postgres.proxy.restore();
        }
    }
}

/// Waits until a service was refused a connection.
async fn noticed(processes: &Processes, before: u64) {
    drover_testkit::eventually(TIMEOUT, async || (processes.postgres.proxy.refused() > before).then_some(())).await;
}

/// Waits for the end of the operation and checks the slot. Returns the slot's state, and whether each app was created once.
async fn end(stage: &Stage, journey: &Journey, begun: Begun) -> Result<(SlotState, Result<(), String>), String> {
    let (slot, case) = (journey.slot, &journey.stops[0]);
    let operation = ended(&stage.client, &begun.id).await?;
    let undone = case.turn.is_some();
    let wanted = match case.turn {
        None => OperationState::Succeeded,
        Some(Turn::Cancelled(_)) => OperationState::Cancelled,
        Some(Turn::Failed(_)) => OperationState::Failed,
    };
    if operation.state != wanted || !operation.leftovers.is_empty() {
        return Err(format!("the operation should have the state {wanted:?} and no leftovers: {operation:?}"));
    }
    let scene = &stage.slots[slot];
    if case.job == Job::Scale && undone {
        // Otherwise Drover tries again by itself.
        scene.scale(scene.x, 0).await.map_err(|error| format!("it cannot be scaled back: {error:#}"))?;
    }
    let before = scene.running(case.job, scene.now());
    let state = check::settled(stage, slot, case.job, &scene.outcomes(case.job, undone)).await?;
    let (after, now) = (check::created(stage, slot, case.job), scene.running(case.job, state));
    Ok((state, check::made_once(&begun.created, &after, &before, &now)))
}

/// Waits until the operation has ended. Errors are ignored meanwhile, because services may just be starting.
pub async fn ended(client: &Client, id: &str) -> Result<Operation, String> {
    let give_up = Instant::now() + TIMEOUT;
    loop {
        let asked = client.get::<Operation>(&format!("/v2/operations/{id}?wait=5s")).await;
        match asked {
            Ok(operation) if operation.finished_at.is_some() => return Ok(operation),
            other if Instant::now() > give_up => return Err(format!("the operation does not end: {other:?}")),
            Ok(_) => {}
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// The failpoints that are set in each process while several operations are on their way to theirs.
struct ArmedFailpoints<'a> {
    processes: &'a Processes,
    set: Mutex<BTreeSet<(&'static str, String)>>,
}

impl<'a> ArmedFailpoints<'a> {
    fn new(processes: &'a Processes) -> Self {
        Self { processes, set: Mutex::default() }
    }

    fn set(&self, process: &'static str, points: &[(&str, &str)]) {
        let settings = points.iter().map(|(point, action)| (process, format!("{point}={action}")));
        self.change(process, |set| set.extend(settings));
    }

    fn clear(&self, process: &'static str, point: &str) {
        self.change(process, |set| {
            set.remove(&(process, format!("{point}=pause")));
        });
    }

    fn change(&self, process: &'static str, change: impl FnOnce(&mut BTreeSet<(&'static str, String)>)) {
        let mut set = self.set.lock().expect("no poison");
        change(&mut set);
        self.processes.arm(process, set.iter().filter(|(of, _)| *of == process).map(|(_, setting)| setting));
    }

    async fn until_paused(&self, process: &'static str, point: &str) -> Result<(), String> {
        let give_up = Instant::now() + TIMEOUT;
        while !self.processes.paused(process, point) {
            if Instant::now() > give_up {
                return Err(format!("{point} was not reached"));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}
