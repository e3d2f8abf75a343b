//! One application, from registering clusters to its removal, and who is let in.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::program::{fetch, json, ok, run, simulated, start_anew, wait};

pub(crate) const SHOP: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: cart}
spec:
  selector: {matchLabels: {app: cart}}
  template:
    metadata: {labels: {app: cart}}
    spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 500m, memory: 64Mi}}}]}
"#;

pub(crate) const EMCO: &str = "
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
  policy: learned
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

/// The head and body of an answer.
fn http(url: &str, request: &str, headers: &str) -> String {
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(address).unwrap();
    let host = if headers.contains("host:") { String::new() } else { format!("host: {address}\r\n") };
    write!(stream, "{request} HTTP/1.1\r\n{host}connection: close\r\n{headers}content-length: 0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[track_caller]
fn only_its_user_is_let_in(url: &str, link: &str, data: &Path) {
    let file = data.join("api-token");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let token = format!("authorization: Bearer {}\r\n", std::fs::read_to_string(&file).unwrap().trim());
    let answers = |request: &str, headers: &str, status: &str| {
        let answer = http(url, request, headers);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request} {headers}: {answer}");
        answer
    };
    answers("GET /v2/projects", "", "401");
    answers("POST /v2/projects", "", "401");
    answers("GET /v2/projects", &token, "200");
    answers("GET /v2/projects", &format!("host: evil.example\r\n{token}"), "421");
    answers("POST /v2/projects", &format!("origin: https://evil.example\r\n{token}"), "403");
    answers("POST /v2/projects", "origin: https://evil.example\r\nsec-fetch-site: cross-site\r\n", "403");
    for link in [link.to_owned(), ok(url, &["page"]).trim().to_owned()] {
        let path = format!("GET {}", link.strip_prefix(url.trim_end_matches('/')).unwrap());
        let answer = answers(&path, "", "200");
        let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")?.split(';').next()).unwrap();
        answers("GET /", &format!("cookie: {cookie}\r\n"), "200");
        answers(&path, "", "401");
    }
    // No route of any document is open, and none of the services' own pages.
    let mut routes: Vec<String> = ["/", "/ui/live", "/metrics", "/docs", "/openapi.json", "/debug/tasks", "/internal/claims"]
        .map(|path| format!("GET {path}"))
        .into();
    for document in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../openapi")).unwrap() {
        let document: Value = serde_json::from_str(&std::fs::read_to_string(document.unwrap().path()).unwrap()).unwrap();
        for (path, item) in document["paths"].as_object().unwrap() {
            let path = path.replace(['{', '}'], "");
            routes.extend(item.as_object().unwrap().keys().map(|method| format!("{} {path}", method.to_uppercase())));
        }
    }
    assert!(routes.len() > 100, "{routes:?}");
    for route in routes {
        answers(&route, "", "401");
        answers(&route, "authorization: Bearer guess\r\ncookie: drover_session=guess\r\n", "401");
    }
    let other = run(&url.replace("127.0.0.1", "localhost"), &["get", "apps"]);
    assert!(other.status.success(), "another name of this machine: {}", String::from_utf8_lossy(&other.stderr));
}

#[test]
fn application_is_deployed_moved_updated_explained_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (members, files) = simulated(2, &folder.path().join("sim"));

    let (mut up, url) = start_anew(folder.path());
    only_its_user_is_let_in(&url, ok(&url, &["page"]).trim(), Path::new(&at("data")));

    ok(&url, &["cluster", "add", "mine", "--provider", "onprem", "--kubeconfig", &files[0], "--priority", "1"]);
    ok(&url, &["cluster", "add", "theirs", "--provider", "cloud", "--kubeconfig", &files[1], "--label", "zone=1"]);
    ok(&url, &["provider", "set", "cloud", "--priority", "5"]);
    wait(|| {
        json(&url, &["get", "clusters", "-o", "json"]).as_array().unwrap().iter().all(|c| c["state"] == "Ready" && c["ageMs"].is_u64())
    });
    assert!(ok(&url, &["get", "clusters"]).starts_with("NAME"));

    std::fs::write(at("shop.yaml"), SHOP).unwrap();
    let dry = ok(&url, &["deploy", "shop", "-f", &at("shop.yaml"), "--movable", "--dry-run", "-o", "json"]);
    assert!(dry.contains("onprem+mine"), "{dry}");
    assert_eq!(json(&url, &["get", "operations", "-o", "json"]), serde_json::json!([]), "a dry run starts no operation");
    assert_eq!(json(&url, &["get", "apps", "-o", "json"]), serde_json::json!([]), "and leaves nothing behind");
    ok(&url, &["deploy", "shop", "-f", &at("shop.yaml"), "--movable", "--move-priority", "3", "--wait"]);
    let apps = json(&url, &["get", "apps", "-o", "json"]);
    assert_eq!(apps[0]["bindings"][0]["member"], "onprem+mine", "{apps}");
    assert!(ok(&url, &["explain", "shop"]).starts_with("shop/shop is on onprem+mine"));
    let operations = || json(&url, &["get", "operations", "-o", "json"]).as_array().unwrap().len();
    let before = operations();
    for (args, word) in [
        (
            &["deploy", "lost", "-f", &at("shop.yaml"), "--label", "zone=2"][..],
            "no cluster has the label zone=2; labels of clusters are: zone=1",
        ),
        (&["deploy", "lost", "-f", &at("shop.yaml"), "--label", "zone=2", "--dry-run"], "no cluster has the label zone=2"),
        (
            &["deploy", "lost", "-f", &at("shop.yaml"), "--on", "nobody"],
            "no provider called nobody has a cluster; providers with clusters are: cloud, onprem",
        ),
        (
            &["deploy", "lost", "-f", &at("shop.yaml"), "--only", "third", "--dry-run"],
            "no cluster is called third; registered are: onprem/mine, cloud/theirs",
        ),
        (&["get", "apps", "nothing"], "no application or app is called nothing"),
        (&["get", "clusters", "nothing"], "no cluster is called nothing"),
        (&["get", "plans", "nothing"], "is not an id"),
        (&["explain", "nothing"], "no application is called nothing"),
        (&["delete", "nothing"], "no application is called nothing"),
        (&["plan", "rebalance"], "rebalance are not supported"),
        (&["deploy", "Not_A_Label", "-f", &at("shop.yaml")], "is not a valid name"),
        (&["cluster", "add", "x", "--provider", "new", "--kubeconfig", &at("shop.yaml")], "kubeconfig_invalid"),
    ] {
        let refused = run(&url, args);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(1) && said.contains(word), "{args:?}: {said}");
    }
    assert!(!ok(&url, &["provider", "list"]).contains("new"), "the provider of a refused cluster is removed");
    assert_eq!(operations(), before, "what is refused at once starts nothing");

    // Changed manifests: a dry run restores the documents that it wrote, a deployment updates the app in place.
    let shown = || {
        let (apps, intents) = ("/v2/projects/default/composite-apps/shop/v1/apps/shop", "/generic-placement-intents/default/app-intents");
        let group = "/v2/projects/default/composite-apps/shop/v1/deployment-intent-groups/shop";
        [read(&url, apps), read(&url, &format!("{group}{intents}"))]
    };
    let before = shown();
    let documents = || (read(&url, "/v2/projects"), read(&url, "/v2/projects/default/logical-clouds"));
    let kept = documents();
    assert!(!before[1].to_string().contains("anyOf"), "it may run on every cluster, including those added later: {}", before[1]);
    std::fs::write(at("shop.yaml"), SHOP.replace("500m", "500")).unwrap();
    let dry = run(&url, &["deploy", "shop", "-f", &at("shop.yaml"), "--dry-run"]);
    let told = String::from_utf8_lossy(&dry.stdout);
    assert!(dry.status.code() == Some(3) && told.contains("does not fit where it runs: "), "{told}");
    // Nothing is left by dry runs, nor by plans that make no room or are discarded: neither applications nor projects nor
    // logical clouds.
    let apps = ok(&url, &["get", "apps"]);
    for args in [
        &["deploy", "huge", "-f", &at("shop.yaml"), "--dry-run", "-p", "other", "-o", "json"][..],
        &["deploy", "huge", "-f", &at("shop.yaml"), "--dry-run", "-p", "other", "-n", "elsewhere"],
        &["deploy", "huge", "-f", &at("shop.yaml"), "--dry-run", "-n", "elsewhere"],
        &["deploy", "huge", "-f", &at("shop.yaml"), "--dry-run", "--only", "mine"],
        &["plan", "newcomer", &at("shop.yaml"), "--name", "huge", "--only", "mine"],
        &["plan", "newcomer", &at("shop.yaml"), "--name", "huge", "-p", "other"],
    ] {
        let dry = run(&url, args);
        assert_eq!(dry.status.code(), Some(3), "{args:?}: {}", String::from_utf8_lossy(&dry.stderr));
    }
    assert_eq!(documents(), kept, "no project is left, and no logical cloud");
    std::fs::write(at("small.yaml"), SHOP.replace("500m", "100m").replace("cart", "small")).unwrap();
    ok(&url, &["plan", "newcomer", &at("small.yaml"), "--only", "theirs", "--dry-run"]);
    assert_eq!(ok(&url, &["get", "apps"]), apps);
    let plan = json(&url, &["plan", "newcomer", &at("small.yaml"), "--only", "theirs", "-o", "json"]);
    assert!(ok(&url, &["get", "apps"]).contains("small/small"), "a plan that can be applied keeps what it refers to");
    ok(&url, &["plan", "discard", plan["id"].as_str().unwrap()]);
    assert_eq!(ok(&url, &["get", "apps"]), apps);
    // The restriction of a plan does not bind a deployment.
    ok(&url, &["plan", "newcomer", &at("small.yaml"), "--only", "theirs"]);
    ok(&url, &["deploy", "small", "-f", &at("small.yaml"), "--wait"]);
    assert_eq!(json(&url, &["get", "apps", "small", "-o", "json"])[0]["bindings"][0]["member"], "onprem+mine");
    // A dry run of a terminated application leaves its state.
    let group = "projects/default/composite-apps/small/v1/deployment-intent-groups/small";
    std::fs::write(at("end.yaml"), format!("version: emco/v2\nresourceContext: {{anchor: {group}/terminate}}\n")).unwrap();
    ok(&url, &["apply", "-f", &at("end.yaml"), "--wait"]);
    let ended = fetch(&url, &format!("/v2/{group}/status"), "application/json");
    ok(&url, &["deploy", "small", "-f", &at("small.yaml"), "--dry-run"]);
    assert_eq!(fetch(&url, &format!("/v2/{group}/status"), "application/json"), ended);
    ok(&url, &["delete", "small"]);
    ok(&url, &["completions", "zsh"]);
    std::fs::write(at("shop.yaml"), SHOP.replace("500m", "600m")).unwrap();
    let diff = |args: &[&str]| {
        let output = run(&url, &[&["diff", "shop", "-f", &at("shop.yaml")], args].concat());
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, text, _) = diff(&[]);
    assert!(code == Some(1) && text.contains("500m") && text.contains("600m") && text.contains("Deployment."), "{code:?} {text}");
    let (code, listed, _) = diff(&["-o", "json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert!(code == Some(1) && listed.as_array().unwrap().len() == 1 && listed[0]["change"] == "changed", "{listed}");
    let (code, _, said) = diff(&["--set", "replicas=2"]);
    assert!(code == Some(2) && said.contains("manifests have no values"), "{code:?} {said}");
    assert_eq!(diff(&["--url", "http://127.0.0.1:1"]).0, Some(2), "who cannot ask does not know");
    let doctor = json(&url, &["doctor", "-o", "json"]);
    assert!(doctor.as_array().unwrap().iter().any(|check| check["check"] == "services" && check["result"] == "ok"), "{doctor}");
    let dry = ok(&url, &["deploy", "shop", "-f", &at("shop.yaml"), "--only", "theirs", "--dry-run"]);
    assert!(dry.contains("shop  new") && dry.contains("shop  onprem+mine  removed"), "{dry}");
    assert_eq!(shown(), before);
    ok(&url, &["deploy", "shop", "-f", &at("shop.yaml"), "--movable", "--on", "onprem,cloud", "--when-full", "preferred", "--wait"]);
    let intents = "/v2/projects/default/composite-apps/shop/v1/deployment-intent-groups/shop/migration-intents/default/app-intents";
    let intents: Value = serde_json::from_str(&read(&url, intents)).unwrap();
    assert_eq!(intents[0]["spec"]["priority"], 3, "--movable alone keeps the priority");
    let history = ok(&url, &["history", "shop"]);
    assert!(history.contains("instantiate") && history.contains("update"), "{history}");
    let pods = json(&url, &["pods", "shop", "-o", "json"]);
    assert!(pods[0]["ready"] == true && pods[0]["member"] == "onprem+mine", "{pods}");
    ok(&url, &["events", "shop/shop"]);
    let apps = ok(&url, &["get", "apps"]);
    let since = json(&url, &["get", "apps", "-o", "json"])[0]["bindings"][0]["since"].as_str().unwrap()[..19].to_owned();
    assert!(apps.contains(&since), "{apps}");
    let chosen = shown()[1].clone();
    assert!(chosen.to_string().contains("preferred") && chosen.to_string().contains("cloud"), "{chosen}");
    ok(&url, &["deploy", "shop", "-f", &at("shop.yaml"), "--wait"]);
    assert_eq!(shown()[1], chosen, "options that are not given again keep their values");

    let plan = json(&url, &["plan", "drain", "mine", "-o", "json"]);
    let id = plan["id"].as_str().unwrap();
    assert!(ok(&url, &["plan", "show", id, "-o", "yaml"]).contains("\nkind:\n  drain: onprem+mine\n"), "a map, not a tag");
    assert!(ok(&url, &["plan", "show", id, "--why-not"]).contains("shop/shop"));
    ok(&url, &["plan", "apply", id, "--wait"]);
    let moves = json(&url, &["get", "moves", "-o", "json"]);
    assert_eq!((moves[0]["to"].as_str(), moves[0]["stage"].as_str()), (Some("cloud+theirs"), Some("done")), "{moves}");

    // The drained cluster stays closed until it is opened again.
    assert!(ok(&url, &["get", "clusters"]).contains("Ready,Cordoned"));
    let drained = format!(
        "cordoned since {}: drained by plan {id}",
        json(&url, &["get", "clusters", "mine", "-o", "json"])[0]["cordoned"]["since"].as_str().unwrap()
    );
    assert!(ok(&url, &["get", "clusters", "-o", "wide"]).contains(&drained), "{drained}");
    let next = ok(&url, &["deploy", "next", "-n", "next", "-f", &at("shop.yaml"), "--on", "onprem,cloud", "--dry-run"]);
    assert!(next.contains("cloud+theirs  5  chosen") && next.contains(&format!("is {drained}")), "{next}");
    ok(&url, &["cluster", "uncordon", "mine"]);
    let next = ok(&url, &["deploy", "next", "-n", "next", "-f", &at("shop.yaml"), "--dry-run"]);
    assert!(next.contains("onprem+mine  1  chosen"), "{next}");
    ok(&url, &["cluster", "cordon", "onprem/mine", "--reason", "new racks"]);
    let next = ok(&url, &["deploy", "next", "-n", "next", "-f", &at("shop.yaml"), "--dry-run"]);
    assert!(next.contains("cloud+theirs  5  chosen") && next.contains(": new racks"), "{next}");
    ok(&url, &["cluster", "uncordon", "mine"]);

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

    // EMCO documents by their anchor; a verb that is not possible is an error; and all of them are deleted.
    let clouds = json(&url, &["get", "projects/emco/logical-clouds", "-o", "json"]);
    assert_eq!((&clouds[0]["metadata"]["name"], &clouds[0]["spec"]["namespace"]), (&Value::from("lc"), &Value::from("default")));
    assert!(ok(&url, &["get", "projects/emco/logical-clouds", "lc"]).starts_with("metadata:\n"), "YAML for people");
    std::fs::write(at("approve.yaml"), EMCO.split("---").next().unwrap()).unwrap();
    let refused = run(&url, &["apply", "-f", &at("approve.yaml")]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(1) && said.contains("wrong_state"), "approve of a group that runs: {said}");
    let deleted = outcomes(json(&url, &["delete", "-f", &at("emco.yaml"), "-o", "json"]));
    assert_eq!(deleted.iter().filter(|outcome| *outcome == "deleted").count(), 9, "{deleted:?}");
    assert!(deleted.contains(&"terminated".to_owned()), "{deleted:?}");
    let again = outcomes(json(&url, &["delete", "-f", &at("emco.yaml"), "-o", "json"]));
    assert!(again.iter().all(|outcome| outcome == "not there"), "{again:?}");

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
    assert_eq!(column(0), ["now", "anew", "anew", "anew", "anew", "anew", "anew", "anew"], "{told}");
    assert_eq!(column(1), ["2", "1", "2", "3", "4", "5", "6", "2"], "{told}");
    assert_eq!(column(2), ["13 %", "100 %", "13 %", "9 %", "0 %", "0 %", "0 %", "13 %"], "{told}");
    assert_eq!(groups[0].last(), Some(&"cart db → onprem+mine; mail web → onprem+mine"), "{told}");
    assert!(told.contains("100 % of its calls stay in the cluster"), "{told}");
    // By which policy, what the other one would make of it, and what it saw.
    assert!(groups[1..7].iter().all(|row| row.contains(&"learned")) && groups[7].contains(&"cgs-greedy"), "{told}");
    assert!(told.contains("\npolicy learned: objective ") && told.contains(", cgs-greedy has "), "{told}");
    assert!(told.contains("what learned saw, step by step:") && told.contains("the search after it moved nothing"), "{told}");

    kill(Pid::from_raw(i32::try_from(up.0.id()).unwrap()), Signal::SIGTERM).unwrap();
    let began = Instant::now();
    let status = loop {
        if let Some(status) = up.0.try_wait().unwrap() {
            break status;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "SIGTERM does not end it");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(status.success(), "{status}");
    drop(members);
}

/// GET of a document's file, or of a list.
fn read(url: &str, path: &str) -> String {
    fetch(url, path, "application/octet-stream")
}
