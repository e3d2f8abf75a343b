//! The call graph of a group's composite app: what placement is told of each app's calls, and who would like whose node.

use std::collections::BTreeMap;

use drover_api::scheduling::groups::{CallGraph, Grouping, Limits, Service, Variant};
use sqlx::PgConnection;

use super::{Error, Group, measured};
use crate::render::prefer::Peers;
use crate::resources::CALL_GRAPH;
use crate::resources::call_graph::{CallGraphSpec, CallSource};

/// The call graph, if there is one. Several are an error: nobody could say which counts.
pub async fn of(tx: &mut PgConnection, group: &Group) -> Result<Option<CallGraphSpec>, Error> {
    let mut graphs = drover_resources::children::<CallGraphSpec>(&mut *tx, &CALL_GRAPH, group.composite_app.id).await?;
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

/// Whose node each app's pods would like: the others of its group, by their calls with it as a share of the heaviest pair's (a
/// scheduler adds up what both sides wish for, so the scale must be one for all). Empty unless the graph allows it.
pub fn preferences(graph: Option<&CallGraphSpec>, apps: &[String]) -> BTreeMap<String, Peers> {
    let Some(spec) = graph.filter(|graph| graph.node_preferences) else { return BTreeMap::new() };
    let services = apps.iter().map(|app| Service { name: app.clone(), request: [0.0; 2], replicas: 1 });
    let known = |app: &String| apps.contains(app);
    let calls = spec.calls.iter().filter(|call| known(&call.from) && known(&call.to)).map(|call| (&*call.from, &*call.to, call.weight()));
    // What is wrong with a graph was said when it was declared.
    let Ok(graph) = CallGraph::named(services.collect(), calls) else { return BTreeMap::new() };
    let Ok(groups) = Grouping::of(&graph, Some(spec.rho() as usize), Variant::Merge, &Limits::default()) else { return BTreeMap::new() };
    let group = groups.index();
    let heaviest = graph.weights().iter().map(|(_, _, calls)| *calls).fold(f64::MIN_POSITIVE, f64::max);
    let mut peers: BTreeMap<String, Peers> = BTreeMap::new();
    for (a, b, calls) in graph.weights().into_iter().filter(|(a, b, _)| group[*a] == group[*b]) {
        let weight = ((calls / heaviest * 100.0).round() as u32).clamp(1, 100);
        peers.entry(apps[a].clone()).or_default().push((apps[b].clone(), weight));
        peers.entry(apps[b].clone()).or_default().push((apps[a].clone(), weight));
    }
    peers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_those_of_the_group_by_their_calls_and_only_where_allowed() {
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
        assert!(of("mail").is_empty(), "it is in no group with others");
        spec.node_preferences = false;
        assert!(preferences(Some(&spec), &apps).is_empty());
        assert!(preferences(None, &apps).is_empty());
    }
}
