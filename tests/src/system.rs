//! The system under test: a Drover of its own with registered members.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use drover::hub::Client;
use drover::stack::{Options, Stack};
use drover_api::ledger::ClusterCapacity;
use drover_api::operations::{Operation, OperationState};
use drover_api::scheduling::{Claim, MemberState};
use drover_service::{Tasks, telemetry};
use drover_store::private_postgres::Durability;
use drover_testkit::{ChaosProxy, TestDb, eventually};
use secrecy::{ExposeSecret, SecretString};

use crate::database;
use crate::emco::patiently;
use crate::linked::{self, LINKED, Linked};
use crate::members::{self, Backend, Member, Members, Shape};

/// Time limits that no scenario reaches, however slow the machine is: an operation ends because of what happens. A scenario in which
/// something never happens shortens the limit that it waits for.
const FLAGS: [(&str, &str); 9] = [
    ("cluster-manager", "--link-listen=127.0.0.1:0"),
    ("cluster-manager", "--heartbeat-ms=1000"),
    ("cluster-manager", "--metrics-ms=2000"),
    ("migration", "--plan-seconds=5"),
    ("orchestrator", "--ready-seconds=3600"),
    ("orchestrator", "--room-seconds=3600"),
    ("orchestrator", "--unschedulable-seconds=3600"),
    ("orchestrator", "--unreachable-seconds=3600"),
    ("orchestrator", "--gone-seconds=3600"),
];

/// All limits short: for scenarios with a cluster that does not answer, where several of them may be the one that ends the waiting.
pub const SHORT: [(&str, &str); 5] = [
    ("orchestrator", "--ready-seconds=40"),
    ("orchestrator", "--room-seconds=30"),
    ("orchestrator", "--unschedulable-seconds=10"),
    ("orchestrator", "--unreachable-seconds=10"),
    ("orchestrator", "--gone-seconds=10"),
];
/// The limit of a copy that never becomes ready.
pub const SOON_READY: (&str, &str) = ("orchestrator", "--ready-seconds=30");

/// The API token of [`System::guarded`].
pub const API_TOKEN: &str = "the api token of an end-to-end test";

/// Who may enter a system, and where.
struct Door {
    listen: SocketAddr,
    /// Clients need a token.
    guarded: bool,
    /// Clusters of this machine are refused.
    remote_only: bool,
}

impl Default for Door {
    fn default() -> Self {
        Self { listen: ([127, 0, 0, 1], 0).into(), guarded: false, remote_only: false }
    }
}

/// A running Drover with a database of its own and registered members, on which nothing is deployed.
pub struct System {
    /// A REST client of the gateway.
    pub client: Client,
    pub backend: Backend,
    members: Members,
    stack: Stack,
    /// The agent of the member [`LINKED`], if it is registered.
    agent: OnceLock<Linked>,
    _database: Option<TestDb>,
    _data: tempfile::TempDir,
}

impl System {
    /// Starts a system with the three default members, and waits until each is ready and its capacity is known.
    pub async fn new(backend: Backend) -> Self {
        Self::with(backend, &[]).await
    }

    /// The same, with more flags for services, which override the defaults.
    pub async fn with(backend: Backend, flags: &[(&'static str, &'static str)]) -> Self {
        let database = database::migrated().await;
        let url = database.url.clone();
        let system = Self::start(backend, members::start(backend).await, url, Some(database), flags).await;
        system.register().await;
        system.known(2).await;
        system
    }

    /// The same on simulated members of another shape, with more flags for services, which override the defaults.
    pub async fn shaped(shape: &Shape, flags: &[(&'static str, &'static str)]) -> Self {
        let database = database::migrated().await;
        let url = database.url.clone();
        let members = members::simulated(shape).await;
        let system = Self::start(Backend::Simulated, members, url, Some(database), flags).await;
        system.register().await;
        system.known(shape.nodes).await;
        system
    }

    /// The same on two clusters of a real node each (private-a and public-c), which end with the system. Needs root.
    pub async fn on_kubelets() -> Self {
        Self::on_kubelets_with(Vec::new(), &[]).await
    }

    /// As [`System::on_kubelets`], with these images on the nodes, archives as `docker save` writes them, and with these settings.
    pub async fn on_kubelets_with(images: Vec<PathBuf>, flags: &[(&'static str, &'static str)]) -> Self {
        let database = database::migrated().await;
        let url = database.url.clone();
        let system = Self::start(Backend::Real, Members::with_kubelets(images).await, url, Some(database), flags).await;
        system.register().await;
        system.known(1).await;
        system
    }

    /// As [`System::on_kubelets`], for clients as those of [`System::guarded`].
    pub async fn guarded_on_kubelets() -> Self {
        let system = Self::unregistered_on_kubelets().await;
        system.register().await;
        system.known(1).await;
        system
    }

    async fn unregistered_on_kubelets() -> Self {
        let (database, members) = (database::migrated().await, Members::with_kubelets(Vec::new()).await);
        let door = Door { guarded: true, ..Door::default() };
        Self::start_as(Backend::Real, members, (database.url.clone(), Some(database)), &[], &door).await
    }

    /// The same on the default simulated members, with a Postgres server of the caller.
    pub async fn on_postgres(url: SecretString) -> Self {
        let system = Self::start(Backend::Simulated, members::start(Backend::Simulated).await, url, None, &[]).await;
        system.register().await;
        system.known(2).await;
        system
    }

    /// The same on the default simulated members, for clients that have the API token [`API_TOKEN`] or a token that it makes.
    pub async fn guarded() -> Self {
        Self::guarded_at(Door::default().listen, &[]).await
    }

    /// As [`System::guarded`], at this address and with more flags for services.
    pub async fn guarded_at(listen: SocketAddr, flags: &[(&'static str, String)]) -> Self {
        let (database, members) = (database::migrated().await, members::start(Backend::Simulated).await);
        let door = Door { listen, guarded: true, remote_only: false };
        let system = Self::start_as(Backend::Simulated, members, (database.url.clone(), Some(database)), flags, &door).await;
        system.register().await;
        system.known(2).await;
        system
    }

    /// A system without members that accepts none on this machine, for clients as those of [`System::guarded`].
    pub async fn remote_only() -> Self {
        let (database, members) = (database::migrated().await, members::start(Backend::Simulated).await);
        let door = Door { guarded: true, remote_only: true, ..Door::default() };
        Self::start_as(Backend::Simulated, members, (database.url.clone(), Some(database)), &[], &door).await
    }

    /// A system of which Drover knows none of the default simulated members.
    pub async fn unregistered() -> Self {
        let database = database::migrated().await;
        let url = database.url.clone();
        Self::start(Backend::Simulated, members::start(Backend::Simulated).await, url, Some(database), &[]).await
    }

    async fn start(
        backend: Backend,
        members: Members,
        url: SecretString,
        database: Option<TestDb>,
        flags: &[(&'static str, &'static str)],
    ) -> Self {
        let flags: Vec<_> = flags.iter().map(|(service, flag)| (*service, (*flag).to_owned())).collect();
        Self::start_as(backend, members, (url, database), &flags, &Door::default()).await
    }

    async fn start_as(
        backend: Backend,
        members: Members,
        (url, database): (SecretString, Option<TestDb>),
        flags: &[(&'static str, String)],
        door: &Door,
    ) -> Self {
        // Why a service answered 5xx is only in its log.
        if let Ok(log) = std::env::var("DROVER_TEST_LOG") {
            telemetry::init("drover-e2e", &telemetry::Options { log, ..telemetry::Options::default() }).expect("a log filter");
        }
        let data = tempfile::tempdir().expect("a temporary folder");
        let name = |flag: &str| flag.split('=').next().map(str::to_owned);
        let replaced = |(service, flag): &&(&'static str, &'static str)| !flags.iter().any(|(s, f)| s == service && name(f) == name(flag));
        let own = FLAGS.iter().filter(replaced).map(|(service, flag)| (*service, (*flag).to_owned()));
        let options = Options {
            tls: None,
            data: data.path().to_owned(),
            listen: door.listen,
            database_url: Some(url),
            api_token: door.guarded.then(|| SecretString::from(API_TOKEN)),
            allowed_hosts: Vec::new(),
            local_clusters: !door.remote_only,
            durability: Durability::ThrowAway,
            own_ports: false,
            flags: own.chain(flags.iter().cloned()).collect(),
        };
        let stack = Stack::start(options).await.expect("the stack starts");
        let client = Client::new(stack.url.clone(), door.guarded.then(|| API_TOKEN.to_owned())).expect("a client");
        Self { client, backend, members, stack, agent: OnceLock::new(), _database: database, _data: data }
    }

    async fn register(&self) {
        // Then every scenario that moves an app there, or from there, does so through a link.
        let linked = std::env::var_os("DROVER_LINKED").is_some();
        self.register_each(linked).await;
        if let Some(member) = self.members().iter().find(|member| linked && member.name == LINKED) {
            linked::reach_pods(member, &self.client).await;
        }
    }

    /// As [`System::new`], with the member [`LINKED`] reached through its agent.
    pub async fn linked(backend: Backend) -> Self {
        let database = database::migrated().await;
        let url = database.url.clone();
        let system = Self::start(backend, members::start(backend).await, url, Some(database), &[]).await;
        system.register_each(true).await;
        system.known(2).await;
        system
    }

    /// If `linked`, the member [`LINKED`] is reached through its agent, and in no other way.
    async fn register_each(&self, linked: bool) {
        let each = self.members().iter().map(async |member| match linked && member.name == LINKED {
            true => drop(self.agent.set(Linked::register(member, &self.client).await)),
            false => member.register(&self.client).await,
        });
        futures::future::join_all(each).await;
    }

    /// As [`System::guarded_on_kubelets`], with the member [`LINKED`] reached through its agent.
    pub async fn linked_on_kubelets() -> Self {
        let system = Self::unregistered_on_kubelets().await;
        system.register_each(true).await;
        system.known(1).await;
        system
    }

    /// The way of the agent of the member [`LINKED`] to Drover.
    pub fn way_of_the_agent(&self) -> &ChaosProxy {
        &self.agent.get().expect("it is registered").way
    }

    /// Waits until Drover knows each member as ready and with so many nodes.
    async fn known(&self, nodes: usize) {
        eventually(Duration::from_secs(120), async || {
            let clusters = self.clusters().await;
            let ready = clusters.iter().filter(|c| c.state == MemberState::Ready && c.nodes.len() == nodes).count();
            (ready == self.members.each.len()).then_some(())
        })
        .await;
    }

    /// The claims in placement's ledger, as peers read them.
    pub async fn claims(&self) -> anyhow::Result<Vec<Claim>> {
        let common = &self.stack.common;
        crate::processes::claims(common.peers.placement.clone(), common.peer_token.expose_secret()).await
    }

    /// The address of the gateway.
    pub fn url(&self) -> &url::Url {
        &self.stack.url
    }

    /// The URL of its database, which is its own.
    pub fn database_url(&self) -> &str {
        self.stack.common.database_url.expose_secret()
    }

    /// All members of the system.
    pub fn members(&self) -> &[Member] {
        &self.members.each
    }

    /// The simulator, if the members are simulated.
    pub fn sim(&self) -> Option<&drover_kubesim::Sim> {
        self.members.simulated.as_ref().map(|simulated| &simulated.sim)
    }

    /// The member of this name.
    pub fn member(&self, name: &str) -> &Member {
        self.members.each.iter().find(|m| m.name == name).unwrap_or_else(|| panic!("there is no member {name}"))
    }

    /// The members with their capacity as placement knows them, the preferred ones first.
    pub async fn clusters(&self) -> Vec<ClusterCapacity> {
        patiently(async || self.client.get("/v2/clusters?view=capacity").await).await.expect("placement answers")
    }

    /// Waits until decisions use this member again after it was closed.
    pub async fn opened(&self, name: &str) {
        eventually(Duration::from_secs(120), async || {
            self.clusters().await.iter().any(|c| c.cluster == name && c.cordoned.is_none()).then_some(())
        })
        .await;
    }

    /// The clusters on which `app` has a claim in the ledger, separated by commas.
    pub async fn home(&self, app: &str) -> String {
        let clusters = self.clusters().await;
        let homes: Vec<String> = clusters.into_iter().filter(|c| c.apps.iter().any(|a| a.app == app)).map(|c| c.cluster).collect();
        homes.join(",")
    }

    /// Waits until `app` is ready on exactly the member `wanted`, without asking the member `skipped`, which cannot answer.
    pub async fn serves_except(&self, skipped: &str, app: &str, wanted: &str) {
        eventually(Duration::from_secs(120), async || {
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

    /// Makes the API server of a member stop answering, or answer again.
    pub async fn cut_off(&self, member: &str, off: bool) {
        match self.sim() {
            Some(sim) if off => sim.fault(member, drover_kubesim::Fault::Partition { hang: true }),
            Some(sim) => sim.clear_faults(member),
            None => members::stop(member, off),
        }
    }

    /// The members that have a Deployment `app` with a ready pod, separated by commas. The members themselves are asked.
    pub async fn serves(&self, app: &str) -> String {
        let mut homes = Vec::new();
        for member in &self.members.each {
            if member.ready(app).await > 0 {
                homes.push(member.name);
            }
        }
        homes.join(",")
    }

    /// Waits until `app` is ready on exactly these members (separated by commas).
    pub async fn serves_on(&self, app: &str, wanted: &str) {
        eventually(Duration::from_secs(120), async || (self.serves(app).await == wanted).then_some(())).await;
    }

    /// Waits until the CPU use of every app is known.
    pub async fn cpu_use_is_known(&self) {
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

    /// Stops the services.
    pub async fn end(self) {
        self.stack.stop().await;
        self.members.end().await;
    }
}

/// Asserts that the operation succeeded.
#[track_caller]
pub fn succeeded(operation: &Operation) {
    assert_eq!(operation.state, OperationState::Succeeded, "{}", told(operation));
}

/// Asserts that the operation failed with this code.
#[track_caller]
pub fn failed(operation: &Operation, code: &str) {
    assert_eq!(operation.state, OperationState::Failed, "{}", told(operation));
    assert_eq!(operation.code.as_deref(), Some(code), "{}", told(operation));
}

/// How the operation ended and why, and then all of it: of a long output of a test often only the beginning is kept.
fn told(operation: &Operation) -> String {
    format!("{}: {}\n{}\n{operation:#?}", operation.subject, operation.message, operation.reasons.join("\n"))
}

/// The completed moves of an operation and its children, as sorted `app>cluster`.
pub async fn moves(client: &Client, operation: &Operation) -> Vec<String> {
    let mut all = vec![operation.clone()];
    let mut at = 0;
    while at < all.len() {
        for id in all[at].children.clone() {
            all.push(client.get(&format!("/v2/operations/{id}")).await.expect("the child operation exists"));
        }
        at += 1;
    }
    let done = all.iter().flat_map(|o| &o.moves).filter(|m| m.stage == "done");
    let mut moves: Vec<String> = done.map(|m| format!("{}>{}", m.app, m.to)).collect();
    moves.sort();
    moves.dedup();
    moves
}
