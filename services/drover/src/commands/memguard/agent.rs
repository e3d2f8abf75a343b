//! `drover memguard status` and `explain`: what the agent of this node reports on its socket. Changes nothing.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use drover_memguard::Activity;
use drover_memory_guard::wire::{ContainerStatus, Mode, Status, default_socket};

use crate::globals::Format;
use crate::output;

/// Time after which an agent that does not answer counts as hanging.
const PATIENCE: Duration = Duration::from_secs(5);
const MIB: f64 = (1u64 << 20) as f64;

/// The agent to ask.
#[derive(Args, Clone, Debug)]
pub struct AgentArgs {
    /// Socket of the agent.
    #[arg(long, value_name = "SOCKET", default_value_os_t = default_socket())]
    pub socket: PathBuf,
}

/// `drover memguard explain`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  drover memguard explain batch/report-7x2kd")]
pub struct ExplainArgs {
    /// Container: the beginning of its id, or a part of NAMESPACE/POD/CONTAINER.
    pub container: String,
    /// The agent.
    #[command(flatten)]
    pub agent: AgentArgs,
}

/// `drover memguard status`.
///
/// # Errors
/// No agent answers.
pub fn status(args: &AgentArgs, format: Format) -> Result<ExitCode> {
    let status = ask(&args.socket)?;
    if matches!(format, Format::Table | Format::Wide) {
        output::write_stdout(&summary(&status))?;
    }
    output::print(format, &status, |_| (HEAD.to_vec(), status.containers.iter().map(row).collect()))?;
    Ok(ExitCode::SUCCESS)
}

/// `drover memguard explain`.
///
/// # Errors
/// No agent answers, or there is no such container.
pub fn explain(args: &ExplainArgs, format: Format) -> Result<ExitCode> {
    let status = ask(&args.agent.socket)?;
    let wanted = args.container.as_str();
    let named = |container: &&ContainerStatus| container.id.starts_with(wanted) || container.name.contains(wanted);
    let found: Vec<&ContainerStatus> = status.containers.iter().filter(named).collect();
    if found.is_empty() {
        bail!("no container {wanted} runs on this node; `drover memguard status` lists them");
    }
    match format {
        Format::Table | Format::Wide => {
            let texts: Vec<String> = found.iter().map(|container| story(&status, container)).collect();
            output::write_stdout(&texts.join("\n\n"))?;
        }
        Format::Json | Format::Yaml => output::print(format, &found, |_| (Vec::new(), Vec::new()))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks the agent that listens on `socket`.
///
/// # Errors
/// No agent answers, or it has not measured yet.
pub fn ask(socket: &Path) -> Result<Status> {
    let hint = || format!("no agent answers on {}: does drover-memory-guard run on this node, and are you root?", socket.display());
    let mut stream = UnixStream::connect(socket).with_context(hint)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /status HTTP/1.0\r\nHost: agent\r\n\r\n").with_context(hint)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).with_context(hint)?;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").with_context(hint)?;
    let code = head.split(' ').nth(1).unwrap_or_default();
    ensure!(code == "200", "the agent has not measured yet (it answers {code}); try again in a few seconds");
    serde_json::from_str(body).context("the agent's answer cannot be read; it is probably of another version than this program")
}

fn summary(status: &Status) -> String {
    let pressure = &status.pressure;
    let mode = match status.mode {
        Mode::Off => "off: the agent only measures",
        Mode::Recommend => "recommend: the agent reports what it would do and does nothing",
        Mode::Apply => "apply",
    };
    let exhausted = match pressure.seconds_to_exhaustion {
        Some(seconds) => format!("exhausted in {seconds:.0} s at the present growth"),
        None => "not growing".to_owned(),
    };
    let gate = match (status.gate.by.as_str(), status.gate.open) {
        ("none", _) => "none".to_owned(),
        (by, Some(false)) => format!("closed, by {by}"),
        (by, _) => format!("open, by {by}"),
    };
    let why = status.gate.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    let mut lines = vec![
        format!("mode      {mode}"),
        format!("policy    {} ({})", status.policy, status.policy_because),
        format!("gate      {gate}{why}"),
        format!(
            "memory    {:.0} of {:.0} MiB, {exhausted}; from {}",
            pressure.used as f64 / MIB,
            pressure.capacity as f64 / MIB,
            status.memory_source
        ),
        format!("runtime   {}, cgroup {}", status.runtime, status.cgroup),
        format!(
            "so far    {} pauses, {} leases, {} held at the gate, {} sacrificed; {} OOM kills, {} episodes without one",
            status.totals.pauses,
            status.totals.leases,
            status.totals.gated,
            status.totals.sacrifices,
            status.totals.oom_kills,
            status.totals.oom_avoided
        ),
    ];
    if let Some(why) = &status.hindered {
        lines.insert(1, format!("hindered  {why}"));
    }
    lines.push(String::new());
    lines.join("\n")
}

const HEAD: [&str; 6] = ["CONTAINER", "MEMORY", "LIMIT", "MAY STILL TAKE", "STATE", "WHY"];

fn row(container: &ContainerStatus) -> Vec<String> {
    let why = match (&container.last, container.permission.granted()) {
        (Some(last), true) => last.words.clone(),
        _ => container.verdict.clone(),
    };
    vec![container.name.clone(), mib(container.memory), mib(container.limit), mib(container.need), state(container), why]
}

fn story(status: &Status, container: &ContainerStatus) -> String {
    let mut lines = vec![
        format!("{}  ({})", container.name, container.id),
        format!(
            "  uses {} of {}, grows by {:.1} MiB/s, may still take {}",
            mib(container.memory),
            mib(container.limit),
            container.growth / MIB,
            mib(container.need)
        ),
        format!("  is {}", state(container)),
        format!("  {}", container.verdict),
    ];
    if let Some(last) = &container.last {
        let done = if last.done { "" } else { " (not done)" };
        lines.push(format!("  {:.0} s ago: {}{done}", last.seconds_ago, last.words));
    }
    if status.mode != Mode::Apply {
        lines.push("  the agent does nothing in this mode".to_owned());
    }
    lines.join("\n")
}

fn state(container: &ContainerStatus) -> String {
    let since = container.held_seconds.map(|seconds| format!(" for {seconds:.0} s")).unwrap_or_default();
    match container.activity {
        Activity::AtGate { .. } => format!("held at its start{since}"),
        Activity::Paused { .. } => format!("paused{since}"),
        Activity::Running { lease: Some(_) } => format!("running, growth stopped{since}"),
        Activity::Running { lease: None } => "running".to_owned(),
    }
}

fn mib(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), |bytes| format!("{:.0} MiB", bytes as f64 / MIB))
}
