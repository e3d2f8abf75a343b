//! Documents and journals of versions whose fields had snake_case names are read with all their values.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::bindings::BindingStatus;
use crate::members::Member;
use crate::plans::PlanDocument;
use crate::scheduling::{AppRequest, Capacity, Decision, PlanRequest};
use crate::traffic::{CopyEndpoints, RouteTable};

const ID: &str = "0199a0c0-0000-7000-8000-000000000001";

/// Fails unless the value is read, and written again with the same values below names in camelCase. Equal text means that no field fell
/// back to its default.
fn read<T: Serialize + DeserializeOwned>(earlier: &Value) {
    let read: T = serde_json::from_value(earlier.clone()).unwrap_or_else(|error| panic!("{error}: {earlier:#}"));
    assert_eq!(serde_json::to_value(read).unwrap(), camel(earlier));
}

fn camel(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(camel).collect(),
        Value::Object(fields) => fields.iter().map(|(name, value)| (camel_name(name), camel(value))).collect(),
        other => other.clone(),
    }
}

fn camel_name(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| name + &word[..1].to_uppercase() + &word[1..])
}

fn dig() -> Value {
    json!({"id": ID, "project": "shop", "composite_app": "cart", "version": "v1", "name": "cart"})
}

fn amounts(cpu: i64) -> Value {
    json!({"cpu": cpu, "memory": 2048, "pods": 1})
}

fn request() -> Value {
    let group = json!({"workload": "DaemonSet/web", "replicas": 2, "surge": 1, "per_node": true, "requests": amounts(100),
        "node_selector": {"disk": "ssd"}, "node_affinity": [[{"key": "zone", "operator": "In", "values": ["a"]}]]});
    let calls = json!({"to": [{"app": "db", "micro_calls": 7}], "rho": 2, "keep_together": true,
        "latencies": [{"from": "onprem+a", "to": "aws+b", "us": 900}], "policy": "learned"});
    json!({"app": "web", "demand": {"groups": [group], "volumes": 0, "at_most_once": true},
        "terms": {"intent": {"anyOf": [{"clusterProvider": "onprem", "cluster": "a"}]}, "logical_cloud": ["onprem+a"],
            "when_full": "preferred", "packing": "tight", "allow_dependants": true, "calls": calls}})
}

fn candidate() -> Value {
    json!({"claim": ID, "dig": dig(), "app": "web", "member": "onprem+a", "priority": 3, "scores": [], "taken": false,
        "why_not": {"code": "volume", "detail": "it has a volume"}})
}

#[test]
fn earlier_requests_and_decisions_are_read() {
    read::<AppRequest>(&request());
    let story = json!({"policy": "learned", "taken": "cgs-greedy", "objective": 1.5, "before_search": 2.5});
    read::<Decision>(&json!({"id": ID, "dig": dig(), "outcome": "no_room", "seq": 4,
        "apps": [{"app": "web", "groups": [{"more": 0, "considered": [
            {"member": "onprem+a", "priority": 1, "verdict": "no_node_matches", "reason": "no", "age_ms": 40}]}]}],
        "calls": {"rho": 2, "groups": [], "between_groups": 0.5, "waiting_us": 12.5, "chosen_by": story}}));
}

#[test]
fn earlier_plans_are_read() {
    let plan = json!({"targets": ["onprem+a"], "waves": [], "newcomer": [], "needed": amounts(5), "freed": amounts(6), "candidates": [candidate()],
        "cost_s": 3.5, "tried": [], "dependants": [], "examined": 9, "scheduling": {"holds": "likely", "newcomer_order": ["web"]}});
    let document = |result: &str, value: Value| {
        json!({"id": ID, "kind": {"newcomer": dig()}, "state": "proposed", result: value, "policy": "", "made_on": "x:1",
            "created_at": "2026-11-01T00:00:00Z"})
    };
    read::<PlanDocument>(&document("plan", plan));
    read::<PlanDocument>(&document("infeasible", json!({"members": [], "candidates": [candidate()], "cut_short": true, "examined": 2})));
    read::<PlanRequest>(
        &json!({"kind": {"kind": "newcomer", "dig": dig(), "apps": [request()]}, "movability": [], "excluded": {}, "refused": [],
        "external": {}, "fewest_moves": true,
        "policy": {"name": "p", "mode": "order", "algorithms": [], "cascade_depth": 1, "definitions": {}, "parameters": {}}}),
    );
}

#[test]
fn earlier_capacities_members_and_copies_are_read() {
    let observed = json!({"requests": {}, "used": amounts(3), "age_s": 5, "ready_s": 2.5});
    read::<Capacity>(&json!({"nodes": [], "metrics": false, "observed": {ID: observed}, "age_ms": 77}));
    read::<Member>(&json!({"id": ID, "key": "onprem+a", "priority": 1, "labels": [], "state": "Ready", "credential_version": 3}));
    read::<BindingStatus>(
        &json!({"id": ID, "member": "onprem+a", "digest": "d", "fence": 1, "phase": "Ready", "objects": [], "serving_after": 5}),
    );
}

#[test]
fn earlier_table_of_the_data_path_is_read() {
    read::<RouteTable>(
        &json!({"id": ID, "name": "shop/cart/web", "protocol": "http", "port": 80, "service": "web", "service_port": "http",
        "hold_seconds": 4, "backends": []}),
    );
    read::<CopyEndpoints>(&json!({"binding": ID, "member": "onprem+a", "ports": [
        {"namespace": "n", "service": "web", "port": "http", "app_protocol": "kubernetes.io/h2c", "addresses": ["10.0.0.1:80"]}]}));
}
