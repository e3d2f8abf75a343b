//! What only real kubelets show: programs that are run in containers, and the paper's experiment with volumes: two pods, two volumes in one
//! shared directory, each serving its own page ([`drover_e2e::volumes`]).

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use drover_api::access::AuditList;
use drover_api::operations::Operation;
use drover_e2e::apps::App;
use drover_e2e::emco::{Group, ended};
use drover_e2e::terminal::Terminal;
use drover_e2e::volumes::Directories;
use drover_e2e::{API_TOKEN, Backend, System, succeeded};
use drover_testkit::{eventually, needs};
use kube::api::ListParams;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::drains;
use super::stateful::drain;

const PATIENCE: Duration = Duration::from_secs(120);
const ON: [&str; 2] = ["onprem/private-a", "aws/public-c"];

/// Moves what runs on the one cluster to the other: away from the private one at even numbers. Returns where it is then.
pub async fn move_to_and_fro(system: &System, number: usize) -> &'static str {
    let (provider, from, to) =
        if number.is_multiple_of(2) { ("onprem", "private-a", "public-c") } else { ("aws", "public-c", "private-a") };
    succeeded(&drain(system, provider, from).await);
    to
}

async fn each_pod_keeps_its_volume_through(moves: usize) {
    if !Backend::kubelets_run_here() {
        return;
    }
    let system = System::on_kubelets().await;
    let volumes = Directories::shared_by(system.members()).await;
    let group = Group::new("db", Directories::app()).on(&ON).movable(5).among(&ON);
    succeeded(&group.deploy(&system.client).await.unwrap());
    volumes.are_served(system.member("private-a")).await;

    for made in 0..moves {
        let to = move_to_and_fro(&system, made).await;
        volumes.are_served(system.member(to)).await;
    }
    for (ordinal, (writers, gap)) in volumes.writers().unwrap().into_iter().enumerate() {
        assert_eq!(writers.len(), moves + 1, "volume {ordinal}: {writers:?}");
        println!("volume {ordinal}: {moves} moves, at most {gap:.2} s without a writer");
    }
    system.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_pod_keeps_its_volume_through_two_moves() {
    each_pod_keeps_its_volume_through(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "takes minutes; part of make test-long"]
async fn each_pod_keeps_its_volume_through_ten_moves() {
    each_pod_keeps_its_volume_through(10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "long: two moves; part of make test-long"]
async fn pods_whose_volumes_may_be_shared_write_from_both_sides_while_they_move() {
    if !Backend::kubelets_run_here() {
        return;
    }
    let system = System::on_kubelets().await;
    let volumes = Directories::shared_by(system.members()).await;
    let group = Group::new("db", Directories::app().overlapping()).on(&ON).movable(5).among(&ON);
    succeeded(&group.deploy(&system.client).await.unwrap());
    volumes.are_served(system.member("private-a")).await;
    for made in 0..2 {
        let to = move_to_and_fro(&system, made).await;
        volumes.are_served(system.member(to)).await;
    }
    // While both write, the lines of one follow those of the other again and again, and may be out of order.
    match volumes.writers() {
        Ok(volumes) => assert!(volumes.iter().all(|(writers, _)| writers.len() > 3), "{volumes:?}"),
        Err(why) => assert!(why.contains("two writers at once"), "{why}"),
    }
    system.end().await;
}

/// The page of the pod of `web` in a member that says that it is warm.
async fn warm(system: &System, member: &str) -> Option<String> {
    let pods = system.member(member).pods().list(&ListParams::default().labels("app=web")).await.unwrap();
    let address = pods.items.into_iter().find_map(|pod| pod.status?.pod_ip)?;
    let answer = reqwest::get(format!("http://{address}:8080/ready")).await.ok()?.error_for_status().ok()?;
    answer.text().await.ok()
}

/// Waits until an operation waits for the page, although Kubernetes has the pod in this member as ready.
async fn waits_for_the_page(system: &System, operation: &str, member: &str) {
    eventually(PATIENCE, async || {
        let operation: Operation = system.client.get(&format!("/v2/operations/{operation}")).await.unwrap();
        assert!(operation.finished_at.is_none(), "it did not wait: {operation:#?}");
        let ready = system.member(member).ready("web").await == 1;
        (ready && operation.message.contains("port 80, /ready: answers 404")).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "long: an app that warms up twice; part of make test-long"]
async fn app_serves_when_its_service_answers_the_request_that_it_names() {
    if !Backend::kubelets_run_here() {
        return;
    }
    let system = System::on_kubelets().await;
    // Without a probe, so that for Kubernetes it is ready as soon as it runs.
    let program = "mkdir /pages; httpd -p 8080 -h /pages; sleep 10; echo warm > /pages/ready; exec sleep 3600";
    let app = App::new("web", 100).memory(32).running("drover.local/busybox:1", program).serving(8080).serving_when_it_answers("/ready");
    let group = Group::new("web", app).on(&ON).movable(5).among(&ON);
    let project = json!({"metadata": {"name": "e2e"}, "spec": {"allowDependants": true}});
    system.client.upsert("/v2/projects", "e2e", &project).await.unwrap();
    group.approve(&system.client).await.unwrap();
    let id = group.verb(&system.client, "instantiate").await.unwrap();
    waits_for_the_page(&system, &id, "private-a").await;
    succeeded(&ended(&system.client, &id).await.unwrap());
    assert_eq!(warm(&system, "private-a").await.as_deref(), Some("warm\n"));

    let id = drains::begin(&system, &drains::plan(&system, "onprem", "private-a").await).await;
    waits_for_the_page(&system, &id, "public-c").await;
    assert_eq!(warm(&system, "private-a").await.as_deref(), Some("warm\n"), "the old copy serves until the new one does");
    succeeded(&drains::end(&system, &id, "onprem", "private-a").await);
    assert_eq!(warm(&system, "public-c").await.as_deref(), Some("warm\n"));
    system.end().await;
}

/// The program `drover`.
fn program() -> PathBuf {
    std::env::current_exe().unwrap().parent().and_then(Path::parent).unwrap().join("drover")
}

/// `drover` with this token, and what it is given as input.
async fn drover(system: &System, token: &str, arguments: &[&str], input: &str) -> std::process::Output {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(token.as_bytes()).unwrap();
    let mut command = tokio::process::Command::new(program());
    command.args(arguments).env("DROVER_PROJECT", "e2e").env("DROVER_URL", system.url().as_str()).env("DROVER_TOKEN_FILE", file.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().expect("drover is built (cargo build --workspace --bins)");
    let mut stdin = child.stdin.take().unwrap();
    // A program that is not run does not read it.
    let _ = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    tokio::time::timeout(PATIENCE, child.wait_with_output()).await.expect("it ends").unwrap()
}

async fn exec(system: &System, token: &str, arguments: &[&str], input: &str) -> std::process::Output {
    drover(system, token, &[&["exec"], arguments].concat(), input).await
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that must succeed, and returns what it prints.
async fn ok(system: &System, arguments: &[&str]) -> String {
    let ended = drover(system, API_TOKEN, arguments, "").await;
    assert!(ended.status.success(), "drover {arguments:?}: {}", said(&ended.stderr));
    said(&ended.stdout)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn programs_terminals_and_tests_of_charts_are_passed_on_to_real_containers() {
    if !Backend::kubelets_run_here() || needs("DROVER_HELM").is_none() {
        return;
    }
    let system = System::guarded_on_kubelets().await;
    let app = App::new("web", 100).memory(32).running("drover.local/busybox:1", "sleep 3600");
    let group = Group::new("web", app).on(&["onprem/private-a"]).among(&["onprem/private-a", "aws/public-c"]);
    succeeded(&group.deploy(&system.client).await.unwrap());
    program_runs_for_a_deployer_and_its_exit_code_is_passed_on(&system).await;
    terminal_is_that_of_the_user(&system).await;
    chart_is_tested(&system).await;
    system.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "long: real kubelets; part of make test-long"]
async fn logs_and_programs_of_a_cluster_that_drover_cannot_reach_go_through_its_link() {
    if !Backend::kubelets_run_here() {
        return;
    }
    let system = System::linked_on_kubelets().await;
    let app = App::new("web", 100).memory(32).running("drover.local/busybox:1", "echo it serves; exec sleep 3600");
    let group = Group::new("web", app).on(&["aws/public-c"]).among(&ON);
    succeeded(&group.deploy(&system.client).await.unwrap());
    program_runs_for_a_deployer_and_its_exit_code_is_passed_on(&system).await;
    terminal_is_that_of_the_user(&system).await;
    let log = async || Some(ok(&system, &["logs", "web"]).await).filter(|log| log == "it serves\n");
    eventually(PATIENCE, log).await;
    // Without the link there is no other way.
    system.way_of_the_agent().cut();
    let ended = exec(&system, API_TOKEN, &["web", "--", "true"], "").await;
    assert!(!ended.status.success(), "{ended:?}");
    system.way_of_the_agent().restore();
    let again = async || exec(&system, API_TOKEN, &["web", "--", "true"], "").await.status.success().then_some(());
    eventually(PATIENCE, again).await;
    system.end().await;
}

async fn program_runs_for_a_deployer_and_its_exit_code_is_passed_on(system: &System) {
    let program = ["web", "--", "sh", "-c", "echo out; echo err >&2; exit 7"];
    let ended = exec(system, API_TOKEN, &program, "").await;
    assert_eq!((ended.status.code(), said(&ended.stdout).as_str(), said(&ended.stderr).as_str()), (Some(7), "out\n", "err\n"));
    let long = (0..20_000).map(|line| format!("line {line}\n")).collect::<String>();
    let ended = exec(system, API_TOKEN, &["-i", "web/web", "--", "cat"], &long).await;
    assert_eq!(
        (ended.status.code(), said(&ended.stdout) == long),
        (Some(0), true),
        "{} bytes came back: {}",
        ended.stdout.len(),
        said(&ended.stderr)
    );
    let ended = exec(system, API_TOKEN, &["web", "--", "cat"], "not passed on").await;
    assert_eq!((ended.status.code(), said(&ended.stdout).as_str()), (Some(0), ""), "without -i there is no input: {ended:?}");
    let ended = exec(system, API_TOKEN, &["web", "--", "no-such-program"], "").await;
    assert!(!ended.status.success() && said(&ended.stderr).contains("no-such-program"), "{ended:?}");
    let ended = exec(system, API_TOKEN, &["web", "-c", "other", "--", "true"], "").await;
    assert!(!ended.status.success() && said(&ended.stderr).contains("other"), "{ended:?}");

    for (name, role, project, allowed) in
        [("reader", "viewer", "e2e", false), ("stranger", "deployer", "other", false), ("builder", "deployer", "e2e", true)]
    {
        let order = json!({"name": name, "role": role, "projects": [project]});
        let token = system.client.post("/v2/tokens", Some(&order)).await.unwrap().body["token"].as_str().unwrap().to_owned();
        let ended = exec(system, &token, &["web", "--", "true"], "").await;
        assert_eq!(ended.status.success(), allowed, "{name}: {ended:?}");
    }
    let audit: AuditList = system.client.get("/v2/audit?limit=50").await.unwrap();
    let recorded = |who: &str| audit.items.iter().any(|entry| entry.who == who && entry.path.ends_with("/exec"));
    assert!(recorded("builder") && recorded("reader"), "{audit:?}");
}

/// A shell in a container: its size, its keys, and the terminal that the user has afterwards.
async fn terminal_is_that_of_the_user(system: &System) {
    let mut token = tempfile::NamedTempFile::new().unwrap();
    token.write_all(API_TOKEN.as_bytes()).unwrap();
    let program = program();
    let (url, token) = (system.url().to_string(), token.path().to_str().unwrap());
    let variables =
        [("DROVER", program.to_str().unwrap()), ("DROVER_PROJECT", "e2e"), ("DROVER_URL", url.as_str()), ("DROVER_TOKEN_FILE", token)];
    // What a key shows is not what it does: each text that is waited for is not the one that was typed.
    let mut terminal = Terminal::run("\"$DROVER\" exec -it web -- sh; echo \"ended with $?\"; cat", &variables).await;
    terminal.press("echo rea''dy\n").await;
    terminal.shows("ready").await;
    assert!(terminal.is_raw().await, "the shell in the container does the echo");
    terminal.press("stty size\n").await;
    terminal.shows("30 100").await;
    terminal.resize(40, 120).await;
    terminal.press("until stty size | grep '40 12''0'; do sleep 1; done\n").await;
    terminal.shows("40 120").await;
    terminal.press("echo beg''in; sleep 1000\n").await;
    terminal.shows("begin").await;
    terminal.press("\u{3}").await;
    terminal.press("echo \"interrupted: $?\"\n").await;
    terminal.shows("interrupted: 130").await;
    terminal.press("exit 5\n").await;
    terminal.shows("ended with 5").await;
    assert!(!terminal.is_raw().await, "{}", terminal.screen());

    // A signal ends the command in the middle.
    let mut terminal =
        Terminal::run("sh -c 'echo \"process $$ .\"; exec \"$DROVER\" exec -it web -- sh'; echo \"ended with $?\"; cat", &variables).await;
    terminal.press("echo rea''dy\n").await;
    terminal.shows("ready").await;
    assert!(terminal.is_raw().await);
    let process = terminal.screen().split_once("process ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok()).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(process), nix::sys::signal::Signal::SIGTERM).unwrap();
    terminal.shows("ended with 1").await;
    assert!(terminal.screen().contains("error: ended by a signal") && !terminal.is_raw().await, "{}", terminal.screen());

    // Without -i nothing is passed on, and Ctrl-C ends the command, not the program.
    let mut terminal =
        Terminal::run("trap : INT; \"$DROVER\" exec -t web -- sh -c 'echo ready; sleep 1000'; echo \"ended with $?\"; cat", &variables)
            .await;
    terminal.shows("ready").await;
    assert!(!terminal.is_raw().await);
    terminal.press("\u{3}").await;
    terminal.shows("ended with 130").await;
}

/// A chart with a test, which is a Pod that ends, and a Job.
async fn chart_is_tested(system: &System) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str, object: Value| std::fs::write(folder.path().join(name), object.to_string()).unwrap();
    std::fs::create_dir(folder.path().join("templates")).unwrap();
    at("Chart.yaml", json!({"apiVersion": "v2", "name": "shop", "version": "1.0.0"}));
    at("values.yaml", json!({"code": 0}));
    let pod = |script: &str| {
        json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "drover.local/busybox:1",
            "imagePullPolicy": "Never", "command": ["sh", "-c", script], "resources": {"requests": {"cpu": "50m", "memory": "16Mi"}}}]})
    };
    let mut serving = pod("echo it serves; exec sleep 3600");
    serving["restartPolicy"] = json!("Always");
    at(
        "templates/web.json",
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shop"}, "spec": {"selector": {"matchLabels": {"app": "shop"}},
            "template": {"metadata": {"labels": {"app": "shop"}}, "spec": serving}}}),
    );
    at(
        "templates/migrate.json",
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "migrate"}, "spec": {"template": {"spec": pod("echo it migrates")}}}),
    );
    at(
        "templates/test.json",
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "shop-test", "annotations": {"helm.sh/hook": "test"}},
            "spec": pod("echo it is tested; exit {{ .Values.code }}")}),
    );
    let chart = folder.path().to_str().unwrap();
    ok(system, &["-p", "charts", "deploy", "shop", "-f", chart, "--only", "private-a", "--wait"]).await;
    let result = drover(system, API_TOKEN, &["-p", "charts", "test", "shop"], "").await;
    assert!(result.status.success() && said(&result.stdout).contains("succeeded"), "{result:?}");
    assert!(said(&result.stderr).contains("it is tested"), "what it printed: {result:?}");

    // Logs and programs are those of what keeps running; a Job and a test are named.
    assert_eq!(ok(system, &["-p", "charts", "logs", "shop"]).await, "it serves\n");
    assert_eq!(ok(system, &["-p", "charts", "logs", "shop", "--pod", "shop-test"]).await, "it is tested\n");
    assert_eq!(ok(system, &["-p", "charts", "logs", "shop", "--pod", "Job/migrate"]).await, "it migrates\n");
    let ended = exec(system, API_TOKEN, &["-p", "charts", "shop", "--", "hostname"], "").await;
    assert!(said(&ended.stdout).starts_with("shop-") && !said(&ended.stdout).starts_with("shop-test"), "{ended:?}");
    assert!(!said(&ended.stderr).contains("one of"), "the app has one pod: {ended:?}");

    ok(system, &["-p", "charts", "deploy", "shop", "-f", chart, "--set", "code=3", "--wait"]).await;
    let result = drover(system, API_TOKEN, &["-p", "charts", "test", "shop"], "").await;
    assert_eq!(result.status.code(), Some(1), "{result:?}");
    assert!(said(&result.stdout).contains("failed") && said(&result.stderr).contains("test_failed"), "{result:?}");
    ok(system, &["-p", "charts", "delete", "shop"]).await;
}
