//! Users of projects: what they may do, see and cause to others.

use drover::hub::{Client, code, is_status};
use drover_api::access::AuditList;
use drover_api::operations::Operation;
use drover_e2e::apps::App;
use drover_e2e::emco::{Group, ended};
use drover_e2e::{System, failed, moves, succeeded};
use reqwest::Method;
use serde_json::{Value, json};

const ONLY_A: [&str; 1] = ["onprem/private-a"];

/// A client with a token of this role in a project.
async fn with_role(system: &System, name: &str, role: &str, project: Option<&str>) -> Client {
    let order = json!({"name": name, "role": role, "projects": project.map(|project| vec![project])});
    let made = system.client.post("/v2/tokens", Some(&order)).await.unwrap();
    Client::new(system.url().clone(), made.body["token"].as_str().map(str::to_owned)).unwrap()
}

/// The operator's part: a project with a logical cloud.
async fn prepare(system: &System, group: &Group) {
    group.prepare_without_apps(&system.client).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn newcomer_moves_apps_of_other_projects_only_for_a_mover() {
    let system = System::guarded().await;
    let blog = Group::of("weblog", (1..=4).map(|n| App::new(&format!("hidden-{n}"), 1000)).collect()).in_project("blog");
    let blog = blog.on(&["onprem/private-a", "aws/public-c"]).movable(5);
    succeeded(&blog.deploy(&system.client).await.unwrap());
    let ledger = Group::new("ledger", App::new("ledger", 1000)).on(&ONLY_A).in_project("shop");
    prepare(&system, &ledger).await;

    let deployer = with_role(&system, "deployer", "deployer", Some("shop")).await;
    let refused = ledger.deploy(&deployer).await.unwrap();
    failed(&refused, "plan_infeasible");
    let text = serde_json::to_string(&refused).unwrap();
    assert!(text.contains("it belongs to another project"), "{text}");
    assert!(!text.contains("hidden") && !text.contains("weblog") && !text.contains("blog"), "nothing names the other project: {text}");

    let mover = with_role(&system, "mover", "mover", Some("shop")).await;
    let id = ledger.verb(&mover, "instantiate").await.unwrap();
    let operation: Operation = ended(&mover, &id).await.unwrap();
    succeeded(&operation);
    assert_eq!(operation.moves.len(), 1, "{operation:#?}");
    let text = serde_json::to_string(&operation).unwrap();
    assert!(!text.contains("hidden") && !text.contains("weblog"), "the victim is another project's app: {text}");
    let plan: Value = mover.get(&format!("/v2/plans/{}", operation.plan.unwrap())).await.unwrap();
    assert_eq!(plan["plan"]["candidates"][0]["priority"], 5, "{plan}");
    assert!(!plan.to_string().contains("hidden") && !plan.to_string().contains("weblog"), "{plan}");
    let whole: Operation = system.client.get(&format!("/v2/operations/{id}")).await.unwrap();
    assert_eq!(moves(&system.client, &whole).await.len(), 1);
    assert!(whole.moves[0].app.starts_with("weblog/hidden-"), "{whole:#?}");
    system.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn user_of_a_project_meets_no_other_project_anywhere() {
    let system = System::guarded().await;
    for (project, app) in [("blog", "unseen"), ("shop", "cart")] {
        succeeded(&Group::new(app, App::new(app, 500)).in_project(project).deploy(&system.client).await.unwrap());
    }
    let viewer = with_role(&system, "viewer", "viewer", Some("shop")).await;
    for path in
        ["/v2/projects", "/v2/apps", "/v2/apps?project=blog", "/v2/clusters?view=capacity", "/v2/operations", "/v2/plans", "/", "/ui/apps"]
    {
        // Asked without the typed client, because some of these are pages and no operations of the API.
        let answer = viewer.http().get(viewer.base().join(path).unwrap()).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        let answer = answer.text().await.unwrap();
        assert!(!answer.contains("unseen") && !answer.contains("blog"), "{path}: {answer}");
    }
    let capacity: Value = viewer.get("/v2/clusters?view=capacity").await.unwrap();
    assert!(capacity.to_string().contains("another project's app"), "that room is taken is no secret: {capacity}");

    let of_blog: Value = system.client.get("/v2/apps?project=blog").await.unwrap();
    let copy = &of_blog["items"][0]["bindings"][0];
    let (provider, cluster) = copy["member"].as_str().unwrap().split_once('+').unwrap();
    let pods = format!("/v2/cluster-providers/{provider}/clusters/{cluster}/copies/{}/pods", copy["binding"].as_str().unwrap());
    assert!(system.client.find(&pods).await.unwrap().is_some());
    let operations: Value = system.client.get("/v2/operations").await.unwrap();
    let subject = |operation: &&Value| operation["subject"].as_str().unwrap().starts_with("blog/");
    let operation = operations["items"].as_array().unwrap().iter().find(subject).unwrap()["id"].as_str().unwrap().to_owned();
    let group = Group::new("unseen", App::new("unseen", 500)).in_project("blog");
    for path in [
        pods,
        "/v2/projects/blog".to_owned(),
        format!("{}/status", group.path()),
        format!("{}/apps/unseen", group.composite()),
        "/v2/explain?app=unseen/unseen&project=blog".to_owned(),
        format!("/v2/operations/{operation}"),
        format!("/v2/operations/{operation}/events"),
        format!("/ui/operations/{operation}"),
        "/ui/apps/blog/unseen/v1/unseen/unseen".to_owned(),
    ] {
        let answer = viewer.http().get(viewer.base().join(&path).unwrap()).send().await.unwrap();
        assert_eq!(answer.status(), 404, "{path}");
    }
    for (method, path) in [
        (Method::POST, format!("{}/terminate", group.path())),
        (Method::POST, format!("/v2/operations/{operation}/cancel")),
        (Method::DELETE, "/v2/projects/blog".to_owned()),
    ] {
        let error = viewer.call(method, &path, None).await.unwrap_err();
        assert!(is_status(&error, 404) || is_status(&error, 403), "{path}: {error:#}");
    }
    system.serves_on("unseen", &system.serves("unseen").await).await;
    system.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn audit_log_says_who_did_what_without_a_secret() {
    let system = System::guarded().await;
    let shop = Group::new("cart", App::new("cart", 500)).in_project("shop");
    prepare(&system, &shop).await;
    let deployer = with_role(&system, "deployer", "deployer", Some("shop")).await;
    let secret = "a-password-in-a-manifest";
    let body = json!({"metadata": {"name": "cart"}, "file": base64::Engine::encode(&base64::engine::general_purpose::STANDARD, format!("{}\n---\n{}\n",
        App::new("cart", 500).manifests(), json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"p": secret}})))});
    deployer.upsert(&format!("{}/apps", shop.composite()), "cart", &body).await.unwrap();
    let error = deployer.post("/v2/projects", Some(&json!({"metadata": {"name": "mine"}}))).await.unwrap_err();
    assert_eq!(code(&error), Some("forbidden"), "{error:#}");
    system.client.delete("/v2/tokens/deployer").await.unwrap();
    let error = deployer.get::<Value>("/v2/whoami").await.unwrap_err();
    assert!(is_status(&error, 401), "{error:#}");

    let log: AuditList = system.client.get("/v2/audit?who=deployer").await.unwrap();
    let told: Vec<String> = log.items.iter().rev().map(|e| format!("{} {} {}", e.method, e.path, e.status.unwrap_or_default())).collect();
    assert_eq!(told, [format!("POST {}/apps 201", shop.composite()), "POST /v2/projects 403".to_owned()]);
    let whole: Value = system.client.get("/v2/audit?limit=1000").await.unwrap();
    assert!(!whole.to_string().contains(secret) && !whole.to_string().contains(drover_e2e::API_TOKEN), "{whole}");
    system.end().await;
}
