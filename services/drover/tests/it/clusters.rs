//! Clusters from their registration to their loss, by the program as people run it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use drover_testkit::needs;

use crate::application::SHOP;
use crate::database;
use crate::program::{DROVER, HOME, Process, json, ok, run, simulated, wait};
use crate::readme::{workload, write};

/// `drover up` in `folder`, and its address.
fn up(folder: &Path) -> (Process, String) {
    database::prepare(folder);
    std::fs::write(folder.join("drover.toml"), "listen = \"127.0.0.1:0\"\nlog = \"warn\"\n").unwrap();
    let mut up = Command::new(DROVER);
    up.env("HOME", HOME).env_remove("XDG_CONFIG_HOME").env("DROVER_READY_SECONDS", "3600");
    up.arg("up").arg("--local-clusters").arg("--data").arg(folder.join("data")).arg("--config").arg(folder.join("drover.toml"));
    let mut up = Process(up.stderr(Stdio::piped()).env_remove("DATABASE_URL").spawn().unwrap());
    let mut lines = BufReader::new(up.0.stderr.take().unwrap()).lines();
    let told = lines.find_map(|line| line.unwrap().split_whitespace().find(|word| word.starts_with("http://")).map(str::to_owned));
    let url = told.expect("drover up prints its address");
    std::thread::spawn(move || lines.for_each(drop));
    (up, url)
}

#[track_caller]
fn refused(url: &str, args: &[&str], word: &str) {
    let refused = run(url, args);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(1) && said.contains(word), "{args:?}: {said}");
}

fn state_of(url: &str, cluster: &str) -> String {
    json(url, &["get", "clusters", cluster, "-o", "json"])[0]["state"].as_str().unwrap().to_owned()
}

#[test]
fn cluster_is_checked_rotated_and_given_up_when_it_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (members, files) = simulated(1, &folder.path().join("sim"));
    let (doomed, lost) = simulated(1, &folder.path().join("doomed"));
    let (_up, url) = up(folder.path());

    // A registration is refused before anything is stored if the cluster cannot be used.
    let text = std::fs::read_to_string(&files[0]).unwrap();
    let server = text.lines().find_map(|line| line.trim().strip_prefix("server: ")).unwrap().trim_matches('"').to_owned();
    std::fs::write(at("nobody.kubeconfig"), text.replace(&server, "http://127.0.0.1:1")).unwrap();
    let add = |name: &'static str, file: &str| -> Vec<String> {
        ["cluster", "add", name, "--provider", "onprem", "--kubeconfig", file].map(str::to_owned).into()
    };
    let nobody = add("mine", &at("nobody.kubeconfig"));
    let nobody: Vec<&str> = nobody.iter().map(String::as_str).collect();
    refused(&url, &nobody, "the cluster is Unreachable");
    assert!(!ok(&url, &["provider", "list"]).contains("onprem"), "nothing is stored");
    ok(&url, &[&nobody[..], &["--force"]].concat());
    wait(|| state_of(&url, "mine") == "Unreachable");
    refused(&url, &["cluster", "update", "mine", "--kubeconfig", &at("nobody.kubeconfig")], "the cluster is Unreachable");
    ok(&url, &["cluster", "update", "mine", "--kubeconfig", &files[0]]);
    wait(|| state_of(&url, "mine") == "Ready");

    // The same API server under another name and address, and another API server under the same name.
    std::fs::write(at("alias.kubeconfig"), text.replace("127.0.0.1", "localhost")).unwrap();
    refused(
        &url,
        &["cluster", "add", "alias", "--provider", "cloud", "--kubeconfig", &at("alias.kubeconfig"), "--force"],
        "as onprem+mine",
    );
    refused(&url, &["cluster", "add", "mine", "--provider", "onprem", "--kubeconfig", &files[0]], "drover cluster update mine");
    refused(&url, &["cluster", "update", "mine", "--kubeconfig", &lost[0]], "another Kubernetes cluster");
    assert_eq!(state_of(&url, "mine"), "Ready");

    // Backup and restore beside the running one: the same documents, and kubeconfigs that can still be opened.
    ok(&url, &["backup", "--data", &at("data"), "--out", &at("drover.backup")]);
    refused(&url, &["restore", &at("drover.backup"), "--data", &at("data")], "is not empty");
    std::fs::create_dir(at("second")).unwrap();
    ok(&url, &["restore", &at("drover.backup"), "--data", &at("second/data")]);
    refused(&url, &["backup", "--data", &at("second/data"), "--out", &at("none.backup")], "no server is running");
    let (second, copy) = up(&folder.path().join("second"));
    wait(|| state_of(&copy, "mine") == "Ready");
    drop(second);

    // A cluster is lost for good.
    ok(&url, &["provider", "set", "onprem", "--priority", "5"]);
    ok(&url, &["cluster", "add", "doomed", "--provider", "cloud", "--kubeconfig", &lost[0], "--priority", "1", "--label", "zone=1"]);
    wait(|| state_of(&url, "doomed") == "Ready" && json(&url, &["get", "clusters", "-o", "json"])[0]["nodes"][0].is_object());
    for (name, cpu, more) in
        [("resident", "2500m", &["--only", "mine"][..]), ("small", "500m", &[]), ("moved", "500m", &["--movable"]), ("large", "2500m", &[])]
    {
        std::fs::write(at("app.yaml"), SHOP.replace("cart", name).replace("500m", cpu)).unwrap();
        ok(&url, &[&["deploy", name, "-f", &at("app.yaml"), "--wait"], more].concat());
    }
    refused(&url, &["cluster", "remove", "doomed", "--force"], "is Ready");
    drop(doomed);
    wait(|| state_of(&url, "doomed") == "Unreachable");
    refused(&url, &["cluster", "remove", "doomed"], "claims_left");
    let listed = json(&url, &["cluster", "remove", "doomed", "--force", "--dry-run", "-o", "json"]);
    assert_eq!(listed.as_array().unwrap().len(), 3, "{listed}");
    ok(&url, &["cluster", "remove", "doomed", "--force"]);
    let clusters = json(&url, &["get", "clusters", "-o", "json"]);
    assert_eq!(clusters.as_array().unwrap().len(), 1, "{clusters}");
    let mut placed: Vec<(String, String)> = Vec::new();
    for app in json(&url, &["get", "apps", "-o", "json"]).as_array().unwrap() {
        let on: Vec<&str> = app["bindings"].as_array().unwrap().iter().map(|binding| binding["member"].as_str().unwrap()).collect();
        placed.push((app["app"].as_str().unwrap().to_owned(), on.join(" ")));
    }
    placed.sort();
    let expected = [("large", ""), ("moved", "onprem+mine"), ("resident", "onprem+mine"), ("small", "onprem+mine")];
    assert_eq!(placed, expected.map(|(app, on)| (app.to_owned(), on.to_owned())));
    drop(members);
}

/// What was under way when the backup was taken goes on in the Drover that is restored from it.
#[test]
fn move_under_way_in_a_backup_ends_where_it_is_restored() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (members, files) = simulated(2, &folder.path().join("sim"));
    let (first, url) = up(folder.path());
    ok(&url, &["cluster", "add", "mine", "--provider", "onprem", "--kubeconfig", &files[0], "--priority", "1"]);
    ok(&url, &["cluster", "add", "theirs", "--provider", "cloud", "--kubeconfig", &files[1], "--priority", "5"]);
    wait(|| json(&url, &["get", "clusters", "-o", "json"]).as_array().unwrap().iter().all(|cluster| cluster["ageMs"].is_u64()));
    let mut slow = workload("slow", "500m", "");
    slow[0]["spec"]["template"]["metadata"]["annotations"] = serde_json::json!({"kit/start-delay": "60s", "kit/start-delay-max": "60s"});
    write(&folder.path().join("slow.yaml"), &slow);
    ok(&url, &["deploy", "slow", "-f", &at("slow.yaml"), "--movable", "--wait"]);
    let plan = json(&url, &["plan", "drain", "mine", "-o", "json"]);
    ok(&url, &["plan", "apply", plan["id"].as_str().unwrap()]);
    let moved = |url: &str| json(url, &["get", "moves", "-o", "json"])[0]["stage"] == "done";
    let copies = |url: &str| {
        let apps = json(url, &["get", "apps", "slow", "-o", "json"]);
        let copies = apps[0]["bindings"].as_array().unwrap().iter();
        copies.map(|copy| format!("{} {}", copy["member"].as_str().unwrap(), copy["phase"].as_str().unwrap())).collect::<Vec<_>>()
    };
    wait(|| copies(&url).len() == 2);
    ok(&url, &["backup", "--data", &at("data"), "--out", &at("under-way.backup")]);
    assert!(!moved(&url), "the move has to be under way when the backup is complete");
    drop(first);

    std::fs::create_dir(at("second")).unwrap();
    ok(&url, &["restore", &at("under-way.backup"), "--data", &at("second/data")]);
    let (second, url) = up(&folder.path().join("second"));
    wait(|| moved(&url) && copies(&url) == ["cloud+theirs Ready"]);
    wait(|| json(&url, &["get", "operations", "-o", "json"]).as_array().unwrap().iter().all(|operation| operation["state"] == "succeeded"));
    ok(&url, &["delete", "slow"]);
    drop((second, members));
}

#[test]
fn role_for_a_cloud_is_enough_for_its_apps_and_for_nothing_else() {
    role_is_enough("tenant", "", "yes");
}

/// Drover's own account then writes no app by itself.
#[test]
fn role_for_a_cloud_that_names_an_account_is_enough_to_act_as_it_and_for_nothing_else() {
    role_is_enough("acting", ", actAs: {serviceAccount: deployer}", "no");
}

/// Needs a control plane that really authorises: the simulator grants everything. `writes`: whether Drover's account itself writes there.
fn role_is_enough(prefix: &str, act_as: &str, writes: &str) {
    let Some((kubeconfig, programs)) = needs("DROVER_CONTRACT_KUBECONFIG").zip(needs("DROVER_KUBE_BIN")) else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::copy(kubeconfig, at("admin")).unwrap();
    std::fs::copy(at("admin"), at("tenant")).unwrap();
    let kubectl = |user: &str, args: &[&str]| {
        let done = Command::new(Path::new(&programs).join("kubectl")).arg("--kubeconfig").arg(at(user)).args(args).output().unwrap();
        (
            done.status.success(),
            format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr)).trim().to_owned(),
        )
    };
    let (_up, url) = up(folder.path());
    // `drover deploy` finds the cloud by the name of its namespace.
    let namespace = format!("{prefix}-{}", std::process::id());
    let cloud = format!(
        "version: emco/v2
resourceContext: {{anchor: projects}}
metadata: {{name: team}}
---
version: emco/v2
resourceContext: {{anchor: projects/team/logical-clouds}}
metadata: {{name: {namespace}}}
spec: {{namespace: {namespace}, level: '0'{act_as}}}
"
    );
    std::fs::write(at("cloud.yaml"), cloud).unwrap();
    ok(&url, &["apply", "-f", &at("cloud.yaml")]);
    std::fs::write(at("role.yaml"), ok(&url, &["cluster", "role", "--for", &namespace, "--project", "team"])).unwrap();
    let (applied, said) = kubectl("admin", &["apply", "-f", &at("role.yaml")]);
    assert!(applied, "{said}");

    // From here on the hub has the tenant's account only.
    let (_, token) = kubectl("admin", &["create", "token", &format!("drover-team-{namespace}"), "-n", "drover-system"]);
    assert!(kubectl("tenant", &["config", "set-credentials", "tenant", "--token", &token]).0, "{token}");
    assert!(kubectl("tenant", &["config", "set-context", "--current", "--user", "tenant"]).0);
    ok(&url, &["cluster", "add", "real", "--provider", "onprem", "--kubeconfig", &at("tenant")]);
    wait(|| state_of(&url, "real") == "Ready");
    let references = format!(
        "version: emco/v2
resourceContext: {{anchor: projects/team/logical-clouds/{namespace}/cluster-references}}
metadata: {{name: onprem-real}}
spec: {{clusterProvider: onprem, cluster: real}}
---
version: emco/v2
resourceContext: {{anchor: projects/team/logical-clouds/{namespace}/instantiate}}
"
    );
    std::fs::write(at("references.yaml"), references).unwrap();
    ok(&url, &["apply", "-f", &at("references.yaml")]);
    std::fs::write(at("web.yaml"), SHOP).unwrap();
    ok(&url, &["deploy", "web", "-f", &at("web.yaml"), "--project", "team", "-n", &namespace, "--wait"]);
    let (_, ready) = kubectl("admin", &["get", "deployments", "-n", &namespace, "-o", "jsonpath={.items[*].status.readyReplicas}"]);
    assert!(!ready.is_empty() && ready.split(' ').all(|count| count != "0"), "{ready}");
    ok(&url, &["delete", "web", "--project", "team"]);
    wait(|| {
        kubectl("admin", &["get", "deployments", "-n", &namespace, "-o", "name"]).1.lines().all(|line| !line.starts_with("deployment"))
    });

    for (verb, kind, place, expected) in [
        ("create", "configmaps", "kube-system", "no"),
        ("create", "secrets", "default", "no"),
        ("create", "clusterroles.rbac.authorization.k8s.io", "default", "no"),
        ("create", "rolebindings.rbac.authorization.k8s.io", &namespace, "no"),
        ("impersonate", "users", "default", "no"),
        ("impersonate", "serviceaccounts/default", &namespace, "no"),
        ("patch", "deployments.apps", &namespace, writes),
    ] {
        let (_, said) = kubectl("tenant", &["auth", "can-i", verb, kind, "-n", place]);
        assert!(said.lines().any(|line| line == expected), "{verb} {kind} in {place}: {said}");
    }
    for kind in ["clusterrolebinding", "clusterrole"] {
        kubectl("admin", &["delete", "--wait=false", &format!("{kind}/drover-team-{namespace}")]);
    }
    kubectl("admin", &["delete", "--wait=false", &format!("namespace/{namespace}")]);
}
