//! What is deployed arrives whole: every object of the input is in the member, or the deployment is refused and nothing is written.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use drover_manifest::objects;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::program::{HOME, json as get, ok, run, simulated, start, wait};

/// Kind, API version, plural, and whether it has a namespace.
const KINDS: [(&str, &str, &str, bool); 12] = [
    ("Deployment", "apps/v1", "deployments", true),
    ("StatefulSet", "apps/v1", "statefulsets", true),
    ("CronJob", "batch/v1", "cronjobs", true),
    ("Job", "batch/v1", "jobs", true),
    ("ReplicationController", "v1", "replicationcontrollers", true),
    ("ConfigMap", "v1", "configmaps", true),
    ("Secret", "v1", "secrets", true),
    ("Service", "v1", "services", true),
    ("ServiceAccount", "v1", "serviceaccounts", true),
    ("Role", "rbac.authorization.k8s.io/v1", "roles", true),
    ("ClusterRole", "rbac.authorization.k8s.io/v1", "clusterroles", false),
    ("Namespace", "v1", "namespaces", false),
];

fn object(kind: usize, name: usize, namespace: usize) -> Value {
    let (kind, api_version, _, namespaced) = KINDS[kind];
    let label = format!("{}-{name}-{namespace}", kind.to_lowercase());
    let template = json!({"metadata": {"labels": {"app": label}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let mut metadata = json!({"name": format!("n{name}")});
    match (kind, namespace) {
        ("Namespace", _) => metadata = json!({"name": format!("space{namespace}")}),
        ("Job", 0) => metadata = json!({"generateName": format!("n{name}-")}),
        (_, 0) => {}
        _ if namespaced => metadata["namespace"] = json!(format!("space{namespace}")),
        _ => {}
    }
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
    let mut once = template.clone();
    once["spec"]["restartPolicy"] = json!("Never");
    match kind {
        "Deployment" => object["spec"] = json!({"selector": {"matchLabels": {"app": label}}, "template": template}),
        "StatefulSet" => object["spec"] = json!({"serviceName": "s", "selector": {"matchLabels": {"app": label}}, "template": template}),
        "ReplicationController" => object["spec"] = json!({"replicas": 1, "selector": {"app": label}, "template": template}),
        "Job" => object["spec"] = json!({"template": once}),
        "CronJob" => object["spec"] = json!({"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": once}}}),
        "Service" => object["spec"] = json!({"ports": [{"port": 80}], "selector": {"app": format!("deployment-{name}-{namespace}")}}),
        "ConfigMap" => object["data"] = json!({"yes": "no", "mode": "0744", "label": label}),
        "Role" | "ClusterRole" => object["rules"] = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]),
        _ => {}
    }
    object
}

/// Objects without two of one address, as a text of YAML documents, JSON documents and lists.
fn any_input() -> impl Strategy<Value = (Vec<Value>, String)> {
    let object = (0..KINDS.len(), 0..3_usize, 0..3_usize).prop_map(|(kind, name, namespace)| object(kind, name, namespace));
    (prop::collection::vec(object, 1..14), any::<u8>()).prop_map(|(mut objects, style)| {
        let mut seen = BTreeSet::new();
        objects.retain(|object| seen.insert(drover_manifest::objects::address(object, "default")));
        let text = match style % 3 {
            0 => json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string(),
            1 => objects.iter().map(|object| format!("{object}\n")).collect(),
            _ => objects.iter().map(|object| format!("---\n{}", serde_yaml::to_string(&quoted(object)).unwrap())).collect(),
        };
        (objects, text)
    })
}

/// The emitter of these tests leaves `0744` and `no` without quotes.
fn quoted(object: &Value) -> Value {
    let mut object = object.clone();
    if object["data"]["mode"].is_string() {
        object["data"] = json!({"label": object["data"]["label"]});
    }
    object
}

/// Whether everything that was written is there; the member may add to it.
fn holds(there: &Value, written: &Value) -> bool {
    match (there, written) {
        (Value::Object(there), Value::Object(written)) => {
            written.iter().all(|(key, value)| key == "generateName" || there.get(key).is_some_and(|there| holds(there, value)))
        }
        (Value::Array(there), Value::Array(written)) => {
            there.len() == written.len() && there.iter().zip(written).all(|(there, written)| holds(there, written))
        }
        _ => there == written,
    }
}

/// The address of a member's API server.
pub(crate) fn server(kubeconfig: &str) -> String {
    let config = drover_manifest::one(&std::fs::read_to_string(kubeconfig).unwrap(), drover_manifest::Limits::KUBECONFIG).unwrap();
    config["clusters"][0]["cluster"]["server"].as_str().unwrap().to_owned()
}

/// All objects of the kinds above that Drover made in a member.
pub(crate) fn in_member(server: &str) -> Vec<Value> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, mut found) = (reqwest::Client::new(), Vec::new());
        for (kind, api_version, plural, _) in KINDS {
            let root = if api_version == "v1" { "api" } else { "apis" };
            let url = format!("{server}/{root}/{api_version}/{plural}");
            let list: Value = client.get(url).send().await.unwrap().error_for_status().unwrap().json().await.unwrap();
            for item in list["items"].as_array().unwrap() {
                let mut item = item.clone();
                item["kind"] = json!(kind);
                item["apiVersion"] = json!(api_version);
                found.push(item);
            }
        }
        found.retain(|object| object["metadata"]["labels"].get("drover.io/hub").is_some());
        found
    })
}

fn with_stdin(url: &str, args: &[&str], text: &str) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
    command.args(args).env_clear().env("HOME", HOME).env("PATH", std::env::var_os("PATH").unwrap()).env("DROVER_URL", url);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn every_object_of_the_input_is_in_the_member_or_nothing_is() {
    let folder = tempfile::tempdir().unwrap();
    let (members, files) = simulated(2, &folder.path().join("sim"));
    let (up, url) = start(folder.path());
    ok(&url, &["cluster", "add", "mine", "--provider", "onprem", "--kubeconfig", &files[0], "--priority", "1"]);
    ok(&url, &["cluster", "add", "theirs", "--provider", "cloud", "--kubeconfig", &files[1], "--priority", "5"]);
    wait(|| get(&url, &["get", "clusters", "-o", "json"]).as_array().unwrap().iter().all(|c| c["state"] == "Ready" && c["ageMs"].is_u64()));
    let (mine, theirs) = (server(&files[0]), server(&files[1]));

    generated_inputs_arrive_whole(&url, &mine);
    refusals_name_the_place_and_write_nothing(&url, folder.path());
    ways_to_name_the_input(&url, folder.path(), &mine, &theirs);
    drop((up, members));
}

fn generated_inputs_arrive_whole(url: &str, member: &str) {
    let mut runner = TestRunner::deterministic();
    for round in 0..8 {
        let (_, text) = any_input().new_tree(&mut runner).unwrap().current();
        let expected = objects::settle(objects::read("generated", &text).unwrap(), "default").unwrap();
        let split = round % 4 == 3 && text.contains("Deployment");
        let args: &[&str] = if split { &["--on", "onprem", "--split"] } else { &["--on", "onprem"] };
        let args: Vec<&str> = ["deploy", "whole", "-f", "-", "--wait"].iter().chain(args).copied().collect();
        let output = with_stdin(url, &args, &text);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}\n{text}");
        assert!(said.contains(&format!("{0} of {0} objects on onprem+mine", expected.len())), "{said}\n{text}");
        let there = in_member(member);
        for manifest in &expected {
            let address = objects::address(&manifest.value, "default");
            let found = there.iter().find(|object| objects::address(object, "") == address);
            let found = found.unwrap_or_else(|| panic!("{address} is not in the member:\n{text}"));
            assert!(holds(found, &manifest.value), "{address} is {found}, not {}", manifest.value);
        }
        ok(url, &["delete", "whole"]);
        wait(|| in_member(member).is_empty());
    }
}

fn refusals_name_the_place_and_write_nothing(url: &str, folder: &Path) {
    let at = |name: &str, text: &str| {
        std::fs::create_dir_all(folder.join("in")).unwrap();
        std::fs::write(folder.join("in").join(name), text).unwrap();
    };
    let refused = |args: &[&str], words: &[&str]| {
        let output = run(url, args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && words.iter().all(|word| said.contains(word)), "{args:?}: {said}");
        assert_eq!(get(url, &["get", "apps", "-o", "json"]), json!([]), "nothing is written");
    };
    let input = folder.join("in").display().to_string();
    let deploy = ["deploy", "web", "-f", &input];
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 80}]}\n";
    at(
        "a.yaml",
        &format!("{service}---\napiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec: {{containers: [{{name: c, image: i}}]}}\n"),
    );
    at("b.yaml", &format!("# other\n---\n{}", service.replace("80", "81")));
    refused(
        &deploy,
        &["Service default/web is there twice with different content", "a.yaml, document 1 (line 1)", "b.yaml, document 1 (line 2)"],
    );
    at("b.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {}\n");
    refused(&deploy, &["b.yaml, document 1 (line 1): the Secret has no metadata.name"]);
    at("b.yaml", "a: [");
    refused(&deploy, &["b.yaml: document 1, line 1"]);
    at("b.yaml", "kind: Kustomization\n");
    std::fs::rename(folder.join("in/b.yaml"), folder.join("in/kustomization.yaml")).unwrap();
    refused(&deploy, &["deploy it with `-k "]);
    std::fs::remove_file(folder.join("in/kustomization.yaml")).unwrap();
    at("a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n");
    refused(&deploy, &["there is no workload", "--everywhere"]);
    refused(&["deploy", "web", "-f", &folder.join("sim").display().to_string()], &["no .yaml, .yml or .json file"]);
}

fn ways_to_name_the_input(url: &str, folder: &Path, mine: &str, theirs: &str) {
    let at = |name: &str, text: &str| {
        let path = folder.join("ways").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let pod = |name: &str| {
        format!("apiVersion: v1\nkind: Deployment\nmetadata: {{name: {name}}}\nspec: {{selector: {{matchLabels: {{app: {name}}}}}, template: {{metadata: {{labels: {{app: {name}}}}}, spec: {{containers: [{{name: c, image: i}}]}}}}}}\n").replace("v1\nkind: Dep", "apps/v1\nkind: Dep")
    };
    let names = |server: &str| in_member(server).iter().map(|object| objects::address(object, "").to_string()).collect::<BTreeSet<_>>();
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();

    // Several files and a folder in a folder, into a namespace that does not exist yet.
    let (one, two) = (at("one.yaml", &pod("one")), at("deep/er/two.yml", &pod("two")));
    ok(url, &["deploy", "ways", "-f", &one, "-f", &folder.join("ways/deep").display().to_string(), "-R", "-n", "blue", "--wait"]);
    assert_eq!(names(mine), set(&["Deployment blue/one", "Deployment blue/two", "Namespace blue"]));
    let other = run(url, &["deploy", "ways", "-f", &one, "-n", "green"]);
    assert!(String::from_utf8_lossy(&other.stderr).contains("ways is in the namespace blue"));
    ok(url, &["deploy", "ways", "-f", &two, "--wait"]);
    wait(|| names(mine) == set(&["Deployment blue/two", "Namespace blue"]));
    ok(url, &["delete", "ways"]);
    wait(|| names(mine).is_empty());

    // Without a workload, on every cluster.
    let role = at("role.yaml", "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: r}\nrules: []\n");
    ok(url, &["deploy", "roles", "-f", &role, "--everywhere", "--wait"]);
    assert_eq!((names(mine), names(theirs)), (set(&["ClusterRole r"]), set(&["ClusterRole r"])));
    ok(url, &["delete", "roles"]);
    wait(|| names(mine).is_empty() && names(theirs).is_empty());

    // A split application stays split, and one that runs together is not taken apart.
    let both = at("both.yaml", &format!("{}---\n{}", pod("web"), pod("db")));
    ok(url, &["deploy", "parts", "-f", &both, "--split", "--wait"]);
    let apps = |url: &str| {
        get(url, &["get", "apps", "-o", "json"])
            .as_array()
            .unwrap()
            .iter()
            .map(|app| app["app"].as_str().unwrap().to_owned())
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(apps(url), set(&["web", "db"]));
    ok(url, &["deploy", "parts", "-f", &both, "--wait"]);
    assert_eq!(apps(url), set(&["web", "db"]));
    ok(url, &["delete", "parts"]);
    ok(url, &["deploy", "parts", "-f", &both, "--wait"]);
    assert_eq!(apps(url), set(&["parts"]));
    let refused = run(url, &["deploy", "parts", "-f", &both, "--split"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("runs as one app"));
    ok(url, &["delete", "parts"]);
    wait(|| names(mine).is_empty());

    // Too large for any cluster as a whole: what helps is said, by a dry run too, and helps.
    let large = |name: &str| pod(name).replace("image: i", "image: i, resources: {requests: {cpu: '3'}}");
    let large = at("large.yaml", &format!("{}---\n{}", large("front"), large("back")));
    for (how, code) in [("--dry-run", 3), ("--wait", 1)] {
        let refused = run(url, &["deploy", "large", "-f", &large, how]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(code) && said.contains("`--split` places each of them by itself"), "{how}: {said}");
    }
    ok(url, &["deploy", "large", "-f", &large, "--split", "--wait"]);
    assert_eq!((names(mine).len(), names(theirs).len()), (1, 1));
    ok(url, &["delete", "large"]);
    wait(|| names(mine).is_empty() && names(theirs).is_empty());

    // A kustomization, built by the kubectl of deploy/local-kube.
    if let Some(kube) = std::env::var_os("DROVER_KUBE_BIN").or_else(|| drover_testkit::needs("DROVER_KUBE_BIN")) {
        at("kustom/base.yaml", &pod("base"));
        at("kustom/kustomization.yaml", "resources: [base.yaml]\nnamePrefix: test-\n");
        let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
        command
            .args(["deploy", "kustom", "-k"])
            .arg(folder.join("ways/kustom"))
            .arg("--wait")
            .env_clear()
            .env("HOME", HOME)
            .env("DROVER_URL", url);
        let output = command.env("DROVER_KUSTOMIZE", Path::new(&kube).join("kubectl")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(names(mine), set(&["Deployment default/test-base"]));
    }
}
