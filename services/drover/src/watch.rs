//! Follows one operation, with a progress bar on a terminal and a line per change elsewhere. Changes nothing.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use anyhow::{Result, bail};
use drover_api::operations::{Operation, OperationState};
use indicatif::{ProgressBar, ProgressStyle};

use crate::hub::{self, Client};
use crate::output;
use crate::reasons::condensed;

const POLL: Duration = Duration::from_millis(300);

/// Follows operation `id` to its end and reports on stderr.
///
/// # Errors
/// A request fails, or Ctrl-C ended the watching; the operation itself goes on.
pub async fn follow(client: &Client, id: &str) -> Result<Operation> {
    let bar = output::is_terminal().then(|| {
        let bar = ProgressBar::new_spinner();
        bar.set_style(ProgressStyle::with_template("{spinner} {msg} {elapsed:.dim}").unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar.enable_steady_tick(Duration::from_millis(120));
        bar
    });
    let mut said = Said::default();
    let end = tokio::select! {
        end = until_ended(client, id, &mut said, bar.as_ref()) => end,
        _ = tokio::signal::ctrl_c() => {
            if let Some(bar) = &bar { bar.finish_and_clear(); }
            bail!("stopped watching; the operation goes on: `drover operation watch {id}` follows it, `drover operation cancel {id}` undoes it");
        }
    };
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    end
}

/// As [`follow`], for callers that need success.
///
/// # Errors
/// As [`follow`], and when the operation fails or is cancelled; the error gives the reasons.
pub async fn to_success(client: &Client, id: &str) -> Result<Operation> {
    succeeded(follow(client, id).await?)
}

/// An operation that has ended with success.
///
/// # Errors
/// It failed or was cancelled; the error gives the reasons.
pub fn succeeded(operation: Operation) -> Result<Operation> {
    match operation.state {
        OperationState::Succeeded => Ok(operation),
        _ => {
            let mut text = format!("{} of {}: {}", operation.kind, operation.subject, operation.message);
            for reason in condensed(&operation.reasons) {
                text.push_str("\n  - ");
                text.push_str(&reason);
            }
            if let Some(code) = &operation.code {
                text.push_str(&format!("\n  code: {code} (docs/errors/{code}.md)"));
            }
            bail!(text)
        }
    }
}

async fn until_ended(client: &Client, id: &str, said: &mut Said, bar: Option<&ProgressBar>) -> Result<Operation> {
    loop {
        let operation: Operation = client.read(client.api.operation_get(&hub::id(id)?, None)).await?;
        for line in said.news(&operation) {
            match bar {
                Some(bar) => bar.println(line),
                None => eprintln!("{line}"),
            }
        }
        if let Some(bar) = bar {
            bar.set_message(headline(&operation));
        }
        if ended(&operation) {
            return Ok(operation);
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Whether the operation has ended.
pub fn ended(operation: &Operation) -> bool {
    !matches!(operation.state, OperationState::Running | OperationState::Undoing)
}

fn headline(operation: &Operation) -> String {
    format!("{} {}: {}", operation.kind, operation.subject, operation.message)
}

/// What has been printed already.
#[derive(Default)]
struct Said {
    message: String,
    moves: HashMap<(String, String), String>,
    kept: HashSet<String>,
}

impl Said {
    fn news(&mut self, operation: &Operation) -> Vec<String> {
        let mut lines = Vec::new();
        for item in &operation.moves {
            let key = (item.app.clone(), item.to.clone());
            if self.moves.insert(key, item.stage.clone()).as_deref() != Some(item.stage.as_str()) {
                let why = item.reason.as_deref().map(|reason| format!(" ({reason})")).unwrap_or_default();
                lines.push(format!("  {} {} → {}: {} {:.1} s{why}", item.app, item.from, item.to, item.stage, item.seconds));
            }
        }
        for kept in operation.kept.iter().filter(|kept| !self.kept.contains(*kept)) {
            lines.push(format!("  {kept}"));
        }
        self.kept.extend(operation.kept.iter().cloned());
        if self.message != operation.message {
            self.message.clone_from(&operation.message);
            lines.push(headline(operation));
        }
        lines
    }
}
