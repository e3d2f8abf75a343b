//! Moves to and fro of everything that runs in a cluster, during each of which a service is killed at the failpoints of one step.
//!
//! ```text
//! drain begins ─ paused at a failpoint ─ kill, continue, start again ─ … next failpoint of the step … ─ operation ends ─ look at what runs
//! ```
//! The others of these tests have many operations at once and apps that do nothing. Here one move at a time is made, of apps that somebody uses,
//! so that what they notice can be told from what another move did. A run can be made in parts: with `DROVER_KILLS=relocate/claim` only of
//! points whose name contains that, with `DROVER_KILLS_SKIP=12` without the first twelve moves; a run that fails says how to go on.

use std::time::{Duration, Instant};

use drover::hub::Client;
use drover_api::ledger::ClusterCapacity;
use drover_api::operations::{Operation, OperationState};
use drover_api::scheduling::{ClaimState, MemberState};
use drover_e2e::Member;
use drover_e2e::emco::{free_port, operation_id, patiently};
use drover_e2e::linked::Linked;
use drover_e2e::processes::Processes;
use drover_testkit::eventually;
use reqwest::Method;
use serde_json::{Value, json};

use super::case::{Case, Fault, Turn};
use super::run::{Journey, ended};

/// How long a move may take to reach a failpoint, or a plan to be made. It only guards against hanging.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Long time limits: a move must be finished by the services that were started again and not end by a time limit. Capacity and volumes are read often,
/// because each move needs a plan.
const ENVIRONMENT: [(&str, &str); 8] = [
    ("DROVER_LOG", "info"),
    ("DROVER_MEMBER_HEARTBEAT_MS", "1000"),
    ("DROVER_MEMBER_METRICS_MS", "1000"),
    ("DROVER_READY_SECONDS", "900"),
    ("DROVER_ROOM_SECONDS", "900"),
    ("DROVER_UNSCHEDULABLE_SECONDS", "900"),
    ("DROVER_UNREACHABLE_SECONDS", "900"),
    ("DROVER_GONE_SECONDS", "900"),
];

/// Drover as processes, with two clusters between which everything moves.
pub struct Stage {
    pub processes: Processes,
    pub client: Client,
    pub members: [Member; 2],
    /// The one of them in which everything runs.
    pub home: usize,
    /// The agent of the second member, if that is reached through its link.
    _agent: Option<Linked>,
}

/// Where everything must be after a move, and how often it went from one cluster to the other.
pub struct Made<'a> {
    pub home: &'a Member,
    pub passages: usize,
}

impl Stage {
    /// Starts the processes and registers the members, the first of which is preferred.
    pub async fn start(members: [Member; 2]) -> Self {
        let processes = Processes::start(&ENVIRONMENT).await;
        let client = processes.client("gateway");
        for member in &members {
            member.register(&client).await;
        }
        Self { processes, client, members, home: 0, _agent: None }.ready().await
    }

    /// The same, with the second member reached through its agent.
    pub async fn start_linked(members: [Member; 2]) -> Self {
        // The same port for each process of cluster-manager, one after the other.
        let listen = format!("127.0.0.1:{}", free_port());
        let environment: Vec<_> = ENVIRONMENT.into_iter().chain([("DROVER_LINK_LISTEN", listen.as_str())]).collect();
        let processes = Processes::start(&environment).await;
        let client = processes.client("gateway");
        members[0].register(&client).await;
        let agent = Some(Linked::register(&members[1], &client).await);
        Self { processes, client, members, home: 0, _agent: agent }.ready().await
    }

    async fn ready(self) -> Self {
        let stage = self;
        eventually(TIMEOUT, async || {
            let clusters = stage.clusters().await?;
            let known = |cluster: &ClusterCapacity| cluster.state == MemberState::Ready && !cluster.nodes.is_empty();
            (clusters.iter().filter(|cluster| known(cluster)).count() == stage.members.len()).then_some(())
        })
        .await;
        stage
    }

    /// The member in which everything runs.
    pub fn home(&self) -> &Member {
        &self.members[self.home]
    }

    async fn clusters(&self) -> Option<Vec<ClusterCapacity>> {
        self.client.get("/v2/clusters?view=capacity").await.ok()
    }

    /// Makes a move for each step of the cases, of so many apps, and lets `look` look at what runs after each. Returns how many there were.
    pub async fn journeys(&mut self, cases: Vec<Case>, apps: usize, mut look: impl AsyncFnMut(Made<'_>) -> Result<(), String>) -> usize {
        let wanted = std::env::var("DROVER_KILLS").unwrap_or_default();
        let skip: usize = std::env::var("DROVER_KILLS_SKIP").map_or(0, |skip| skip.parse().expect("a number"));
        let mut journeys = Journey::through_steps(cases);
        journeys.retain(|journey| journey.stops.iter().any(|case| case.point.contains(&wanted)));
        let all = journeys.len();
        for (number, journey) in journeys.iter().enumerate().skip(skip) {
            let (began, first) = (Instant::now(), &journey.stops[0]);
            let what =
                format!("{} {} {}, {} killed {} times", first.row.kind, first.row.step, first.row.way, first.fault, journey.stops.len());
            let result = match self.journey(journey, apps).await {
                Ok(passages) => look(Made { home: self.home(), passages }).await,
                Err(wrong) => Err(wrong),
            };
            let took = began.elapsed().as_secs_f64();
            match result {
                Ok(()) => eprintln!("move {} of {all}: {what}: {took:.1} s", number + 1),
                Err(wrong) => {
                    panic!("move {} of {all}: {what}: {wrong}\ngo on with DROVER_KILLS='{wanted}' DROVER_KILLS_SKIP={number}", number + 1)
                }
            }
        }
        all.saturating_sub(skip)
    }

    /// Makes one move with its kills. Returns how often everything went from one cluster to the other: twice if the move was undone.
    async fn journey(&mut self, journey: &Journey, apps: usize) -> Result<usize, String> {
        let first = &journey.stops[0];
        let Fault::Killed(service) = first.fault else { return Err(format!("{} is no kill", first.fault)) };
        let id = self.begin(first, apps).await?;
        for stop in 1..=journey.stops.len() {
            let next = journey.stops.get(stop);
            self.processes.kill(service);
            // Set in the same write that clears the point at which the move is paused, so that the next one is not passed.
            let setting = next.map(|case| format!("{}=pause", case.point));
            self.processes.rearm(first.process, &setting);
            self.processes.run(service);
            if let Some(case) = next {
                self.paused(case, &id).await?;
            }
        }
        let operation = ended(&self.client, &id).await?;
        let wanted = if first.turn.is_some() { OperationState::Failed } else { OperationState::Succeeded };
        if operation.state != wanted || !operation.leftovers.is_empty() {
            return Err(format!("the operation should have the state {wanted:?} and no leftovers: {operation:#?}"));
        }
        let from = self.home;
        if wanted == OperationState::Succeeded {
            self.home = 1 - from;
        }
        self.settled(from).await;
        Ok(if self.home == from { 2 } else { 1 })
    }

    /// Begins to empty the home, and waits until that is paused at the first failpoint. Returns the operation.
    async fn begin(&self, first: &Case, apps: usize) -> Result<String, String> {
        let plan = self.plan(apps).await;
        let mut settings = vec![format!("{}=pause", first.point)];
        match &first.turn {
            None => {}
            Some(Turn::Failed(at)) => settings.push(format!("{at}=fatal")),
            Some(Turn::Cancelled(at)) => return Err(format!("{at}: these moves are not cancelled")),
        }
        self.processes.rearm(first.process, &settings);
        let applied = operation_id(&self.client, Method::POST, &format!("/v2/plans/{plan}/apply")).await;
        let id = applied.map_err(|error| format!("the plan cannot be applied: {error:#}"))?;
        self.paused(first, &id).await?;
        Ok(id)
    }

    /// A plan that moves all apps away from the home. What it needs to know may be read a little later, so it is asked for until there is one.
    async fn plan(&self, apps: usize) -> String {
        let home = self.home();
        let order = json!({"kind": "drain", "clusterProvider": home.provider, "cluster": home.name});
        let mut last = Value::Null;
        let made = eventually(TIMEOUT * 2, async || {
            last = match self.client.post("/v2/plans", Some(&order)).await {
                Ok(answer) => answer.body,
                Err(error) => json!(format!("{error:#}")),
            };
            let moves: usize = last["plan"]["waves"].as_array()?.iter().map(|wave| wave.as_array().map_or(0, Vec::len)).sum();
            last["id"].as_str().filter(|_| last["state"] == "proposed" && moves == apps).map(str::to_owned)
        });
        match tokio::time::timeout(TIMEOUT, made).await {
            Ok(id) => id,
            Err(_) => panic!("there is no plan for {apps} apps: {last:#}"),
        }
    }

    async fn paused(&self, case: &Case, operation: &str) -> Result<(), String> {
        let reached = eventually(TIMEOUT * 2, async || self.processes.paused(case.process, &case.point).then_some(()));
        match tokio::time::timeout(TIMEOUT, reached).await {
            Ok(()) => Ok(()),
            Err(_) => Err(format!(
                "{} was not reached: {:#?}",
                case.point,
                self.client.get::<Operation>(&format!("/v2/operations/{operation}")).await
            )),
        }
    }

    /// Opens the cluster that was emptied again, and waits until all claims are held in the home.
    async fn settled(&self, emptied: usize) {
        self.processes.until_ready("gateway").await;
        let Member { provider, name, .. } = &self.members[emptied];
        let path = format!("/v2/cluster-providers/{provider}/clusters/{name}/cordon");
        patiently(async || self.client.delete(&path).await).await.expect("the cluster is opened again");
        let home = format!("{}+{}", self.home().provider, self.home().name);
        eventually(TIMEOUT, async || {
            let open = self.clusters().await?.iter().all(|cluster| cluster.cordoned.is_none());
            let claims = self.processes.claims().await.ok()?;
            let held = claims.iter().all(|claim| claim.state == ClaimState::Held && claim.member.0 == home);
            (open && held && !claims.is_empty()).then_some(())
        })
        .await;
    }
}
