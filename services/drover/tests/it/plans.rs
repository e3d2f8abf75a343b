//! The lines of plans and of dry runs, compared with a file that people have read.

use std::path::Path;

use drover::plans;
use drover_api::plans::PlanDocument;
use serde_json::{Value, json};

const ID: &str = "00000000-0000-0000-0000-000000000001";

fn group(application: &str) -> Value {
    json!({"id": ID, "project": "default", "compositeApp": application, "version": "v1", "name": application})
}

fn amounts(cpu: u32, mebibytes: u64) -> Value {
    json!({"cpu": cpu, "memory": mebibytes << 20, "pods": 1})
}

/// Two candidates: `cart` is moved, and `pages` stays for this reason, or because it is not needed.
fn candidates(why: Option<(&str, &str)>) -> Value {
    let candidate = |application: &str, priority: u8, value: Option<f64>| {
        json!({"claim": ID, "dig": group(application), "app": "web", "member": "onprem+private-a", "priority": priority, "taken": value.is_some(),
            "scores": [{"algorithm": "CPUUtilization", "value": value}], "total": value})
    };
    let mut stays = candidate("blog", 10, None);
    if let Some((code, detail)) = why {
        stays["whyNot"] = json!({"code": code, "detail": detail});
    }
    json!([candidate("shop", 3, Some(0.125)), stays])
}

/// Moves `shop/web` from private-a to public-c.
fn plan(why: Option<(&str, &str)>) -> Value {
    json!({
        "targets": ["onprem+private-a"], "newcomer": [], "costS": 2.5, "candidates": candidates(why),
        "needed": amounts(1500, 512), "freed": amounts(2000, 1024),
        "waves": [[{"claim": ID, "dig": group("shop"), "app": "web", "from": "onprem+private-a", "to": "aws+public-c", "pods": [],
            "frees": amounts(2000, 1024), "reason": "lowest priority; public-c has room"}]],
        "dependants": [{"claim": ID, "service": "default/web"}],
        "scheduling": {"holds": "one", "reasons": [{"member": "aws+public-c", "reason": "the order of the pods matters"}]},
    })
}

fn document(kind: Value, plan: Option<Value>, infeasible: Option<Value>) -> Value {
    json!({"id": ID, "kind": kind, "state": "proposed", "plan": plan, "infeasible": infeasible, "policy": "", "madeOn": "1",
        "createdAt": "2026-01-01T00:00:00Z"})
}

#[test]
fn lines_of_plans_and_dry_runs_are_as_reviewed() {
    let volume = Some(("volume", "its volume cannot be taken along"));
    let why = json!([{"member": "onprem+private-a", "reason": "cpu: needs 9, the emptiest node has 400m free"}]);
    let infeasible = json!({"members": why, "candidates": candidates(volume), "cutShort": true, "examined": 4096});
    let drain = json!({"drain": "onprem+private-a"});
    let shown = |document: Value, why_not: bool| plans::text(&serde_json::from_value::<PlanDocument>(document).unwrap(), why_not);
    let rows = |body: &Value| plans::dry_run_rows(body).into_iter().flatten().collect::<Vec<_>>().join("\n");
    let newcomer = document(json!({"newcomer": group("ledger")}), Some(plan(volume)), None);
    let chosen = json!({"member": "onprem+private-a", "priority": 1, "verdict": "chosen", "reason": "most room left"});
    let full = json!({"member": "aws+public-c", "priority": 5, "verdict": "no_room", "reason": "cpu: 400m free"});
    let decision = |outcome: &str, apps: Value| json!({"id": ID, "dig": group("ledger"), "outcome": outcome, "apps": apps});
    let placed = decision("placed", json!([{"app": "ledger", "groups": [{"considered": [chosen, full]}]}]));
    let update = json!({
        "applied": [{"app": "web", "member": "onprem+private-a"}], "added": ["items"], "removed": [{"app": "old", "member": "onprem+private-a"}],
        "misfits": ["onprem+private-a: cpu: 300m free, 500m needed"],
        "objects": [{"object": "Deployment/default/web", "change": "changed"}],
        "refusals": [{"app": "web", "member": "onprem+private-a", "reasons": ["Deployment/default/web: spec.replicas must not be negative"]}],
    });
    let refusal =
        json!([{"app": "ledger", "member": "onprem+private-a", "mayEnd": true, "reasons": ["Service/default/web exists in the member"]}]);
    let freed = json!({"decision": decision("no_room", json!([])), "plan": newcomer, "refusals": refusal});
    assert!(plans::fits(&freed).is_ok() && plans::fits(&update).is_err());
    let mut surge = update.clone();
    surge["plan"] = newcomer.clone();
    let parts = [
        ("plan show", shown(newcomer.clone(), false)),
        ("plan show, nothing else is needed", shown(document(json!({"newcomer": group("ledger")}), Some(plan(None)), None), false)),
        ("plan show --why-not", shown(newcomer.clone(), true)),
        ("plan drain", shown(document(drain.clone(), Some(plan(volume)), None), false)),
        ("plan drain that finds nothing", shown(document(drain, None, Some(infeasible)), false)),
        ("deploy --dry-run of a new application", rows(&json!({"decision": placed}))),
        ("deploy --dry-run where others would move", rows(&json!({"decision": decision("no_room", json!([])), "plan": newcomer}))),
        ("deploy --dry-run where a name becomes free with the others", rows(&freed)),
        ("deploy --dry-run of an update", rows(&update)),
        ("deploy --dry-run of an update for which others would move", rows(&surge)),
    ];
    let text: String = parts.into_iter().map(|(name, text)| format!("# {name}\n{}\n\n", text.trim_end())).collect();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/golden/plans.txt");
    if std::env::var_os("DROVER_ACCEPT").is_some() {
        std::fs::write(&golden, &text).unwrap();
    }
    let reviewed = std::fs::read_to_string(&golden).unwrap_or_default();
    assert!(text == reviewed, "the lines have changed; look at them, then accept them with DROVER_ACCEPT=1:\n{text}");
}

#[test]
fn services_that_others_may_call_are_one_line() {
    let told = |services: &[&str]| {
        let mut plan = plan(None);
        plan["dependants"] = services.iter().map(|service| json!({"claim": ID, "service": service})).collect();
        let document: PlanDocument = serde_json::from_value(document(json!({"drain": "onprem+private-a"}), Some(plan), None)).unwrap();
        let text = plans::text(&document, false);
        text.lines().filter(|line| line.contains("may call")).map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(told(&[]), Vec::<String>::new());
    assert_eq!(
        told(&["shop/ads", "shop/cart", "shop/web"]),
        ["note: other apps may call these Services by name: shop/ads, shop/cart, shop/web"]
    );
    let many = told(&["shop/ads", "shop/cart", "shop/web", "shop/mail", "shop/redis"]);
    assert_eq!(many, ["note: other apps may call these Services by name: shop/ads, shop/cart, shop/web (and 2 more)"]);
}
