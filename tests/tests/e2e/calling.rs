//! Apps that call each other: a group with the call graph of Sock Shop is placed as its dry run says.

use std::collections::{BTreeMap, BTreeSet};

use clap::Parser;
use drover::hub::code;
use drover::session::Session;
use drover_e2e::apps::App;
use drover_e2e::emco::Group;
use drover_e2e::{System, scenario, succeeded};
use drover_lab::cli::{Cli, Command, GroupsCommand};
use serde_json::{Value, json};

/// Services of Sock Shop that do something in each request, and the calls between them for one visit.
const CALLS: [(&str, &str, f64); 12] = [
    ("front-end", "catalogue", 2.0),
    ("front-end", "user", 4.0),
    ("front-end", "carts", 3.0),
    ("front-end", "orders", 1.0),
    ("orders", "user", 3.0),
    ("orders", "carts", 1.0),
    ("orders", "shipping", 1.0),
    ("orders", "orders-db", 1.0),
    ("catalogue", "catalogue-db", 2.0),
    ("user", "user-db", 17.0),
    ("carts", "carts-db", 18.0),
    ("shipping", "queue", 1.0),
];

fn apps() -> BTreeSet<&'static str> {
    CALLS.iter().flat_map(|(from, to, _)| [*from, *to]).collect()
}

/// Eleven apps of 250m: one private cluster would hold them, two leave more room, and eight fit on one node.
fn shop() -> Group {
    Group::of("socks", apps().into_iter().map(|name| App::new(name, 250)).collect()).movable(5)
}

fn graph() -> Value {
    let calls: Vec<Value> = CALLS.iter().map(|(from, to, calls)| json!({"from": from, "to": to, "calls": calls})).collect();
    json!({"metadata": {"name": "calls"}, "spec": {"calls": calls, "nodePreferences": true}})
}

type Places = BTreeMap<String, String>;

async fn dry_run(system: &System, group: &Group) -> (Value, Places) {
    let preview = system.client.post(&format!("{}/instantiate?dryRun=All", group.path()), None).await.unwrap().body;
    assert_eq!(preview["decision"]["outcome"], "placed", "{preview}");
    let place = |app: &Value| {
        let member = app["groups"][0]["placement"]["member"].as_str().unwrap();
        (app["app"].as_str().unwrap().to_owned(), member.split_once('+').unwrap().1.to_owned())
    };
    let places = preview["decision"]["apps"].as_array().unwrap().iter().map(place).collect();
    (preview["decision"]["calls"].clone(), places)
}

/// The share of calls between apps on different clusters.
fn crossing(places: &Places) -> f64 {
    let all: f64 = CALLS.iter().map(|(_, _, calls)| calls).sum();
    CALLS.iter().filter(|(from, to, _)| places[*from] != places[*to]).map(|(_, _, calls)| calls).sum::<f64>() / all
}

async fn calling_apps_are_placed_together(system: &System) {
    let group = shop();
    group.approve(&system.client).await.unwrap();
    let (story, apart) = dry_run(system, &group).await;
    assert_eq!(story, Value::Null, "without a call graph the decision has no call groups");

    let path = format!("{}/call-graphs", group.composite());
    let mut bad = graph();
    bad["spec"]["calls"][0]["to"] = "front-end".into();
    let refused = system.client.post(&path, Some(&bad)).await.unwrap_err();
    assert_eq!(code(&refused), Some("call_graph_invalid"));
    bad["spec"]["calls"][0]["to"] = "nobody".into();
    let refused = system.client.post(&path, Some(&bad)).await.unwrap_err();
    assert_eq!(code(&refused), Some("reference_not_found"));
    system.client.post(&path, Some(&graph())).await.unwrap();

    // The call graph takes effect with the next approve.
    system.client.post(&format!("{}/approve", group.path()), None).await.unwrap();
    let (story, planned) = dry_run(system, &group).await;
    assert!(planned.values().all(|cluster| cluster != "public-c"), "the private clusters have room for all: {planned:?}");
    assert!(crossing(&planned) < crossing(&apart), "{planned:?} is no better than {apart:?}");
    assert!((story["crossing"].as_f64().unwrap() - crossing(&planned)).abs() < 1e-6, "{story}");
    assert!(crossing(&planned) <= 0.2, "{planned:?}");
    for (a, b) in [("user", "user-db"), ("carts", "carts-db")] {
        assert_eq!(planned[a], planned[b], "{planned:?}");
    }

    let id = group.verb(&system.client, "instantiate").await.unwrap();
    succeeded(&drover_e2e::emco::ended(&system.client, &id).await.unwrap());
    let mut landed = Places::new();
    for member in system.members() {
        landed.extend(member.deployed().await.into_iter().map(|app| (app, member.name.to_owned())));
    }
    assert_eq!(landed, planned);

    explained(system, &planned).await;
    tried(system, &planned).await;
    dependency(system, &planned).await;
    preferred(system, &planned).await;
}
scenario!(calling_apps_are_placed_together);

async fn explained(system: &System, places: &Places) {
    let told: Value = system.client.get("/v2/explain?app=socks%2Fcarts&project=e2e").await.unwrap();
    let calls = &told["calls"];
    assert!((calls["running"]["crossing"].as_f64().unwrap() - crossing(places)).abs() < 1e-6, "{calls}");
    let bounds: Vec<u64> = calls["byRho"].as_array().unwrap().iter().map(|story| story["rho"].as_u64().unwrap()).collect();
    assert_eq!(bounds, [1, 2, 3, 4, 5, 6]);
    let groups = |rho: usize| calls["byRho"][rho - 1]["groups"].as_array().unwrap().len();
    assert_eq!(groups(1), apps().len());
    assert!(groups(4) < groups(2) && groups(2) < groups(1), "{calls}");
}

/// `drover groups place` sees where the apps run, and says what the policies would make of the same members.
async fn tried(system: &System, places: &Places) {
    let typed = ["drover", "groups", "place", "socks", "--project", "e2e", "--url", system.url().as_str()];
    let parsed = Cli::try_parse_from(typed).unwrap();
    let Command::Groups(GroupsCommand::Place(args)) = parsed.command else { panic!("{:?}", parsed.command) };
    let (_, answer) = drover_lab::groups::compare(&Session::open(parsed.globals).unwrap(), &args).await.unwrap();
    let told = serde_json::to_value(answer).unwrap();
    let clusters = |outcome: &Value| -> Places {
        let members = outcome["members"].as_object().unwrap().iter();
        members.map(|(app, member)| (app.clone(), member.as_str().unwrap().split_once('+').unwrap().1.to_owned())).collect()
    };
    assert_eq!(clusters(&told["now"]), *places);
    let policies = told["policies"].as_array().unwrap();
    assert_eq!(policies.iter().map(|one| one["policy"].as_str().unwrap()).collect::<Vec<_>>(), ["learned", "cgs-greedy", "cgs-search"]);
    let objective: Vec<f64> = policies.iter().map(|one| one["objective"].as_f64().unwrap()).collect();
    for one in policies {
        assert_eq!(one["unplaced"], json!([]), "{told}");
        let share = one["sigmaContainer"].as_f64().unwrap();
        assert!((share - crossing(&clusters(one))).abs() < 1e-6, "{told}");
    }
    assert!(objective[0] <= objective[1] + 1e-9 && objective[2] <= objective[1] + 1e-9, "the guard and the search lose nothing: {told}");
}

/// The value of migration's parameter `CallDependency` for each app follows from the call graph and the placement.
async fn dependency(system: &System, places: &Places) {
    let policy = json!({"mode": "order", "active": true, "algorithms": [{"algorithm": "CallDependency"}]});
    let document = json!({"metadata": {"name": "loose-first"}, "spec": policy});
    system.client.upsert("/v2/projects/e2e/migration-policies", "loose-first", &document).await.unwrap();
    let mut most: f64 = 0.0;
    for member in ["private-a", "private-b"] {
        let wish = json!({"project": "e2e", "policy": "loose-first", "member": format!("onprem+{member}")});
        let tested = system.client.post("/v2/policy-tests", Some(&wish)).await.unwrap().body;
        let mut last = 0.0;
        for candidate in tested["candidates"].as_array().unwrap() {
            let app = candidate["app"].as_str().unwrap();
            let here = |other: &str| places[other] == member;
            let calls = CALLS.iter().filter(|(from, to, _)| (*from == app && here(to)) || (*to == app && here(from)));
            let expected: f64 = calls.map(|(_, _, calls)| calls).sum();
            let value = candidate["scores"][0]["value"].as_f64().unwrap();
            assert!((value - expected).abs() < 1e-6, "{app} on {member}: {value}, not {expected}");
            assert!(value >= last, "those with the fewest calls here move first: {tested}");
            last = value;
        }
        most = most.max(last);
    }
    assert!(most >= 18.0, "a database and its client are together: {places:?}");
}

/// The manifests have pod affinities, so that a scheduler which supports them puts apps with many calls between them on one node.
async fn preferred(system: &System, places: &Places) {
    for (app, peer) in [("user", "user-db"), ("carts", "carts-db")] {
        let member = system.member(&places[app]);
        let deployment = serde_json::to_value(member.deployments().get(app).await.unwrap()).unwrap();
        let terms = "/spec/template/spec/affinity/podAffinity/preferredDuringSchedulingIgnoredDuringExecution";
        let terms = deployment.pointer(terms).and_then(Value::as_array).unwrap_or_else(|| panic!("{app}: {deployment}"));
        let weight = |name: &str| {
            let mut found = terms.iter().filter(|term| term["podAffinityTerm"]["labelSelector"]["matchLabels"]["drover.io/app"] == name);
            found.next().and_then(|term| term["weight"].as_u64()).unwrap_or(0)
        };
        assert!(weight(peer) >= 50, "{app}: {terms:?}");
        let nodes = member.nodes_of(&[app, peer]).await;
        assert_eq!(nodes.len(), 1, "{app} and {peer} are on {nodes:?}");
    }
}
