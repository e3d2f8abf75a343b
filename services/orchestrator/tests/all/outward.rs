//! The public surface: the OpenAPI document must equal the checked-in one (`cargo run -p xtask -- openapi` writes it).

#[test]
fn openapi_document_equals_the_golden_file() {
    drover_testkit::openapi::assert_golden("orchestrator", &serde_json::to_value(drover_orchestrator::openapi()).unwrap());
}

#[tokio::test]
async fn intent_lists_accept_a_trailing_slash() {
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
