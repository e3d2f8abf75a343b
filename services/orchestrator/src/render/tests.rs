use std::time::Duration;

use flate2::{Compression, write::GzEncoder};
use serde_json::json;

use super::*;

/// A tar.gz of these files.
pub(crate) fn tar_gz(files: &[(&str, &str)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        // Bypasses the checks of the tar crate, as an attacker would.
        header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_cksum();
        tar.append(&header, content.as_bytes()).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

struct NoHelm;

#[async_trait]
impl Renderer for NoHelm {
    async fn chart(&self, source: &AppSource, _: &Archive, _: &Profile) -> Result<String, RenderError> {
        Err(RenderError::Unavailable { app: source.app.clone(), reason: "no helm here".into() })
    }
}

/// Code and message with which an upload is refused.
fn refusal(file: &[u8]) -> String {
    let refused = check_upload(file).unwrap_err();
    format!("{} {}", refused.code.name, refused.reasons.join("; "))
}

fn source(file: Vec<u8>) -> AppSource {
    AppSource { app: "web".into(), file, release: "r1".into(), namespace: "default".into(), ..AppSource::default() }
}

const CONFIG_MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {a: b}\n";
const SERVICE: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: two}\n";

#[tokio::test]
async fn text_and_archive_of_equal_manifests_give_equal_bundles() {
    let text = render(&NoHelm, &source(format!("---\n{CONFIG_MAP}---\n{SERVICE}---\n").into_bytes())).await.unwrap();
    let archive = tar_gz(&[("a/z.yaml", SERVICE), ("./b.yml", CONFIG_MAP), ("README.md", "not a manifest")]);
    let archived = render(&NoHelm, &source(archive)).await.unwrap();
    assert_eq!(text, archived);
    assert_eq!(text.objects.len(), 2);
    assert!(text.digest.starts_with("sha256:") && text.digest.len() == 71);

    let other = render(&NoHelm, &source(CONFIG_MAP.replace("a: b", "a: c").into_bytes())).await.unwrap();
    assert_ne!(text.digest, other.digest);
}

#[tokio::test]
async fn render_flattens_lists() {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}},
    ]});
    assert_eq!(render(&NoHelm, &source(list.to_string().into_bytes())).await.unwrap().objects.len(), 2);
}

#[tokio::test]
async fn render_errors_name_the_invalid_manifest() {
    let cases = [
        ("just text", "it is not a mapping"),
        ("kind: ConfigMap\nmetadata: {name: a}", "the ConfigMap has no apiVersion"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {}", "the ConfigMap has no metadata.name"),
        ("a: [", "document 1"),
        ("", "renders to no objects"),
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, annotations: {drover.io/serving-when: status.ready}}",
            "ConfigMap/a: drover.io/serving-when: there is no status, only object",
        ),
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, annotations: {drover.io/serving-after: 90}}",
            "ConfigMap/a: drover.io/serving-after: is to be a time",
        ),
    ];
    for (text, expected) in cases {
        let error = render(&NoHelm, &source(text.into())).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{text:?}: {error}");
    }
    let other = SERVICE.replace("two}", "two, namespace: default, labels: {a: b}}");
    let twice = render(&NoHelm, &source(format!("{SERVICE}---\n{other}").into_bytes())).await.unwrap_err().to_string();
    assert!(twice.contains("Service default/two is there twice with different content: in the file, document 1"), "{twice}");
    let equal = render(&NoHelm, &source(format!("{SERVICE}---\n{SERVICE}").into_bytes())).await.unwrap();
    assert_eq!(equal.objects.len(), 1);
    for nothing in ["", "---\n---\n"] {
        assert!(refusal(nothing.as_bytes()).ends_with("malformed_upload Error in file format: it is empty"));
    }
    assert!(refusal(&[0xff, 0xfe, 0x00]).starts_with("malformed_upload Error in file format"));
}

/// 4000 × 200 × 200 values in 10 KB.
fn aliases() -> String {
    let list = |of: &str, n: usize| format!("[{}]", vec![of; n].join(","));
    format!("a: &a {}\nb: &b {}\nc: &c {}\n", list("x", 4000), list("*a", 200), list("*b", 200))
}

#[tokio::test]
async fn aliases_that_expand_without_bound_are_too_complex_everywhere() {
    let manifest = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\n{}", aliases());
    assert!(manifest.len() < 11_000, "{}", manifest.len());
    assert!(refusal(manifest.as_bytes()).starts_with("too_complex"));
    let error = render(&NoHelm, &source(tar_gz(&[("a.yaml", &manifest)]))).await.unwrap_err();
    let problem = drover_service::Problem::from(crate::app::Error::from(error)).document();
    assert_eq!((problem.status, problem.code.as_str()), (422, "too_complex"), "{problem:?}");
    let profile = tar_gz(&[("manifest.yaml", "version: v1\ntype: {values: v.yaml}"), ("v.yaml", &aliases())]);
    assert!(matches!(Profile::read(&profile), Err(InputError::TooComplex(_))));
    assert!(matches!(Profile::read(&tar_gz(&[("manifest.yaml", &aliases())])), Err(InputError::TooComplex(_))));
}

/// Renders to what it was given.
struct FixedOutput(String);

#[async_trait]
impl Renderer for FixedOutput {
    async fn chart(&self, _: &AppSource, _: &Archive, _: &Profile) -> Result<String, RenderError> {
        Ok(self.0.clone())
    }
}

#[tokio::test]
async fn rendered_charts_are_read_like_manifests() {
    let manifest = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nspec: {defaultMode: 0400, immutable: no, quoted: 'no'}";
    let rendered = render(&FixedOutput(manifest.into()), &source(chart(""))).await.unwrap();
    assert_eq!(rendered.objects[0]["spec"], json!({"defaultMode": 256, "immutable": false, "quoted": "no"}));
    let error = render(&FixedOutput(aliases()), &source(chart(""))).await.unwrap_err();
    assert!(matches!(error, RenderError::TooComplex { .. }), "{error}");
}

#[test]
fn archive_refuses_parent_paths_links_and_bombs() {
    for path in ["../evil.yaml", "/etc/passwd", "a/../../b.yaml"] {
        assert!(matches!(Archive::read(&tar_gz(&[(path, "x")])), Err(ArchiveError::Path(_))), "{path}");
    }
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    tar.append_link(&mut header, "link", "/etc/passwd").unwrap();
    assert!(matches!(Archive::read(&tar.into_inner().unwrap().finish().unwrap()), Err(ArchiveError::Kind(_))));

    let zeros = "0".repeat(65 << 20);
    let bomb = tar_gz(&[("bomb", &zeros)]);
    assert!(bomb.len() < 1 << 20);
    assert!(matches!(Archive::read(&bomb), Err(ArchiveError::TooLarge)));
    assert!(Archive::read(&tar_gz(&[("a", "x")])[..20]).is_err(), "cut off");
}

#[test]
fn profile_read_returns_values_and_files() {
    let profile = Profile::read(&tar_gz(&[
        ("p/manifest.yaml", "version: v1\ntype:\n  values: override_values.yaml\n  configresource:\n  - {filepath: extra.yaml, chartpath: templates/extra.yaml}\n"),
        ("p/override_values.yaml", "replicas: 3\n"),
        ("p/extra.yaml", "x"),
    ])).unwrap();
    assert_eq!(profile.values.as_deref(), Some("replicas: 3\n"));
    assert_eq!(profile.files, [("templates/extra.yaml".to_owned(), b"x".to_vec())]);

    assert!(
        Profile::read(&tar_gz(&[("manifest.yaml", "version: v1\ntype: {values: gone.yaml}")]))
            .unwrap_err()
            .to_string()
            .contains("gone.yaml")
    );
    let climbing = "version: v1\ntype: {configresource: [{filepath: manifest.yaml, chartpath: ../../x}]}";
    assert!(Profile::read(&tar_gz(&[("manifest.yaml", climbing)])).unwrap_err().to_string().contains("leaves the chart"));
}

#[test]
fn hooks_are_marked_with_the_events_that_helm_knows_and_others_are_left_out() {
    let marked = |hook: &str| {
        let mut object = json!({"metadata": {"annotations": {"helm.sh/hook": hook}}});
        let runs = helm::is_run(&mut object);
        (runs, object["metadata"]["annotations"][drover_members::labels::HOOK].as_str().map(str::to_owned))
    };
    assert!(helm::is_run(&mut json!({"metadata": {}})));
    assert_eq!(marked("post-install, unknown,post-upgrade"), (true, Some("post-install,post-upgrade".to_owned())));
    assert_eq!(marked("pre-rollback,post-rollback"), (true, Some("pre-rollback,post-rollback".to_owned())));
    assert_eq!(marked("test-success,test"), (true, Some("test,test".to_owned())), "the name that Helm 2 gave to tests");
    assert_eq!(marked("crd-install"), (true, None));
    assert_eq!(marked("pre-delete,post-delete"), (true, Some("pre-delete,post-delete".to_owned())));
    assert!(!marked("test-failure").0, "Helm 3 does not run it either");
}

fn helm() -> Option<Helm> {
    // It only guards against hanging: charts of tests may be large, and the machine slow.
    helm_binary().map(|path| Helm::new(path, Duration::from_secs(300)))
}

/// The helm binary at `DROVER_HELM`, else on PATH.
fn helm_binary() -> Option<std::path::PathBuf> {
    let path = std::env::var_os("DROVER_HELM").or_else(|| {
        let on_path = std::env::split_paths(&std::env::var_os("PATH")?).any(|folder| folder.join("helm").is_file());
        on_path.then(|| "helm".into())
    });
    path.or_else(|| drover_testkit::needs("DROVER_HELM")).map(Into::into)
}

fn chart(template: &str) -> Vec<u8> {
    tar_gz(&[
        ("web/Chart.yaml", "apiVersion: v2\nname: web\nversion: 0.1.0\n"),
        ("web/values.yaml", "replicas: 1\nimage: {tag: a}\n"),
        ("web/crds/crd.yaml", "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: xs.example.io}\n"),
        ("web/templates/config.yaml", template),
    ])
}

const TEMPLATE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-config\ndata:\n  replicas: {{ .Values.replicas | quote }}\n  tag: {{ .Values.image.tag }}\n  ns: {{ .Release.Namespace }}\n";

#[tokio::test]
async fn chart_values_override_profile_values() {
    let Some(helm) = helm() else { return };
    let profile = tar_gz(&[("manifest.yaml", "version: v1\ntype: {values: v.yaml}"), ("v.yaml", "replicas: 3\nimage: {tag: b}")]);
    let source = AppSource { profile: Some(profile), overrides: vec![("image.tag".into(), "c".into())], ..source(chart(TEMPLATE)) };
    let rendered = render(&helm, &source).await.unwrap();
    let config = rendered.objects.iter().find(|object| object["kind"] == "ConfigMap").unwrap();
    assert_eq!(config["metadata"]["name"], "r1-config");
    assert_eq!(config["data"], json!({"replicas": "3", "tag": "c", "ns": "default"}));
    assert!(rendered.objects.iter().any(|object| object["kind"] == "CustomResourceDefinition"));
}

#[tokio::test]
async fn notes_are_rendered_with_the_values_and_names_of_the_chart() {
    let Some(helm) = helm() else { return };
    let named = "{{ define \"who\" }}{{ .Release.Name }}{{ end }}";
    let notes = "\nVisit http://{{ include \"who\" . }}/?a=1&b=<{{ .Values.tag }}>\n";
    let files = [
        ("web/Chart.yaml", "apiVersion: v2\nname: web\nversion: 0.1.0\n"),
        ("web/values.yaml", "tag: a\n"),
        ("web/templates/_names.tpl", named),
        ("web/templates/NOTES.txt", notes),
    ];
    let with_notes = AppSource { overrides: vec![("tag".into(), "b".into())], ..source(tar_gz(&files)) };
    assert_eq!(super::notes(&helm, &with_notes).await.unwrap().as_deref(), Some("Visit http://r1/?a=1&b=<b>"));
    assert_eq!(super::notes(&helm, &source(chart(TEMPLATE))).await.unwrap(), None);
    assert_eq!(super::notes(&helm, &source(b"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n".to_vec())).await.unwrap(), None);
}

#[tokio::test]
async fn charts_know_apis_that_every_cluster_serves() {
    let Some(helm) = helm() else { return };
    for api in ["apiregistration.k8s.io/v1", "policy/v1/PodDisruptionBudget", "networking.k8s.io/v1/Ingress"] {
        let asks = format!("{{{{ .Capabilities.APIVersions.Has \"{api}\" | quote }}}}");
        let rendered = render(&helm, &source(chart(&TEMPLATE.replace("{{ .Values.image.tag }}", &asks)))).await.unwrap();
        let config = rendered.objects.iter().find(|object| object["kind"] == "ConfigMap").unwrap();
        assert_eq!(config["data"]["tag"], "true", "{api}");
    }
}

#[tokio::test]
async fn helm_errors_are_returned_without_secrets() {
    let Some(helm) = helm() else { return };
    let template = "{{ fail (printf \"no good: %s\" .Values.db.password) }}";
    let source = AppSource { overrides: vec![("db.password".into(), "hunter22".into())], ..source(chart(template)) };
    let error = render(&helm, &source).await.unwrap_err().to_string();
    assert!(error.contains("no good"), "{error}");
    assert!(!error.contains("hunter22") && !error.contains("/tmp"), "{error}");
}

#[tokio::test]
async fn chart_that_renders_too_much_is_refused_with_the_limit() {
    let Some(helm) = helm() else { return };
    let template = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: big}\n# {{ repeat 33600000 \"x\" }}\n";
    let error = render(&helm, &source(chart(template))).await.unwrap_err().to_string();
    assert!(error.contains("renders to more than 32 MiB"), "{error}");
}

#[tokio::test]
async fn schema_with_a_foreign_reference_is_refused_and_not_fetched() {
    let Some(helm) = helm() else { return };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let schema = format!(r#"{{"$ref": "http://{}/probe"}}"#, listener.local_addr().unwrap());
    let chart = tar_gz(&[
        ("web/Chart.yaml", "apiVersion: v2\nname: web\nversion: 0.1.0\n"),
        ("web/values.schema.json", &schema),
        ("web/templates/config.yaml", CONFIG_MAP),
    ]);
    let refused = render(&helm, &source(chart)).await;
    let asked = tokio::time::timeout(Duration::from_millis(1), listener.accept()).await;
    assert!(asked.is_err(), "helm connected to the address of the schema");
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("values.schema.json: $ref: http://127.0.0.1"), "{error}");
}

#[tokio::test]
async fn sandbox_hides_network_and_files_from_helm() {
    use sandbox::Sandbox;
    let Some(binary) = helm_binary() else { return };
    let binary = helm::found(&binary).unwrap();
    if Sandbox::of_machine(&binary).await == Sandbox::None {
        return eprintln!("SKIPPED, proves nothing: this machine allows no user namespaces");
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/web-0.1.0.tgz", listener.local_addr().unwrap());
    let elsewhere = tempfile::tempdir().unwrap();
    let run = async |sandbox: Sandbox, args: &[&str]| {
        let home = tempfile::tempdir().unwrap();
        for folder in [home.path(), elsewhere.path()] {
            Archive::read(&chart(TEMPLATE)).unwrap().unpack(folder).unwrap();
        }
        let mut command = sandbox.command(&binary, home.path(), Duration::from_secs(30)).unwrap();
        command.current_dir(home.path()).env("HOME", home.path()).kill_on_drop(true);
        let args: Vec<String> = args.iter().map(|arg| arg.replace("HOME", &home.path().display().to_string())).collect();
        command.args(args).output().await.unwrap()
    };
    let other = elsewhere.path().join("web").display().to_string();
    for (sandbox, sees) in [(Sandbox::None, true), (Sandbox::Full, false)] {
        let own = run(sandbox, &["show", "values", "HOME/web"]).await;
        assert!(own.status.success() && !own.stdout.is_empty(), "{sandbox:?}: {own:?}");
        let read = run(sandbox, &["show", "values", &other]).await;
        assert_eq!(read.status.success(), sees, "{sandbox:?}: {read:?}");
        let pull = ["pull", url.as_str()];
        let connected = tokio::select! {
            accepted = listener.accept() => accepted.is_ok(),
            _ = run(sandbox, &pull) => false,
        };
        assert_eq!(connected, sees, "{sandbox:?}");
    }
}

#[tokio::test]
async fn missing_helm_is_helm_unavailable() {
    let error = render(&Helm::new("/nowhere/helm", Duration::from_secs(30)), &source(chart(TEMPLATE))).await.unwrap_err();
    let problem = drover_service::Problem::from(crate::app::Error::from(error)).document();
    assert_eq!((problem.status, problem.code.as_str()), (503, "helm_unavailable"), "{problem:?}");
    assert!(problem.detail.contains("/nowhere/helm"), "{problem:?}");
}

#[tokio::test]
async fn helm_is_stopped_at_the_time_limit() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("helm");
    std::fs::write(&script, "#!/bin/sh\nsleep 600\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let error = render(&Helm::new(script, Duration::from_millis(50)), &source(chart(TEMPLATE))).await.unwrap_err();
    assert!(matches!(&error, RenderError::Helm { output, .. } if output.contains("did not finish")), "{error}");
}
