//! `--movable`: what is moved, and who loses a name by it.

use crate::program::{fetch, json as get, ok, simulated, start, wait};
use crate::readme::{run, workload, write};

#[test]
fn movable_applications_with_services_move_and_their_callers_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let (members, files) = simulated(2, &folder.path().join("sim"));
    let (up, url) = start(folder.path());
    ok(&url, &["cluster", "add", "mine", "--provider", "onprem", "--kubeconfig", &files[0], "--priority", "1"]);
    ok(&url, &["cluster", "add", "theirs", "--provider", "cloud", "--kubeconfig", &files[1], "--priority", "5"]);
    wait(|| get(&url, &["get", "clusters", "-o", "json"]).as_array().unwrap().iter().all(|c| c["ageMs"].is_u64()));
    let drover = |command: &str| {
        let output = run(&url, folder.path(), command);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let shop = [workload("web", "500m", "http://cart:80"), workload("cart", "500m", "")].concat();
    write(&folder.path().join("shop.yaml"), &shop);
    write(&folder.path().join("blog.yaml"), &workload("blog", "500m", "http://cart.default.svc:80/of/me"));
    let lost = "callers that lose the name if it is moved away from them: blog/blog (Service default/cart)";
    drover("deploy blog -f blog.yaml --pinned --wait");

    // Together: the Services do not keep it, and whoever calls them is named before and after.
    let (code, answer, said) = drover("deploy shop -f shop.yaml --movable --dry-run -o json");
    assert!(code == Some(0) && said.contains(lost), "{said}");
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["callers"], serde_json::json!([{"caller": "blog/blog", "service": "default/cart", "app": "shop"}]));
    let (code, _, said) = drover("deploy shop -f shop.yaml --movable=alone --wait");
    assert!(code == Some(0) && !said.contains("lose the name"), "{said}");
    let (_, kept, _) = drover("plan drain mine");
    assert!(kept.contains("other pods may call its Service"), "{kept}");
    let (code, _, said) = drover("deploy shop -f shop.yaml --movable --wait");
    assert!(code == Some(0) && said.contains(lost), "it takes effect on what runs: {said}");
    // The blog is pinned, so that the plan says why it stays.
    let (_, plan, _) = drover("plan drain mine");
    assert!(plan.contains("shop") && !plan.contains("other pods may call its Service"), "{plan}");

    // Apart: what the other parts call by name stays.
    drover("delete shop");
    let (code, _, said) = drover("deploy shop -f shop.yaml --split --movable --wait");
    assert!(code == Some(0) && said.contains("cart is not moved: web would lose the names of its Services"), "{said}");
    let shown = |app: &str| {
        let path = format!(
            "/v2/projects/default/composite-apps/shop/v1/deployment-intent-groups/shop/generic-placement-intents/default/app-intents/{app}"
        );
        serde_json::from_str::<serde_json::Value>(&fetch(&url, &path, "application/json")).unwrap()["spec"]["allowDependants"].clone()
    };
    assert_eq!((shown("web"), shown("cart")), (true.into(), serde_json::Value::Null));
    drop(up);
    drop(members);
}

#[test]
fn nobody_loses_a_name_within_a_pod_network() {
    let folder = tempfile::tempdir().unwrap();
    let (members, files) = simulated(2, &folder.path().join("sim"));
    let (up, url) = start(folder.path());
    for (cluster, file) in [("mine", &files[0]), ("theirs", &files[1])] {
        ok(&url, &["cluster", "add", cluster, "--provider", "onprem", "--kubeconfig", file, "--label", "pod-network=flat"]);
    }
    wait(|| get(&url, &["get", "clusters", "-o", "json"]).as_array().unwrap().iter().all(|c| c["ageMs"].is_u64()));
    write(&folder.path().join("shop.yaml"), &workload("cart", "500m", ""));
    write(&folder.path().join("blog.yaml"), &workload("blog", "500m", "http://cart.default.svc:80/of/me"));
    for command in ["deploy blog -f blog.yaml --pinned --wait", "deploy shop -f shop.yaml --movable --wait"] {
        let output = run(&url, folder.path(), command);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !said.contains("lose the name"), "{said}");
    }
    drop(up);
    drop(members);
}
