//! The pages of docs/how-to, run from their texts: all their commands succeed, and what they show of the output is there.
//!
//! Each page has a Drover of its own, with the clusters `private-a` (provider onprem, filled first) and `public-b` (aws) unless it registers
//! its clusters itself, and the files that its commands name.

use std::path::Path;

use drover_testkit::needs;
use serde_json::json;

use crate::page::{clusters, run, shell};
use crate::program::{start, start_with};
use crate::readme::{workload, write};

/// Blocks of each page that are not run. Their commands are parsed (lab/cli/tests/it/pages.rs), and the page gives the reason at each.
const NOT_RUN: [(&str, usize); 15] = [
    ("agents.md", 1),
    ("autoscaling.md", 8),
    ("clusters.md", 1),
    ("coming-from-emco.md", 0),
    ("controllers.md", 0),
    ("deploying.md", 2),
    ("group-placement.md", 4),
    ("linked-clusters.md", 4),
    ("looking.md", 2),
    ("memory-guard.md", 1),
    ("relocation.md", 0),
    ("scale-to-zero.md", 3),
    ("stateful.md", 0),
    ("teams.md", 0),
    ("traffic.md", 5),
];

/// Runs a page in a folder where everything that it needs has been made.
fn runs(page: &str, url: &str, folder: &Path, stop: impl FnMut(&str)) {
    let not_run = run(&format!("how-to/{page}"), url, folder, stop);
    assert_eq!(Some(&(page, not_run)), NOT_RUN.iter().find(|(name, _)| *name == page), "blocks that are not run");
}

const REGISTER: &str = "drover cluster add private-a --provider onprem --priority 1 --kubeconfig sim/sim-1.kubeconfig
    drover cluster add public-b --provider aws --priority 5 --kubeconfig sim/sim-2.kubeconfig
    drover provider set onprem --priority 1";

/// Writes a chart of a Deployment of this name.
fn chart(folder: &Path, name: &str) {
    let mut objects = workload(name, "100m", "");
    objects[0]["spec"]["template"]["spec"]["containers"][0]["image"] = json!("example.com/mail:{{ .Values.image.tag }}");
    objects[0]["spec"]["replicas"] = json!("REPLICAS");
    std::fs::create_dir_all(folder.join("templates")).unwrap();
    std::fs::write(folder.join("Chart.yaml"), format!("apiVersion: v2\nname: {name}\nversion: 1.2.0\n")).unwrap();
    std::fs::write(folder.join("values.yaml"), "replicas: 1\nimage: {tag: '1'}\n").unwrap();
    let text: Vec<String> = objects.iter().map(|object| format!("---\n{object}\n")).collect();
    std::fs::write(folder.join("templates/all.yaml"), text.concat().replace("\"REPLICAS\"", "{{ .Values.replicas }}")).unwrap();
}

#[test]
fn every_page_below_how_to_is_run() {
    let pages = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to")).unwrap();
    let mut pages: Vec<String> = pages.map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    pages.sort();
    assert_eq!(pages, NOT_RUN.map(|(page, _)| page.to_owned()), "each page needs a test here");
}

#[test]
fn deploying_does_what_it_says() {
    if needs("DROVER_HELM").is_none() || needs("DROVER_KUBE_BIN").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let members = clusters(2, &at("sim"));
    let (up, url) = start(folder.path());
    shell(REGISTER, &url, folder.path());
    ["blog/more", "overlays/test", "manifests"].iter().for_each(|name| std::fs::create_dir_all(at(name)).unwrap());
    write(&at("shop.yaml"), &workload("shop", "100m", ""));
    write(&at("blog/blog.yaml"), &workload("blog", "100m", ""));
    write(&at("blog/more/comments.yaml"), &workload("comments", "100m", ""));
    write(&at("base.yaml"), &workload("base", "100m", ""));
    std::fs::write(at("extra.json"), json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "extra"}}).to_string()).unwrap();
    write(&at("overlays/test/cart.yaml"), &workload("cart", "100m", ""));
    std::fs::write(at("overlays/test/kustomization.yaml"), "resources: [cart.yaml]\nnameSuffix: -test\n").unwrap();
    chart(&at("chart"), "mail");
    std::fs::write(at("prod.yaml"), "replicas: 2\n").unwrap();
    shell("mkdir packed && cp -r chart packed/mail && tar czf mail-1.2.tgz -C packed mail", &url, folder.path());
    write(&at("manifests/web.yaml"), &workload("web", "100m", "http://items:80"));
    write(&at("manifests/items.yaml"), &workload("items", "100m", ""));
    runs("deploying.md", &url, folder.path(), |_| ());
    drop((up, members));
}

#[test]
fn looking_does_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let members = clusters(2, &at("sim"));
    let (up, url) = start(folder.path());
    shell(REGISTER, &url, folder.path());
    std::fs::create_dir(at("manifests")).unwrap();
    write(&at("manifests/shop.yaml"), &workload("shop", "200m", ""));
    write(&at("shop.yaml"), &workload("shop", "100m", ""));
    runs("looking.md", &url, folder.path(), |_| ());
    drop((up, members));
}

#[test]
fn clusters_does_what_it_says() {
    // Tokens of service accounts are issued by a real control plane only.
    let Some(real) = needs("DROVER_CONTRACT_KUBECONFIG") else { return };
    let _only = crate::agents::ACCOUNT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (mut private, members) = (Some(clusters(1, &at("private"))), clusters(2, &at("sim")));
    let (up, url) = start(folder.path());
    std::fs::copy(at("private/sim-1.kubeconfig"), at("a.kubeconfig")).unwrap();
    std::fs::copy(at("private/sim-1.kubeconfig"), at("new.kubeconfig")).unwrap();
    std::fs::copy(real, at("kubeconfig")).unwrap();
    shell("kubectl config rename-context $(kubectl config current-context) my-eks", &url, folder.path());
    shell(&REGISTER.replace("sim/sim-1.kubeconfig", "a.kubeconfig"), &url, folder.path());
    write(&at("shop.yaml"), &workload("shop", "100m", ""));
    runs("clusters.md", &url, folder.path(), |_| private.take().unwrap().shutdown_background());
    assert!(private.is_none(), "the page no longer loses a cluster");
    drop((up, members));
}

#[test]
fn linked_clusters_does_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let members = clusters(1, &at("sim"));
    std::fs::copy(at("sim/sim-1.kubeconfig"), at("edge.kubeconfig")).unwrap();
    let (up, url) = start_with(folder.path(), &[("DROVER_LINK_LISTEN", "127.0.0.1:0")]);
    let kubeconfig = std::fs::read_to_string(at("edge.kubeconfig")).unwrap();
    let server = kubeconfig.split_once("server: http://").and_then(|(_, rest)| rest.split_once('/')).unwrap().0.to_owned();
    let invitation = at("edge.json");
    // The reader's second terminal: the agent is started when there is an invitation.
    let agent = tokio::runtime::Runtime::new().unwrap();
    let config = drover_link_agent::Config {
        invitation: Some(invitation.clone()),
        state: at("link"),
        api_server: Some(server),
        hub: None,
        drill: Default::default(),
    };
    agent.spawn(async move {
        while !std::fs::read_to_string(&invitation).is_ok_and(|text| text.ends_with("}\n")) {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        drover_link_agent::run(config).await
    });
    runs("linked-clusters.md", &url, folder.path(), |_| ());
    agent.shutdown_background();
    drop((up, members));
}

#[test]
fn coming_from_emco_does_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let members = clusters(1, &at("sim"));
    let (up, url) = start(folder.path());
    shell("drover cluster add mine --provider onprem --priority 1 --kubeconfig sim/sim-1.kubeconfig", &url, folder.path());
    write(&at("shop.yaml"), &workload("cart", "100m", ""));
    let files =
        crate::application::EMCO.replace("projects/emco", "projects/{{ .ProjectName }}").replace("name: emco", "name: {{ .ProjectName }}");
    let files = files
        .replace("composite-apps/shop", "composite-apps/collection-composite-app")
        .replace("{name: shop}", "{name: collection-composite-app}");
    let (verbs, documents): (Vec<&str>, Vec<&str>) =
        files.split("\n---\n").partition(|one| one.contains("/approve") || one.contains("/instantiate"));
    std::fs::write(at("prerequisites.yaml"), documents.join("\n---\n")).unwrap();
    std::fs::write(at("instantiate.yaml"), verbs.join("\n---\n")).unwrap();
    std::fs::write(at("values.yaml"), "ProjectName: proj1\n").unwrap();
    runs("coming-from-emco.md", &url, folder.path(), |_| ());
    drop((up, members));
}

#[test]
fn teams_does_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let members = clusters(2, &at("sim"));
    let (up, url) = start(folder.path());
    shell(REGISTER, &url, folder.path());
    write(&at("web.yaml"), &workload("web", "100m", ""));
    runs("teams.md", &url, folder.path(), |_| ());
    drop((up, members));
}

#[test]
fn stateful_does_what_it_says() {
    if needs("DROVER_KUBE_BIN").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let members = clusters(2, &at("sim"));
    let (up, url) = start(folder.path());
    std::fs::copy(at("sim/sim-1.kubeconfig"), at("a.kubeconfig")).unwrap();
    std::fs::copy(at("sim/sim-2.kubeconfig"), at("b.kubeconfig")).unwrap();
    shell(REGISTER, &url, folder.path());
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "directory"},
        "provisioner": "kubernetes.io/no-provisioner"});
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "db-0"}, "spec": {"capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"], "storageClassName": "directory", "hostPath": {"path": "/srv/db-0"}}});
    write(&at("class.yaml"), std::slice::from_ref(&class));
    write(&at("volume.yaml"), &[volume]);
    shell("kubectl --kubeconfig a.kubeconfig create -f class.yaml -f volume.yaml", &url, folder.path());
    shell("kubectl --kubeconfig b.kubeconfig create -f class.yaml", &url, folder.path());
    let mut db = workload("db", "100m", "").remove(0);
    db["kind"] = json!("StatefulSet");
    db["spec"]["serviceName"] = json!("db");
    db["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "storageClassName": "directory", "resources": {"requests": {"storage": "1Gi"}}}}]);
    write(&at("db.yaml"), &[db]);
    runs("stateful.md", &url, folder.path(), |_| ());
    shell("kubectl --kubeconfig b.kubeconfig get pv db-0 -o jsonpath={.spec.claimRef.name} | grep -x data-db-0", &url, folder.path());
    drop((up, members));
}

#[test]
fn group_placement_does_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let members = clusters(2, &at("sim"));
    let (up, url) = start(folder.path());
    shell(REGISTER, &url, folder.path());
    std::fs::create_dir(at("manifests")).unwrap();
    for app in ["front-end", "carts", "carts-db"] {
        write(&at(&format!("manifests/{app}.yaml")), &workload(app, "100m", ""));
    }
    runs("group-placement.md", &url, folder.path(), |_| ());
    drop((up, members));
}

#[test]
fn agents_does_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let members = clusters(2, &folder.path().join("sim"));
    let (up, url) = start_with(folder.path(), &[("DROVER_READY_SECONDS", "60")]);
    shell(REGISTER, &url, folder.path());
    runs("agents.md", &url, folder.path(), |_| ());
    drop((up, members));
}

#[test]
fn autoscaling_does_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let (up, url) = start(folder.path());
    let load: Vec<String> = (0..1200).map(|second| format!("{second},{}\n", 20 + second / 20)).collect();
    std::fs::write(folder.path().join("load.csv"), load.concat()).unwrap();
    std::fs::write(folder.path().join("measured.csv"), "pods,rps\n1,100\n2,190\n4,380\n").unwrap();
    runs("autoscaling.md", &url, folder.path(), |_| ());
    drop(up);
}

#[test]
fn scale_to_zero_does_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let members = clusters(2, &folder.path().join("sim"));
    let (up, url) = start(folder.path());
    shell(REGISTER, &url, folder.path());
    let mut objects = workload("cart", "100m", "");
    objects[0]["spec"]["template"]["spec"]["containers"][0]["ports"] = json!([{"containerPort": 8080}]);
    write(&folder.path().join("cart.yaml"), &objects);
    runs("scale-to-zero.md", &url, folder.path(), |_| ());
    let objects = crate::whole::in_member(&crate::whole::server(&folder.path().join("sim/sim-1.kubeconfig").display().to_string()));
    let find = |kind: &str, name: &str| objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name).unwrap();
    assert_eq!(find("Deployment", "cart")["spec"]["template"]["spec"]["containers"][1]["name"], "drover-queue-proxy");
    assert_eq!(find("Service", "cart")["metadata"]["labels"]["drover.io/path"], "public");
    assert!(find("Service", "cart")["spec"].get("selector").is_none(), "the autoscaler says who receives its requests");
    assert!(find("Service", "cart-pods")["spec"]["selector"].is_object());
    drop((up, members));
}

#[test]
fn pages_without_commands_for_this_machine_say_so() {
    let folder = tempfile::tempdir().unwrap();
    for page in ["controllers.md", "memory-guard.md", "relocation.md", "traffic.md"] {
        runs(page, "http://127.0.0.1:9", folder.path(), |_| ());
    }
}
