//! Supervised tasks: what a panic or an error of each kind of task leads to, and what operators see of it.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use drover_service::tasks::{CALM, TaskState, TaskStatus, UNREADY_AFTER};
use drover_service::{Common, OnFailure, Peers, Running, TaskHandle, bind, router, serve};
use drover_testkit::eventually;
use reqwest::Client;
use serde_json::Value;
use utoipa_axum::router::OpenApiRouter;

const TIMEOUT: Duration = Duration::from_secs(20);

fn common() -> Common {
    Common::new("postgres://none", "token", Peers::default()).scoped("test")
}

async fn served(common: &Common) -> Running {
    let listener = bind("127.0.0.1:0".parse().unwrap(), common).await.unwrap();
    serve(listener, router(OpenApiRouter::new(), common), common)
}

async fn until(common: &Common, name: &str, wanted: impl Fn(&TaskStatus) -> bool) -> TaskStatus {
    eventually(TIMEOUT, async || common.tasks.list().tasks.into_iter().find(|task| task.name == name && wanted(task))).await
}

/// A task that counts its runs and then waits for ever.
fn counting(runs: &Arc<AtomicU32>) -> impl FnMut(TaskHandle) -> std::future::Pending<()> + Send + 'static {
    let runs = runs.clone();
    move |_| {
        runs.fetch_add(1, Ordering::Relaxed);
        std::future::pending()
    }
}

#[tokio::test]
async fn panicking_task_is_restarted_counted_and_listed() {
    let (common, runs) = (common(), Arc::new(AtomicU32::new(0)));
    let running = served(&common).await;
    let counted = runs.clone();
    common.spawn("once", OnFailure::Restart, move |task| {
        let run = counted.fetch_add(1, Ordering::Relaxed);
        async move {
            assert_ne!(run, 0, "the first run fails");
            task.active();
            std::future::pending::<()>().await;
        }
    });
    let status = until(&common, "once", |task| task.state == TaskState::Running && task.restarts == 1).await;
    assert!(
        status.last_error.as_deref().is_some_and(|error| error.starts_with("panicked:") && error.contains("the first run fails")),
        "{status:?}"
    );
    assert_eq!(runs.load(Ordering::Relaxed), 2);
    let url = |path: &str| format!("http://{}{path}", running.addr);
    let metrics = reqwest::get(url("/metrics")).await.unwrap().text().await.unwrap();
    assert!(metrics.contains(r#"drover_task_failures_total{task="once"} 1"#), "{metrics}");
    assert!(metrics.contains(r#"drover_task_failures_total{task="http-server"} 0"#), "{metrics}");
    assert_eq!(reqwest::get(url("/readyz")).await.unwrap().status(), 200, "one failure does not make a service unready");

    let shown: Value = Client::new().get(url("/debug/tasks")).bearer_auth("token").send().await.unwrap().json().await.unwrap();
    let task = shown["tasks"].as_array().unwrap().iter().find(|task| task["name"] == "once").unwrap();
    assert_eq!((&task["state"], &task["on_failure"], &task["restarts"]), (&"running".into(), &"restart".into(), &1.into()), "{shown}");
    assert!(task["last_active"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{task}");
    assert_eq!(reqwest::get(url("/debug/tasks")).await.unwrap().status(), 401, "operators need the peer token");
    running.stop().await;
}

#[tokio::test]
async fn task_that_returns_an_error_is_restarted() {
    let common = common();
    let mut run = 0;
    common.spawn("failing", OnFailure::Restart, move |_| {
        run += 1;
        std::future::ready(if run == 1 { Err("no luck") } else { Ok(()) })
    });
    let status = until(&common, "failing", |task| task.state == TaskState::Ended).await;
    assert_eq!((status.restarts, status.last_error.as_deref()), (1, Some("no luck")));
}

#[tokio::test]
async fn injected_panic_ends_the_run_where_it_waits() {
    let (common, runs) = (common(), Arc::new(AtomicU32::new(0)));
    common.spawn("waiting", OnFailure::Restart, counting(&runs));
    until(&common, "waiting", |_| runs.load(Ordering::Relaxed) == 1).await;
    assert!(common.tasks.inject_panic("waiting") && !common.tasks.inject_panic("unknown"));
    until(&common, "waiting", |task| task.restarts == 1 && task.state == TaskState::Running).await;
    assert_eq!(runs.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn repeated_failures_make_the_service_unready_until_a_run_lasts() {
    let common = common();
    let failing = |name: &'static str, policy| {
        let mut runs = 0;
        common.spawn(name, policy, move |_| {
            runs += 1;
            async move { if runs <= UNREADY_AFTER { Err("still no luck") } else { std::future::pending::<Result<(), &str>>().await } }
        });
    };
    failing("vital", OnFailure::Restart);
    failing("worker/a", OnFailure::RestartOneOfMany);
    for name in ["vital", "worker/a"] {
        until(&common, name, |task| task.restarts == u64::from(UNREADY_AFTER) && task.state == TaskState::Running).await;
    }
    let ready = common.readiness.probe().await;
    assert!(!ready.ready);
    assert_eq!(ready.checks.into_iter().collect::<Vec<_>>(), [("task vital".to_owned(), "still no luck".to_owned())]);
    tokio::time::advance(CALM).await;
    assert!(common.readiness.probe().await.ready, "a run that lasts ends the row of failures");
}

#[tokio::test]
async fn failure_of_a_task_that_cannot_restart_ends_the_service_with_an_error() {
    let common = common();
    let running = served(&common).await;
    common.spawn_once("writer", |_| std::future::pending::<()>());
    assert!(common.readiness.probe().await.ready);
    assert!(common.tasks.inject_panic("writer"));
    let failure = tokio::time::timeout(TIMEOUT, running.wait()).await.expect("the service ends").unwrap_err().to_string();
    assert!(failure.contains("writer") && failure.contains("panicked"), "{failure}");
    let ready = common.readiness.probe().await;
    assert!(!ready.ready && ready.checks["task writer"].contains("panicked"), "{ready:?}");
}

#[tokio::test]
async fn listener_that_fails_ends_the_service_with_an_error() {
    let common = common();
    let running = served(&common).await;
    until(&common, "http-server", |task| task.state == TaskState::Running).await;
    assert!(common.tasks.inject_panic("http-server"));
    let failure = tokio::time::timeout(TIMEOUT, running.wait()).await.expect("the service ends").unwrap_err().to_string();
    assert!(failure.contains("http-server"), "{failure}");
}

#[tokio::test]
async fn stopped_tasks_leave_the_list() {
    let common = common();
    let stop = common.shutdown.child_token();
    common.tasks.spawn(&common.tracker, stop.clone(), "member/a", OnFailure::RestartOneOfMany, |_| std::future::pending::<()>());
    common.spawn("member/b", OnFailure::RestartOneOfMany, |_| std::future::ready(()));
    common.spawn("other", OnFailure::Restart, |_| std::future::pending::<Result<(), Infallible>>());
    stop.cancel();
    eventually(TIMEOUT, async || {
        let names: Vec<String> = common.tasks.list().tasks.into_iter().map(|task| task.name).collect();
        (names == ["other"]).then_some(())
    })
    .await;
    common.shutdown.cancel();
    common.tracker.close();
    tokio::time::timeout(TIMEOUT, common.tracker.wait()).await.expect("the shutdown ends supervised tasks");
}
