//! Changes between the time when a plan is made and the time when it is applied.

use drover_e2e::apps::App;
use drover_e2e::emco::{Group, ended, operation_id};
use drover_e2e::{System, scenario, succeeded};
use reqwest::Method;
use serde_json::json;

use super::filling::ones;

async fn outdated_plan_is_refused(system: &System) {
    let movable = Group::of("movable", ones("m", 4)).on(&["onprem/private-a", "aws/public-c"]).movable(5);
    succeeded(&movable.deploy(&system.client).await.unwrap());
    Group::new("newcomer", App::new("newcomer", 1000)).on(&["onprem/private-a"]).approve(&system.client).await.unwrap();
    let wish = json!({
        "kind": "newcomer", "project": "e2e", "compositeApp": "newcomer",
        "compositeAppVersion": "v1", "deploymentIntentGroup": "newcomer",
    });
    let plan = system.client.post("/v2/plans", Some(&wish)).await.unwrap().body;
    assert_eq!(plan["state"], "proposed", "{plan}");
    // Its victims are terminated.
    let id = movable.verb(&system.client, "terminate").await.unwrap();
    succeeded(&ended(&system.client, &id).await.unwrap());

    let path = format!("/v2/plans/{}/apply", plan["id"].as_str().unwrap());
    let (code, reasons) = match operation_id(&system.client, Method::POST, &path).await {
        Ok(id) => {
            let operation = ended(&system.client, &id).await.unwrap();
            (operation.code.unwrap_or_default(), operation.reasons.join("\n"))
        }
        Err(error) => (drover::hub::code(&error).unwrap_or_default().to_owned(), error.to_string()),
    };
    assert_eq!(code, "world_changed", "{reasons}");
    assert!(reasons.contains("m-"), "the reasons name what changed: {reasons}");
    assert_eq!(system.home("newcomer").await, "");
}
scenario!(outdated_plan_is_refused);
