//! Charts are deployed with the values that the user gives.

use std::path::Path;

use crate::cli::{command, json as get, ok, run, simulated, start, wait};
use crate::whole::{in_member, server};

/// Writes a chart of one Deployment whose image and replicas are values.
fn chart(folder: &Path) -> String {
    let at = |name: &str, text: &str| {
        let path = folder.join("shop").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    at("Chart.yaml", "apiVersion: v2\nname: shop\nversion: 1.0.0\n");
    at("values.yaml", "replicas: 1\nimage: {name: shop, tag: '1'}\n");
    at(
        "templates/web.yaml",
        "apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {chart: '{{ .Chart.Version }}'}}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: '{{ .Values.image.name }}:{{ .Values.image.tag }}'}]}
",
    );
    let job = "apiVersion: batch/v1
kind: Job
metadata:
  name: migrate
  annotations: {helm.sh/hook: 'pre-install,pre-upgrade', helm.sh/hook-delete-policy: before-hook-creation}
spec:
  template:
    spec: {restartPolicy: Never, containers: [{name: c, image: 'migrate:{{ .Values.image.tag }}'}]}
";
    at("templates/migrate.yaml", job);
    at(
        "templates/test.yaml",
        &job.replace("migrate", "try").replace("pre-install,pre-upgrade", "test").replace("before-hook-creation", ""),
    );
    folder.join("shop").display().to_string()
}

#[test]
fn values_of_a_chart_are_kept_replaced_and_reset() {
    if drover_testkit::needs("DROVER_HELM").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (members, files) = simulated(1, &folder.path().join("sim"));
    let (up, url) = start(folder.path());
    ok(&url, &["cluster", "add", "mine", "--provider", "onprem", "--kubeconfig", &files[0]]);
    wait(|| get(&url, &["get", "clusters", "-o", "json"]).as_array().unwrap().iter().all(|c| c["state"] == "Ready" && c["ageMs"].is_u64()));
    let chart = chart(folder.path());
    let file = folder.path().join("prod.yaml").display().to_string();
    std::fs::write(&file, "image: {tag: '2'}\nreplicas: 2\n").unwrap();
    let member = server(&files[0]);
    // Replicas and image as the member has them.
    let deployed = || {
        let objects = in_member(&member);
        let spec = &objects.iter().find(|object| object["kind"] == "Deployment").unwrap()["spec"];
        format!("{} of {}", spec["replicas"], spec["template"]["spec"]["containers"][0]["image"].as_str().unwrap())
    };

    // The images of the Jobs.
    let jobs = || {
        let objects = in_member(&member);
        let jobs = objects.iter().filter(|object| object["kind"] == "Job");
        jobs.map(|job| job["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };

    ok(&url, &["deploy", "shop", "-f", &chart, "--values", &file, "--set", "replicas=3", "--wait"]);
    assert_eq!(deployed(), "3 of shop:2", "--set counts more than files");
    assert_eq!(jobs(), ["migrate:2"], "the hook of installation has run, and no test");
    ok(&url, &["deploy", "shop", "-f", &chart, "--wait"]);
    assert_eq!(deployed(), "3 of shop:2", "values are kept");
    ok(&url, &["deploy", "shop", "-f", &chart, "--set", "replicas=4", "--dry-run"]);
    ok(&url, &["deploy", "shop", "-f", &chart, "--wait"]);
    assert_eq!(deployed(), "3 of shop:2", "a dry run changes nothing");
    ok(&url, &["deploy", "shop", "-f", &chart, "--set", "replicas=4", "--wait"]);
    assert_eq!(deployed(), "4 of shop:1", "what was given before is replaced");
    assert_eq!(jobs(), ["migrate:1"], "the hook of upgrade has run");
    ok(&url, &["deploy", "shop", "-f", &chart, "--reset-values", "--wait"]);
    assert_eq!(deployed(), "1 of shop:1", "the values of the chart");
    ok(&url, &["rollback", "shop", "--dry-run"]);
    ok(&url, &["rollback", "shop", "--wait"]);
    assert_eq!(deployed(), "4 of shop:1", "the revision before");
    let revisions = get(&url, &["history", "shop", "--revisions", "-o", "json"]);
    assert_eq!((&revisions[0]["kind"], &revisions[0]["current"]), (&"rollback".into(), &true.into()), "{revisions:#}");
    let wrong = run(&url, &["deploy", "shop", "-f", &chart, "--set", "replicas", "--wait"]);
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("write KEY=VALUE"), "{wrong:?}");
    ok(&url, &["delete", "shop"]);

    // Kubernetes keeps the volume claims of a StatefulSet.
    let set = folder.path().join("db.yaml").display().to_string();
    let template = "{metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: 'db:1'}]}}";
    let spec = format!("{{serviceName: db, selector: {{matchLabels: {{app: db}}}}, template: {template}}}");
    std::fs::write(&set, format!("apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {{name: db}}\nspec: {spec}\n")).unwrap();
    ok(&url, &["deploy", "db", "-f", &set, "--wait"]);
    let deleted = run(&url, &["delete", "db"]);
    let said = String::from_utf8_lossy(&deleted.stderr);
    assert!(deleted.status.success() && said.contains("volume claims that StatefulSet/db on onprem+mine made stay"), "{deleted:?}");

    // The cluster is asked in a dry run, too.
    let odd = folder.path().join("odd.yaml").display().to_string();
    std::fs::write(&odd, "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\n").unwrap();
    let dry = run(&url, &["deploy", "odd", "-f", &odd, "--on", "onprem", "--dry-run"]);
    let said = String::from_utf8_lossy(&dry.stderr);
    assert!(!dry.status.success() && said.contains("a cluster would refuse objects") && said.contains("Widget"), "{dry:?}");
    drop((up, members));
}

/// A web server for the files of a folder. It ends with the test.
fn serve(folder: std::path::PathBuf) -> String {
    use std::io::{BufRead, BufReader, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let head: Vec<String> = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            let path = head.first().and_then(|line| line.split(' ').nth(1)).unwrap_or("/").trim_start_matches('/').to_owned();
            let (status, body) = std::fs::read(folder.join(path)).map_or((404, Vec::new()), |body| (200, body));
            write!(stream, "HTTP/1.1 {status} x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len()).unwrap();
            stream.write_all(&body).unwrap();
        }
    });
    url
}

#[test]
fn chart_of_a_repository_is_fetched_in_the_version_that_is_asked_for() {
    let Some(helm) = drover_testkit::needs("DROVER_HELM") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (members, files) = simulated(1, &folder.path().join("sim"));
    let (up, url) = start(folder.path());
    ok(&url, &["cluster", "add", "mine", "--provider", "onprem", "--kubeconfig", &files[0]]);
    wait(|| get(&url, &["get", "clusters", "-o", "json"]).as_array().unwrap().iter().all(|c| c["state"] == "Ready" && c["ageMs"].is_u64()));
    let (chart, repo) = (chart(folder.path()), folder.path().join("repo"));
    let run_helm = |args: &[&str]| assert!(std::process::Command::new(&helm).args(args).output().unwrap().status.success(), "{args:?}");
    for version in ["1.0.0", "1.1.0"] {
        run_helm(&["package", &chart, "--version", version, "--destination", repo.to_str().unwrap()]);
    }
    let address = serve(repo.clone());
    run_helm(&["repo", "index", repo.to_str().unwrap(), "--url", &address]);

    let deploy = |version: &str| {
        let args = ["deploy", "shop", "--chart", "shop", "--repo", &address, "--version", version, "--wait"];
        let output = command(&url, &args).env("DROVER_HELM", &helm).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (done, said) = deploy("2.0.0");
    assert!(!done && said.contains("helm cannot fetch the chart shop"), "{said}");
    assert!(deploy("1.0.0").0);
    let member = server(&files[0]);
    let jobs = in_member(&member).into_iter().filter(|object| object["kind"] == "Deployment");
    assert_eq!(jobs.map(|web| web["metadata"]["annotations"]["chart"].clone()).collect::<Vec<_>>(), ["1.0.0"]);
    ok(&url, &["delete", "shop"]);
    drop((up, members));
}
