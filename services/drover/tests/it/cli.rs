//! The program as people run it: its help, its errors, and one application from registering clusters to its removal.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const DROVER: &str = env!("CARGO_BIN_EXE_drover");

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(url: &str, args: &[&str]) -> Output {
    let mut command = Command::new(DROVER);
    command.args(args).env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("DROVER_URL", url);
    command.stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
fn ok(url: &str, args: &[&str]) -> String {
    let output = run(url, args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "drover {}: {said}", args.join(" "));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn json(url: &str, args: &[&str]) -> Value {
    serde_json::from_str(&ok(url, args)).unwrap()
}

#[test]
fn help_is_as_reviewed() {
    let commands: [&[&str]; 14] = [
        &[],
        &["up"],
        &["cluster"],
        &["cluster", "add"],
        &["provider"],
        &["deploy"],
        &["apply"],
        &["get"],
        &["explain"],
        &["plan"],
        &["plan", "newcomer"],
        &["operation"],
        &["policy"],
        &["config", "explain"],
    ];
    let mut text = String::new();
    for command in commands {
        let args: Vec<&str> = command.iter().copied().chain(["--help"]).collect();
        text.push_str(&format!("$ drover {}\n{}\n", args.join(" "), ok("http://127.0.0.1:7070", &args)));
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/golden/help.txt");
    if std::env::var_os("DROVER_ACCEPT").is_some() {
        std::fs::write(&golden, &text).unwrap();
    }
    let reviewed = std::fs::read_to_string(&golden).unwrap_or_default();
    assert!(text == reviewed, "the help has changed; look at it, then accept it with DROVER_ACCEPT=1:\n{text}");
}

#[test]
fn connection_error_says_how_to_start_drover_and_wrong_usage_exits_with_2() {
    let nobody = run("http://127.0.0.1:9", &["get", "clusters"]);
    assert_eq!(nobody.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&nobody.stderr).contains("drover up"));
    assert_eq!(run("http://127.0.0.1:9", &["deploy"]).status.code(), Some(2), "wrong usage");
}

const SHOP: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: cart}
spec:
  selector: {matchLabels: {app: cart}}
  template:
    metadata: {labels: {app: cart}}
    spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 500m, memory: 64Mi}}}]}
"#;

const EMCO: &str = "
resourceContext: {anchor: projects/emco/composite-apps/shop/v1/deployment-intent-groups/dig/approve}
---
resourceContext: {anchor: projects/emco/composite-apps/shop/v1/deployment-intent-groups/dig/instantiate}
---
version: emco/v2
resourceContext: {anchor: projects/emco/composite-apps/shop/v1/deployment-intent-groups/dig/generic-placement-intents/gpi/app-intents}
metadata: {name: cart}
spec: {app: cart, intent: {allOf: [{clusterProvider: onprem, cluster: mine}]}}
---
resourceContext: {anchor: projects/emco/composite-apps/shop/v1/deployment-intent-groups/dig/generic-placement-intents}
metadata: {name: gpi}
---
resourceContext: {anchor: projects/emco/composite-apps/shop/v1/deployment-intent-groups}
metadata: {name: dig}
spec: {compositeProfile: cp, version: r1, logicalCloud: lc, overrideValues: []}
---
resourceContext: {anchor: projects/emco/composite-apps/shop/v1/composite-profiles}
metadata: {name: cp}
---
resourceContext: {anchor: projects/emco/composite-apps/shop/v1/apps}
metadata: {name: cart}
file: shop.yaml
---
resourceContext: {anchor: projects/emco/composite-apps}
metadata: {name: shop}
spec: {compositeAppVersion: v1}
---
resourceContext: {anchor: projects/emco/logical-clouds/lc/cluster-references}
metadata: {name: mine}
spec: {clusterProvider: onprem, cluster: mine, loadbalancerIp: 0.0.0.0}
---
resourceContext: {anchor: projects/emco/logical-clouds}
metadata: {name: lc}
spec: {namespace: default, level: '0'}
---
resourceContext: {anchor: projects}
metadata: {name: emco}
";

/// Apps that call each other, [`CALLING_APP`] for each.
const CALLING: &str = "
resourceContext: {anchor: projects/calling/composite-apps/shop/v1/deployment-intent-groups/dig/approve}
---
resourceContext: {anchor: projects/calling/composite-apps/shop/v1/deployment-intent-groups/dig/instantiate}
---
version: emco/v2
resourceContext: {anchor: projects/calling/composite-apps/shop/v1/call-graphs}
metadata: {name: calls}
spec:
  rho: 2
  calls: [{from: web, to: cart, calls: 3}, {from: cart, to: db, calls: 18}, {from: web, to: mail, calls: 2}]
---
resourceContext: {anchor: projects/calling/composite-apps/shop/v1/deployment-intent-groups/dig/generic-placement-intents}
metadata: {name: gpi}
---
resourceContext: {anchor: projects/calling/composite-apps/shop/v1/deployment-intent-groups}
metadata: {name: dig}
spec: {compositeProfile: cp, version: r1, logicalCloud: lc, overrideValues: []}
---
resourceContext: {anchor: projects/calling/composite-apps/shop/v1/composite-profiles}
metadata: {name: cp}
---
resourceContext: {anchor: projects/calling/composite-apps}
metadata: {name: shop}
spec: {compositeAppVersion: v1}
---
resourceContext: {anchor: projects/calling/logical-clouds/lc/cluster-references}
metadata: {name: mine}
spec: {clusterProvider: onprem, cluster: mine, loadbalancerIp: 0.0.0.0}
---
resourceContext: {anchor: projects/calling/logical-clouds}
metadata: {name: lc}
spec: {namespace: calling, level: '0'}
---
resourceContext: {anchor: projects}
metadata: {name: calling}
";

const CALLING_APP: &str = "
---
version: emco/v2
resourceContext: {anchor: projects/calling/composite-apps/shop/v1/deployment-intent-groups/dig/generic-placement-intents/gpi/app-intents}
metadata: {name: APP}
spec: {app: APP, intent: {anyOf: [{clusterProvider: onprem, cluster: mine}]}}
---
resourceContext: {anchor: projects/calling/composite-apps/shop/v1/apps}
metadata: {name: APP}
file: APP.yaml
";

#[test]
fn application_is_deployed_moved_updated_explained_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (members, files) = simulated(2, &folder.path().join("sim"));

    let mut up = Command::new(DROVER);
    std::fs::write(at("drover.toml"), "listen = \"127.0.0.1:0\"\nlog = \"warn\"\n").unwrap();
    up.args(["up", "--data", &at("data"), "--config", &at("drover.toml")]).stderr(Stdio::piped()).env_remove("DATABASE_URL");
    let mut up = Process(up.spawn().unwrap());
    let mut lines = BufReader::new(up.0.stderr.take().unwrap()).lines();
    let told = lines.find_map(|line| line.unwrap().split_whitespace().find(|word| word.starts_with("http://")).map(str::to_owned));
    let url = told.expect("drover up prints its address");
    std::thread::spawn(move || lines.for_each(drop));

    ok(&url, &["cluster", "add", "mine", "--provider", "onprem", "--kubeconfig", &files[0], "--priority", "1"]);
    ok(&url, &["cluster", "add", "theirs", "--provider", "cloud", "--kubeconfig", &files[1], "--label", "zone=1"]);
    ok(&url, &["provider", "set", "cloud", "--priority", "5"]);
    wait(|| {
        json(&url, &["get", "clusters", "-o", "json"]).as_array().unwrap().iter().all(|c| c["state"] == "Ready" && c["age_ms"].is_u64())
    });
    assert!(ok(&url, &["get", "clusters"]).starts_with("NAME"));

    std::fs::write(at("shop.yaml"), SHOP).unwrap();
    let dry = ok(&url, &["deploy", "shop", "-f", &at("shop.yaml"), "--movable", "--dry-run", "-o", "json"]);
    assert!(dry.contains("onprem+mine"), "{dry}");
    assert_eq!(json(&url, &["get", "operations", "-o", "json"]), serde_json::json!([]), "a dry run starts no operation");
    assert_eq!(json(&url, &["get", "apps", "-o", "json"]), serde_json::json!([]), "and leaves nothing behind");
    ok(&url, &["deploy", "shop", "-f", &at("shop.yaml"), "--movable", "--wait"]);
    let apps = json(&url, &["get", "apps", "-o", "json"]);
    assert_eq!(apps[0]["bindings"][0]["member"], "onprem+mine", "{apps}");
    assert!(ok(&url, &["explain", "shop"]).starts_with("shop/cart is on onprem+mine"));
    for (args, word) in [
        (&["get", "apps", "nothing"][..], "no application or app is called nothing"),
        (&["get", "clusters", "nothing"], "no cluster is called nothing"),
        (&["get", "plans", "nothing"], "There is no id"),
        (&["explain", "nothing"], "no application is called nothing"),
        (&["delete", "nothing"], "no application is called nothing"),
        (&["plan", "rebalance"], "come later"),
        (&["deploy", "Not_A_Label", "-f", &at("shop.yaml")], "is not a valid name"),
        (&["cluster", "add", "x", "--provider", "new", "--kubeconfig", &at("shop.yaml")], "kubeconfig_invalid"),
    ] {
        let refused = run(&url, args);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(1) && said.contains(word), "{args:?}: {said}");
    }
    assert!(!ok(&url, &["provider", "list"]).contains("new"), "the provider of a refused cluster is removed");

    // Changed manifests: a dry run restores the documents that it wrote, a deployment updates the app in place.
    let shown = || {
        let (apps, intents) = ("/v2/projects/default/composite-apps/shop/v1/apps/cart", "/generic-placement-intents/default/app-intents");
        let group = "/v2/projects/default/composite-apps/shop/v1/deployment-intent-groups/shop";
        [read(&url, apps), read(&url, &format!("{group}{intents}"))]
    };
    let before = shown();
    assert!(!before[1].to_string().contains("anyOf"), "it may run on every cluster, including those added later: {}", before[1]);
    std::fs::write(at("shop.yaml"), SHOP.replace("500m", "500")).unwrap();
    let dry = ok(&url, &["deploy", "shop", "-f", &at("shop.yaml"), "--dry-run"]);
    assert!(dry.contains("does not fit where it runs: "), "{dry}");
    std::fs::write(at("shop.yaml"), SHOP.replace("500m", "600m")).unwrap();
    let dry = ok(&url, &["deploy", "shop", "-f", &at("shop.yaml"), "--only", "theirs", "--dry-run"]);
    assert!(dry.contains("cart  onprem+mine  applied in place"), "{dry}");
    assert_eq!(shown(), before);
    ok(&url, &["deploy", "shop", "-f", &at("shop.yaml"), "--movable", "--on", "onprem,cloud", "--when-full", "preferred", "--wait"]);
    let chosen = shown()[1].clone();
    assert!(chosen.to_string().contains("preferred") && chosen.to_string().contains("theirs"), "{chosen}");
    ok(&url, &["deploy", "shop", "-f", &at("shop.yaml"), "--wait"]);
    assert_eq!(shown()[1], chosen, "options that are not given again keep their values");

    let plan = json(&url, &["plan", "drain", "mine", "-o", "json"]);
    let id = plan["id"].as_str().unwrap();
    assert!(ok(&url, &["plan", "show", id, "-o", "yaml"]).contains("\nkind:\n  drain: onprem+mine\n"), "a map, not a tag");
    assert!(ok(&url, &["plan", "show", id, "--why-not"]).contains("shop/cart"));
    ok(&url, &["plan", "apply", id, "--wait"]);
    let moves = json(&url, &["get", "moves", "-o", "json"]);
    assert_eq!((moves[0]["to"].as_str(), moves[0]["stage"].as_str()), (Some("cloud+theirs"), Some("done")), "{moves}");
    ok(&url, &["delete", "shop"]);
    ok(&url, &["cluster", "remove", "theirs"]);

    // The same with EMCO documents, in any order, applied twice.
    std::fs::write(at("emco.yaml"), EMCO).unwrap();
    let outcomes = |rows: Value| rows.as_array().unwrap().iter().map(|row| row["outcome"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    let applied = outcomes(json(&url, &["apply", "-f", &at("emco.yaml"), "--wait", "-o", "json"]));
    assert_eq!(applied.iter().filter(|outcome| *outcome == "created").count(), 9, "{applied:?}");
    let apps = json(&url, &["get", "apps", "-p", "emco", "-o", "json"]);
    assert_eq!(apps[0]["bindings"][0]["member"], "onprem+mine", "{apps}");
    let again = outcomes(json(&url, &["apply", "-f", &at("emco.yaml"), "--wait", "-o", "json"]));
    assert_eq!(again.iter().filter(|outcome| outcome.starts_with("unchanged")).count(), again.len() - 1, "{again:?}");
    assert!(again.contains(&"replaced".to_owned()), "the app is replaced, because its file cannot be compared: {again:?}");

    // Apps that call each other: how they are grouped, and how other group sizes would group them.
    let mut calling = CALLING.to_owned();
    for app in ["web", "cart", "db", "mail"] {
        std::fs::write(at(&format!("{app}.yaml")), SHOP.replace("cart", app).replace("500m", "300m")).unwrap();
        calling += &CALLING_APP.replace("APP", app);
    }
    std::fs::write(at("calling.yaml"), calling).unwrap();
    ok(&url, &["apply", "-f", &at("calling.yaml"), "--wait"]);
    let told = ok(&url, &["explain", "shop/cart", "-p", "calling"]);
    let groups: Vec<Vec<&str>> = told
        .lines()
        .skip_while(|line| !line.starts_with("GROUPS"))
        .skip(1)
        .take_while(|line| !line.is_empty())
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect();
    let column = |n: usize| groups.iter().map(|row| row[n]).collect::<Vec<_>>();
    assert_eq!(column(0), ["now", "anew", "anew", "anew", "anew", "anew", "anew"], "{told}");
    assert_eq!(column(1), ["2", "1", "2", "3", "4", "5", "6"], "{told}");
    assert_eq!(column(2), ["13 %", "100 %", "13 %", "9 %", "0 %", "0 %", "0 %"], "{told}");
    assert_eq!(groups[0].last(), Some(&"cart db → onprem+mine; mail web → onprem+mine"), "{told}");
    assert!(told.contains("100 % of its calls stay in the cluster"), "{told}");

    kill(Pid::from_raw(i32::try_from(up.0.id()).unwrap()), Signal::SIGTERM).unwrap();
    let began = Instant::now();
    let status = loop {
        if let Some(status) = up.0.try_wait().unwrap() {
            break status;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "SIGTERM does not end it");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(status.success(), "{status}");
    drop(members);
}

/// Simulated clusters of one node, served as long as the runtime lives, and their kubeconfigs.
fn simulated(clusters: usize, folder: &Path) -> (tokio::runtime::Runtime, Vec<String>) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (send, told) = std::sync::mpsc::channel();
    let folder = folder.to_owned();
    runtime.spawn(async move {
        let spec = drover_kubesim::ClusterSpec::with_nodes(1, "4", "16Gi");
        let ready = |_: &str, files: &[std::path::PathBuf]| {
            send.send(files.iter().map(|file| file.display().to_string()).collect()).unwrap();
        };
        drover_kubesim::dev::run(clusters, &spec, &folder, ready, std::future::pending()).await.unwrap();
    });
    let files = told.recv_timeout(Duration::from_secs(60)).unwrap();
    (runtime, files)
}

/// GET of a document's file, or of a list.
fn read(url: &str, path: &str) -> String {
    let address = format!("{}{path}", url.trim_end_matches('/'));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let request = reqwest::Client::new().get(&address).header("accept", "application/octet-stream");
        request.send().await.unwrap().error_for_status().unwrap().text().await.unwrap()
    })
}

fn wait(mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "the expected state was not reached");
        std::thread::sleep(Duration::from_millis(100));
    }
}
