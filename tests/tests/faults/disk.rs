//! The disk of Postgres is full: said clearly, nothing lost, and nothing to be repaired when there is room again.

use std::time::Duration;

use drover::client::{Client, Problem};
use drover_api::operations::Operation;
use drover_e2e::apps::App;
use drover_e2e::emco::{Group, ended};
use drover_e2e::{World, succeeded};
use drover_testkit::{KillablePostgres, SmallDisk, eventually};
use serde_json::{Value, json};

/// Only against hanging.
const PATIENCE: Duration = Duration::from_secs(120);
/// MiB: the empty databases of all services and some more.
const DISK: u32 = 192;

fn group(name: &str) -> Group {
    Group::new(name, App::new(name, 500)).in_project("full").on(&["onprem/private-a", "onprem/private-b"])
}

/// Asks for projects until the disk does not take another page; the names of those that were made, and the refusal.
async fn until_refused(client: &Client, prefix: &str) -> (Vec<String>, Problem) {
    let mut made = Vec::new();
    for at in 0..5000 {
        let name = format!("{prefix}-{at}");
        let body = json!({"metadata": {"name": name, "description": "x".repeat(900)}});
        match client.post("/v2/projects", Some(&body)).await {
            Ok(_) => made.push(name),
            Err(error) => return (made, error.downcast::<Problem>().expect("a refusal in Drover's words")),
        }
    }
    panic!("the disk never fills");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_full_disk_is_said_and_costs_nothing_that_was_promised() {
    let Some(disk) = SmallDisk::mount(DISK) else { return };
    let postgres = KillablePostgres::start_on(&disk).await;
    let world = World::on_postgres(postgres.url()).await;
    let client = &world.client;
    succeeded(&group("before").deploy(client).await.unwrap());
    let late: Vec<Group> = ["late-1", "late-2", "late-3", "late-4"].map(group).into();
    for group in &late {
        group.approve(client).await.unwrap();
    }

    disk.fill();
    let (made, refusal) = until_refused(client, "full").await;
    assert_eq!((refusal.0.status, refusal.0.code.as_str()), (507, "store_full"), "{refusal}");
    // What is there can be read, and runs.
    let projects: Vec<Value> = client.get("/v2/projects").await.unwrap();
    assert_eq!(projects.len(), made.len() + 1, "what was answered for is there");
    assert_eq!(world.home("before").await, world.serves("before").await);
    // Some pages have room for another row: these are accepted, and must not be forgotten. The others are told.
    let mut accepted = Vec::new();
    for group in &late {
        match group.verb(client, "instantiate").await {
            Ok(id) => accepted.push((group, id)),
            Err(error) => assert!(matches!(drover::client::code(&error), Some("store_full" | "store_unavailable")), "{error}"),
        }
    }

    disk.make_room();
    for (_, id) in &accepted {
        let operation = ended(client, id).await.unwrap();
        succeeded(&operation);
    }
    for group in late.iter().filter(|group| accepted.iter().all(|(other, _)| other.name != group.name)) {
        // It was told no, and that was true.
        let id = eventually(PATIENCE, async || group.verb(client, "instantiate").await.ok()).await;
        let operation: Operation = ended(client, &id).await.unwrap();
        succeeded(&operation);
    }
    for group in &late {
        let home = world.home(&group.name).await;
        world.serves_on(&group.name, &home).await;
    }
    let after: Vec<Value> = client.get("/v2/projects").await.unwrap();
    assert_eq!(after.len(), projects.len(), "nothing was lost");
    client.post("/v2/projects", Some(&json!({"metadata": {"name": "after"}}))).await.unwrap();
    world.end().await;
    postgres.end().await;
    drop(disk);
}
