//! Waves: as many operations as there are slots are led to a point each, somebody is hit once, everybody goes on, each is checked.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use drover::client::Client;
use drover_api::operations::{Operation, OperationState};
use drover_e2e::emco::operation_id;
use drover_e2e::processes::Processes;
use futures::future::join_all;
use reqwest::Method;

use super::case::{Case, Fault, Job, Turn};
use super::check::{self, Created};
use super::slot::State;
use super::stage::{Stage, Watch};

/// For an operation to come to a point, and for one to end after the restart: only against hanging, for the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(300);
/// Of a service's ten connections; the others are needed to get on.
const TRANSACTIONS_AT_ONCE: usize = 4;

/// What became of a case: nothing to complain about, or what is wrong.
pub type Outcome = (Case, Result<(), String>);

/// One operation and the points at which it is stopped, one after the other; of one step, with one fault.
#[derive(Clone, Debug)]
pub struct Journey {
    /// Where it happens.
    pub slot: usize,
    /// At least one.
    pub stops: Vec<Case>,
}

impl Journey {
    /// A journey per case.
    pub fn single(cases: Vec<Case>) -> Vec<Self> {
        cases.into_iter().map(|case| Self { slot: 0, stops: vec![case] }).collect()
    }

    /// A journey per step and fault: through all of its points.
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

    /// Each in a slot where nothing else of its lane goes on.
    pub fn side_by_side(journeys: &mut [Self]) {
        let (mut rooms, mut updates) = (0, 0);
        for journey in journeys {
            let lane = if journey.job() == Job::Update { &mut updates } else { &mut rooms };
            journey.slot = *lane;
            *lane += 1;
        }
    }

    fn job(&self) -> Job {
        self.stops[0].job
    }
}

/// Sorts journeys into waves: one fault each, and what the slots can take. Those inside of a service stand alone, for a service
/// that stops there stops for all.
pub fn waves(journeys: Vec<Journey>, slots: usize) -> Vec<Vec<Journey>> {
    let mut waves = Vec::new();
    let mut left = journeys;
    while let Some(fault) = left.first().map(|journey| journey.stops[0].fault) {
        let (mut wave, mut rooms, mut updates, mut transactions): (Vec<Journey>, _, _, _) = (Vec::new(), 0, 0, 0);
        left.retain(|journey| {
            let (first, in_transaction) = (&journey.stops[0], journey.stops.iter().any(|case| case.in_transaction));
            let lane = if journey.job() == Job::Update { &mut updates } else { &mut rooms };
            let fits = wave.first().is_none_or(|other| !other.stops[0].inside() && !first.inside());
            let takes = fits && first.fault == fault && *lane < slots && (!in_transaction || transactions < TRANSACTIONS_AT_ONCE);
            if takes {
                wave.push(journey.clone());
                *lane += 1;
                transactions += usize::from(in_transaction);
            }
            !takes
        });
        Journey::side_by_side(&mut wave);
        waves.push(wave);
    }
    waves
}

/// Leads each operation to its first stop; their ids.
pub async fn begin_all(stage: &mut Stage, journeys: &[Journey]) -> Vec<Result<String, String>> {
    let (journeys, broken) = prepare(stage, journeys.to_vec()).await;
    assert!(broken.is_empty(), "{broken:?}");
    let arms = Arms::new(&stage.processes);
    let begun = join_all(journeys.iter().map(|journey| begin(stage, &arms, journey))).await;
    begun.into_iter().map(|begun| begun.map(|begun| begun.id)).collect()
}

/// Runs one wave.
pub async fn wave(stage: &mut Stage, journeys: Vec<Journey>) -> Vec<Outcome> {
    let Some(fault) = journeys.first().map(|journey| journey.stops[0].fault) else { return Vec::new() };
    let (journeys, mut outcomes) = prepare(stage, journeys).await;
    let mut watches = Vec::new();
    for slot in journeys.iter().map(|journey| journey.slot).collect::<BTreeSet<_>>() {
        watches.push((slot, stage.watch(slot).await));
    }
    let arms = Arms::new(&stage.processes);
    let mut begun = join_all(journeys.iter().map(|journey| begin(stage, &arms, journey))).await;
    drop(arms);
    for stop in 1..=journeys.iter().map(|journey| journey.stops.len()).max().unwrap_or(0) {
        strike(stage, fault, &journeys, stop).await;
        let arms = Arms::new(&stage.processes);
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

/// Makes every journey possible; the cases of those that cannot be are outcomes already.
async fn prepare(stage: &mut Stage, journeys: Vec<Journey>) -> (Vec<Journey>, Vec<Outcome>) {
    let client = stage.client.clone();
    let each = stage.slots.iter_mut().enumerate().map(|(number, slot)| {
        let jobs: Vec<Job> = journeys.iter().filter(|journey| journey.slot == number).map(Journey::job).collect();
        let client = &client;
        async move {
            for job in jobs {
                slot.prepare(job, client).await.map_err(|error| format!("it was not even begun: {error:#}"))?;
            }
            Ok::<_, String>(())
        }
    });
    let prepared = join_all(each).await;
    let (ready, broken): (Vec<_>, Vec<_>) = journeys.into_iter().partition(|journey| prepared[journey.slot].is_ok());
    let broken = broken.into_iter().flat_map(|journey| journey.stops.into_iter().map(move |case| (case, journey.slot)));
    (ready, broken.map(|(case, slot)| (case, prepared[slot].clone())).collect())
}

/// An operation that stands still where it should.
struct Begun {
    id: String,
    created: Created,
}

/// The failpoint as it is armed for this operation alone, where that can be said.
fn named(stage: &Stage, slot: usize, case: &Case, point: &str) -> String {
    let (group, _) = stage.slots[slot].target(case.job);
    match case.inside() {
        true => point.to_owned(),
        false => format!("{point}@{}/{}/v1/{}", group.project, group.name, group.name),
    }
}

async fn begin(stage: &Stage, arms: &Arms<'_>, journey: &Journey) -> Result<Begun, String> {
    let (slot, case) = (journey.slot, &journey.stops[0]);
    let created = check::created(stage, slot, case.job);
    let (group, verb) = stage.slots[slot].target(case.job);
    let point = named(stage, slot, case, &case.point);
    match &case.turn {
        None => arms.set(case.process, &[(&point, "pause")]),
        Some(Turn::Cancelled(at)) => arms.set(case.process, &[(&named(stage, slot, case, at), "pause")]),
        Some(Turn::Failed(at)) => arms.set(case.process, &[(&named(stage, slot, case, at), "fatal"), (&point, "pause")]),
    }
    let id = operation_id(&stage.client, Method::POST, &format!("{}/{verb}", group.path()))
        .await
        .map_err(|error| format!("{verb} is refused: {error:#}"))?;
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
        return Err(format!("{never}: {}", how_it_stands(&stage.client, &id).await));
    }
    Ok(Begun { id, created })
}

/// Of an operation that does not come where it should, for people.
async fn how_it_stands(client: &Client, id: &str) -> String {
    let operation = client.get::<Operation>(&format!("/v2/operations/{id}")).await;
    operation.map_or_else(|error| format!("{error:#}"), |it| format!("{:?}, {}, {:?}", it.state, it.message, it.reasons))
}

/// The wish to be undone has reached the operation and what it started: none of them goes forward any more.
async fn until_cancelled(stage: &Stage, id: &str) -> Result<(), String> {
    let deaf = "select count(*) from drover_orchestrator.workflow
        where (id = $1::uuid or parent_id = $1::uuid) and ended_at is null and not cancel_requested";
    let give_up = Instant::now() + PATIENCE;
    loop {
        let left: i64 = sqlx::query_scalar(deaf).bind(id).fetch_one(&stage.database).await.map_err(|error| error.to_string())?;
        if left == 0 {
            return Ok(());
        }
        if Instant::now() > give_up {
            return Err("the cancel never reaches what it started".to_owned());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Hits who is to be hit; everybody goes on while it is away, to the next stop.
async fn strike(stage: &mut Stage, fault: Fault, journeys: &[Journey], stop: usize) {
    let armed: BTreeSet<&'static str> = journeys.iter().map(|journey| journey.stops[0].process).collect();
    let next: Vec<(&'static str, String)> = journeys
        .iter()
        .filter_map(|journey| Some((journey, journey.stops.get(stop)?)))
        .map(|(journey, case)| (case.process, named(stage, journey.slot, case, &case.point)))
        .collect();
    let processes = &mut stage.processes;
    // The next stops are set with the same stroke that lets go of these: nobody may slip past one.
    let go_on = |processes: &Processes| {
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
            go_on(processes);
            processes.run(service);
        }
        Fault::PostgresKilled => {
            processes.postgres.kill().await;
            go_on(processes);
            noticed(processes, refused).await;
            processes.postgres.restart().await;
        }
        Fault::ConnectionsCut => {
            processes.postgres.proxy.cut();
            go_on(processes);
            noticed(processes, refused).await;
            processes.postgres.proxy.restore();
        }
    }
}

/// Somebody has been refused a connection since.
async fn noticed(processes: &Processes, before: u64) {
    drover_testkit::eventually(PATIENCE, async || (processes.postgres.proxy.refused() > before).then_some(())).await;
}

/// What the slot is at in the end, and what was wrong on the way there.
async fn end(stage: &Stage, journey: &Journey, begun: Begun) -> Result<(State, Result<(), String>), String> {
    let (slot, case) = (journey.slot, &journey.stops[0]);
    let operation = ended(&stage.client, &begun.id).await?;
    let undone = case.turn.is_some();
    let wanted = match case.turn {
        None => OperationState::Succeeded,
        Some(Turn::Cancelled(_)) => OperationState::Cancelled,
        Some(Turn::Failed(_)) => OperationState::Failed,
    };
    if operation.state != wanted || !operation.leftovers.is_empty() {
        return Err(format!("the operation should have {wanted:?}: {operation:?}"));
    }
    let scene = &stage.slots[slot];
    let before = scene.running(case.job, scene.now());
    let state = check::settled(stage, slot, case.job, &scene.outcomes(case.job, undone)).await?;
    let (after, now) = (check::created(stage, slot, case.job), scene.running(case.job, state));
    Ok((state, check::made_once(&begun.created, &after, &before, &now)))
}

/// The operation when it has ended, asked of a front door behind which somebody may just be starting.
pub async fn ended(client: &Client, id: &str) -> Result<Operation, String> {
    let give_up = Instant::now() + PATIENCE;
    loop {
        let asked = client.get::<Operation>(&format!("/v2/operations/{id}?wait=5s")).await;
        match asked {
            Ok(operation) if operation.finished_at.is_some() => return Ok(operation),
            other if Instant::now() > give_up => return Err(format!("it does not end: {other:?}")),
            Ok(_) => {}
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// What is armed in each process, while several operations are being led to their points.
struct Arms<'a> {
    processes: &'a Processes,
    set: Mutex<BTreeSet<(&'static str, String)>>,
}

impl<'a> Arms<'a> {
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
        let give_up = Instant::now() + PATIENCE;
        while !self.processes.paused(process, point) {
            if Instant::now() > give_up {
                return Err(format!("{point} is never reached"));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}
