//! `drover logs`, `events`, `pods` and `history`: what an application does, and what was done to it.
//!
//! Pods, events and logs are read from the clusters at that moment, through cluster-manager; nothing is stored of them.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use drover_api::apps::{AppBinding, AppList, AppView};
use drover_api::members::{CopyEvent, CopyEvents, CopyPod, CopyPods};
use drover_api::operations::{Operation, OperationList};
use futures::StreamExt;
use serde_json::Value;

use super::rollback;
use crate::application::Application;
use crate::hub::segment;
use crate::output;
use crate::session::Session;

/// A log is followed for at most this time; then the command ends.
const FOLLOWED: Duration = Duration::from_secs(24 * 3600);
/// Time limit of a log that is not followed.
const READ: Duration = Duration::from_secs(60);

/// `drover logs`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  drover logs shop/cart\n  drover logs shop --tail 20 --since 600\n  drover logs shop/cart -f -c nginx\n  drover logs shop --pod Job/migrate"
)]
pub struct LogsArgs {
    /// `APPLICATION/APP`, or the application for all of its apps.
    app: String,
    /// Print further lines as they come, until Ctrl-C.
    #[arg(long, short = 'f')]
    follow: bool,
    /// Only this pod, or those of `Job/NAME` [default: all but those of Jobs and tests, if there are others].
    #[arg(long, value_name = "NAME")]
    pod: Option<String>,
    /// Only this container of each pod.
    #[arg(long, short = 'c', value_name = "NAME")]
    container: Option<String>,
    /// Only so many of the last lines of each container.
    #[arg(long, value_name = "LINES")]
    tail: Option<u32>,
    /// Only lines of the last so many seconds.
    #[arg(long, value_name = "SECONDS")]
    since: Option<u32>,
    /// The logs of the containers that ran before the last restart.
    #[arg(long)]
    previous: bool,
    /// Begin each line with its time.
    #[arg(long)]
    timestamps: bool,
}

/// `drover events`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  drover events shop/cart")]
pub struct EventsArgs {
    /// `APPLICATION/APP`, or the application for all of its apps.
    pub app: String,
}

/// `drover pods`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  drover pods shop")]
pub struct PodsArgs {
    /// `APPLICATION/APP`, or the application for all of its apps.
    pub app: String,
}

/// `drover history`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  drover history shop\n  drover history shop --revisions")]
pub struct HistoryArgs {
    /// Name of the application.
    pub app: String,
    /// List its revisions, to which `drover rollback` goes back, instead of what was done.
    #[arg(long)]
    pub revisions: bool,
}

/// A copy of an app, with its path at cluster-manager.
#[derive(Clone)]
pub struct Copy {
    /// `APPLICATION/APP`.
    pub app: String,
    pub member: String,
    pub path: String,
}

/// The copies of an application, or of one of its apps.
///
/// # Errors
/// There is no such app, it runs nowhere, or a request fails.
pub async fn copies(session: &Session, wanted: &str) -> Result<Vec<Copy>> {
    let (application, only) = wanted.split_once('/').map_or((wanted, None), |(application, app)| (application, Some(app)));
    let list: AppList = session.client.get(&format!("/v2/apps?project={}", segment(&session.project))).await?;
    let is = |app: &&AppView| app.composite_app == application && only.is_none_or(|only| app.app == only);
    let found: Vec<&AppView> = list.items.iter().filter(is).collect();
    if found.is_empty() {
        bail!("no application or app is called {wanted} in project {}; see `drover get apps`", session.project);
    }
    let copy = |app: &AppView, binding: &AppBinding| {
        let (provider, cluster) = (binding.member.provider(), binding.member.cluster());
        let path = format!("/v2/cluster-providers/{}/clusters/{}/copies/{}", segment(provider), segment(cluster), binding.binding);
        Copy { app: format!("{}/{}", app.composite_app, app.app), member: binding.member.to_string(), path }
    };
    let copies: Vec<Copy> = found.iter().flat_map(|app| app.bindings.iter().map(move |binding| copy(app, binding))).collect();
    if copies.is_empty() {
        bail!("{wanted} runs nowhere: it is {}; see `drover explain {wanted}`", found[0].state);
    }
    Ok(copies)
}

/// The pods of copies.
///
/// # Errors
/// A request fails.
pub async fn pods_of(session: &Session, copies: Vec<Copy>) -> Result<Vec<(Copy, CopyPod)>> {
    let mut all = Vec::new();
    for copy in copies {
        let pods: CopyPods = session.client.get(&format!("{}/pods", copy.path)).await?;
        all.extend(pods.items.into_iter().map(|pod| (copy.clone(), pod)));
    }
    Ok(all)
}

/// The pods that are meant: those that `wanted` names (a pod, or what made it), else those of the workloads that keep running. Those of Jobs
/// and hooks come to an end; they are meant if an app has no others.
pub fn meant(mut pods: Vec<(Copy, CopyPod)>, wanted: Option<&str>) -> Vec<(Copy, CopyPod)> {
    if let Some(wanted) = wanted {
        pods.retain(|(_, pod)| pod.name == wanted || pod.owner.as_deref() == Some(wanted));
        return pods;
    }
    let ends = |pod: &CopyPod| pod.hook.is_some() || pod.owner.as_deref().is_some_and(|owner| owner.starts_with("Job/"));
    let runs: BTreeSet<String> = pods.iter().filter(|(_, pod)| !ends(pod)).map(|(copy, _)| copy.app.clone()).collect();
    pods.retain(|(copy, pod)| !ends(pod) || !runs.contains(&copy.app));
    pods
}

/// Lists pods.
///
/// # Errors
/// There is no such app, or a request fails.
pub async fn pods(session: &Session, app: &str) -> Result<()> {
    let all = pods_of(session, copies(session, app).await?).await?;
    let value: Vec<Value> = all.iter().map(|(copy, pod)| with_place(copy, serde_json::to_value(pod).unwrap_or_default())).collect();
    output::print(session.format, &value, |_| {
        let row = |(copy, pod): &(Copy, CopyPod)| {
            let ready = if pod.ready { "yes" } else { "no" };
            let node = pod.node.clone().unwrap_or_default();
            let (app, member) = (copy.app.clone(), copy.member.clone());
            vec![app, member, pod.name.clone(), pod.state.clone(), ready.to_owned(), pod.restarts.to_string(), node, pod.created.clone()]
        };
        (vec!["APP", "ON", "POD", "STATE", "READY", "RESTARTS", "NODE", "CREATED"], all.iter().map(row).collect())
    })
}

/// Lists events, oldest first.
///
/// # Errors
/// There is no such app, or a request fails.
pub async fn events(session: &Session, app: &str) -> Result<()> {
    let mut all: Vec<(String, String, CopyEvent)> = Vec::new();
    for copy in copies(session, app).await? {
        let events: CopyEvents = session.client.get(&format!("{}/events", copy.path)).await?;
        all.extend(events.items.into_iter().map(|event| (copy.app.clone(), copy.member.clone(), event)));
    }
    all.sort_by(|a, b| a.2.last.cmp(&b.2.last));
    let place = |(app, member, event): &(String, String, CopyEvent)| {
        let copy = Copy { app: app.clone(), member: member.clone(), path: String::new() };
        with_place(&copy, serde_json::to_value(event).unwrap_or_default())
    };
    output::print(session.format, &all.iter().map(place).collect::<Vec<_>>(), |_| {
        let row = |(_, member, event): &(String, String, CopyEvent)| {
            let times = if event.count > 1 { format!("{} (x{})", event.reason, event.count) } else { event.reason.clone() };
            vec![event.last.clone(), event.kind.clone(), times, member.clone(), event.object.clone(), event.message.clone()]
        };
        (vec!["LAST", "TYPE", "REASON", "ON", "OBJECT", "MESSAGE"], all.iter().map(row).collect())
    })
}

fn with_place(copy: &Copy, mut value: Value) -> Value {
    value["app"] = copy.app.clone().into();
    value["member"] = copy.member.clone().into();
    value
}

/// Prints logs; with several containers each line begins with its pod and container.
///
/// # Errors
/// There is no such app or no such pod, or no log can be read.
pub async fn logs(session: &Session, args: LogsArgs) -> Result<()> {
    let mut sources = Vec::new();
    for (copy, pod) in meant(pods_of(session, copies(session, &args.app).await?).await?, args.pod.as_deref()) {
        let containers = pod.containers.iter().filter(|name| args.container.as_ref().is_none_or(|wanted| *name == wanted));
        sources.extend(containers.map(|container| (format!("{}/{container}", pod.name), log_path(&copy, &pod.name, container, &args))));
    }
    if sources.is_empty() {
        bail!("there is no such pod or container; `drover pods {}` lists them", args.app);
    }
    let several = sources.len() > 1;
    let limit = if args.follow { FOLLOWED } else { READ };
    let each = sources.into_iter().map(|(name, path)| async move {
        let prefix = if several { format!("[{name}] ") } else { String::new() };
        (print_lines(session, &path, limit, &prefix).await, name)
    });
    let ended: Vec<(Result<()>, String)> = if args.follow {
        tokio::select! {
            ended = futures::future::join_all(each) => ended,
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
    } else {
        futures::stream::iter(each).then(|each| each).collect().await
    };
    let count = ended.len();
    let failed: Vec<String> = ended.into_iter().filter_map(|(ended, name)| Some(format!("{name}: {:#}", ended.err()?))).collect();
    match failed.len() {
        0 => Ok(()),
        failures if failures == count => bail!("no log can be read:\n  {}", failed.join("\n  ")),
        _ => {
            failed.iter().for_each(|line| eprintln!("warning: {line}"));
            Ok(())
        }
    }
}

fn log_path(copy: &Copy, pod: &str, container: &str, args: &LogsArgs) -> String {
    let mut path = format!("{}/log?pod={}&container={}", copy.path, segment(pod), segment(container));
    for (key, number) in [("tailLines", args.tail), ("sinceSeconds", args.since)] {
        path.extend(number.map(|number| format!("&{key}={number}")));
    }
    for (key, wanted) in [("previous", args.previous), ("follow", args.follow), ("timestamps", args.timestamps)] {
        path.push_str(if wanted { "&" } else { "" });
        path.extend(wanted.then(|| format!("{key}=true")));
    }
    path
}

async fn print_lines(session: &Session, path: &str, limit: Duration, prefix: &str) -> Result<()> {
    let mut chunks = session.client.stream(path, limit).await?.bytes_stream();
    let mut rest = Vec::new();
    while let Some(chunk) = chunks.next().await {
        rest.extend_from_slice(&chunk?);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            output::write_stdout(&format!("{prefix}{}", String::from_utf8_lossy(&line)))?;
        }
    }
    if rest.is_empty() { Ok(()) } else { output::write_stdout(&format!("{prefix}{}", String::from_utf8_lossy(&rest))) }
}

/// Lists the operations on an application, and those that moved one of its apps.
///
/// # Errors
/// A request fails, or nothing is recorded about the application.
pub async fn history(session: &Session, application: &str) -> Result<()> {
    let list: OperationList = session.client.get("/v2/operations?limit=500").await?;
    let subject = format!("{}/{application}/", session.project);
    let moved = |operation: &Operation| operation.moves.iter().any(|item| item.app.split('/').next() == Some(application));
    let about = |operation: &Operation| operation.subject.starts_with(&subject) || (operation.parent.is_none() && moved(operation));
    let items: Vec<Operation> = list.items.into_iter().filter(about).collect();
    if items.is_empty() {
        bail!("nothing is recorded about {application} in project {}; see `drover get apps`", session.project);
    }
    output::print(session.format, &items, |_| {
        let row = |operation: &Operation| {
            let moves = operation.moves.iter().filter(|item| item.app.split('/').next() == Some(application));
            let moves: Vec<String> = moves.map(|item| format!("{} {} → {}", item.app, item.from, item.to)).collect();
            let what = if operation.subject.starts_with(&subject) {
                operation.kind.clone()
            } else {
                format!("{} ({})", operation.kind, operation.subject)
            };
            let text = [vec![operation.message.clone()], moves].concat().join("; ");
            vec![operation.created_at.clone(), what, format!("{:?}", operation.state), text, operation.id.to_string()]
        };
        (vec!["BEGUN", "WHAT", "STATE", "MESSAGE", "OPERATION"], items.iter().map(row).collect())
    })
}

/// Lists the revisions of an application, the newest first.
///
/// # Errors
/// There is no such application, or a request fails.
pub async fn revisions(session: &Session, name: &str) -> Result<()> {
    let mut items = rollback::revisions(session, &Application::new(session, name)).await?;
    items.reverse();
    output::print(session.format, &items, |_| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let row = |item: &Value| {
            let what = match item["rollbackTo"].as_i64() {
                Some(to) => format!("{} to {to}", text(&item["kind"])),
                None => text(&item["kind"]),
            };
            let runs = if item["current"] == true { "runs" } else { "" };
            vec![item["revision"].to_string(), runs.to_owned(), text(&item["time"]), what, text(&item["requestedBy"])]
        };
        (vec!["REVISION", "NOW", "REACHED", "BY", "REQUESTED BY"], items.iter().map(row).collect())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_of_jobs_and_tests_are_meant_when_they_are_named_or_alone() {
        let pod = |app: &str, name: &str, owner: Option<&str>, hook: Option<&str>| {
            let pod = json!({"namespace": "default", "name": name, "state": "Running", "ready": true, "restarts": 0, "containers": ["c"],
                "created": "", "owner": owner, "hook": hook});
            (Copy { app: app.to_owned(), member: "onprem+a".to_owned(), path: String::new() }, serde_json::from_value(pod).unwrap())
        };
        let all = vec![
            pod("shop/web", "web-1", Some("ReplicaSet/web-5d"), None),
            pod("shop/web", "migrate-x", Some("Job/migrate"), None),
            pod("shop/web", "try", None, Some("test")),
            pod("shop/nightly", "nightly-y", Some("Job/nightly-1"), None),
            pod("shop/bare", "bare", None, None),
        ];
        let names = |wanted| meant(all.clone(), wanted).into_iter().map(|(_, pod)| pod.name).collect::<Vec<_>>();
        assert_eq!(names(None), ["web-1", "nightly-y", "bare"]);
        assert_eq!(names(Some("try")), ["try"]);
        assert_eq!(names(Some("Job/migrate")), ["migrate-x"]);
        assert!(names(Some("migrate")).is_empty());
    }
}
