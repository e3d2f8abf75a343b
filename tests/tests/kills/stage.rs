//! The processes, members and slots of the kill tests, which are used for all cases of a run.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use drover::hub::Client;
use drover_api::ledger::ClusterCapacity;
use drover_api::scheduling::MemberState;
use drover_e2e::members::{self, Members};
use drover_e2e::processes::Processes;
use drover_e2e::{Backend, Member, Witness};
use drover_kubesim::{ReadyRecorder, Sim};
use drover_lab::dev::sim::Simulated;
use drover_testkit::eventually;
use futures::StreamExt;
use futures::future::join_all;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use super::case::Job;
use super::slot::{Size, Slot};

/// How many slots are set up at the same time. With more, requests would wait too long for the services' database connections.
const SET_UP_AT_ONCE: usize = 3;

/// How long Drover may take to notice that an app was scaled. It only guards against hanging.
const SCALED_WITHIN: Duration = Duration::from_secs(120);

/// Long time limits: an operation must be finished by the restarted service and not end by a time limit.
const ENVIRONMENT: [(&str, &str); 8] = [
    ("DROVER_LOG", "info"),
    ("DROVER_MEMBER_HEARTBEAT_MS", "5000"),
    ("DROVER_MEMBER_METRICS_MS", "60000"),
    ("DROVER_READY_SECONDS", "900"),
    ("DROVER_ROOM_SECONDS", "900"),
    ("DROVER_UNSCHEDULABLE_SECONDS", "900"),
    ("DROVER_UNREACHABLE_SECONDS", "900"),
    ("DROVER_GONE_SECONDS", "900"),
];

/// Processes, members and slots.
pub struct Stage {
    pub processes: Processes,
    pub client: Client,
    pub slots: Vec<Slot>,
    /// Connections to the database of the processes.
    pub database: PgPool,
    members: Kept,
    recorders: BTreeMap<String, ReadyRecorder>,
}

/// The members, which must live as long as the stage.
enum Kept {
    Simulated(Simulated),
    Real { _alone: Members },
}

impl Stage {
    /// A stage with so many slots on simulated members, each of which has one CPU.
    pub async fn simulated(slots: usize) -> Self {
        let names: Vec<String> = (0..slots).flat_map(|slot| ["a", "b", "d"].map(|member| format!("{member}-{slot}"))).collect();
        let names: Vec<&'static str> = names.into_iter().map(|name| &*name.leak()).collect();
        let simulated = Simulated::start(&names, 1, "1", "4Gi").await.expect("kubesim starts");
        let mut members = Vec::new();
        for (name, kubeconfig) in names.iter().zip(&simulated.kubeconfigs) {
            members.push(Member::connect(name, "sim", 1, kubeconfig.clone()).await);
        }
        Self::start(Kept::Simulated(simulated), &members, Size { cpu_m: 1000, replicas: 1 }).await
    }

    /// A stage with one slot on the three real control planes, with two nodes of 2 CPUs each.
    pub async fn real() -> Self {
        let kept = members::start(Backend::Real).await;
        let [a, d, b]: [Member; 3] = kept.each.clone().try_into().unwrap_or_else(|_| panic!("there are three"));
        Self::start(Kept::Real { _alone: kept }, &[a, b, d], Size { cpu_m: 2000, replicas: 2 }).await
    }

    async fn start(kept: Kept, members: &[Member], size: Size) -> Self {
        let processes = Processes::start(&ENVIRONMENT).await;
        let client = processes.client("gateway");
        join_all(members.iter().map(|member| member.register(&client))).await;
        let options = PgPoolOptions::new().max_connections(2);
        let database = options.connect_lazy(processes.database_url()).expect("a database URL");
        until_known(&client, members.len()).await;
        let each = members.chunks(3).enumerate().map(|(number, three)| {
            let three: [Member; 3] = three.to_vec().try_into().unwrap_or_else(|_| panic!("three members per slot"));
            Slot::start(number, three, size, &client)
        });
        let slots: Vec<Slot> = futures::stream::iter(each).buffered(SET_UP_AT_ONCE).collect().await;
        let mut stage = Self { processes, client, slots, database, members: kept, recorders: BTreeMap::new() };
        if let Some(sim) = stage.sim() {
            let apps = stage.slots.iter().flat_map(Slot::steady);
            let recorders = apps.map(|app| (app.clone(), sim.record_ready(None, &format!("app={app}")).expect("a selector")));
            stage.recorders = recorders.collect();
        }
        stage
    }

    /// The simulator, if the members are simulated.
    pub fn sim(&self) -> Option<&Sim> {
        match &self.members {
            Kept::Simulated(simulated) => Some(&simulated.sim),
            Kept::Real { .. } => None,
        }
    }

    /// Starts to record the lowest number of ready replicas of the slot's steady apps.
    pub async fn watch(&self, slot: usize) -> Watch {
        let slot = &self.slots[slot];
        let apps = slot.steady();
        if self.sim().is_none() {
            let names: Vec<&str> = apps.iter().map(String::as_str).collect();
            return Watch::Witness(Witness::on(&slot.members, &names).await);
        }
        let recorders: Vec<_> = apps.iter().map(|app| (app.clone(), self.recorders[app].clone())).collect();
        recorders.iter().for_each(|(_, recorder)| recorder.arm());
        Watch::Recorders(recorders)
    }

    /// Scales the app beside x, and waits for the operation that Drover begins by itself.
    pub async fn scaled(&self, slot: usize) -> Result<String, String> {
        let slot = &self.slots[slot];
        let (group, _) = slot.target(Job::Scale);
        slot.scale(slot.x, 1).await.map_err(|error| format!("it cannot be scaled: {error:#}"))?;
        let begun = "select id from drover_orchestrator.workflow where kind = 'grow' and subject = $1 and ended_at is null";
        let subject = format!("{}/{}/v1/{}", group.project, group.name, group.name);
        let give_up = Instant::now() + SCALED_WITHIN;
        loop {
            let id: Option<uuid::Uuid> =
                sqlx::query_scalar(begun).bind(&subject).fetch_optional(&self.database).await.map_err(|error| error.to_string())?;
            match id {
                Some(id) => return Ok(id.to_string()),
                None if Instant::now() > give_up => return Err("no room is made for the app that was scaled".to_owned()),
                None => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Ends all processes.
    pub async fn end(self) {
        self.database.close().await;
        self.processes.end().await;
    }
}

/// Records the lowest number of ready replicas.
pub enum Watch {
    /// In the simulator, at every change of a pod.
    Recorders(Vec<(String, ReadyRecorder)>),
    /// By watches on the members.
    Witness(Witness),
}

impl Watch {
    /// The apps that had a moment without a ready replica.
    pub fn interrupted(self) -> Vec<String> {
        match self {
            Self::Recorders(recorders) => recorders.into_iter().filter(|(_, recorder)| recorder.min() < 1).map(|(app, _)| app).collect(),
            Self::Witness(witness) => witness.lowest().into_iter().filter(|(_, low)| *low < 1).map(|(app, _)| app).collect(),
        }
    }
}

async fn until_known(client: &Client, members: usize) {
    eventually(Duration::from_secs(300), async || {
        let clusters: Vec<ClusterCapacity> = client.get("/v2/clusters?view=capacity").await.ok()?;
        let ready = clusters.iter().filter(|c| c.state == MemberState::Ready && !c.nodes.is_empty()).count();
        (ready == members).then_some(())
    })
    .await;
}
