//! Charts are deployed with the values that the user gives.

use std::path::Path;

use crate::program::{command, json as get, ok, run, simulated, start, wait};
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
    let other = |name: &str, events: &str, policy: &str| {
        at(
            &format!("templates/{name}.yaml"),
            &job.replace("migrate", name).replace("pre-install,pre-upgrade", events).replace("before-hook-creation", policy),
        );
    };
    other("try", "test", "");
    other("again", "test", "hook-succeeded");
    other("back", "pre-rollback", "before-hook-creation");
    folder.join("shop").display().to_string()
}

/// How many volume claims a member has; those of a StatefulSet have no label of Drover.
fn volume_claims(server: &str) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let list = reqwest::get(format!("{server}/api/v1/persistentvolumeclaims")).await.unwrap();
        let list: serde_json::Value = list.error_for_status().unwrap().json().await.unwrap();
        list["items"].as_array().unwrap().len()
    })
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
    let tested = get(&url, &["test", "shop", "-o", "json"]);
    assert_eq!((&tested[0]["app"], &tested[0]["member"], &tested[0]["ended"]), (&"shop".into(), &"onprem+mine".into(), &true.into()));
    let results: Vec<_> =
        tested[0]["tests"].as_array().unwrap().iter().map(|test| format!("{} {}", test["object"], test["result"])).collect();
    assert_eq!(results, [r#""Job/default/again" "succeeded""#, r#""Job/default/try" "succeeded""#]);
    assert_eq!(jobs(), ["migrate:2", "try:2"], "a test stays unless its policy says that it is deleted");
    let before = tested[0]["run"].clone();
    assert_ne!(get(&url, &["test", "shop", "-o", "json"])[0]["run"], before, "tests run again");
    ok(&url, &["deploy", "shop", "-f", &chart, "--wait"]);
    assert_eq!(deployed(), "3 of shop:2", "values are kept");
    ok(&url, &["deploy", "shop", "-f", &chart, "--set", "replicas=4", "--dry-run"]);
    let diff = |args: &[&str]| {
        let output = run(&url, &[&["diff", "shop", "-f", &chart], args].concat());
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
        (output.status.code(), said)
    };
    assert_eq!(diff(&[]), (Some(0), "no differences\n".to_owned()), "it has its values");
    let (code, said) = diff(&["--set", "replicas=5", "--set-string", "image.tag=2"]);
    assert!(code == Some(1) && said.contains("/spec/replicas") && !said.contains("shop:1"), "{said}");
    let (code, said) = diff(&["--set", "replicas=5", "-o", "json"]);
    let listed: serde_json::Value = serde_json::from_str(&said).unwrap();
    let of = |object: &str| listed.as_array().unwrap().iter().find(|item| item["object"].as_str().unwrap().contains(object)).cloned();
    let fields = of("Deployment").unwrap()["patch"].as_array().unwrap().clone();
    assert!(code == Some(1) && fields.iter().any(|field| field["path"] == "/spec/replicas" && field["value"] == 5), "{listed:#}");
    assert!(fields.iter().any(|field| field["value"] == "shop:1"), "the values of the file are not given again: {listed:#}");
    std::fs::write(folder.path().join("shop/Chart.yaml"), "apiVersion: v2\nname: shop\nversion: 1.1.0\n").unwrap();
    let (code, said) = diff(&[]);
    assert!(code == Some(1) && said.contains("/metadata/annotations/chart") && said.contains("1.1.0"), "{said}");
    std::fs::write(folder.path().join("shop/Chart.yaml"), "apiVersion: v2\nname: shop\nversion: 1.0.0\n").unwrap();
    let (code, said) = diff(&["--set", "=5"]);
    assert!(code == Some(2) && said.contains("write KEY=VALUE"), "{said}");
    ok(&url, &["deploy", "shop", "-f", &chart, "--wait"]);
    assert_eq!(deployed(), "3 of shop:2", "neither a dry run nor a diff changes anything");
    ok(&url, &["deploy", "shop", "-f", &chart, "--set", "replicas=4", "--wait"]);
    assert_eq!(deployed(), "4 of shop:1", "what was given before is replaced");
    assert_eq!(jobs(), ["migrate:1", "try:2"], "the hook of upgrade has run");
    ok(&url, &["deploy", "shop", "-f", &chart, "--reset-values", "--wait"]);
    assert_eq!(deployed(), "1 of shop:1", "the values of the chart");
    ok(&url, &["rollback", "shop", "--dry-run"]);
    ok(&url, &["rollback", "shop", "--wait"]);
    assert_eq!(deployed(), "4 of shop:1", "the revision before");
    assert_eq!(jobs(), ["back:1", "migrate:1", "try:2"], "the hook of rollback has run, and not that of upgrade");
    let revisions = get(&url, &["history", "shop", "--revisions", "-o", "json"]);
    assert_eq!((&revisions[0]["kind"], &revisions[0]["current"]), (&"rollback".into(), &true.into()), "{revisions:#}");
    let wrong = run(&url, &["deploy", "shop", "-f", &chart, "--set", "replicas", "--wait"]);
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("write KEY=VALUE"), "{wrong:?}");
    ok(&url, &["delete", "shop"]);

    // Kubernetes keeps the volume claims of a StatefulSet.
    let set = folder.path().join("db.yaml").display().to_string();
    let template = "{metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: 'db:1'}]}}";
    let claims = "[{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]";
    let spec = format!("{{serviceName: db, selector: {{matchLabels: {{app: db}}}}, volumeClaimTemplates: {claims}, template: {template}}}");
    std::fs::write(&set, format!("apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {{name: db}}\nspec: {spec}\n")).unwrap();
    ok(&url, &["deploy", "db", "-f", &set, "--wait"]);
    let deleted = run(&url, &["delete", "db"]);
    let said = String::from_utf8_lossy(&deleted.stderr);
    assert!(deleted.status.success() && said.contains("`kubectl delete pvc` removes volume claims"), "{deleted:?}");
    assert!(said.contains("on onprem+mine: PersistentVolumeClaim/default/data-db-0 stays with its data"), "{said}");
    assert_eq!((said.matches("data-db-0").count(), said.contains("volume claims that")), (1, false), "it is told of once: {said}");
    assert_eq!(volume_claims(&member), 1);
    ok(&url, &["deploy", "db", "-f", &set, "--wait"]);
    let deleted = run(&url, &["delete", "db", "--delete-volumes"]);
    let said = String::from_utf8_lossy(&deleted.stderr);
    assert!(deleted.status.success() && said.contains("volume claims that StatefulSet/db on onprem+mine made are deleted"), "{deleted:?}");
    assert_eq!(volume_claims(&member), 0);
    // A StatefulSet without volumes keeps none.
    let spec = format!("{{serviceName: db, selector: {{matchLabels: {{app: db}}}}, template: {template}}}");
    std::fs::write(&set, format!("apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {{name: db}}\nspec: {spec}\n")).unwrap();
    ok(&url, &["deploy", "db", "-f", &set, "--wait"]);
    let deleted = run(&url, &["delete", "db"]);
    assert!(deleted.status.success() && !String::from_utf8_lossy(&deleted.stderr).contains("volume claims"), "{deleted:?}");

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
