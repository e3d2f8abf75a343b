//! Where helm runs: without a network, with no files but its own and the chart's, and with limits of memory and CPU time.
//!
//! Charts are programs of strangers. The namespaces and the directory are made by programs of util-linux and a short shell script,
//! because a process with threads cannot change its own user namespace. Where the kernel or the machine does not allow that, helm runs
//! without them, which is logged once; references of a chart's schema to other addresses are refused in any case ([`foreign_reference`]).

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

use super::Archive;

/// Address space of helm; Go programs reserve much more than they use.
const MEMORY_BYTES: u64 = 4 << 30;
const OPEN_FILES: u32 = 256;
/// How long a trial may take. It starts one process.
const TRIAL: Duration = Duration::from_secs(20);

/// Makes a directory tree with helm, the chart's directory and /dev/null, and runs helm with that as its root.
const SCRIPT: &str = r#"
set -e
root=$1 home=$2 helm=$3
shift 3
mount -t tmpfs -o size=1m,mode=0755 none "$root"
mkdir -p "$root$home" "$root/bin" "$root/dev"
: >"$root/bin/helm"
: >"$root/dev/null"
mount --bind "$helm" "$root/bin/helm"
mount --bind /dev/null "$root/dev/null"
mount --bind "$home" "$root$home"
exec chroot "$root" /bin/helm "$@"
"#;

/// What this machine allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sandbox {
    /// Namespaces of its own and limits.
    Full,
    /// No namespaces of its own and no limits.
    None,
}

impl Sandbox {
    /// Tries it once with this helm.
    pub async fn of_machine(helm: &Path) -> Self {
        match Self::trial(helm).await {
            Ok(()) => Self::Full,
            Err(reason) => {
                tracing::warn!(
                    reason,
                    "charts are rendered without namespaces and limits of their own: unshare, prlimit (util-linux) or the kernel do not allow them"
                );
                Self::None
            }
        }
    }

    async fn trial(helm: &Path) -> Result<(), String> {
        let home = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mut command = Self::Full.command(helm, home.path(), TRIAL).map_err(|error| error.to_string())?;
        command.arg("version").stdin(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(TRIAL, command.output()).await.map_err(|_| "it does not end".to_owned())?;
        let output = output.map_err(|error| error.to_string())?;
        if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()) }
    }

    /// The beginning of a command that runs helm; the caller adds helm's arguments. Of the machine's files helm sees those below `home`.
    ///
    /// # Errors
    /// A directory below `home` cannot be made.
    pub fn command(self, helm: &Path, home: &Path, limit: Duration) -> std::io::Result<Command> {
        if self == Self::None {
            return Ok(Command::new(helm));
        }
        let root = home.join(".root");
        std::fs::create_dir_all(&root)?;
        let mut command = Command::new("prlimit");
        // helm may use several processors within the time limit.
        let seconds = limit.as_secs().max(1) * 4;
        command.args([format!("--as={MEMORY_BYTES}"), format!("--cpu={seconds}"), format!("--nofile={OPEN_FILES}"), "--core=0".into()]);
        command.args(["--", "unshare", "--user", "--map-root-user", "--net", "--mount", "--ipc", "--pid", "--fork", "--kill-child", "--"]);
        command.args(["sh", "-c", SCRIPT, "sh"]).arg(root).arg(home).arg(helm);
        Ok(command)
    }
}

/// The first reference of a values.schema.json in the files that points outside of that file, as `path: reference`. helm would fetch it.
pub fn foreign_reference<'a>(files: impl Iterator<Item = (&'a str, &'a [u8])>) -> Option<String> {
    in_files(files, 4)
}

fn in_files<'a>(files: impl Iterator<Item = (&'a str, &'a [u8])>, depth: usize) -> Option<String> {
    for (path, content) in files {
        let name = path.rsplit('/').next().unwrap_or(path);
        let found = if name == "values.schema.json" {
            serde_json::from_slice::<Value>(content).ok().and_then(|schema| in_schema(&schema).map(|found| format!("{path}: {found}")))
        } else if name.ends_with(".tgz") && depth > 0 {
            // A packed chart that this one needs.
            Archive::read(content).ok().and_then(|inner| in_files(inner.files(), depth - 1)).map(|found| format!("{path}: {found}"))
        } else {
            None
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

fn in_schema(schema: &Value) -> Option<String> {
    match schema {
        Value::Object(fields) => fields.iter().find_map(|(name, value)| match value {
            Value::String(text) if leaves(name, text) => Some(format!("{name}: {text}")),
            value => in_schema(value),
        }),
        Value::Array(items) => items.iter().find_map(in_schema),
        _ => None,
    }
}

fn leaves(name: &str, text: &str) -> bool {
    let known = || ["http://json-schema.org/", "https://json-schema.org/"].iter().any(|own| text.starts_with(own));
    match name {
        "$ref" | "$dynamicRef" | "$recursiveRef" => !text.starts_with('#') && !known(),
        "$schema" => !known(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(path: &str, schema: &str) -> Option<String> {
        foreign_reference([(path, schema.as_bytes())].into_iter())
    }

    #[test]
    fn foreign_reference_finds_files_and_addresses_at_any_depth() {
        for target in ["file:///etc/passwd", "http://127.0.0.1:1/x", "https://example.com/x.json", "other.json", "../x", "//host/x"] {
            let schema = format!(r#"{{"properties": {{"a": {{"anyOf": [{{"$ref": "{target}"}}]}}}}}}"#);
            let found = reference("c/charts/d/values.schema.json", &schema).unwrap();
            assert!(found.starts_with("c/charts/d/values.schema.json: $ref: ") && found.ends_with(target), "{found}");
        }
        assert!(reference("c/values.schema.json", r#"{"$schema": "http://127.0.0.1:1/meta"}"#).is_some());
        assert!(reference("c/values.schema.json", r#"{"$dynamicRef": "file:///x"}"#).is_some());
    }

    #[test]
    fn foreign_reference_accepts_references_within_the_schema() {
        let schema = r##"{"$schema": "https://json-schema.org/draft-07/schema#", "properties": {"$ref": {"type": "string"}},
            "items": {"$ref": "#/definitions/a"}, "extra": {"$ref": "http://json-schema.org/draft-07/schema#"}}"##;
        assert_eq!(reference("c/values.schema.json", schema), None);
        assert_eq!(reference("c/templates/x.yaml", r#"{"$ref": "file:///x"}"#), None, "no schema of values");
        assert_eq!(reference("c/values.schema.json", "{not json"), None, "helm says what is wrong with it");
    }
}
