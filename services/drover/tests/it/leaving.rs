//! `drover delete` says what stays, and why.

use serde_json::json;

use crate::program::{json as get, ok, simulated, start, wait};
use crate::readme::{run, write};

#[test]
fn delete_says_that_a_definition_stays_because_others_have_objects_of_its_kind() {
    let folder = tempfile::tempdir().unwrap();
    let (members, files) = simulated(1, &folder.path().join("sim"));
    let (up, url) = start(folder.path());
    ok(&url, &["cluster", "add", "mine", "--provider", "onprem", "--kubeconfig", &files[0]]);
    wait(|| get(&url, &["get", "clusters", "-o", "json"]).as_array().unwrap().iter().all(|c| c["ageMs"].is_u64()));
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
    let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "theirs"}});
    write(&folder.path().join("operator.yaml"), &[definition]);
    write(&folder.path().join("user.yaml"), &[thing]);
    for app in ["operator", "user"] {
        let output = run(&url, folder.path(), &format!("deploy {app} -f {app}.yaml --everywhere --wait"));
        assert!(output.status.success(), "{app}: {}", String::from_utf8_lossy(&output.stderr));
    }
    for (app, stays) in [("operator", true), ("user", false)] {
        let output = run(&url, folder.path(), &format!("delete {app}"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let why = "on onprem+mine: CustomResourceDefinition/things.example.com stays: there are objects of others of its kind (Thing/default/theirs)";
        assert_eq!((output.status.success(), said.contains(why)), (true, stays), "{app}: {said}");
    }
    drop(up);
    drop(members);
}
