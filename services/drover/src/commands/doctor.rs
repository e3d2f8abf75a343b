//! `drover doctor`: whether this machine and the running Drover have what they need, and what to do where they do not.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;
use serde_json::Value;

use crate::clusters;
use crate::session::Session;
use crate::{input, output};

/// `drover doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  drover doctor
  until drover doctor --ready; do sleep 1; done                      wait until all services answer
  drover doctor --ready --url https://placement:9031 --ca-file ca    the health check of a container")]
pub struct DoctorArgs {
    /// Ask the service at --url whether it is ready, and nothing else.
    #[arg(long)]
    ready: bool,
}

/// One check.
#[derive(Debug, Serialize)]
struct Check {
    check: &'static str,
    /// `ok`, `missing` (something does not work without it) or `optional`.
    result: &'static str,
    /// What was found, or what to do.
    detail: String,
}

const NO_HELM: &str = "charts cannot be deployed without helm: install it, or set DROVER_HELM for `drover up`";
const NO_KUSTOMIZE: &str = "`drover deploy -k` needs kustomize or kubectl: install one of them, or set DROVER_KUSTOMIZE";

/// What an installation can do without, and what does not work without it. A sentence per program that is not found.
pub fn lacking() -> Vec<&'static str> {
    let helm = program("helm", &["DROVER_HELM"], None, NO_HELM, false);
    [helm, kustomize()]
        .iter()
        .filter(|check| check.result != "ok")
        .map(|check| if check.check == "helm" { NO_HELM } else { NO_KUSTOMIZE })
        .collect()
}

fn kustomize() -> Check {
    match input::kustomize_program() {
        Some(path) => Check { check: "kustomize", result: "ok", detail: path.display().to_string() },
        None => Check { check: "kustomize", result: "optional", detail: NO_KUSTOMIZE.to_owned() },
    }
}

/// Prints the checks.
///
/// # Errors
/// Something is missing that an installation needs.
pub async fn run(session: &Session, args: &DoctorArgs) -> Result<()> {
    if args.ready {
        session.client.readiness().await?;
        return output::write_stdout("ready\n");
    }
    let mut checks = vec![
        program("postgres", &["DROVER_POSTGRES"], postgres(), "apt install postgresql, or set DATABASE_URL", true),
        program("helm", &["DROVER_HELM"], None, NO_HELM, false),
        program("kubectl", &[], None, "needed for your own look at clusters; Drover itself works without it", false),
        kustomize(),
        program("diff", &[], None, "`drover diff` needs it: apt install diffutils", false),
    ];
    match session.client.readiness().await {
        Ok(ready) => {
            let failing = failing(&ready);
            let result = if failing.is_empty() { "ok" } else { "missing" };
            let detail = if failing.is_empty() { format!("all services at {} are ready", session.client.base()) } else { failing };
            checks.push(Check { check: "services", result, detail });
            checks.extend(clusters(session).await);
        }
        Err(error) => checks.push(Check { check: "services", result: "missing", detail: format!("{error:#}") }),
    }
    output::print(session.format, &checks, |_| {
        let row = |check: &Check| vec![check.check.to_owned(), check.result.to_owned(), check.detail.replace('\n', " ")];
        (vec!["CHECK", "RESULT", "DETAIL"], checks.iter().map(row).collect())
    })?;
    match checks.iter().filter(|check| check.result == "missing").count() {
        0 => Ok(()),
        missing => bail!("{missing} of {} checks failed", checks.len()),
    }
}

/// Names of the services that are not ready, with their reasons.
fn failing(ready: &Value) -> String {
    let checks = ready["checks"].as_object().into_iter().flatten();
    let bad = checks.filter(|(_, found)| !matches!(found, Value::Null) && **found != "ok" && found["ok"] != true);
    match ready["ready"].as_bool() {
        Some(true) => String::new(),
        _ => bad.map(|(name, found)| format!("{name}: {found}")).collect::<Vec<_>>().join("; "),
    }
}

async fn clusters(session: &Session) -> Vec<Check> {
    let clusters = match clusters::all(session).await {
        Ok(clusters) => clusters,
        Err(error) => return vec![Check { check: "clusters", result: "missing", detail: format!("{error:#}") }],
    };
    if clusters.is_empty() {
        let detail = "none is registered: `drover cluster add NAME --provider P --kubeconfig FILE`".to_owned();
        return vec![Check { check: "clusters", result: "optional", detail }];
    }
    let of = |shown: &drover_api::ledger::ClusterCapacity| {
        let ready = shown.state == drover_api::scheduling::MemberState::Ready;
        let cordoned = shown.cordoned.as_ref().map(|cordon| format!(", closed: {}", cordon.reason)).unwrap_or_default();
        let reason = shown.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let detail = format!("{} is {:?}{reason}{cordoned}", shown.member, shown.state);
        Check { check: "cluster", result: if ready { "ok" } else { "missing" }, detail }
    };
    clusters.iter().map(of).collect()
}

/// A program at the place that a variable names, at `known`, or on PATH.
fn program(name: &'static str, variables: &[&str], known: Option<PathBuf>, missing: &str, required: bool) -> Check {
    let named = variables.iter().find_map(std::env::var_os).filter(|path| !path.is_empty()).map(PathBuf::from);
    match named.or(known).or_else(|| on_path(name)) {
        Some(path) if path.exists() || on_path(&path.to_string_lossy()).is_some() => {
            Check { check: name, result: "ok", detail: format!("{} {}", path.display(), version(&path)).trim().to_owned() }
        }
        _ => Check { check: name, result: if required { "missing" } else { "optional" }, detail: missing.to_owned() },
    }
}

/// The newest Postgres of Debian's directory of versions, which is not on PATH.
fn postgres() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    versions.map(|version| version.path().join("bin/postgres")).filter(|path| path.is_file()).max()
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|path| path.is_file())
}

/// The first line that the program prints about its version, if it knows `--version`.
fn version(path: &Path) -> String {
    let output = Command::new(path).arg("--version").output();
    let text = output.ok().filter(|output| output.status.success()).map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.and_then(|text| text.lines().next().map(|line| format!("({line})"))).unwrap_or_default()
}
