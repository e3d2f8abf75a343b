//! Slots: little worlds beside each other on one Drover, so that many operations stand still at the same time, each at a point
//! of its own. What should be where is known here; what is, others look up.
//!
//! ```text
//! a, b   room for one copy each: `x` runs on one of them and moves to the other when `y` comes, which may run only where x is
//! d      `keep` and one of `odd`, `even`: each update changes the one and exchanges the other
//! ```

use std::collections::BTreeSet;

use drover::client::Client;
use drover_api::operations::OperationState;
use drover_e2e::apps::App;
use drover_e2e::emco::{Group, ended};
use drover_e2e::{Member, succeeded};

use super::case::Job;

/// What runs where: (app, member).
pub type Running = BTreeSet<(String, String)>;

/// How large the copies are: one fills `a`, and `b`.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Milli-cores of each pod.
    pub cpu_m: u32,
    /// Pods of each copy.
    pub replicas: u32,
}

/// One of them.
pub struct Slot {
    /// Its project.
    pub project: String,
    /// `a`, `b`, `d`.
    pub members: [Member; 3],
    size: Size,
    number: usize,
    /// On which of `a` and `b`.
    pub x: usize,
    /// Likewise, where it runs.
    pub y: Option<usize>,
    documents: u32,
    revision: u32,
}

impl Slot {
    /// Makes all groups; `x` and `keep` run in the end.
    pub async fn start(number: usize, members: [Member; 3], size: Size, client: &Client) -> Self {
        let mut slot = Self { project: format!("slot-{number}"), members, size, number, x: 0, y: None, documents: 1, revision: 0 };
        succeeded(&slot.group_x().deploy(client).await.unwrap());
        slot.x = usize::from(slot.members[1].deployed().await.contains(&slot.named("x")));
        for side in [0, 1] {
            slot.group_y(side).approve(client).await.unwrap();
        }
        succeeded(&slot.group_u().deploy(client).await.unwrap());
        slot.revision = 1;
        slot
    }

    fn path(&self, member: usize) -> String {
        format!("{}/{}", self.members[member].provider, self.members[member].name)
    }

    fn group(&self, name: &str, apps: Vec<App>, on: &[usize]) -> Group {
        let paths: Vec<String> = (0..3).map(|member| self.path(member)).collect();
        let all: Vec<&str> = paths.iter().map(String::as_str).collect();
        let on: Vec<&str> = on.iter().map(|member| all[*member]).collect();
        Group::of(name, apps).in_project(&self.project).among(&all).on(&on)
    }

    fn app(&self, name: &str) -> App {
        App::new(&self.named(name), self.size.cpu_m).replicas(self.size.replicas)
    }

    /// A name that no other slot has.
    pub fn named(&self, app: &str) -> String {
        format!("{app}-{}", self.number)
    }

    fn group_x(&self) -> Group {
        self.group("x", vec![self.app("x")], &[0, 1]).movable(5)
    }

    fn group_y(&self, side: usize) -> Group {
        let name = ["ya", "yb"][side];
        self.group(name, vec![self.app(name)], &[side])
    }

    fn group_u(&self) -> Group {
        let keep = App::new(&self.named("keep"), 200).annotated("drover.test/revision", &self.documents.to_string());
        self.group("u", vec![keep, App::new(&self.named(extra(self.documents)), 200)], &[2])
    }

    /// The names of its apps that always run: nobody may ever see one of them without a ready replica.
    pub fn steady(&self) -> [String; 2] {
        [self.named("x"), self.named("keep")]
    }

    /// The group that a job works on now, and the verb.
    pub fn target(&self, job: Job) -> (Group, &'static str) {
        match job {
            Job::MakeRoom => (self.group_y(self.x), "instantiate"),
            Job::Update => (self.group_u(), "update"),
            Job::Terminate => (self.group_y(self.y.expect("it was prepared")), "terminate"),
        }
    }

    /// Makes a job possible.
    pub async fn prepare(&mut self, job: Job, client: &Client) -> anyhow::Result<()> {
        match (job, self.y) {
            (Job::MakeRoom, Some(side)) => {
                done(client, &self.group_y(side), "terminate").await?;
                self.y = None;
            }
            (Job::Terminate, None) => {
                done(client, &self.group_y(self.x), "instantiate").await?;
                (self.x, self.y) = (1 - self.x, Some(self.x));
            }
            (Job::Update, _) if self.documents == self.revision => {
                let dropped = self.named(extra(self.documents));
                self.documents += 1;
                self.group_u().change(client, &[&dropped]).await?;
            }
            _ => {}
        }
        Ok(())
    }

    /// What may run when a job has ended: by doing it, or by undoing it. Undone, the others may have moved all the same (they
    /// stay where they are once they have cut over).
    pub fn outcomes(&self, job: Job, undone: bool) -> Vec<State> {
        let now = self.now();
        match (job, undone) {
            (Job::MakeRoom, false) => vec![State { x: 1 - self.x, y: Some(self.x), ..now }],
            (Job::MakeRoom, true) => vec![now, State { x: 1 - self.x, ..now }],
            (Job::Update, false) => vec![State { revision: self.documents, ..now }],
            (Job::Terminate, false) => vec![State { y: None, ..now }],
            (Job::Update | Job::Terminate, true) => vec![now],
        }
    }

    /// What it is at.
    pub fn now(&self) -> State {
        State { x: self.x, y: self.y, revision: self.revision }
    }

    /// Takes one of the outcomes for true.
    pub fn adopt(&mut self, job: Job, state: State) {
        match job {
            Job::Update => self.revision = state.revision,
            Job::MakeRoom | Job::Terminate => (self.x, self.y) = (state.x, state.y),
        }
    }

    /// What runs in a state, of what a job can change and what it must leave alone.
    pub fn running(&self, job: Job, state: State) -> Running {
        let on = |app: &str, member: usize| (self.named(app), self.members[member].name.to_owned());
        match job {
            Job::Update => [on("keep", 2), on(extra(state.revision), 2)].into(),
            Job::MakeRoom | Job::Terminate => {
                let x = on("x", state.x);
                [x].into_iter().chain(state.y.map(|side| on(["ya", "yb"][side], side))).collect()
            }
        }
    }

    /// The members that a job works on.
    pub fn scene(&self, job: Job) -> &[Member] {
        match job {
            Job::Update => &self.members[2..],
            Job::MakeRoom | Job::Terminate => &self.members[..2],
        }
    }

    /// Pods of a copy.
    pub fn replicas(&self, job: Job) -> usize {
        if job == Job::Update { 1 } else { self.size.replicas as usize }
    }
}

/// What a slot's groups are at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    x: usize,
    y: Option<usize>,
    revision: u32,
}

async fn done(client: &Client, group: &Group, verb: &str) -> anyhow::Result<()> {
    let id = group.verb(client, verb).await?;
    let operation = ended(client, &id).await?;
    anyhow::ensure!(operation.state == OperationState::Succeeded, "{verb} without any fault: {operation:?}");
    Ok(())
}

fn extra(revision: u32) -> &'static str {
    if revision.is_multiple_of(2) { "even" } else { "odd" }
}
