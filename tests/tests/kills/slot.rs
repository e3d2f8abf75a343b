//! Slots: each has members and groups of its own on the same Drover, so that many operations can be paused at the same time. A slot knows what
//! should run where; [`super::check`] checks what does.
//!
//! ```text
//! a, b   each has room for one copy: `x` runs on one of them and moves to the other when `y` comes, which may run only where x is;
//!        `y` comes as a group of its own, or in an update that replaces `little`, an app that requests nothing;
//!        `sa` runs on a and `sb` on b, beside x, but not with one pod more: x moves also when the one beside it is updated, or scaled by
//!        somebody else
//! d      `keep`, and either `odd` or `even`: each update changes the first and replaces the second; where a Service of somebody else has the name of
//!        the second one, that goes to a or b
//! ```

use std::collections::BTreeSet;
use std::time::Duration;

use drover::hub::Client;
use drover_api::ledger::ClusterCapacity;
use drover_api::operations::OperationState;
use drover_e2e::apps::App;
use drover_e2e::emco::{Group, ended};
use drover_e2e::{Member, succeeded};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::case::Job;

/// What runs where: (app, member).
pub type Running = BTreeSet<(String, String)>;

/// The annotation of pods that says of which revision they are.
pub const REVISION: &str = "drover.test/revision";

/// The memory of each pod of `sa` and `sb`, in MiB. A node has 4096: enough for two of them, or for one and x.
const BESIDE_MI: u32 = 1950;

/// The apps that run beside x, on `a` and on `b`.
const BESIDE: [&str; 2] = ["sa", "sb"];

/// How long claims may take to follow what runs. It only guards against hanging.
const CLAIMED_WITHIN: Duration = Duration::from_secs(120);

/// The size of the copies of `x` and `y`: one of them fills a member.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// The CPU request of each pod, in millicores.
    pub cpu_m: u32,
    /// The number of pods of a copy.
    pub replicas: u32,
}

/// A slot.
pub struct Slot {
    pub project: String,
    /// `a`, `b` and `d`.
    pub members: [Member; 3],
    size: Size,
    number: usize,
    /// The member on which `x` runs: 0 for `a`, 1 for `b`.
    pub x: usize,
    /// The member on which `y` runs, if it runs.
    pub y: Option<usize>,
    /// The member on which `little` runs, if it runs. The documents of its group have `y` in its place already.
    little: Option<usize>,
    documents: u32,
    revision: u32,
    /// The member on which `odd` or `even` runs, if it is not `d`.
    astray: Option<usize>,
    /// Whether the documents have a Service of `odd` or `even`, and allow it on all members.
    detour: bool,
    /// The revisions of the documents of `sa` and `sb`.
    beside_documents: [u32; 2],
    /// The revisions of `sa` and `sb` that run.
    pub beside: [u32; 2],
    /// The member (0 or 1) on which `sa` or `sb` has one pod more than its manifest says.
    scaled: Option<usize>,
}

impl Slot {
    /// Creates all groups and deploys `x`, `keep`, `sa` and `sb`.
    pub async fn start(number: usize, members: [Member; 3], size: Size, client: &Client) -> Self {
        let mut slot = Self {
            project: format!("slot-{number}"),
            members,
            size,
            number,
            x: 0,
            y: None,
            little: None,
            documents: 1,
            revision: 0,
            astray: None,
            detour: false,
            beside_documents: [1, 1],
            beside: [1, 1],
            scaled: None,
        };
        succeeded(&slot.group_x().deploy(client).await.unwrap());
        slot.x = usize::from(slot.members[1].deployed().await.contains(&slot.named("x")));
        for side in [0, 1] {
            slot.group_y(side).approve(client).await.unwrap();
            succeeded(&slot.group_beside(side).deploy(client).await.unwrap());
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

    /// The name of an app in this slot.
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

    /// The group of `y` before the update that brings `y`.
    fn group_little(&self, side: usize) -> Group {
        let little = App::new(&self.named("little"), 0).replicas(self.size.replicas);
        self.group(["ya", "yb"][side], vec![little], &[side])
    }

    /// The group of the app that runs on a member, beside x if that is there.
    fn group_beside(&self, side: usize) -> Group {
        let name = BESIDE[side];
        let app = App::new(&self.named(name), 0).memory(BESIDE_MI).replicas(self.size.replicas);
        self.group(name, vec![app.annotated(REVISION, &self.beside_documents[side].to_string())], &[side])
    }

    fn group_u(&self) -> Group {
        let keep = App::new(&self.named("keep"), 200).annotated(REVISION, &self.documents.to_string());
        let name = self.named(extra(self.documents));
        let extra = match self.detour {
            false => App::new(&name, 200),
            // It fits everywhere, and d has the most room.
            true => {
                let mut small = App::new(&name, 0).memory(16).serving(8080);
                small.any_of = Some((0..3).map(|member| self.path(member)).collect());
                small
            }
        };
        self.group("u", vec![keep, extra], &[2])
    }

    /// Writes the next revision of the documents of `u`, unless there is one that was not brought about.
    async fn next_documents(&mut self, detour: bool, client: &Client) -> anyhow::Result<()> {
        if self.documents == self.revision || self.detour != detour {
            let dropped = Some(self.named(extra(self.revision))).filter(|_| self.documents == self.revision);
            (self.documents, self.detour) = (self.revision + 1, detour);
            self.group_u().change(client, &dropped.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        }
        Ok(())
    }

    /// The names of the apps that must always have a ready replica.
    pub fn steady(&self) -> [String; 4] {
        ["x", "keep", BESIDE[0], BESIDE[1]].map(|app| self.named(app))
    }

    /// The group that a job changes now, and the lifecycle verb.
    pub fn target(&self, job: Job) -> (Group, &'static str) {
        match job {
            Job::MakeRoom => (self.group_y(self.x), "instantiate"),
            Job::Update | Job::Detour => (self.group_u(), "update"),
            Job::Grow => (self.group_y(self.x), "update"),
            Job::Surge => (self.group_beside(self.x), "update"),
            Job::Scale => (self.group_beside(self.x), ""),
            Job::Terminate => (self.group_y(self.y.expect("it was prepared")), "terminate"),
        }
    }

    /// Brings the slot into a state in which the job is possible.
    pub async fn prepare(&mut self, job: Job, client: &Client) -> anyhow::Result<()> {
        if self.astray.is_some() {
            self.next_documents(false, client).await?;
            done(client, &self.group_u(), "update").await?;
            (self.revision, self.astray) = (self.documents, None);
        }
        if let Some(side) = self.little.take_if(|side| !matches!(job, Job::Update | Job::Detour) && (job != Job::Grow || *side != self.x)) {
            done(client, &self.group_y(side), "terminate").await?;
            self.group_y(side).approve(client).await?;
        }
        let scaled = self.scaled.take_if(|_| job != Job::Update);
        if let Some(side) = scaled {
            self.scale(side, 0).await?;
        }
        // Until its claim has followed, x finds no room beside it.
        if scaled.is_some() || job == Job::Scale {
            self.until_claimed(client).await;
        }
        match (job, self.y) {
            (Job::MakeRoom | Job::Grow | Job::Surge | Job::Scale, Some(side)) => {
                done(client, &self.group_y(side), "terminate").await?;
                self.y = None;
            }
            (Job::Terminate, None) => {
                done(client, &self.group_y(self.x), "instantiate").await?;
                (self.x, self.y) = (1 - self.x, Some(self.x));
            }
            _ => {}
        }
        match job {
            Job::Grow if self.little.is_none() => {
                let (before, after) = (self.group_little(self.x), self.group_y(self.x));
                before.change(client, &[&after.apps[0].name]).await?;
                before.approve(client).await?;
                done(client, &before, "instantiate").await?;
                after.change(client, &[&before.apps[0].name]).await?;
                self.little = Some(self.x);
            }
            Job::Update => self.next_documents(false, client).await?,
            Job::Detour => {
                self.next_documents(true, client).await?;
                let theirs = json!({"metadata": {"name": self.named(extra(self.documents))}, "spec": {"ports": [{"port": 80}], "selector": {"app": "theirs"}}});
                let services: Api<Service> = Api::namespaced(self.members[2].client.clone(), "default");
                match services.create(&PostParams::default(), &serde_json::from_value(theirs)?).await {
                    Err(kube::Error::Api(status)) if status.code == 409 => {}
                    created => drop(created?),
                }
            }
            Job::Surge if self.beside_documents[self.x] == self.beside[self.x] => {
                self.beside_documents[self.x] += 1;
                self.group_beside(self.x).change(client, &[]).await?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Scales `sa` (member 0) or `sb` (member 1) to so many pods more than its manifest says, as a HorizontalPodAutoscaler does.
    pub async fn scale(&self, side: usize, more: u32) -> anyhow::Result<()> {
        let params = PatchParams { field_manager: Some("kube-controller-manager".into()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({"spec": {"replicas": self.size.replicas + more}}));
        self.members[side].deployments().patch_scale(&self.named(BESIDE[side]), &params, &patch).await?;
        Ok(())
    }

    /// Waits until everything that runs is claimed, and nothing more is.
    async fn until_claimed(&self, client: &Client) {
        let pods = i64::from(self.size.replicas);
        drover_testkit::eventually(CLAIMED_WITHIN, async || {
            let apps: Value = client.get("/v2/apps").await.ok()?;
            let all = apps["items"].as_array()?;
            let lacks =
                |app: &&Value| app["bindings"].as_array().is_some_and(|copies| copies.iter().any(|copy| copy.get("unclaimed").is_some()));
            let waits = all.iter().filter(|app| BESIDE.iter().any(|name| app["app"] == self.named(name))).any(|app| lacks(&app));
            let clusters: Vec<ClusterCapacity> = client.get("/v2/clusters?view=capacity").await.ok()?;
            let beside = [0, 1].map(|side| (self.named(BESIDE[side]), self.members[side].name));
            let claimed = |(app, member): &(String, &str)| {
                let of_member = clusters.iter().filter(|cluster| cluster.cluster == *member).flat_map(|cluster| &cluster.apps);
                of_member.filter(|room| room.app == *app).map(|room| room.requested.pods).sum::<i64>()
            };
            (!waits && beside.iter().all(|app| claimed(app) == pods)).then_some(())
        })
        .await;
    }

    /// The states that are allowed when a job has ended, done or undone. When the job is undone after the cut-over of the move, `x` stays where
    /// it was moved to.
    pub fn outcomes(&self, job: Job, undone: bool) -> Vec<SlotState> {
        let now = self.now();
        match (job, undone) {
            (Job::MakeRoom | Job::Grow, false) => vec![SlotState { x: 1 - self.x, y: Some(self.x), little: None, ..now }],
            (Job::Surge, false) => {
                let mut beside = self.beside;
                beside[self.x] = self.beside_documents[self.x];
                vec![SlotState { x: 1 - self.x, beside, ..now }]
            }
            (Job::Scale, false) => vec![SlotState { x: 1 - self.x, scaled: Some(self.x), ..now }],
            (Job::MakeRoom | Job::Grow | Job::Surge | Job::Scale, true) => vec![now, SlotState { x: 1 - self.x, ..now }],
            (Job::Update, false) => vec![SlotState { revision: self.documents, ..now }],
            (Job::Detour, false) => [0, 1].map(|member| SlotState { revision: self.documents, astray: Some(member), ..now }).into(),
            (Job::Terminate, false) => vec![SlotState { y: None, ..now }],
            (Job::Update | Job::Detour | Job::Terminate, true) => vec![now],
        }
    }

    /// The current state.
    pub fn now(&self) -> SlotState {
        SlotState {
            x: self.x,
            y: self.y,
            little: self.little,
            revision: self.revision,
            astray: self.astray,
            beside: self.beside,
            scaled: self.scaled,
        }
    }

    /// Makes one of the outcomes the current state.
    pub fn adopt(&mut self, job: Job, state: SlotState) {
        match job {
            Job::Update | Job::Detour => (self.revision, self.astray) = (state.revision, state.astray),
            Job::MakeRoom | Job::Grow | Job::Surge | Job::Scale | Job::Terminate => {
                (self.x, self.y, self.little, self.beside, self.scaled) = (state.x, state.y, state.little, state.beside, state.scaled);
            }
        }
    }

    /// The apps that run in a state, on the members that the job uses.
    pub fn running(&self, job: Job, state: SlotState) -> Running {
        let on = |app: &str, member: usize| (self.named(app), self.members[member].name.to_owned());
        let of_update = [on("keep", 2), on(extra(state.revision), state.astray.unwrap_or(2))];
        match job {
            Job::Update => of_update.into(),
            Job::Detour => self.running(Job::MakeRoom, state).into_iter().chain(of_update).collect(),
            Job::MakeRoom | Job::Grow | Job::Surge | Job::Scale | Job::Terminate => {
                let y = state.y.map(|side| on(["ya", "yb"][side], side));
                [on("x", state.x), on(BESIDE[0], 0), on(BESIDE[1], 1)]
                    .into_iter()
                    .chain(y)
                    .chain(state.little.map(|side| on("little", side)))
                    .collect()
            }
        }
    }

    /// The members that a job uses.
    pub fn scene(&self, job: Job) -> &[Member] {
        match job {
            Job::Update => &self.members[2..],
            Job::Detour => &self.members,
            Job::MakeRoom | Job::Grow | Job::Surge | Job::Scale | Job::Terminate => &self.members[..2],
        }
    }

    /// The revisions that the pods of apps have in a state, by app.
    pub fn revisions(&self, state: SlotState) -> [(String, u32); 2] {
        [0, 1].map(|side| (self.named(BESIDE[side]), state.beside[side]))
    }

    /// The number of pods of an app in a state.
    pub fn replicas(&self, app: &str, state: SlotState) -> usize {
        let of_update = ["keep", "odd", "even"].map(|app| self.named(app));
        let more = usize::from(state.scaled.is_some_and(|side| self.named(BESIDE[side]) == app));
        if of_update.iter().any(|name| name == app) { 1 } else { self.size.replicas as usize + more }
    }
}

/// Where the apps of a slot run, and in which revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotState {
    x: usize,
    y: Option<usize>,
    little: Option<usize>,
    revision: u32,
    astray: Option<usize>,
    beside: [u32; 2],
    scaled: Option<usize>,
}

/// Runs an operation that must succeed.
async fn done(client: &Client, group: &Group, verb: &str) -> anyhow::Result<()> {
    let id = group.verb(client, verb).await?;
    let operation = ended(client, &id).await?;
    anyhow::ensure!(operation.state == OperationState::Succeeded, "{verb} failed without any fault: {operation:?}");
    Ok(())
}

/// The app that runs beside `keep` in a revision: each update replaces it.
fn extra(revision: u32) -> &'static str {
    if revision.is_multiple_of(2) { "even" } else { "odd" }
}
