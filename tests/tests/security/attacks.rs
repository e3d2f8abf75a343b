//! Requests that are meant to do harm: from web pages of other sites, with uploads, charts and kubeconfigs that exhaust a service or lead it
//! elsewhere, and over connections that never end.

use std::io::Write;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use drover_e2e::apps::App;
use drover_e2e::emco::Group;
use drover_e2e::{API_TOKEN, System};
use drover_testkit::eventually;
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const LIMIT: Duration = Duration::from_secs(120);

async fn send(system: &System, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
    let request = Client::new().request(method, system.url().join(path).unwrap()).timeout(LIMIT).body(body.to_owned());
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    let problem: Value = answer.json().await.unwrap_or_default();
    (status, problem["code"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn web_page_of_another_site_changes_and_reads_nothing() {
    let system = System::remote_only().await;
    let token = format!("Bearer {API_TOKEN}");
    let token = ("authorization", token.as_str());
    let project = r#"{"metadata":{"name":"stolen"}}"#;
    let (evil, form) = (("origin", "https://evil.example"), ("content-type", "text/plain"));
    let json = ("content-type", "application/json");
    let post = async |headers: &[(&str, &str)]| send(&system, Method::POST, "/v2/projects", headers, project).await;
    assert_eq!(post(&[evil, form]).await.0, 403, "a form needs no permission of the browser");
    assert_eq!(post(&[form]).await.0, 401);
    assert_eq!(post(&[token, evil, json]).await, (403, "origin_refused".into()), "even with a token");
    assert_eq!(post(&[token, ("sec-fetch-site", "cross-site"), json]).await, (403, "origin_refused".into()));
    assert_eq!(post(&[token, form]).await, (415, "unsupported_media_type".into()));
    assert_eq!(post(&[token, ("content-type", "application/x-www-form-urlencoded")]).await.0, 415);
    for host in ["evil.example", "evil.example:7070", "localhost.evil.example"] {
        let read = send(&system, Method::GET, "/v2/projects", &[token, ("host", host)], "").await;
        assert_eq!(read, (421, "host_not_allowed".into()), "a name that was made to point here: {host}");
    }
    assert_eq!(send(&system, Method::GET, "/v2/projects/stolen", &[token], "").await.0, 404);

    let page = Client::new().get(system.url().clone()).bearer_auth(API_TOKEN).send().await.unwrap();
    let header = |name: &str| page.headers()[name].to_str().unwrap().to_owned();
    assert!(header("content-security-policy").contains("frame-ancestors 'none'"));
    assert_eq!((header("x-content-type-options"), header("x-frame-options")), ("nosniff".into(), "DENY".into()));
    system.end().await;
}

/// A YAML bomb: 2000 × 200 × 200 values in 7 KB.
fn bomb() -> String {
    let aliases = |name: &str, count: usize| vec![format!("*{name}"); count].join(",");
    format!("a: &a [{}]\nb: &b [{}]\nc: [{}]\n", vec!["x"; 200].join(","), aliases("a", 200), aliases("b", 2000))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upload_that_expands_without_bound_is_refused_and_every_service_goes_on() {
    let system = System::guarded().await;
    let group = Group::new("bomb", App::new("web", 100)).in_project("bomb");
    group.prepare_without_apps(&system.client).await.unwrap();
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let flow = format!("a: {}", "{a: ".repeat(50_000));
    for text in [bomb(), deep, flow] {
        let began = Instant::now();
        let body = json!({"metadata": {"name": "web"}, "file": STANDARD.encode(text)});
        let refused = system.client.post(&format!("{}/apps", group.composite()), Some(&body)).await;
        let refused = match refused {
            // Some texts are parsed only when the group is approved.
            Ok(_) => system.client.post(&format!("{}/approve", group.path()), None).await.unwrap_err(),
            Err(error) => error,
        };
        let code = drover::hub::code(&refused).unwrap_or_default().to_owned();
        assert!(matches!(code.as_str(), "too_complex" | "malformed_upload"), "{refused:#}");
        assert!(began.elapsed() < LIMIT, "it took {:?}", began.elapsed());
    }
    let kubeconfig = json!({"metadata": {"name": "bomb"}, "file": STANDARD.encode(bomb())});
    let refused = system.client.post("/v2/cluster-providers/onprem/clusters", Some(&kubeconfig)).await.unwrap_err();
    let code = drover::hub::code(&refused).unwrap_or_default().to_owned();
    assert!(matches!(code.as_str(), "too_complex" | "kubeconfig_invalid"), "{refused:#}");
    // Every service is ready.
    eventually(LIMIT, async || (send(&system, Method::GET, "/readyz", &[], "").await.0 == 200).then_some(())).await;
    system.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manifest_of_a_tenant_writes_into_the_tenants_namespace_only() {
    let system = System::guarded().await;
    let client = &system.client;
    client.ensure("/v2/projects", &json!({"metadata": {"name": "tenant"}})).await.unwrap();
    let cloud = json!({"metadata": {"name": "all"}, "spec": {"namespace": "tenant", "level": "0"}});
    client.post("/v2/projects/tenant/logical-clouds", Some(&cloud)).await.unwrap();
    let group = Group::new("web", App::new("web", 100)).in_project("tenant");
    for (object, named) in [
        (
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "mine"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "tenant"}]}),
            "ClusterRoleBinding mine is cluster-scoped",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "kube-system"}}),
            "ConfigMap kube-system/x is outside",
        ),
    ] {
        group.prepare_without_apps(client).await.unwrap();
        let body =
            json!({"metadata": {"name": "web"}, "file": STANDARD.encode(format!("{}\n---\n{object}\n", App::new("web", 100).manifests()))});
        client.upsert(&format!("{}/apps", group.composite()), "web", &body).await.unwrap();
        let refused = group.approve_as_uploaded(client).await.unwrap_err();
        assert_eq!(drover::hub::code(&refused), Some("not_granted"), "{refused:#}");
        assert!(format!("{refused:#}").contains(named), "{refused:#}");
    }
    system.end().await;
}

/// A chart with this schema for its value `x`, which is 1.
fn chart(schema_of_x: &Value) -> Vec<u8> {
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    let schema = json!({"properties": {"x": schema_of_x}}).to_string();
    for (path, text) in [
        ("c/Chart.yaml", "apiVersion: v2\nname: c\nversion: 0.1.0\n"),
        ("c/values.yaml", "x: 1\n"),
        ("c/values.schema.json", &schema),
        ("c/templates/a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        tar.append_data(&mut header, path, text.as_bytes()).unwrap();
    }
    let mut gzip = tar.into_inner().unwrap();
    gzip.flush().unwrap();
    gzip.finish().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chart_reaches_neither_network_nor_files() {
    if drover_testkit::needs("DROVER_HELM").is_none() {
        return;
    }
    let system = System::guarded().await;
    let trap = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let group = Group::new("chart", App::new("web", 100)).in_project("chart");
    group.prepare_without_apps(&system.client).await.unwrap();
    // A schema that allows everything: if it were read, the chart would be approved.
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"{}").unwrap();
    let approved = async |schema_of_x: Value| {
        let body = json!({"metadata": {"name": "web"}, "file": STANDARD.encode(chart(&schema_of_x))});
        system.client.upsert(&format!("{}/apps", group.composite()), "web", &body).await?;
        group.approve_as_uploaded(&system.client).await
    };
    for reference in [format!("http://{}/schema.json", trap.local_addr().unwrap()), format!("file://{}", file.path().display())] {
        let refused = approved(json!({"$ref": reference})).await.unwrap_err();
        assert!(drover::hub::code(&refused).is_some_and(|code| code != "internal"), "{refused:#}");
    }
    approved(json!({"type": "integer"})).await.unwrap();
    let fetched = tokio::time::timeout(Duration::from_millis(500), trap.accept()).await;
    assert!(fetched.is_err(), "nobody asked for the schema");
    system.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusal_of_a_kubeconfig_does_not_tell_which_ports_are_open() {
    let system = System::remote_only().await;
    let open = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = {
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        free.local_addr().unwrap()
    };
    let kubeconfig = |server: &str| {
        json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server}}], "users": [{"name": "u", "user": {"token": "t"}}]})
        .to_string()
    };
    let mut told = Vec::new();
    for server in [
        format!("http://{}/any/path", open.local_addr().unwrap()),
        format!("http://{closed}/any/path"),
        format!("http://localhost:{}/", closed.port()),
        "http://[::ffff:127.0.0.1]:80/".to_owned(),
        "http://2130706433:80/".to_owned(),
        "http://169.254.169.254/latest/meta-data".to_owned(),
        "http://0.0.0.0:80/".to_owned(),
    ] {
        let body = json!({"kubeconfig": STANDARD.encode(kubeconfig(&server))});
        let answer = system.client.post("/v2/cluster-checks", Some(&body)).await;
        let registered = json!({"metadata": {"name": "probe"}, "file": STANDARD.encode(kubeconfig(&server))});
        system.client.ensure("/v2/cluster-providers", &json!({"metadata": {"name": "probe"}})).await.unwrap();
        let refused = system.client.post("/v2/cluster-providers/probe/clusters", Some(&registered)).await.unwrap_err();
        assert!(matches!(drover::hub::code(&refused), Some("kubeconfig_refused" | "kubeconfig_invalid")), "{server}: {refused:#}");
        told.push(answer.map_or_else(|error| drover::hub::code(&error).unwrap_or_default().to_owned(), |answer| answer.body.to_string()));
    }
    assert_eq!(told[0], told[1], "an open port and a closed one are told alike");
    let reached = tokio::time::timeout(Duration::from_millis(500), open.accept()).await;
    assert!(reached.is_err(), "nobody connected");
    system.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_heads_and_connections_beyond_the_limit_are_closed() {
    let system = System::remote_only().await;
    let address = format!("127.0.0.1:{}", system.url().port().unwrap());
    let mut many = Vec::new();
    for _ in 0..520 {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        // A refused connection may be closed before it is written to.
        let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        many.push(stream);
    }
    let mut refused = 0;
    for stream in &mut many {
        let mut head = [0_u8; 12];
        let read = tokio::time::timeout(LIMIT, stream.read_exact(&mut head)).await.expect("an answer or an end");
        refused += usize::from(read.is_err() || head.ends_with(b"503"));
    }
    assert!(refused >= 8, "512 connections of one address are allowed, {refused} of 520 were refused");
    drop(many);

    let begun = eventually(LIMIT, async || {
        let mut slow = TcpStream::connect(&address).await.ok()?;
        slow.write_all(b"GET /v2/projects HTTP/1.1\r\nhost: localhost\r\nx: ").await.ok()?;
        // Refused at once while the connections before it are not forgotten.
        let refused = tokio::time::timeout(Duration::from_secs(5), slow.read_u8()).await;
        refused.is_err().then_some(slow)
    });
    let mut slow = begun.await;
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(LIMIT, slow.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "a head that is not finished is given up");
    let ready = system.url().join("readyz").unwrap();
    eventually(LIMIT, async || (Client::new().get(ready.clone()).send().await.ok()?.status() == StatusCode::OK).then_some(())).await;
    system.end().await;
}
