//! What is promised outside: the OpenAPI document as it is checked in (`cargo run -p xtask -- openapi` writes it).

#[test]
fn the_document_is_the_golden_one() {
    drover_testkit::openapi::assert_golden("orchestrator", &serde_json::to_value(drover_orchestrator::openapi()).unwrap());
}

#[tokio::test]
async fn emcos_clients_may_ask_with_a_slash_at_the_end() {
    let stack = crate::support::Stack::undocumented().await;
    let group = "/v2/projects/p/composite-apps/c/v1/deployment-intent-groups/d";
    for path in [format!("{group}/intents/?intent=i"), format!("{group}/generic-placement-intents/g/app-intents/?app=a")] {
        let answer = stack.call("GET", &path, None).await;
        assert!(
            answer.status == 404 && answer.body["detail"].as_str().unwrap().contains("not found"),
            "the group is missing, not the route: {}",
            answer.body
        );
    }
}
