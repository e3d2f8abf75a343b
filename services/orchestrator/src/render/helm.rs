//! Runs helm as a process in a temporary directory, with a time limit, in a [`Sandbox`]. Secrets are removed from its error output.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use drover_manifest::Limits;
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::sync::OnceCell;

use super::known_apis::more_apis;
use super::sandbox::Sandbox;
use super::{AppSource, Archive, Profile, RenderError, Renderer};

/// Maximum number of bytes that a chart may render to.
const MAX_OUTPUT: u64 = 32 << 20;

/// The helm binary.
#[derive(Debug, Clone)]
pub struct Helm {
    binary: PathBuf,
    limit: Duration,
    /// Found out when the first chart is rendered.
    sandbox: Arc<OnceCell<Sandbox>>,
}

impl Helm {
    /// `binary` is a path or a name on PATH.
    pub fn new(binary: impl Into<PathBuf>, limit: Duration) -> Self {
        Self { binary: binary.into(), limit, sandbox: Arc::default() }
    }

    async fn command(&self, home: &Path) -> std::io::Result<Command> {
        let binary = found(&self.binary)?;
        let sandbox = self.sandbox.get_or_init(|| Sandbox::of_machine(&binary)).await;
        let mut command = sandbox.command(&binary, home, self.limit)?;
        command.env_clear().current_dir(home).kill_on_drop(true).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        // Repositories, plugins and kubeconfig of the user that runs Drover must have no effect.
        for (name, folder) in [("HOME", ""), ("HELM_CACHE_HOME", "cache"), ("HELM_CONFIG_HOME", "config"), ("HELM_DATA_HOME", "data")] {
            command.env(name, home.join(folder));
        }
        command.env("HELM_PLUGINS", home.join("plugins")).env("KUBECONFIG", home.join("none"));
        Ok(command)
    }
}

/// The file of a program: its path, or where it is on PATH.
pub(super) fn found(program: &Path) -> std::io::Result<PathBuf> {
    if program.components().count() > 1 {
        return std::path::absolute(program);
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|file| file.is_file());
    found.ok_or_else(|| std::io::Error::new(ErrorKind::NotFound, "it is not on PATH"))
}

#[async_trait]
impl Renderer for Helm {
    async fn chart(&self, source: &AppSource, chart: &Archive, profile: &Profile) -> Result<String, RenderError> {
        self.template(source, chart, profile, &[], &["--include-crds"]).await
    }

    async fn notes(&self, source: &AppSource, chart: &Archive, profile: &Profile) -> Result<Option<String>, RenderError> {
        let root = chart.chart_root().map(|root| if root.is_empty() { String::new() } else { format!("{root}/") }).unwrap_or_default();
        let Some(text) = chart.file(&format!("{root}templates/NOTES.txt")) else { return Ok(None) };
        let more = [(NOTES.to_owned(), text.to_vec()), (format!("templates/{NOTES}.yaml"), NOTES_TEMPLATE.into())];
        let only = format!("--show-only=templates/{NOTES}.yaml");
        let output = self.template(source, chart, profile, &more, &[&only]).await?;
        let notes = drover_manifest::one(&output, Limits::MANIFESTS).unwrap_or_default();
        Ok(notes["notes"].as_str().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned))
    }
}

/// Name of the file in which the text of the notes is rendered.
const NOTES: &str = "drover-notes";
/// helm renders notes but prints them only when it installs: this template has them as a value.
const NOTES_TEMPLATE: &str = r#"notes: {{ tpl (.Files.Get "drover-notes") . | toJson }}"#;

impl Helm {
    /// Runs `helm template` with these files added to the chart, and these options. Returns what it prints.
    async fn template(
        &self,
        source: &AppSource,
        chart: &Archive,
        profile: &Profile,
        more: &[(String, Vec<u8>)],
        options: &[&str],
    ) -> Result<String, RenderError> {
        let unavailable = |reason: String| RenderError::Unavailable { app: source.app.clone(), reason };
        let refused = |output: String| RenderError::Helm { app: source.app.clone(), output };
        let home = tempfile::tempdir().map_err(|error| unavailable(format!("no temporary directory for helm: {error}")))?;
        let folder = lay_out(home.path(), chart, profile, more).map_err(|error| match error.kind() {
            // Caused by the archive: a file where another one needs a directory, or a name that is too long.
            ErrorKind::AlreadyExists | ErrorKind::NotADirectory | ErrorKind::IsADirectory | ErrorKind::InvalidFilename => {
                refused(format!("the chart cannot be unpacked: {error}"))
            }
            _ => unavailable(format!("the chart cannot be written for helm: {error}")),
        })?;

        let cannot_start = |error| unavailable(format!("helm ({}) cannot be started: {error}", self.binary.display()));
        let mut command = self.command(home.path()).await.map_err(cannot_start)?;
        command.args(["template", &source.release]).arg(&folder).args(["--namespace", &source.namespace]).args(options);
        command.args(more_apis().map(|api| format!("--api-versions={api}")));
        if profile.values.is_some() {
            command.arg("--values").arg(home.path().join("profile-values.yaml"));
        }
        for (key, value) in &source.overrides {
            command.arg(format!("--set={key}={value}"));
        }
        let mut child = command.spawn().map_err(cannot_start)?;

        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let work = async {
            let (out, output) = tokio::try_join!(drain(stdout), drain(stderr))?;
            Ok::<_, std::io::Error>((child.wait().await?, out, output))
        };
        let (status, out, output) = tokio::time::timeout(self.limit, work)
            .await
            .map_err(|_| refused(format!("it did not finish within {} s", self.limit.as_secs())))?
            .map_err(|error| unavailable(format!("helm: {error}")))?;
        // Before its status: helm fails when nobody reads the rest.
        if out.len() as u64 >= MAX_OUTPUT {
            return Err(refused(format!("the chart renders to more than {} MiB", MAX_OUTPUT >> 20)));
        }
        if !status.success() {
            return Err(refused(sanitized(&output, &folder, source, profile)));
        }
        Ok(out)
    }
}

/// Writes chart and values to disk. Returns the directory of the chart.
fn lay_out(home: &Path, chart: &Archive, profile: &Profile, more: &[(String, Vec<u8>)]) -> std::io::Result<PathBuf> {
    let root = home.join("chart");
    chart.unpack(&root)?;
    let folder = root.join(chart.chart_root().unwrap_or_default());
    for (path, content) in profile.files.iter().chain(more) {
        let target = folder.join(path);
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(target, content)?;
    }
    if let Some(values) = &profile.values {
        std::fs::write(home.join("profile-values.yaml"), values)?;
    }
    Ok(folder)
}

async fn drain(pipe: Option<impl tokio::io::AsyncRead + Unpin>) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(MAX_OUTPUT).read_to_end(&mut bytes).await?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Helm's error output without temporary paths and secret values, at most 2000 characters.
fn sanitized(output: &str, folder: &Path, source: &AppSource, profile: &Profile) -> String {
    let mut text = output.trim().trim_start_matches("Error: ").replace(&format!("{}/", folder.display()), "");
    for value in secrets(source, profile) {
        text = text.replace(&value, "…");
    }
    const MAX_CHARS: usize = 2000;
    if let Some((cut, _)) = text.char_indices().nth(MAX_CHARS) {
        text.truncate(cut);
        text.push('…');
    }
    text
}

/// Values whose key looks like that of a secret.
fn secrets(source: &AppSource, profile: &Profile) -> Vec<String> {
    let is_secret = |key: &str| {
        let key = key.to_ascii_lowercase();
        ["password", "passwd", "secret", "token", "credential", "apikey", "api_key", "privatekey", "private_key"]
            .iter()
            .any(|word| key.contains(word))
    };
    fn collect(value: &Value, secret: bool, is_secret: &dyn Fn(&str) -> bool, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => map.iter().for_each(|(key, value)| collect(value, secret || is_secret(key), is_secret, found)),
            Value::Array(list) => list.iter().for_each(|value| collect(value, secret, is_secret, found)),
            Value::String(text) if secret => found.push(text.clone()),
            Value::Number(number) if secret => found.push(number.to_string()),
            _ => {}
        }
    }
    let mut found: Vec<String> = source.overrides.iter().filter(|(key, _)| is_secret(key)).map(|(_, value)| value.clone()).collect();
    if let Some(values) = profile.values.as_deref().and_then(|text| drover_manifest::one(text, Limits::MANIFESTS).ok()) {
        collect(&values, false, &is_secret, &mut found);
    }
    // Replacing very short values would make the message unreadable and hide nothing.
    found.retain(|value| value.len() >= 3);
    found
}

/// The events in which Drover runs hooks.
const EVENTS: [&str; 9] =
    ["pre-install", "post-install", "pre-upgrade", "post-upgrade", "pre-delete", "post-delete", "pre-rollback", "post-rollback", "test"];

/// Marks an object of a chart as the hook that it is. Returns whether it is to be applied at all.
pub fn is_run(object: &mut Value) -> bool {
    let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else { return true };
    let Some(named) = annotations.get("helm.sh/hook").and_then(Value::as_str) else { return true };
    // Definitions of Helm 2: they belong to the chart and come first anyway.
    if named.split(',').any(|hook| hook.trim() == "crd-install") {
        return true;
    }
    // `test-success` is the name that Helm 2 gave to tests.
    let named = named.split(',').map(|event| if event.trim() == "test-success" { "test" } else { event.trim() });
    let events: Vec<&str> = named.filter(|event| EVENTS.contains(event)).collect();
    let runs = !events.is_empty();
    let mark = Value::String(events.join(","));
    annotations.insert(drover_members::labels::HOOK.to_owned(), mark);
    runs
}
