//! The draws on clusters instead of in memory: `drover up` of the same build, in processes of its own, is asked by REST for everything that
//! a user would ask for. The clusters are simulated, or real control planes with simulated nodes.
//!
//! Between two draws all applications are removed. The clusters are started anew only when their size changes.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use drover::hub::segment;
use drover_api::ledger::ClusterCapacity;
use drover_api::operations::{Operation, OperationState};
use drover_api::scheduling::{Amounts, ClaimState, WhenFull};
use drover_lab_relocation::{
    Allowed, Application, Arrival, CLUSTERS, Draw, Microservice, NodeSize, Occupancy, PRIVATE, Preference, Replay, Share, Strategy,
};
use serde_json::{Value, json};

use crate::bench::planes::Planes;
use crate::bench::process::Members;
use crate::bench::stack::{Stack, folder};
use crate::bench::world::{self, App, Pod};

/// Providers: the private one, and the public one.
const PROVIDERS: usize = 2;
/// The member of each cluster. Members are distributed over the providers in turn.
const MEMBER: [usize; CLUSTERS.len()] = [0, 2, 1];
/// The priority of every microservice in its migration intent, as in memory.
const MIGRATION_PRIORITY: u8 = 10;
/// Limit on the time until placement sees what an operation has done.
const PATIENCE: Duration = Duration::from_secs(120);

/// Three clusters with Drover.
pub struct ClusterFleet {
    size: NodeSize,
    planes: Planes,
    stack: Stack,
    /// Number of draws so far, for names that occur once.
    draws: usize,
}

impl ClusterFleet {
    /// Starts everything.
    ///
    /// # Errors
    /// A part does not start.
    pub async fn start(real: bool, size: NodeSize) -> Result<Self> {
        let wanted =
            Members { millicores: u32::try_from(size.cpu)?, mebibytes: u32::try_from(size.memory)?, ..Members::new(CLUSTERS.len(), 1) };
        let folder = folder()?;
        let mut planes = Planes::start(real, wanted, folder.path()).await?;
        let stack = Stack::over(folder, planes.simulated.take(), &planes.kubeconfigs, 1, PROVIDERS, labels).await?;
        Ok(Self { size, planes, stack, draws: 0 })
    }

    /// What the nodes of its clusters can give to pods.
    pub fn size(&self) -> NodeSize {
        self.size
    }

    /// Ends everything.
    ///
    /// # Errors
    /// The control planes do not stop.
    pub async fn stop(self) -> Result<()> {
        self.stack.stop(self.planes).await
    }

    /// Deploys the applications of a draw one after the other, and removes them again.
    ///
    /// # Errors
    /// The strategy is not one of the product's, or an operation ends in another way than by success or for want of room.
    pub async fn replay(&mut self, draw: &Draw, preference: Preference, strategy: &Strategy) -> Result<Replay> {
        let (movable, when_full) = match strategy {
            Strategy::Reject => (false, None),
            Strategy::Drover { when_full, .. } => (true, (*when_full == WhenFull::Preferred).then_some("preferred")),
            _ => bail!("the paper's own algorithms run in memory only"),
        };
        self.prefer(preference).await?;
        self.draws += 1;
        let (mut arrivals, mut occupancy) = (Vec::new(), Vec::new());
        for (arrival, application) in draw.applications.iter().enumerate() {
            let (name, apps) = (self.name(arrival), self.apps(arrival, application));
            world::prepare(&self.stack.client, &name, &apps, when_full).await?;
            if movable {
                world::let_move(&self.stack.client, &name, &apps, MIGRATION_PRIORITY).await?;
            }
            arrivals.push(self.arrive(&name).await.with_context(|| format!("seed {}, application {}", draw.seed, arrival + 1))?);
            occupancy.push(occupied(&self.settled().await?));
        }
        let places = self.places(draw).await?;
        for (arrival, _) in arrivals.iter().enumerate().filter(|(_, arrival)| arrival.runs) {
            let id = world::ask(&self.stack.client, &self.name(arrival), "terminate").await?;
            world::succeeded(&self.stack.client, &id).await?;
        }
        self.empty().await?;
        Ok(Replay { arrivals, occupancy, places })
    }

    async fn prefer(&self, preference: Preference) -> Result<()> {
        for (at, priority) in [preference.private, preference.public].into_iter().enumerate() {
            let name = world::provider(at);
            let body = json!({"metadata": {"name": name}, "spec": {"priority": priority}});
            self.stack.client.put(&format!("/v2/cluster-providers/{}", segment(&name)), &body).await?;
        }
        let seen = async || {
            let clusters = self.clusters().await?;
            let wanted = |cluster: usize| if cluster < PRIVATE { preference.private } else { preference.public };
            Ok((0..CLUSTERS.len()).all(|at| clusters[at].priority == wanted(at)).then_some(()))
        };
        world::until(PATIENCE, seen).await.context("placement does not see the priorities of the providers")
    }

    async fn arrive(&self, name: &str) -> Result<Arrival> {
        let id = world::ask(&self.stack.client, name, "instantiate").await?;
        let operation: Operation = world::ended(&self.stack.client, &id).await?;
        let runs = operation.state == OperationState::Succeeded;
        let no_room = matches!(operation.code.as_deref(), Some("plan_infeasible" | "no_room"));
        ensure!(runs || no_room, "{}: {} {:?}", operation.subject, operation.message, operation.reasons);
        Ok(Arrival { runs, moves: operation.moves.len(), cut_short: false })
    }

    /// The clusters in the order of [`CLUSTERS`], as placement knows them.
    async fn clusters(&self) -> Result<Vec<ClusterCapacity>> {
        let mut all: Vec<ClusterCapacity> = self.stack.client.get("/v2/clusters?view=capacity").await?;
        let of = |cluster: usize| {
            let name = world::cluster(MEMBER[cluster]);
            let at = all.iter().position(|one| one.cluster == name).with_context(|| format!("placement does not know {name}"))?;
            Ok(all.swap_remove(at))
        };
        (0..CLUSTERS.len()).map(of).collect()
    }

    /// The clusters, as soon as no claim is on its way.
    async fn settled(&self) -> Result<Vec<ClusterCapacity>> {
        let settled = async || {
            let clusters = self.clusters().await?;
            let held = clusters.iter().flat_map(|cluster| &cluster.apps).all(|app| app.state == ClaimState::Held);
            Ok(held.then_some(clusters))
        };
        world::until(PATIENCE, settled).await.context("a claim is neither held nor released")
    }

    /// Waits until nothing is requested any more.
    async fn empty(&self) -> Result<()> {
        let empty = async || {
            let clusters = self.clusters().await?;
            let unused = |cluster: &ClusterCapacity| cluster.apps.is_empty() && cluster.total.requested.cpu == 0;
            Ok(clusters.iter().all(unused).then_some(()))
        };
        world::until(PATIENCE, empty).await.context("something of a draw remains on the clusters")
    }

    /// The cluster of each microservice; `None` if it does not run.
    async fn places(&self, draw: &Draw) -> Result<Vec<Vec<Option<usize>>>> {
        let clusters = self.settled().await?;
        let place = |name: &str| clusters.iter().position(|cluster| cluster.apps.iter().any(|app| app.app == name));
        let of = |(arrival, one): (usize, &Application)| {
            (0..one.microservices.len()).map(|at| place(&self.app(arrival, at))).collect::<Vec<Option<usize>>>()
        };
        Ok(draw.applications.iter().enumerate().map(of).collect())
    }

    fn name(&self, arrival: usize) -> String {
        format!("draw-{:04}-app-{arrival:02}", self.draws)
    }

    /// The name of a microservice's Deployment, which is unique in its cluster.
    fn app(&self, arrival: usize, at: usize) -> String {
        format!("{}-m{at}", self.name(arrival))
    }

    fn apps(&self, arrival: usize, application: &Application) -> Vec<App> {
        let app = |(at, one): (usize, &Microservice)| App {
            pod: Pod { millicores: whole(one.cpu), mebibytes: whole(one.memory), start: 0 },
            ..App::new(self.app(arrival, at), intent(one.allowed), 1)
        };
        application.microservices.iter().enumerate().map(app).collect()
    }
}

fn whole(amount: i64) -> u32 {
    u32::try_from(amount).unwrap_or_default()
}

/// The labels of a member: all sets of clusters that contain it.
fn labels(member: usize) -> Vec<String> {
    let cluster = MEMBER.iter().position(|one| *one == member).unwrap_or_default();
    Allowed::ALL.map(Allowed).filter(|allowed| allowed.contains(cluster)).map(label).collect()
}

fn label(allowed: Allowed) -> String {
    format!("on-{}", allowed.label().to_lowercase())
}

/// Any cluster with the label: one element for each provider that has one.
fn intent(allowed: Allowed) -> Value {
    let mut providers: Vec<usize> = allowed.clusters().map(|cluster| MEMBER[cluster] % PROVIDERS).collect();
    providers.dedup();
    let element = |at: usize| json!({"clusterProvider": world::provider(at), "clusterLabel": label(allowed)});
    json!({"anyOf": providers.into_iter().map(element).collect::<Vec<Value>>()})
}

/// What is requested as a share of what the nodes can give: on the private clusters, on the public one, and on all.
fn occupied(clusters: &[ClusterCapacity]) -> Occupancy {
    let share = |clusters: &[ClusterCapacity]| {
        let (mut all, mut taken) = (Amounts::default(), Amounts::default());
        for one in clusters {
            all.add(&one.total.allocatable, 1);
            taken.add(&one.total.requested, 1);
        }
        Share { cpu: taken.cpu as f64 / all.cpu as f64, memory: taken.memory as f64 / all.memory as f64 }
    };
    Occupancy { private: share(&clusters[..PRIVATE]), public: share(&clusters[PRIVATE..]), total: share(clusters) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_clusters_share_a_provider_and_labels_name_the_sets() {
        assert_eq!(MEMBER.map(|member| member % PROVIDERS), [0, 0, 1]);
        assert_eq!(labels(MEMBER[1]), ["on-b", "on-ab", "on-bc", "on-abc"]);
        let everywhere = json!({"anyOf": [
            {"clusterProvider": "provider-0", "clusterLabel": "on-abc"},
            {"clusterProvider": "provider-1", "clusterLabel": "on-abc"},
        ]});
        assert_eq!(intent(Allowed(7)), everywhere);
        assert_eq!(intent(Allowed(2)), json!({"anyOf": [{"clusterProvider": "provider-0", "clusterLabel": "on-b"}]}));
    }
}
