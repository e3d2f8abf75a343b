//! Background tasks that panic: each is started again and the whole works on, or its service ends with an error.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_e2e::apps::App;
use drover_e2e::emco::{Group, ended};
use drover_e2e::{Backend, System, moves, succeeded};
use drover_service::OnFailure;
use drover_service::tasks::TaskState;
use drover_testkit::eventually;

/// Only against hanging.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Tasks by service, and whether they end the process.
fn tasks(system: &System) -> BTreeMap<(String, String), OnFailure> {
    let of = |(service, tasks): (&'static str, &drover_service::Tasks)| {
        tasks.list().tasks.into_iter().map(move |task| ((service.to_owned(), task.name), task.on_failure)).collect::<Vec<_>>()
    };
    system.tasks().flat_map(of).collect()
}

fn expected() -> BTreeMap<(String, String), OnFailure> {
    let named = |service: &str, names: &[&str], policy| {
        names.iter().map(|name| ((service.to_owned(), (*name).to_owned()), policy)).collect::<Vec<_>>()
    };
    let workers = ["member/aws+public-c", "member/onprem+private-a", "member/onprem+private-b"];
    let mut all = [
        named("cluster-manager", &["follow-registrations", "links"], OnFailure::Restart),
        named("cluster-manager", &["agents-of-clusters"], OnFailure::EndProcess),
        named("cluster-manager", &workers, OnFailure::RestartOneOfMany),
        named("placement", &["follow-members", "follow-capacity", "expire-capacity", "tidy"], OnFailure::Restart),
        named("placement", &["ledger-writer"], OnFailure::EndProcess),
        named("migration", &["follow-fleet", "orphans", "plan-outcomes", "reliefs"], OnFailure::Restart),
        named("resource-synchronizer", &["follow-endpoints", "follow-members", "follow-routes", "gateways"], OnFailure::Restart),
        named("resource-synchronizer", &workers, OnFailure::RestartOneOfMany),
        named(
            "orchestrator",
            &[
                "follow-bindings",
                "follow-members",
                "observe",
                "retire",
                "sweep",
                "extend",
                "clouds",
                "hand-over",
                "wake-steps",
                "publish-routes",
                "follow-traffic-0",
                "follow-traffic-1",
                "agents",
                "claims",
                "bounds",
                "reliefs",
            ],
            OnFailure::Restart,
        ),
        named("traffic", &["certificates", "follow-endpoints", "follow-routes", "listen", "probe", "report", "store"], OnFailure::Restart),
        named("traffic", &["hand-over"], OnFailure::EndProcess),
        named("orchestrator", &["engine-claim", "engine-lease", "engine-wakes"], OnFailure::Restart),
        named("orchestrator", &["engine-name"], OnFailure::EndProcess),
    ]
    .concat();
    for service in ["cluster-manager", "placement", "migration", "resource-synchronizer", "orchestrator", "gateway", "traffic"] {
        all.extend(named(service, &["http-server"], OnFailure::EndProcess));
    }
    all.into_iter().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_task_that_may_restart_restarts_and_operations_succeed() {
    let system = System::new(Backend::Simulated).await;
    let filling = (1..=4).map(|at| App::new(&format!("calm-{at}"), 1000)).collect();
    succeeded(&Group::of("calm", filling).movable(5).deploy(&system.client).await.unwrap());
    assert_eq!(tasks(&system), expected(), "left: the supervised tasks; right: those that this test knows");

    for (_, tasks) in system.tasks() {
        for before in tasks.list().tasks.into_iter().filter(|task| task.on_failure != OnFailure::EndProcess) {
            // The workers of members are started again by the task that keeps them, which has panicked before them.
            eventually(TIMEOUT, async || tasks.inject_panic(&before.name).then_some(())).await;
            eventually(TIMEOUT, async || {
                let now = tasks.list().tasks.into_iter().find(|task| task.name == before.name)?;
                (now.state == TaskState::Running && now.restarts == 1 && now.last_error.is_some()).then_some(())
            })
            .await;
        }
    }

    // What follows needs every feed, the workers of all members, the engine and the planner.
    let newcomer = Group::new("newcomer", App::new("newcomer", 2000)).in_project("other").on(&["onprem/private-a"]);
    let operation = newcomer.deploy(&system.client).await.unwrap();
    succeeded(&operation);
    assert!(!moves(&system.client, &operation).await.is_empty(), "private-a was full, so something had to move: {operation:#?}");
    system.serves_on("newcomer", "private-a").await;
    let id = newcomer.verb(&system.client, "terminate").await.unwrap();
    succeeded(&ended(&system.client, &id).await.unwrap());
    eventually(TIMEOUT, async || {
        let clusters = system.clusters().await;
        let requested: i64 = clusters.iter().map(|cluster| cluster.total.requested.cpu).sum();
        (requested == 4000 && system.home("newcomer").await.is_empty()).then_some(())
    })
    .await;
    system.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_task_that_cannot_restart_ends_the_process_with_its_name() {
    for ((service, name), _) in expected().into_iter().filter(|(_, policy)| *policy == OnFailure::EndProcess) {
        // None of these tasks needs a member.
        let system = System::unregistered().await;
        let (_, tasks) = system.tasks().find(|(of, _)| *of == service).unwrap();
        eventually(TIMEOUT, async || tasks.inject_panic(&name).then_some(())).await;
        let failure = tokio::time::timeout(TIMEOUT, system.ended()).await.expect("the service ends by itself").to_string();
        assert!(failure.contains(&service) && failure.contains(&name) && failure.contains("panicked"), "{failure}");
        assert!(tasks.unready().iter().any(|(task, _)| *task == name), "/readyz names the task: {:?}", tasks.unready());
        system.end().await;
    }
}
