//! The instance of group placement that the apps of an application and the members of its logical cloud make. Pure.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use drover_api::ledger::ClusterCapacity;
use drover_lab_groups::{CallGraph, GraphFile, Grouping, Instance, Limits, Load, Place, Rules, Service, Traffic, Variant};
use drover_scheduling::{Amounts, AppRequest, Demand, MemberKey};

/// Bytes of a MiB.
const MIB: f64 = 1_048_576.0;

/// The apps with their calls and requests, and the members.
#[derive(Debug)]
pub struct Question {
    pub instance: Instance,
    pub graph: GraphFile,
    /// Names of the apps, by service of the instance.
    pub apps: Vec<String>,
    /// Where the apps run, by container; `None` if one of them does not run on exactly one of the members.
    pub now: Option<Vec<Option<usize>>>,
}

impl Question {
    /// Each app is one container: all its pods are on one member, as Drover places it.
    ///
    /// # Errors
    /// No calls are known, or no member has room to offer.
    pub fn of(project: &str, application: &str, requests: &[AppRequest], clusters: &[ClusterCapacity]) -> Result<Self> {
        let allowed: BTreeSet<&MemberKey> = requests.iter().flat_map(|request| request.terms.logical_cloud.iter()).collect();
        let offers = |cluster: &&ClusterCapacity| {
            let whole = &cluster.total.allocatable;
            allowed.contains(&cluster.member) && whole.cpu > 0 && whole.memory > 0
        };
        let clusters: Vec<&ClusterCapacity> = clusters.iter().filter(offers).collect();
        if clusters.is_empty() {
            bail!("no cluster of the logical cloud of {application} has known capacity; see `drover get clusters`");
        }
        let apps: Vec<String> = requests.iter().map(|request| request.app.clone()).collect();
        let mut homes: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        let place = |(at, cluster): (usize, &&ClusterCapacity)| {
            let mut taken = load(&cluster.total.requested);
            for app in &cluster.apps {
                if app.dig.project == project && app.dig.composite_app == application && apps.contains(&app.app) {
                    let own = load(&app.requested);
                    taken = std::array::from_fn(|r| taken[r] - own[r]);
                }
            }
            Place {
                name: cluster.member.0.clone(),
                capacity: load(&cluster.total.allocatable),
                taken: taken.map(|t| t.max(0.0)),
                domain: at,
            }
        };
        let places = clusters.iter().enumerate().map(place).collect();
        for (at, cluster) in clusters.iter().enumerate() {
            for app in cluster.apps.iter().filter(|app| app.dig.project == project && app.dig.composite_app == application) {
                homes.entry(app.app.as_str()).or_default().push(at);
            }
        }
        let services = requests.iter().map(|r| Service { name: r.app.clone(), request: total(&r.demand), replicas: 1 }).collect();
        let calls = requests.iter().flat_map(|request| {
            let to = request.terms.calls.iter().flat_map(|calls| &calls.to).filter(|to| apps.contains(&to.app));
            to.map(|to| (request.app.as_str(), to.app.as_str(), to.micro_calls as f64 / 1e6))
        });
        let graph = CallGraph::named(services, calls).context("the calls do not fit the apps")?;
        let Some(terms) = requests.iter().find_map(|request| request.terms.calls.as_ref()).filter(|_| !graph.calls().is_empty()) else {
            bail!(
                "no calls between the apps of {application} are known; declare or measure them in a call graph, and instantiate or update"
            );
        };
        let grouping = Grouping::of(&graph, Some(terms.rho as usize), Variant::Merge, &Limits::default())?;
        let mut instance = Instance::new(&graph, Traffic::Uniform, &grouping, places, Rules::default())?;
        if !terms.latencies.is_empty() {
            let slowest = terms.latencies.iter().map(|l| l.us).max().unwrap_or_default();
            let between = |a: &MemberKey, b: &MemberKey| {
                let said = terms.latencies.iter().find(|l| (l.from == *a && l.to == *b) || (l.from == *b && l.to == *a));
                f64::from(if a == b { 0 } else { said.map_or(slowest, |l| l.us) })
            };
            let distances = clusters.iter().flat_map(|a| clusters.iter().map(|b| between(&a.member, &b.member))).collect();
            instance = instance.with_distances(distances)?;
        }
        let home = |container: &drover_lab_groups::Container| match homes.get(apps[container.service].as_str()).map(Vec::as_slice) {
            Some([only]) => Some(Some(*only)),
            _ => None,
        };
        let now = instance.containers().iter().map(home).collect();
        Ok(Self { instance, graph: GraphFile::of(&graph), apps, now })
    }
}

/// CPU in millicores and memory in MiB.
fn load(amounts: &Amounts) -> Load {
    [amounts.cpu.max(0) as f64, amounts.memory.max(0) as f64 / MIB]
}

/// What all pods of an app request. Of pods that run on each node, one counts.
fn total(demand: &Demand) -> Load {
    let of = |group: &drover_scheduling::PodGroup| {
        let (one, pods) = (load(&group.requests), if group.per_node { 1.0 } else { f64::from(group.replicas) });
        one.map(|amount| amount * pods)
    };
    demand.groups.iter().map(of).fold([0.0; 2], |sum, load| std::array::from_fn(|r| sum[r] + load[r]))
}

#[cfg(test)]
mod tests {
    use drover_api::ledger::{AppRoom, Room};
    use drover_lab_groups::{Greedy, Policy, Weights};
    use drover_scheduling::{CallTerms, CallTo, ClaimState, DigRef, Latency, MemberState, PlacementTerms, PodGroup};

    use super::*;

    fn app(name: &str, cpu: i64, replicas: u32, calls: &[(&str, u64)]) -> AppRequest {
        let to = calls.iter().map(|(app, calls)| CallTo { app: (*app).into(), micro_calls: calls * 1_000_000 }).collect();
        let latencies = vec![Latency { from: MemberKey("x+a".into()), to: MemberKey("x+b".into()), us: 400 }];
        let group =
            PodGroup { workload: format!("Deployment/{name}"), replicas, requests: Amounts::pod(cpu, cpu << 20), ..PodGroup::default() };
        AppRequest {
            app: name.into(),
            demand: Demand { groups: vec![group], ..Demand::default() },
            terms: PlacementTerms {
                logical_cloud: ["x+a", "x+b", "x+gone"].map(|key| MemberKey(key.into())).into(),
                calls: Some(CallTerms { to, rho: 4, latencies, ..CallTerms::default() }),
                ..PlacementTerms::default()
            },
        }
    }

    fn cluster(name: &str, cpu: i64, others: i64, apps: &[(&str, i64)]) -> ClusterCapacity {
        let amounts = |cpu: i64| Amounts { cpu, memory: cpu << 20, pods: 100, ..Amounts::default() };
        let dig = DigRef { project: "default".into(), composite_app: "shop".into(), ..DigRef::default() };
        let room = |(app, cpu): &(&str, i64)| AppRoom {
            claim: uuid::Uuid::nil(),
            dig: dig.clone(),
            app: (*app).into(),
            state: ClaimState::Held,
            requested: amounts(*cpu),
            used: None,
        };
        let requested = others + apps.iter().map(|(_, cpu)| cpu).sum::<i64>();
        ClusterCapacity {
            member: MemberKey(format!("x+{name}")),
            provider: "x".into(),
            cluster: name.into(),
            priority: 1,
            state: MemberState::Ready,
            reason: None,
            cordoned: None,
            link: None,
            total: Room { allocatable: amounts(cpu), requested: amounts(requested), free: amounts(cpu - requested), ..Room::default() },
            nodes: Vec::new(),
            apps: apps.iter().map(room).collect(),
            age_ms: Some(0),
        }
    }

    #[test]
    fn question_has_the_logical_clouds_members_without_the_apps_own_copies() {
        let apps = [app("web", 200, 2, &[("cart", 5), ("nobody", 9)]), app("cart", 300, 1, &[])];
        let clusters = [cluster("a", 1000, 100, &[("web", 400)]), cluster("b", 2000, 0, &[("cart", 300)]), cluster("other", 9000, 0, &[])];
        let question = Question::of("default", "shop", &apps, &clusters).unwrap();
        let places: Vec<(&str, f64)> = question.instance.places().iter().map(|p| (p.name.as_str(), p.taken[0])).collect();
        assert_eq!(places, [("x+a", 100.0), ("x+b", 0.0)]);
        assert_eq!(question.instance.containers()[0].request, [400.0, 400.0], "all pods of an app count");
        assert_eq!(question.now, Some(vec![Some(0), Some(1)]));
        assert!(question.instance.has_distances());
        let placed = Greedy::Groups.place(&question.instance, &Weights::default());
        assert_eq!(placed.at[0], placed.at[1], "they call each other");
        let elsewhere = [cluster("a", 1000, 0, &[("web", 400)]), cluster("b", 2000, 0, &[])];
        assert_eq!(Question::of("default", "shop", &apps, &elsewhere).unwrap().now, None, "one of them does not run");
    }

    #[test]
    fn application_without_calls_or_clusters_is_refused() {
        let silent = [app("web", 200, 1, &[]), app("cart", 300, 1, &[])];
        let refused = Question::of("default", "shop", &silent, &[cluster("a", 1000, 0, &[])]).unwrap_err();
        assert!(refused.to_string().contains("no calls"), "{refused}");
        let refused = Question::of("default", "shop", &silent, &[cluster("other", 1000, 0, &[])]).unwrap_err();
        assert!(refused.to_string().contains("known capacity"), "{refused}");
    }
}
