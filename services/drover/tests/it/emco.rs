//! EMCO users' files work: prerequisites, applications, instantiation, update, rollback and deletion in the form of EMCO's examples, with its
//! templates and values, charts with profiles, and clusters by name and by label. What runs is read from the clusters.

use std::path::Path;

use serde_json::{Value, json};

use crate::page::shell;
use crate::program::{json as get, ok, simulated, start, wait};
use crate::whole::{in_member, server};

/// A folder with EMCO's files, charts and values, and what the files are for.
struct Example {
    folder: tempfile::TempDir,
    url: String,
    servers: Vec<String>,
    _running: (tokio::runtime::Runtime, crate::program::Process),
}

impl Example {
    /// With these charts, which run where `apps` says: on a cluster, or on all with the label (null).
    fn new(apps: &[(&str, Option<&str>)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (members, kubeconfigs) = simulated(2, &folder.path().join("sim"));
        let (up, url) = start(folder.path());
        let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/emco");
        for file in std::fs::read_dir(files).unwrap().map(Result::unwrap) {
            std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
        }
        let servers = kubeconfigs.iter().map(|file| server(file)).collect();
        let example = Self { folder, url, servers, _running: (members, up) };
        for (app, _) in apps {
            example.chart(app);
        }
        example.profile();
        example.values(&kubeconfigs, apps);
        example
    }

    /// A chart of a Deployment and a Service, whose replicas are a value.
    fn chart(&self, name: &str) {
        let at = |file: &str, text: &str| {
            let path = self.folder.path().join(name).join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        at("Chart.yaml", &format!("apiVersion: v2\nname: {name}\nversion: 0.1.0\n"));
        at("values.yaml", "replicas: 1\n");
        let chart = include_str!("emco/chart.tpl").replace("NAME", name);
        at("templates/all.yaml", &chart);
        shell(&format!("tar czf {name}.tgz {name}"), &self.url, self.folder.path());
    }

    /// EMCO's profile: a manifest that names the file of values.
    fn profile(&self) {
        let manifest = "---\nversion: v1\ntype:\n  values: override_values.yaml\n";
        std::fs::write(self.folder.path().join("manifest.yaml"), manifest).unwrap();
        std::fs::write(self.folder.path().join("override_values.yaml"), "replicas: 2\n").unwrap();
        shell("tar czf profile.tgz manifest.yaml override_values.yaml", &self.url, self.folder.path());
    }

    fn values(&self, kubeconfigs: &[String], apps: &[(&str, Option<&str>)]) {
        let clusters: Vec<Value> =
            kubeconfigs.iter().enumerate().map(|(at, file)| json!({"Name": format!("edge{}", at + 1), "Kubeconfig": file})).collect();
        let apps: Vec<Value> = apps.iter().map(|(name, cluster)| json!({"Name": name, "Cluster": cluster.unwrap_or_default()})).collect();
        let values = json!({"Provider": "provider1", "Clusters": clusters, "Label": "edge", "Project": "proj1", "Cloud": "default",
            "CompositeApp": "collection", "Group": "group", "Apps": apps});
        std::fs::write(self.folder.path().join("values.yaml"), values.to_string()).unwrap();
    }

    fn apply(&self, file: &str) {
        shell(&format!("drover apply -f {file}.yaml --values values.yaml --wait"), &self.url, self.folder.path());
    }

    /// Where each Deployment is, as `name@edge1`, sorted, once each has the two replicas of the profile.
    fn running(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (at, server) in self.servers.iter().enumerate() {
            let deployments = in_member(server).into_iter().filter(|object| object["kind"] == "Deployment");
            found.extend(deployments.map(|object| {
                assert_eq!(object["spec"]["replicas"], 2, "the profile's value: {object}");
                format!("{}@edge{}", object["metadata"]["name"].as_str().unwrap(), at + 1)
            }));
        }
        found.sort();
        found
    }

    fn becomes(&self, wanted: &[&str]) {
        wait(|| self.running() == wanted);
    }

    /// Deletes everything that these files have made, and sees that nothing is left.
    fn delete(&self, files: &[&str]) {
        let files: String = files.iter().map(|file| format!(" -f {file}.yaml")).collect();
        shell(&format!("drover delete --values values.yaml{files}"), &self.url, self.folder.path());
        for server in &self.servers {
            assert_eq!(in_member(server), Vec::<Value>::new(), "something is left");
        }
        assert_eq!(get(&self.url, &["get", "projects", "-o", "json"]), json!([]));
    }

    fn status(&self) -> Value {
        let at = "projects/proj1/composite-apps/collection/v1/deployment-intent-groups/group/status";
        serde_json::from_str(&crate::program::fetch(&self.url, &format!("/v2/{at}"), "application/json")).unwrap()
    }
}

#[test]
fn multi_cluster_example_runs_each_app_where_its_intent_says() {
    if drover_testkit::needs("DROVER_HELM").is_none() {
        return;
    }
    let example = Example::new(&[("collectd", None), ("http-client", Some("edge1")), ("http-server", Some("edge2"))]);
    ["prerequisites", "applications", "instantiate"].iter().for_each(|file| example.apply(file));
    example.becomes(&["collectd@edge1", "collectd@edge2", "http-client@edge1", "http-server@edge2"]);
    let status = example.status();
    assert_eq!((&status["deployedStatus"], &status["readyStatus"]), (&json!("Instantiated"), &json!("Ready")), "{status}");
    assert_eq!(status["apps"].as_array().map(Vec::len), Some(3), "{status}");
    example.delete(&["prerequisites", "applications", "instantiate"]);
}

#[test]
fn dependency_example_starts_apps_one_after_the_other() {
    if drover_testkit::needs("DROVER_HELM").is_none() {
        return;
    }
    let example = Example::new(&[("collectd", Some("edge1")), ("nginx", Some("edge1")), ("operator", Some("edge2"))]);
    ["prerequisites", "applications", "dependencies", "instantiate"].iter().for_each(|file| example.apply(file));
    example.becomes(&["collectd@edge1", "nginx@edge1", "operator@edge2"]);
    let made = |name: &str| {
        let all = example.servers.iter().flat_map(|server| in_member(server));
        let found = all.filter(|object| object["kind"] == "Deployment").find(|object| object["metadata"]["name"] == name).unwrap();
        found["metadata"]["creationTimestamp"].as_str().unwrap().to_owned()
    };
    // Whole seconds as text: those of two objects differ after a wait of two seconds.
    assert!(made("nginx") < made("operator"), "the operator waits for nginx");
    assert!(made("operator") < made("collectd"), "collectd waits for the operator");
    example.delete(&["prerequisites", "applications", "dependencies", "instantiate"]);
}

#[test]
fn update_example_moves_an_app_to_another_cluster_and_rolls_back() {
    if drover_testkit::needs("DROVER_HELM").is_none() {
        return;
    }
    let example = Example::new(&[("collectd", Some("edge1"))]);
    ["prerequisites", "applications", "instantiate"].iter().for_each(|file| example.apply(file));
    example.becomes(&["collectd@edge1"]);
    let values = example.folder.path().join("values.yaml");
    let text = std::fs::read_to_string(&values).unwrap();
    std::fs::write(&values, text.replace(r#""Cluster":"edge1""#, r#""Cluster":"edge2""#)).unwrap();
    ["applications", "update"].iter().for_each(|file| example.apply(file));
    example.becomes(&["collectd@edge2"]);
    example.apply("rollback");
    example.becomes(&["collectd@edge1"]);
    let revisions = ok(&example.url, &["history", "collection", "-p", "proj1", "-o", "json"]);
    assert_eq!(serde_json::from_str::<Value>(&revisions).unwrap().as_array().map(Vec::len), Some(3), "{revisions}");
    example.delete(&["prerequisites", "applications", "instantiate"]);
}
