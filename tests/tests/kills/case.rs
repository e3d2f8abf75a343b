//! The cases of the kill tests: which fault happens at which failpoint. They are derived from the step lists and failpoints of the code, so a new
//! step has its cases at once, and a failpoint that is never passed makes its case fail. No I/O.

use std::fmt;

use drover_e2e::processes::SERVICES;
use drover_workflow::Failpoint;

/// The fault that happens while the operations are paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// A service gets SIGKILL and is started again.
    Killed(&'static str),
    /// Every process of Postgres gets SIGKILL. The server is started again when a service has noticed.
    PostgresKilled,
    /// All connections to Postgres are closed, and new ones are refused until a service has noticed.
    ConnectionsCut,
}

impl Fault {
    /// All faults, in the order of the matrix.
    pub fn all() -> Vec<Self> {
        SERVICES.map(Self::Killed).into_iter().chain([Self::PostgresKilled, Self::ConnectionsCut]).collect()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Killed(service) => f.write_str(service),
            Self::PostgresKilled => f.write_str("Postgres"),
            Self::ConnectionsCut => f.write_str("connections cut"),
        }
    }
}

/// The operation that passes a failpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Job {
    /// Instantiate a newcomer for which another app must be moved.
    MakeRoom,
    /// Update a group: one app is changed, one is added, one is removed.
    Update,
    /// Update a group: its app is replaced by one for which another app must be moved.
    Grow,
    /// Update a group in place: its new pods fit only after another app has moved away.
    Surge,
    /// Somebody else scales an app, for which another app must be moved. Nobody asks for this operation.
    Scale,
    /// Update a group: the app that it adds is refused by the first member and goes to another one.
    Detour,
    /// Terminate a group.
    Terminate,
}

impl Job {
    /// The job that passes a step of a workflow.
    fn passes(kind: &str, step: &str) -> Self {
        match (kind, step) {
            ("instantiate" | "relocate", _) => Self::MakeRoom,
            ("update", "overflow_added" | "make_room") => Self::Grow,
            ("update", "plan_surge" | "make_surge_room") => Self::Surge,
            ("update", "replan_added") => Self::Detour,
            ("update", _) => Self::Update,
            ("grow", _) => Self::Scale,
            ("terminate", _) => Self::Terminate,
            (other, _) => panic!("no job of the kill tests runs the workflow {other}; add one"),
        }
    }
}

/// Why an operation is undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is cancelled while it is paused at this failpoint.
    Cancelled(String),
    /// It fails for good at this failpoint.
    Failed(String),
}

/// A row of the matrix: a step or its undo, or a place in a service.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Row {
    /// The workflow or service.
    pub kind: String,
    /// The step or place.
    pub step: String,
    /// `do`, or `cancelled` or `failed` for an undo; for a place in a service, the job that passes it.
    pub way: String,
}

/// One fault at one failpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    pub row: Row,
    /// `before`, `after_effect`, `after_journal` or `after`.
    pub moment: &'static str,
    pub job: Job,
    /// The name of the failpoint, without the `@who` of its subject.
    pub point: String,
    /// The process that pauses there.
    pub process: &'static str,
    /// Why the operation is undone; `None` on the way forward.
    pub turn: Option<Turn>,
    /// Whether a transaction is open there, which takes a connection for as long as the pause lasts.
    pub in_transaction: bool,
    pub fault: Fault,
}

impl Case {
    /// Whether the failpoint is in another service than the orchestrator. That service is then paused for all operations.
    pub fn inside(&self) -> bool {
        self.process != ORCHESTRATOR
    }
}

const ORCHESTRATOR: &str = "orchestrator";

/// All cases: each fault at each failpoint.
pub fn all() -> Vec<Case> {
    Fault::all().into_iter().flat_map(|fault| points().into_iter().map(move |(case, _)| Case { fault, ..case })).collect()
}

/// A selection for `make test`: each failpoint with a kill of the service that owns the step, and those of `relocate` also with a kill of the
/// orchestrator. Growth begins only when the next pass of a task finds it, which takes too long here: [`growth`] has it.
pub fn short() -> Vec<Case> {
    let asked_for = |(case, _): &(Case, _)| case.job != Job::Scale;
    let owned = points().into_iter().filter(asked_for).map(|(case, owner)| Case { fault: Fault::Killed(owner), ..case });
    let relocate = points().into_iter().filter(|(case, _)| case.row.kind == "relocate");
    let with_orchestrator = relocate.filter(|(_, owner)| *owner != ORCHESTRATOR).map(|(case, _)| case);
    owned.chain(with_orchestrator.map(|case| Case { fault: Fault::Killed(ORCHESTRATOR), ..case })).collect()
}

/// Each failpoint of growth, with a kill of the service that owns the step.
pub fn growth() -> Vec<Case> {
    let of_growth = points().into_iter().filter(|(case, _)| case.job == Job::Scale);
    of_growth.map(|(case, owner)| Case { fault: Fault::Killed(owner), ..case }).collect()
}

/// The cases of moves that nothing else is waiting for: each of these services is killed at each failpoint of a move that succeeds and of one that
/// fails in the end, and at its own failpoints. The services one after the other, each with the failpoints in their order.
pub fn of_moves(services: &[&'static str]) -> Vec<Case> {
    let each = |service: &&'static str| {
        let service = *service;
        let chosen = move |(case, owner): &(Case, &'static str)| match case.inside() {
            true => *owner == service && case.job == Job::MakeRoom,
            false => case.row.kind == "relocate" && !matches!(case.turn, Some(Turn::Cancelled(_))),
        };
        points().into_iter().filter(chosen).map(move |(case, _)| Case { fault: Fault::Killed(service), ..case })
    };
    services.iter().flat_map(each).collect()
}

/// All failpoints, each with the service that owns the step.
pub fn points() -> Vec<(Case, &'static str)> {
    let of_workflows = drover_orchestrator::workflows::failpoints().into_iter().flat_map(of_step);
    // Those of the same step are next to each other, as in the rows of the matrix.
    let of_workflows = by_row(of_workflows.collect()).into_iter();
    let jobs = [Job::MakeRoom, Job::Update, Job::Terminate];
    let of_synchronizer = jobs.into_iter().flat_map(|job| {
        let passed =
            drover_resource_synchronizer::FAILPOINTS.into_iter().filter(move |point| job != Job::Terminate || !point.contains("apply"));
        passed.map(move |point| inside("resource-synchronizer", point, job))
    });
    let of_ledger = jobs.into_iter().flat_map(|job| drover_placement::FAILPOINTS.map(|point| inside("placement", point, job)));
    of_workflows.chain(of_synchronizer).chain(of_ledger).collect()
}

/// The cases of a failpoint: one on the way forward, or two in an undo.
fn of_step(point: Failpoint) -> Vec<(Case, &'static str)> {
    let turns = match point.undo {
        false => vec![("do", None)],
        true => {
            let at = |moment: &str| format!("{}/{}/do/{moment}", point.kind, point.pivot.expect("a workflow with undo has a pivot"));
            // The failure comes after the effect, whose transaction is then rolled back.
            vec![("cancelled", Some(Turn::Cancelled(at("before")))), ("failed", Some(Turn::Failed(at("after_effect"))))]
        }
    };
    let owner = point.service.unwrap_or(ORCHESTRATOR);
    let case = |(way, turn): (&str, Option<Turn>)| Case {
        row: Row { kind: point.kind.into(), step: point.step.into(), way: way.into() },
        moment: point.moment,
        job: Job::passes(point.kind, point.step),
        point: point.to_string(),
        process: ORCHESTRATOR,
        turn,
        in_transaction: point.in_transaction,
        fault: Fault::PostgresKilled,
    };
    turns.into_iter().map(|turn| (case(turn), owner)).collect()
}

/// The cases grouped by row, the rows in the order of their first cases.
fn by_row(cases: Vec<(Case, &'static str)>) -> Vec<(Case, &'static str)> {
    let mut rows: Vec<(Row, Vec<(Case, &'static str)>)> = Vec::new();
    for case in cases {
        match rows.iter_mut().find(|(row, _)| *row == case.0.row) {
            Some((_, of_row)) => of_row.push(case),
            None => rows.push((case.0.row.clone(), vec![case])),
        }
    }
    rows.into_iter().flat_map(|(_, cases)| cases).collect()
}

/// The case of a failpoint of a service that is not the orchestrator.
fn inside(service: &'static str, point: &'static str, job: Job) -> (Case, &'static str) {
    let (step, moment) = point.rsplit_once('/').expect("the name of a failpoint ends with its moment");
    let way = match job {
        Job::MakeRoom => "instantiate",
        Job::Update | Job::Grow | Job::Surge | Job::Detour => "update",
        Job::Scale => "grow",
        Job::Terminate => "terminate",
    };
    let row = Row { kind: service.into(), step: step.into(), way: way.into() };
    let case =
        Case { row, moment, job, point: point.into(), process: service, turn: None, in_transaction: false, fault: Fault::PostgresKilled };
    (case, service)
}
