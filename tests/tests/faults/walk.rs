//! A random walk through the actions of users and the faults of members, compared with a [`Model`]. After each step the services, the ledger and
//! the members must match the model. At all times the two sums of the ledger must fit, and every running app must have a ready pod.
//!
//! `DROVER_WALK_SEED` (a number) is the seed. When a walk fails, shorter ones are tried (`DROVER_WALK_SHRINK` says how many), and the panic shows
//! the shortest one that fails.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use drover_api::operations::{Operation, OperationState};
use drover_api::scheduling::{ClaimState, MemberState};
use drover_e2e::System;
use drover_e2e::emco::{ended, operation_id, patiently};
use drover_e2e::members::Shape;
use drover_kubesim::{Fault, ReadyRecorder};
use futures::future::join_all;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use reqwest::Method;
use serde_json::{Value, json};

use super::look;
use super::model::{Act, ActResult, CPUS, Deed, GROUPS, MEMBERS, Model, Nature, Step, Trouble, walks};

/// It only guards against hanging.
const TIMEOUT: Duration = Duration::from_secs(180);
/// Short time limits, so that no step waits long for a faulty member.
const FLAGS: [(&str, &str); 7] = [
    ("cluster-manager", "--heartbeat-ms=500"),
    ("cluster-manager", "--metrics-ms=60000"),
    ("orchestrator", "--ready-seconds=10"),
    ("orchestrator", "--room-seconds=5"),
    ("orchestrator", "--unschedulable-seconds=4"),
    ("orchestrator", "--unreachable-seconds=2"),
    ("orchestrator", "--gone-seconds=4"),
];

#[test]
fn short_random_walk_matches_the_model() {
    run_walk(14);
}

/// A step has about two acts.
#[test]
#[ignore = "long: a thousand operations"]
fn thousand_random_operations_match_the_model() {
    run_walk(545);
}

/// Draws a walk of so many steps and takes it; when it fails, shorter ones, too.
fn run_walk(steps: usize) {
    let number = |name: &str, or: u64| std::env::var(name).map_or(or, |text| text.parse().expect("a number"));
    let mut seed = [7; 32];
    seed[..8].copy_from_slice(&number("DROVER_WALK_SEED", 20_261_121).to_le_bytes());
    let shrink = u32::try_from(number("DROVER_WALK_SHRINK", 12)).expect("a small number");
    let config = Config { cases: 1, max_shrink_iters: shrink, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let outcome = runner.run(&walks(steps), |steps| runtime.block_on(walk(&steps)).map_err(proptest::test_runner::TestCaseError::fail));
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(why, steps)) => panic!("{why}\nin the walk {:#?}", steps.iter().flatten().collect::<Vec<_>>()),
        Err(other) => panic!("{other}"),
    }
}

async fn walk(steps: &[Option<Step>]) -> Result<(), String> {
    let system = System::shaped(&Shape { members: MEMBERS.into(), nodes: 1, cpu: CPUS, ..Shape::default() }, &FLAGS).await;
    let mut walker = Walker::new(&system).await;
    let mut outcome = Ok(());
    for (at, step) in steps.iter().flatten().enumerate() {
        outcome = walker.step(step).await.map_err(|why| format!("step {at}, {step:?}: {why}"));
        if outcome.is_err() {
            break;
        }
    }
    let (operations, accepted) = (walker.operations, walker.accepted.load(Ordering::Relaxed));
    eprintln!("{operations} acts in {} steps, {accepted} of them operations", steps.len());
    system.end().await;
    outcome
}

fn terminates(acts: &[Act], group: usize) -> bool {
    acts.iter().any(|act| act.group == group && matches!(act.deed, Deed::Terminate))
}

struct Walker<'a> {
    system: &'a System,
    model: Model,
    witnesses: Vec<ReadyRecorder>,
    revision: u32,
    operations: usize,
    accepted: AtomicUsize,
}

impl<'a> Walker<'a> {
    async fn new(system: &'a System) -> Self {
        for at in 0..GROUPS {
            let group = Nature::of(at).group(1, 0);
            group.approve(&system.client).await.unwrap();
        }
        let sim = system.sim().unwrap();
        let witnesses = (0..GROUPS).map(|at| sim.record_ready(None, &format!("app={}", Nature::of(at).name)).unwrap()).collect();
        Self { system, model: Model::default(), witnesses, revision: 0, operations: 0, accepted: AtomicUsize::new(0) }
    }

    async fn step(&mut self, step: &Step) -> Result<(), String> {
        // At most one act for each group, because the model does not say what follows from two at the same time.
        let mut acts: Vec<Act> = Vec::new();
        for act in &step.acts {
            if acts.iter().all(|other| other.group != act.group) {
                acts.push(*act);
            }
        }
        let alone = acts.len() == 1 && step.drain.is_none() && step.trouble.is_none() && !acts[0].cancelled;
        let free = self.free().await?;
        let steady: Vec<usize> = self.model.running.keys().copied().filter(|group| !terminates(&acts, *group)).collect();
        steady.iter().for_each(|group| self.witnesses[*group].arm());
        if let Some((member, trouble)) = step.trouble {
            self.begin_trouble(member, trouble);
        }
        self.revision += 1;
        let (revision, this) = (self.revision, &*self);
        let doing = async {
            let results = join_all(acts.iter().map(|act| this.act(*act, revision)));
            let (results, drained) = tokio::join!(results, this.drain(step.drain));
            drained.map(|()| results)
        };
        let results = tokio::select! {
            results = doing => results?,
            over = this.sums_fit() => return Err(over),
            () = tokio::time::sleep(TIMEOUT) => return Err("the step does not end".to_owned()),
        };
        self.operations += acts.len();
        for (act, result) in acts.iter().zip(results) {
            let result = result?;
            if let (true, Deed::Deploy { replicas }) = (alone, act.deed)
                && !self.model.running.contains_key(&act.group)
                && self.model.must_fit(act.group, replicas, &free)
                && !matches!(&result, ActResult::Ended(operation) if operation.state == OperationState::Succeeded)
            {
                return Err(format!("there was room, {free:?}, but the group was not placed: {result:#?}"));
            }
            self.model.apply(*act, &result)?;
        }
        if let Some((member, _)) = step.trouble {
            self.system.sim().unwrap().clear_faults(MEMBERS[member].0);
        }
        self.settled().await?;
        for group in steady {
            if self.witnesses[group].min() < 1 {
                return Err(format!("{} had a moment without a ready pod", Nature::of(group).name));
            }
        }
        Ok(())
    }

    fn begin_trouble(&self, member: usize, trouble: Trouble) {
        let fault = match trouble {
            Trouble::Silent => Fault::Partition { hang: true },
            Trouble::Refuses => Fault::Partition { hang: false },
            Trouble::Errors => Fault::Status { code: 500, rate: 0.3 },
            Trouble::Throttles => Fault::Status { code: 429, rate: 0.5 },
            Trouble::LosesAnswers => Fault::LostAnswers { rate: 0.4 },
            Trouble::CutsWatches => Fault::CutWatches,
            Trouble::Forgets => Fault::Gone410,
            Trouble::LocksOut => Fault::Unauthorized,
        };
        self.system.sim().unwrap().fault(MEMBERS[member].0, fault);
    }

    async fn act(&self, act: Act, revision: u32) -> Result<ActResult, String> {
        let (client, nature) = (&self.system.client, Nature::of(act.group));
        let begun = async {
            let verb = match act.deed {
                Deed::Deploy { replicas } => {
                    let group = nature.group(replicas, revision);
                    patiently(async || group.upload(client).await).await?;
                    patiently(async || client.post(&format!("{}/approve", group.path()), None).await).await?;
                    "instantiate"
                }
                Deed::Update { replicas } => {
                    let group = nature.group(replicas, revision);
                    patiently(async || group.upload(client).await).await?;
                    "update"
                }
                Deed::Terminate => "terminate",
            };
            nature.group(1, 0).insist(client, verb).await
        };
        let id = match begun.await {
            Ok(id) => id,
            Err(error) => return drover::hub::code(&error).map(|code| ActResult::Refused(code.to_owned())).ok_or(format!("{error:#}")),
        };
        self.accepted.fetch_add(1, Ordering::Relaxed);
        if act.cancelled {
            // A cancel that comes too late is no error.
            let _ = operation_id(client, Method::POST, &format!("/v2/operations/{id}/cancel")).await;
        }
        let operation = ended(client, &id).await.map_err(|error| format!("{error:#}"))?;
        Ok(ActResult::Ended(Box::new(operation)))
    }

    /// Drains a member if that can be planned. The drain may fail, but only with a code.
    async fn drain(&self, member: Option<usize>) -> Result<(), String> {
        let Some((name, provider, _)) = member.map(|at| MEMBERS[at]) else { return Ok(()) };
        let client = &self.system.client;
        let plan = client.post("/v2/plans", Some(&json!({"kind": "drain", "clusterProvider": provider, "cluster": name}))).await;
        // There is no plan for a member whose state is unknown.
        let Ok(plan) = plan.map(|answer| answer.body) else { return Ok(()) };
        if plan["state"] != "proposed" {
            return Ok(());
        }
        let apply = format!("/v2/plans/{}/apply", plan["id"].as_str().unwrap_or_default());
        let Ok(id) = operation_id(client, Method::POST, &apply).await else { return Ok(()) };
        self.accepted.fetch_add(1, Ordering::Relaxed);
        let operation: Operation = ended(client, &id).await.map_err(|error| format!("{error:#}"))?;
        // A drain closes the member; the walk goes on with all of them.
        let cordon = format!("/v2/cluster-providers/{provider}/clusters/{name}/cordon");
        client.delete(&cordon).await.map_err(|error| format!("{error:#}"))?;
        match operation.state {
            OperationState::Succeeded => Ok(()),
            OperationState::Failed if operation.code.is_some() => Ok(()),
            _ => Err(format!("a drain must not end like this: {operation:#?}")),
        }
    }

    /// Returns only when the present or the future sum of a member is larger than its capacity, with a message.
    async fn sums_fit(&self) -> String {
        let all = i64::from(CPUS) * 1000;
        loop {
            if let Ok(sums) = look::sums(self.system).await
                && let Some(over) = sums.iter().find(|(_, (present, future))| *present > all || *future > all)
            {
                return format!("a sum is larger than the capacity: {over:?}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The free millicores of each member.
    async fn free(&self) -> Result<Vec<i64>, String> {
        let sums = look::sums(self.system).await.map_err(|error| format!("{error:#}"))?;
        let taken = |name: &str| sums.get(name).map_or(0, |(present, future)| (*present).max(*future));
        Ok(MEMBERS.iter().map(|(name, ..)| i64::from(CPUS) * 1000 - taken(name)).collect())
    }

    /// Waits until all members are ready, and the ledger and the members match the model.
    async fn settled(&self) -> Result<(), String> {
        let give_up = tokio::time::Instant::now() + TIMEOUT;
        loop {
            let differs = match self.differs().await {
                Ok(None) => return Ok(()),
                Ok(Some(differs)) => differs,
                Err(error) => format!("{error:#}"),
            };
            if tokio::time::Instant::now() > give_up {
                return Err(format!("{differs}; the model: {:?}", self.model.running));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn differs(&self) -> anyhow::Result<Option<String>> {
        let clusters = self.system.clusters().await;
        if let Some(cluster) = clusters.iter().find(|cluster| cluster.state != MemberState::Ready) {
            return Ok(Some(format!("{} is {:?}", cluster.cluster, cluster.state)));
        }
        let claims = self.system.claims().await?;
        if let Some(claim) = claims.iter().find(|claim| claim.state != ClaimState::Held || claim.surging) {
            return Ok(Some(format!("the claim of {} on {} is {:?}", claim.request.app, claim.member, claim.state)));
        }
        let mut claimed: BTreeMap<String, (String, u32)> = BTreeMap::new();
        for claim in &claims {
            let pods = claim.pods.iter().map(|pods| pods.count).sum();
            if claimed.insert(claim.request.app.clone(), (claim.member.cluster().to_owned(), pods)).is_some() {
                return Ok(Some(format!("{} has two claims", claim.request.app)));
            }
        }
        let wanted: BTreeMap<String, u32> = self.model.running.iter().map(|(at, pods)| (Nature::of(*at).name, *pods)).collect();
        let counts: BTreeMap<String, u32> = claimed.iter().map(|(app, (_, pods))| (app.clone(), *pods)).collect();
        if counts != wanted {
            return Ok(Some(format!("claimed: {counts:?}")));
        }
        let mut serving: BTreeMap<String, (String, u32)> = BTreeMap::new();
        for member in self.system.members() {
            for deployment in member.deployments().list(&Default::default()).await? {
                let (name, status) = (deployment.metadata.name.unwrap_or_default(), deployment.status.unwrap_or_default());
                let ready = u32::try_from(status.ready_replicas.unwrap_or(0))?;
                if serving.insert(name.clone(), (member.name.to_owned(), ready)).is_some() {
                    return Ok(Some(format!("{name} is on two members")));
                }
            }
            let pods = member.pods().list(&Default::default()).await?.items.len();
            let due: u32 = serving.values().filter(|(at, _)| at == member.name).map(|(_, pods)| pods).sum();
            if pods != due as usize {
                return Ok(Some(format!("{} has {pods} pods, {due} of them are ready", member.name)));
            }
        }
        if serving != claimed {
            return Ok(Some(format!("serving: {serving:?}, claimed: {claimed:?}")));
        }
        let allowed = |app: &String, member: &String| {
            (0..GROUPS).map(Nature::of).any(|n| n.name == *app && n.on.iter().any(|at| MEMBERS[*at].0 == member))
        };
        if let Some((app, (member, _))) = claimed.iter().find(|(app, (member, _))| !allowed(app, member)) {
            return Ok(Some(format!("{app} is on {member}, where it may not run")));
        }
        // No operation is left running.
        let running: Value = self.system.client.get("/v2/operations?state=running").await?;
        let running = running["items"].as_array().map_or(0, Vec::len);
        Ok((running > 0).then(|| format!("{running} operations run")))
    }
}
