//! The web page in a real browser: it renders without an error on the console, and shows the moves.

use std::process::Stdio;

use drover_e2e::apps::App;
use drover_e2e::emco::Group;
use drover_e2e::{Backend, System, succeeded};
use tokio::process::Command;

use super::filling::ones;

struct Seen {
    dom: String,
    console: Vec<String>,
}

/// Opens `url` in headless Chromium, runs its scripts, and returns the page and the messages on the console.
async fn open(url: &str) -> Seen {
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"])
        .args(["--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--enable-logging=stderr", "--v=0"])
        .args(["--virtual-time-budget=3500", "--timeout=20000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(url)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(std::time::Duration::from_secs(90), output).await.expect("the browser ends");
    let output = output.expect("chromium is installed (deploy/setup.sh)");
    let stderr = String::from_utf8_lossy(&output.stderr);
    Seen {
        dom: String::from_utf8_lossy(&output.stdout).into_owned(),
        console: stderr.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn page_shows_moves_and_plan() {
    let system = System::new(Backend::Simulated).await;
    let movable = Group::of("movable", ones("m", 4)).on(&["onprem/private-a", "aws/public-c"]).movable(5);
    succeeded(&movable.deploy(&system.client).await.unwrap());
    let newcomer = Group::new("newcomer", App::new("newcomer", 1000)).on(&["onprem/private-a"]);
    let operation = newcomer.deploy(&system.client).await.unwrap();
    succeeded(&operation);

    let page = open(system.client.base().as_str()).await;
    assert_eq!(page.console, Vec::<String>::new(), "nothing on the console");
    for wanted in ["data-cluster=\"onprem+private-a\"", "priority 5", "newcomer/newcomer", "data-move=\"movable/m-"] {
        assert!(page.dom.contains(wanted), "the page shows {wanted}: {}", page.dom);
    }
    let plan = page.dom.split("/ui/plans/").nth(1).and_then(|rest| rest.get(..36)).expect("a link to the plan");
    let plan = open(&format!("{}ui/plans/{plan}", system.client.base())).await;
    assert_eq!(plan.console, Vec::<String>::new());
    for wanted in ["before", "after", "class=\"arrow\"", "newcomer/newcomer", "movable/m-"] {
        assert!(plan.dom.contains(wanted), "the plan shows {wanted}: {}", plan.dom);
    }
    system.end().await;
}
