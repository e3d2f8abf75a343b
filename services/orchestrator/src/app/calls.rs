//! The call graph of a group's composite app: the calls that placement takes into account, and node preferences between apps.

use std::collections::{BTreeMap, BTreeSet};

use drover_api::scheduling::groups::{CallGraph, Grouping, Limits, Service, Variant};
use sqlx::PgConnection;

use super::{Error, Group, measured};
use crate::render::prefer::PreferredPeers;
use crate::resources::CALL_GRAPH;
use crate::resources::call_graph::{CallGraphSpec, CallSource};
use crate::store::revision::RevisionApp;

/// The call graph with its measured calls, if there is one.
///
/// # Errors
/// There are several call graphs, or a query failed.
pub async fn of(tx: &mut PgConnection, group: &Group) -> Result<Option<CallGraphSpec>, Error> {
    let mut graphs = group.below(&mut *tx).await?.children::<CallGraphSpec>(&CALL_GRAPH, group.composite_app.id)?;
    match graphs.len() {
        0 => Ok(None),
        1 => {
            let Some(spec) = graphs.pop().map(|graph| graph.spec) else { return Ok(None) };
            let known = match spec.source {
                CallSource::Declared => Vec::new(),
                CallSource::Measured | CallSource::Both => measured::known(tx, group.composite_app.id).await?,
            };
            Ok(Some(measured::merged(spec, &known)))
        }
        _ => {
            let names: Vec<_> = graphs.iter().map(|graph| graph.name.as_str()).collect();
            let reason = format!("the composite app {} has several call graphs ({}); keep one", group.composite_app.name, names.join(", "));
            Err(Error::Inconsistent(vec![reason]))
        }
    }
}

/// For each app the apps whose nodes its pods prefer: those of its call group. The weight, 1 to 100, is the pair's calls as a
/// share of the heaviest pair's, one scale for all pairs because a scheduler adds the weights of both sides. Empty unless the
/// graph allows it.
pub fn preferences(graph: Option<&CallGraphSpec>, apps: &[String]) -> BTreeMap<String, PreferredPeers> {
    let Some(spec) = graph.filter(|graph| graph.node_preferences) else { return BTreeMap::new() };
    let known = |app: &String| apps.contains(app);
    let calls = spec.calls.iter().filter(|call| known(&call.from) && known(&call.to)).map(|call| (&*call.from, &*call.to, call.weight()));
    let Some((graph, groups)) = grouped(apps.iter().cloned(), calls, spec.rho()) else { return BTreeMap::new() };
    let group = groups.index();
    let heaviest = graph.weights().iter().map(|(_, _, calls)| *calls).fold(f64::MIN_POSITIVE, f64::max);
    let mut peers: BTreeMap<String, PreferredPeers> = BTreeMap::new();
    for (a, b, calls) in graph.weights().into_iter().filter(|(a, b, _)| group[*a] == group[*b]) {
        let weight = ((calls / heaviest * 100.0).round() as u32).clamp(1, 100);
        peers.entry(apps[a].clone()).or_default().push((apps[b].clone(), weight));
        peers.entry(apps[b].clone()).or_default().push((apps[a].clone(), weight));
    }
    peers
}

/// The call graph of these apps, and its groups of at most `rho` apps. `None` if the graph is invalid, which was refused when it was declared.
fn grouped<'a>(
    apps: impl Iterator<Item = String>,
    calls: impl Iterator<Item = (&'a str, &'a str, f64)>,
    rho: u32,
) -> Option<(CallGraph, Grouping)> {
    let services = apps.map(|name| Service { name, request: [0.0; 2], replicas: 1 });
    let graph = CallGraph::named(services.collect(), calls).ok()?;
    let groups = Grouping::of(&graph, Some(rho as usize), Variant::Merge, &Limits::default()).ok()?;
    Some((graph, groups))
}

/// For each of the `new` apps of a group the other apps of it with which the call graph keeps it together. Empty unless it says so.
pub fn kept_together(apps: &[RevisionApp], new: &BTreeSet<&str>) -> BTreeMap<String, Vec<String>> {
    let Some(terms) = apps.iter().find_map(|app| app.terms.calls.as_ref()).filter(|calls| calls.keep_together) else {
        return BTreeMap::new();
    };
    let known = |name: &str| apps.iter().any(|app| app.app.app == name);
    let of = |app: &RevisionApp| -> Vec<(String, String, f64)> {
        let calls = app.terms.calls.iter().flat_map(|calls| &calls.to).filter(|call| known(&call.app));
        calls.map(|call| (app.app.app.clone(), call.app.clone(), call.micro_calls as f64)).collect()
    };
    let calls: Vec<(String, String, f64)> = apps.iter().flat_map(of).collect();
    let calls = calls.iter().map(|(from, to, calls)| (&**from, &**to, *calls));
    let Some((_, groups)) = grouped(apps.iter().map(|app| app.app.app.clone()), calls, terms.rho) else { return BTreeMap::new() };
    let mut together = BTreeMap::new();
    for group in &groups.groups {
        let (arriving, others): (Vec<&str>, Vec<&str>) = group.iter().map(|at| &*apps[*at].app.app).partition(|app| new.contains(app));
        if !others.is_empty() {
            let others: Vec<String> = others.into_iter().map(str::to_owned).collect();
            together.extend(arriving.into_iter().map(|app| (app.to_owned(), others.clone())));
        }
    }
    together
}

#[cfg(test)]
mod tests {
    use drover_api::scheduling::PlacementTerms;

    use super::*;
    use crate::store::deployment::ApprovedApp;

    #[test]
    fn new_apps_are_kept_together_with_those_of_their_call_group_only_if_the_graph_says_so() {
        let together = |keep: bool, rho: u32| {
            let spec: CallGraphSpec = serde_json::from_value(serde_json::json!({
                "rho": rho, "keepTogether": keep,
                "calls": [{"from": "web", "to": "cart", "calls": 9}, {"from": "cart", "to": "db", "calls": 5}, {"from": "web", "to": "gone", "calls": 9}],
            }))
            .unwrap();
            let app = |name: &str| RevisionApp {
                app: ApprovedApp { app: name.into(), digest: String::new(), namespace: String::new(), demand: Default::default() },
                terms: PlacementTerms { calls: Some(spec.terms(name, &[])), ..PlacementTerms::default() },
            };
            kept_together(&["web", "cart", "db", "mail"].map(app), &BTreeSet::from(["cart", "mail"]))
        };
        assert_eq!(together(true, 4), BTreeMap::from([("cart".to_owned(), vec!["web".to_owned(), "db".to_owned()])]));
        assert_eq!(together(true, 2), BTreeMap::from([("cart".to_owned(), vec!["web".to_owned()])]), "the heaviest call comes first");
        assert!(together(false, 4).is_empty() && together(true, 1).is_empty());
    }

    #[test]
    fn preferences_weigh_calls_within_the_group_and_need_permission() {
        let mut spec: CallGraphSpec = serde_json::from_value(serde_json::json!({
            "rho": 3,
            "nodePreferences": true,
            "calls": [
                {"from": "web", "to": "cart", "calls": 30}, {"from": "cart", "to": "web", "calls": 10}, {"from": "cart", "to": "db", "calls": 20},
                {"from": "web", "to": "mail", "calls": 1}, {"from": "gone", "to": "web", "calls": 99},
            ],
        }))
        .unwrap();
        let apps: Vec<String> = ["web", "cart", "db", "mail"].map(str::to_owned).into();
        let peers = preferences(Some(&spec), &apps);
        let of = |app: &str| peers.get(app).cloned().unwrap_or_default();
        assert_eq!(of("web"), [("cart".to_owned(), 100)]);
        assert_eq!(of("cart"), [("web".to_owned(), 100), ("db".to_owned(), 50)]);
        assert!(of("mail").is_empty(), "no other app is in its group");
        spec.node_preferences = false;
        assert!(preferences(Some(&spec), &apps).is_empty());
        assert!(preferences(None, &apps).is_empty());
    }
}
