//! The world changes between deciding and doing.

use drover_e2e::apps::App;
use drover_e2e::emco::{Group, ended, operation_id};
use drover_e2e::{World, scenario, succeeded};
use reqwest::Method;
use serde_json::json;

use super::filling::ones;

async fn a_plan_of_yesterday_is_refused(world: &World) {
    let movable = Group::of("movable", ones("m", 4)).on(&["onprem/private-a", "aws/public-c"]).movable(5);
    succeeded(&movable.deploy(&world.client).await.unwrap());
    Group::new("newcomer", App::new("newcomer", 1000)).on(&["onprem/private-a"]).approve(&world.client).await.unwrap();
    let wish = json!({
        "kind": "newcomer", "project": "e2e", "compositeApp": "newcomer",
        "compositeAppVersion": "v1", "deploymentIntentGroup": "newcomer",
    });
    let plan = world.client.post("/v2/plans", Some(&wish)).await.unwrap().body;
    assert_eq!(plan["state"], "proposed", "{plan}");
    // Its victims leave by themselves.
    let id = movable.verb(&world.client, "terminate").await.unwrap();
    succeeded(&ended(&world.client, &id).await.unwrap());

    let path = format!("/v2/plans/{}/apply", plan["id"].as_str().unwrap());
    let (code, reasons) = match operation_id(&world.client, Method::POST, &path).await {
        Ok(id) => {
            let operation = ended(&world.client, &id).await.unwrap();
            (operation.code.unwrap_or_default(), operation.reasons.join("\n"))
        }
        Err(error) => (drover::client::code(&error).unwrap_or_default().to_owned(), error.to_string()),
    };
    assert_eq!(code, "world_changed", "{reasons}");
    assert!(reasons.contains("m-"), "it says what changed: {reasons}");
    assert_eq!(world.home("newcomer").await, "");
}
scenario!(a_plan_of_yesterday_is_refused);
