//! The disk of Postgres is full: requests are refused with a clear error, nothing is lost, and no repair is needed when there is room again.

use std::time::Duration;

use drover::hub::{Client, Problem};
use drover_api::operations::Operation;
use drover_e2e::apps::App;
use drover_e2e::emco::{Group, ended};
use drover_e2e::{System, succeeded};
use drover_testkit::{KillablePostgres, SmallDisk, eventually};
use serde_json::{Value, json};

/// It only guards against hanging.
const TIMEOUT: Duration = Duration::from_secs(120);
/// In MiB: enough for the empty databases of all services and a little more.
const DISK: u32 = 192;

fn group(name: &str) -> Group {
    Group::new(name, App::new(name, 500)).in_project("full").on(&["onprem/private-a", "onprem/private-b"])
}

/// Creates projects until that is refused because the disk is full. Returns the names of those that were created, and the refusal.
async fn until_refused(client: &Client, prefix: &str) -> (Vec<String>, Problem) {
    let mut made = Vec::new();
    for at in 0..5000 {
        let name = format!("{prefix}-{at}");
        let body = json!({"metadata": {"name": name, "description": "x".repeat(900)}});
        match client.post("/v2/projects", Some(&body)).await {
            Ok(_) => made.push(name),
            Err(error) => return (made, error.downcast::<Problem>().expect("the refusal is a problem document")),
        }
    }
    panic!("5000 projects do not fill the disk");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn full_disk_is_reported_and_loses_no_accepted_request() {
    let Some(disk) = SmallDisk::mount(DISK) else { return };
    let postgres = KillablePostgres::start_on(&disk).await;
    let system = System::on_postgres(postgres.url()).await;
    let client = &system.client;
    succeeded(&group("before").deploy(client).await.unwrap());
    let late: Vec<Group> = ["late-1", "late-2", "late-3", "late-4"].map(group).into();
    for group in &late {
        group.approve(client).await.unwrap();
    }

    disk.fill();
    let (made, refusal) = until_refused(client, "full").await;
    assert_eq!((refusal.0.status, refusal.0.code.as_str()), (507, "store_full"), "{refusal}");
    // Reads work, and what is deployed runs.
    let projects: Vec<Value> = client.get("/v2/projects").await.unwrap();
    assert_eq!(projects.len(), made.len() + 1, "every project whose creation was confirmed exists");
    assert_eq!(system.home("before").await, system.serves("before").await);
    // Some pages still have room for a row, so some requests are accepted; these must be carried out. The others get an error.
    let mut accepted = Vec::new();
    for group in &late {
        match group.verb(client, "instantiate").await {
            Ok(id) => accepted.push((group, id)),
            Err(error) => assert!(matches!(drover::hub::code(&error), Some("store_full" | "store_unavailable")), "{error}"),
        }
    }

    disk.make_room();
    for (_, id) in &accepted {
        let operation = ended(client, id).await.unwrap();
        succeeded(&operation);
    }
    for group in late.iter().filter(|group| accepted.iter().all(|(other, _)| other.name != group.name)) {
        // A refused request has had no effect, so it can be repeated.
        let id = eventually(TIMEOUT, async || group.verb(client, "instantiate").await.ok()).await;
        let operation: Operation = ended(client, &id).await.unwrap();
        succeeded(&operation);
    }
    for group in &late {
        let home = system.home(&group.name).await;
        system.serves_on(&group.name, &home).await;
    }
    let after: Vec<Value> = client.get("/v2/projects").await.unwrap();
    assert_eq!(after.len(), projects.len(), "nothing was lost");
    client.post("/v2/projects", Some(&json!({"metadata": {"name": "after"}}))).await.unwrap();
    system.end().await;
    postgres.end().await;
    drop(disk);
}
