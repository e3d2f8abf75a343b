//! What is killed where: cases, made from the tables of the code and from nothing else. Pure.
//!
//! A step that is new is a case from then on; a point that nobody passes is a case that fails.

use std::fmt;

use drover_e2e::processes::SERVICES;
use drover_workflow::Failpoint;

/// What happens to somebody while everything stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// A service gets SIGKILL and is started again.
    Killed(&'static str),
    /// Every process of Postgres gets SIGKILL; it is started again when somebody has noticed.
    PostgresKilled,
    /// All connections to Postgres break, and new ones are refused until somebody has noticed.
    ConnectionsCut,
}

impl Fault {
    /// All of them, in the order of the matrix.
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

/// The operation that passes a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Job {
    /// Instantiate a newcomer for which somebody has to move.
    MakeRoom,
    /// Update a group: one app changes, one is new, one is dropped.
    Update,
    /// Terminate a group.
    Terminate,
}

impl Job {
    fn passes(kind: &str) -> Self {
        match kind {
            "instantiate" | "relocate" => Self::MakeRoom,
            "update" => Self::Update,
            "terminate" => Self::Terminate,
            other => panic!("no job of the kill tests passes through workflow {other}: teach them one"),
        }
    }
}

/// Why an operation comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is cancelled while it stands at this point.
    Cancelled(String),
    /// What it did there came to nothing, for good.
    Failed(String),
}

/// A row of the matrix: a step on its way forward or back, or a place inside of a service.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Row {
    /// Workflow, or service.
    pub kind: String,
    /// Step, or place.
    pub step: String,
    /// `do`; `cancelled` or `failed` on the way back; or the job that passes.
    pub way: String,
}

/// One kill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Where.
    pub row: Row,
    /// `before`, `after_effect`, `after_journal`, `after`.
    pub moment: &'static str,
    /// By which operation.
    pub job: Job,
    /// Name of the failpoint, without whom it is for.
    pub point: String,
    /// The process that stops there.
    pub process: &'static str,
    /// What makes the operation come back this way.
    pub turn: Option<Turn>,
    /// A transaction is open there: a connection is taken for as long as it stops.
    pub in_transaction: bool,
    /// Who is hit.
    pub fault: Fault,
}

impl Case {
    /// Stops inside of a service, which then stands still for everybody.
    pub fn inside(&self) -> bool {
        self.process != ORCHESTRATOR
    }
}

const ORCHESTRATOR: &str = "orchestrator";

/// Every case there is.
pub fn all() -> Vec<Case> {
    Fault::all().into_iter().flat_map(|fault| points().into_iter().map(move |(case, _)| Case { fault, ..case })).collect()
}

/// Each point of every workflow with the service that owns it, and all of relocate's with orchestrator.
pub fn short() -> Vec<Case> {
    let owned = points().into_iter().map(|(case, owner)| Case { fault: Fault::Killed(owner), ..case });
    let relocate = points().into_iter().filter(|(case, _)| case.row.kind == "relocate");
    let with_orchestrator = relocate.filter(|(_, owner)| *owner != ORCHESTRATOR).map(|(case, _)| case);
    owned.chain(with_orchestrator.map(|case| Case { fault: Fault::Killed(ORCHESTRATOR), ..case })).collect()
}

/// All points, with the service that owns each.
pub fn points() -> Vec<(Case, &'static str)> {
    let of_workflows = drover_orchestrator::workflows::failpoints().into_iter().flat_map(of_step);
    // All of a step stand together, as rows.
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

/// A point on the way forward, or on both ways back.
fn of_step(point: Failpoint) -> Vec<(Case, &'static str)> {
    let turns = match point.undo {
        false => vec![("do", None)],
        true => {
            let at = |moment: &str| format!("{}/{}/do/{moment}", point.kind, point.pivot.expect("undo ends at a pivot"));
            // The effect was there, in a transaction that did not come to its end.
            vec![("cancelled", Some(Turn::Cancelled(at("before")))), ("failed", Some(Turn::Failed(at("after_effect"))))]
        }
    };
    let owner = point.service.unwrap_or(ORCHESTRATOR);
    let case = |(way, turn): (&str, Option<Turn>)| Case {
        row: Row { kind: point.kind.into(), step: point.step.into(), way: way.into() },
        moment: point.moment,
        job: Job::passes(point.kind),
        point: point.to_string(),
        process: ORCHESTRATOR,
        turn,
        in_transaction: point.in_transaction,
        fault: Fault::PostgresKilled,
    };
    turns.into_iter().map(|turn| (case(turn), owner)).collect()
}

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

fn inside(service: &'static str, point: &'static str, job: Job) -> (Case, &'static str) {
    let (step, moment) = point.rsplit_once('/').expect("a moment");
    let way = match job {
        Job::MakeRoom => "instantiate",
        Job::Update => "update",
        Job::Terminate => "terminate",
    };
    let row = Row { kind: service.into(), step: step.into(), way: way.into() };
    let case =
        Case { row, moment, job, point: point.into(), process: service, turn: None, in_transaction: false, fault: Fault::PostgresKilled };
    (case, service)
}
