//! Clusters that are registered after an application was deployed.

use serde_json::json;

use crate::program::{json as get, ok, run, simulated, start, wait};
use crate::readme::{workload, write};
use crate::whole::{in_member, server};

#[test]
fn clusters_that_come_later_are_used_without_another_deployment() {
    let folder = tempfile::tempdir().unwrap();
    let (members, files) = simulated(3, &folder.path().join("sim"));
    let (up, url) = start(folder.path());
    let ready =
        || get(&url, &["get", "clusters", "-o", "json"]).as_array().unwrap().iter().all(|c| c["state"] == "Ready" && c["ageMs"].is_u64());
    for (name, provider, file) in [("mine", "onprem", &files[0]), ("theirs", "cloud", &files[1])] {
        ok(&url, &["cluster", "add", name, "--provider", provider, "--kubeconfig", file]);
    }
    wait(ready);
    let at = |name: &str| folder.path().join(name).display().to_string();
    let role = |name: &str| {
        [json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": []})]
    };
    write(&folder.path().join("all.yaml"), &role("all"));
    write(&folder.path().join("cloud.yaml"), &role("cloud"));
    write(&folder.path().join("web.yaml"), &workload("web", "500m", ""));
    ok(&url, &["deploy", "all", "-f", &at("all.yaml"), "--everywhere", "--wait"]);
    ok(&url, &["deploy", "cloud", "-f", &at("cloud.yaml"), "--everywhere", "--on", "cloud", "--wait"]);
    ok(&url, &["deploy", "web", "-f", &at("web.yaml"), "--movable", "--wait"]);

    ok(&url, &["cluster", "add", "later", "--provider", "cloud", "--kubeconfig", &files[2]]);
    wait(ready);
    let roles = |file: &str| {
        let objects = in_member(&server(file)).into_iter().filter(|object| object["kind"] == "ClusterRole");
        let mut names: Vec<String> = objects.map(|role| role["metadata"]["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    wait(|| roles(&files[2]) == ["all", "cloud"]);
    assert_eq!((roles(&files[0]), roles(&files[1])), (vec!["all".to_owned()], vec!["all".to_owned(), "cloud".to_owned()]));
    let copies = |app: &str| {
        let apps = get(&url, &["get", "apps", "-o", "json"]);
        let app = apps.as_array().unwrap().iter().find(|found| found["app"] == app).unwrap().clone();
        app["bindings"].as_array().unwrap().len()
    };
    assert_eq!((copies("all"), copies("cloud"), copies("web")), (3, 2, 1), "an app that runs in one cluster stays there");
    // Deploying the same again changes no copy.
    ok(&url, &["deploy", "all", "-f", &at("all.yaml"), "--everywhere", "--wait"]);
    assert_eq!(copies("all"), 3);

    // What runs somewhere may be moved to the new cluster, too.
    let home = get(&url, &["get", "apps", "web", "-o", "json"])[0]["bindings"][0]["member"].as_str().unwrap().to_owned();
    for other in ["onprem+mine", "cloud+theirs"].iter().filter(|other| **other != home) {
        ok(&url, &["cluster", "cordon", other.split('+').nth(1).unwrap()]);
    }
    let plan = run(&url, &["plan", "drain", home.split('+').nth(1).unwrap()]);
    let said = String::from_utf8_lossy(&plan.stdout);
    let told = ["web/web → later", "kept: all/all (it is to run on every cluster of its placement, and stays)"];
    assert!(told.iter().all(|text| said.contains(text)), "{said}{}", String::from_utf8_lossy(&plan.stderr));
    drop((up, members));
}
