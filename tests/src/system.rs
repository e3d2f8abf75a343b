//! A stack of its own with three members registered.

use std::time::Duration;

use drover::client::Client;
use drover::stack::{Options, Stack};
use drover_api::ledger::{Claims, ClusterCapacity};
use drover_api::operations::{Operation, OperationState};
use drover_api::scheduling::{Claim, MemberState};
use drover_service::Tasks;
use drover_store::private_postgres::Durability;
use drover_testkit::{TestDb, eventually, test_db};
use secrecy::{ExposeSecret, SecretString};

use crate::members::{self, Backend, Member, Members, Shape};

/// Scenarios in which something never happens shall not take minutes.
const FLAGS: [(&str, &str); 7] = [
    ("cluster-manager", "--heartbeat-ms=1000"),
    ("cluster-manager", "--metrics-ms=2000"),
    ("orchestrator", "--ready-seconds=15"),
    ("orchestrator", "--room-seconds=30"),
    ("orchestrator", "--unschedulable-seconds=3"),
    ("orchestrator", "--unreachable-seconds=5"),
    ("orchestrator", "--gone-seconds=10"),
];

/// A running Drover with three members, its own database, and nothing deployed.
pub struct World {
    /// REST through the gateway.
    pub client: Client,
    /// What the members are.
    pub backend: Backend,
    members: Members,
    stack: Stack,
    _database: Option<TestDb>,
    _data: tempfile::TempDir,
}

impl World {
    /// Starts one and waits until every member is Ready and its room known.
    pub async fn new(backend: Backend) -> Self {
        let database = test_db().await;
        let url = database.url.clone();
        let world = Self::start(backend, members::start(backend).await, url, Some(database), &[]).await;
        world.known(2).await;
        world
    }

    /// The same on simulated members of another shape, with more flags for services (later values win).
    pub async fn shaped(shape: &Shape, flags: &[(&'static str, &'static str)]) -> Self {
        let database = test_db().await;
        let url = database.url.clone();
        let members = members::simulated(shape).await;
        let world = Self::start(Backend::Simulated, members, url, Some(database), flags).await;
        world.known(shape.nodes).await;
        world
    }

    /// The default simulated members, on a Postgres that the caller looks after.
    pub async fn on_postgres(url: SecretString) -> Self {
        let world = Self::start(Backend::Simulated, members::start(Backend::Simulated).await, url, None, &[]).await;
        world.known(2).await;
        world
    }

    async fn start(
        backend: Backend,
        members: Members,
        url: SecretString,
        database: Option<TestDb>,
        flags: &[(&'static str, &'static str)],
    ) -> Self {
        let data = tempfile::tempdir().expect("a temporary folder");
        let name = |flag: &'static str| flag.split('=').next();
        let replaced =
            |(service, flag): &&(&'static str, &'static str)| !flags.iter().any(|(s, f)| s == service && f.split('=').next() == name(flag));
        let flags = FLAGS.iter().filter(replaced).chain(flags);
        let options = Options {
            data: data.path().to_owned(),
            listen: ([127, 0, 0, 1], 0).into(),
            database_url: Some(url),
            api_token: None,
            insecure: false,
            durability: Durability::ThrowAway,
            own_ports: false,
            flags: flags.map(|(service, flag)| (*service, (*flag).to_owned())).collect(),
        };
        let stack = Stack::start(options).await.expect("the stack starts");
        let client = Client::new(stack.url.clone(), None).expect("a client");
        let world = Self { client, backend, members, stack, _database: database, _data: data };
        futures::future::join_all(world.members.each.iter().map(|member| member.register(&world.client))).await;
        world
    }

    /// Waits until each member is Ready and shows so many nodes.
    async fn known(&self, nodes: usize) {
        eventually(Duration::from_secs(60), async || {
            let clusters = self.clusters().await;
            let ready = clusters.iter().filter(|c| c.state == MemberState::Ready && c.nodes.len() == nodes).count();
            (ready == self.members.each.len()).then_some(())
        })
        .await;
    }

    /// What placement has committed, as peers ask for it.
    pub async fn claims(&self) -> anyhow::Result<Vec<Claim>> {
        let common = &self.stack.common;
        let placement = Client::new(common.peers.placement.clone(), Some(common.peer_token.expose_secret().to_owned()))?;
        Ok(placement.get::<Claims>("/internal/claims").await?.items)
    }

    /// All members.
    pub fn members(&self) -> &[Member] {
        &self.members.each
    }

    /// Controls of simulated members.
    pub fn sim(&self) -> Option<&drover_kubesim::Sim> {
        self.members.simulated.as_ref().map(|simulated| &simulated.sim)
    }

    /// The member called `name`.
    pub fn member(&self, name: &str) -> &Member {
        self.members.each.iter().find(|m| m.name == name).unwrap_or_else(|| panic!("there is no member {name}"))
    }

    /// What placement knows of all members, by preference.
    pub async fn clusters(&self) -> Vec<ClusterCapacity> {
        self.client.get("/v2/clusters?view=capacity").await.expect("placement answers")
    }

    /// The cluster that `app` is on by the ledger; none or several are named too: `""`, `"a,b"`.
    pub async fn home(&self, app: &str) -> String {
        let clusters = self.clusters().await;
        let homes: Vec<String> = clusters.into_iter().filter(|c| c.apps.iter().any(|a| a.app == app)).map(|c| c.cluster).collect();
        homes.join(",")
    }

    /// Waits until `app` serves on exactly `wanted`, not asking the member `skipped` (it cannot answer).
    pub async fn serves_except(&self, skipped: &str, app: &str, wanted: &str) {
        eventually(Duration::from_secs(60), async || {
            let mut homes = Vec::new();
            for member in self.members().iter().filter(|m| m.name != skipped) {
                if member.ready(app).await > 0 {
                    homes.push(member.name);
                }
            }
            (homes.join(",") == wanted).then_some(())
        })
        .await;
    }

    /// Makes a member's API server stop answering, or answer again.
    pub async fn cut_off(&self, member: &str, off: bool) {
        match self.sim() {
            Some(sim) if off => sim.fault(member, drover_kubesim::Fault::Partition { hang: true }),
            Some(sim) => sim.clear_faults(member),
            None => members::stop(member, off),
        }
    }

    /// The members whose API server really has a Deployment `app` with a ready pod.
    pub async fn serves(&self, app: &str) -> String {
        let mut homes = Vec::new();
        for member in &self.members.each {
            if member.ready(app).await > 0 {
                homes.push(member.name);
            }
        }
        homes.join(",")
    }

    /// Waits until `app` serves on exactly these members (comma separated).
    pub async fn serves_on(&self, app: &str, wanted: &str) {
        eventually(Duration::from_secs(60), async || (self.serves(app).await == wanted).then_some(())).await;
    }

    /// Waits until members report CPU use of every app on them.
    pub async fn use_is_known(&self) {
        eventually(Duration::from_secs(120), async || {
            let clusters = self.clusters().await;
            clusters.iter().flat_map(|c| &c.apps).all(|a| a.used.is_some()).then_some(())
        })
        .await;
    }

    /// The supervised tasks of each service.
    pub fn tasks(&self) -> impl Iterator<Item = (&'static str, &Tasks)> {
        self.stack.tasks()
    }

    /// Waits until a service ends by itself, and returns why.
    pub async fn ended(&self) -> anyhow::Error {
        self.stack.ended().await
    }

    /// Ends it.
    pub async fn end(self) {
        self.stack.stop().await;
    }
}

/// Panics with all it knows unless the operation succeeded.
#[track_caller]
pub fn succeeded(operation: &Operation) {
    assert_eq!(operation.state, OperationState::Succeeded, "{operation:#?}");
}

/// Panics with all it knows unless the operation failed with this code.
#[track_caller]
pub fn failed(operation: &Operation, code: &str) {
    assert_eq!(operation.state, OperationState::Failed, "{operation:#?}");
    assert_eq!(operation.code.as_deref(), Some(code), "{operation:#?}");
}

/// `app>cluster` of each move of an operation and its children that was made, sorted.
pub async fn moves(client: &Client, operation: &Operation) -> Vec<String> {
    let mut all = vec![operation.clone()];
    let mut at = 0;
    while at < all.len() {
        for id in all[at].children.clone() {
            all.push(client.get(&format!("/v2/operations/{id}")).await.expect("a child operation"));
        }
        at += 1;
    }
    let done = all.iter().flat_map(|o| &o.moves).filter(|m| m.stage == "done");
    let mut moves: Vec<String> = done.map(|m| format!("{}>{}", m.app, m.to)).collect();
    moves.sort();
    moves.dedup();
    moves
}
