//! `drover test`: runs the tests of an application's charts where it runs, and prints what they have printed.

use anyhow::{Result, bail};
use clap::Args;
use drover_api::operations::OperationState;
use serde_json::Value;

use crate::application::{Application, operation_of};
use crate::globals::Format;
use crate::session::Session;
use crate::{output, watch};

/// `drover test`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  drover test shop
  drover test shop --timeout 900
  drover test shop -o json

Runs the hooks of the event `test` as Helm does: by weight, with their delete policies, in the cluster where each app runs, and none after
one that has failed. The exit code is 1 if a test fails. The application is neither moved nor updated while its tests run.")]
pub struct TestArgs {
    /// Name of the application.
    name: String,
    /// Seconds after which tests that have not ended count as failed.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=86400))]
    timeout: u32,
    /// Do not print what the tests have printed.
    #[arg(long)]
    no_logs: bool,
}

/// Runs the tests and prints what they printed.
///
/// # Errors
/// The application does not run, a request fails, or a test fails.
pub async fn run(session: &Session, args: &TestArgs) -> Result<()> {
    let application = Application::new(session, &args.name);
    if session.client.find(&application.group).await?.is_none() {
        bail!("no application is called {} in project {}; see `drover get apps`", args.name, session.project);
    }
    let answer = session.client.post(&format!("{}/test?timeoutSeconds={}", application.group, args.timeout), None).await?;
    let operation = watch::follow(&session.client, &operation_of(&answer)?).await?;
    let list: Value = session.client.get(&format!("{}/tests", application.group)).await?;
    // The group may have been tested before: only what this run says counts.
    let run = operation.id.to_string();
    let mine: Vec<Value> = list["items"].as_array().into_iter().flatten().filter(|item| item["run"] == run.as_str()).cloned().collect();
    if !args.no_logs && session.format == Format::Table {
        print_logs(&mine);
    }
    output::print(session.format, &mine, |_| (vec!["APP", "ON", "TEST", "RESULT", "REASON"], rows(&mine)))?;
    if operation.state != OperationState::Succeeded {
        return watch::succeeded(operation).map(drop);
    }
    if mine.is_empty() {
        eprintln!("no chart of {} has tests (hooks of the event `test`)", args.name);
    }
    Ok(())
}

/// What the tests have printed, on stderr, so that stdout has the results alone.
fn print_logs(items: &[Value]) {
    for (item, test) in items.iter().flat_map(|item| tests(item).map(move |test| (item, test))) {
        if let Some(log) = test["log"].as_str() {
            eprintln!("--- {} on {}", text(&test["object"]), text(&item["member"]));
            eprintln!("{}", log.trim_end());
        }
    }
}

fn rows(items: &[Value]) -> Vec<Vec<String>> {
    let row = |item: &Value, test: &Value| {
        let fields = [&item["app"], &item["member"], &test["object"], &test["result"], &test["reason"]];
        fields.map(text).to_vec()
    };
    items.iter().flat_map(|item| tests(item).map(move |test| row(item, test))).collect()
}

fn tests(item: &Value) -> impl Iterator<Item = &Value> {
    item["tests"].as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
