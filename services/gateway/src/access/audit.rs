//! The audit log: a row before a request is passed on, another with its outcome, and, where wanted, a line of JSON.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use clap::Args;
use drover_api::access::AuditEntry;
use drover_service::Problem;
use drover_store::Store;

use super::store;

/// Settings of the audit log.
#[derive(Args, Clone, Debug, Default)]
pub struct AuditSettings {
    /// File to which the audit log is written too, a JSON object per line; `-` is stdout
    #[arg(long = "audit-log", env = "DROVER_AUDIT_LOG", value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// The audit log; cheap to clone.
#[derive(Clone)]
pub struct Audit {
    store: Option<Store>,
    lines: Option<Arc<Mutex<Box<dyn Write + Send>>>>,
}

impl Audit {
    /// Opens the file.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(settings: &AuditSettings, store: Option<Store>) -> anyhow::Result<Self> {
        let open = |path: &PathBuf| -> anyhow::Result<Box<dyn Write + Send>> {
            if path.as_os_str() == "-" {
                return Ok(Box::new(std::io::stdout()));
            }
            let file = File::options().create(true).append(true).open(path);
            Ok(Box::new(file.with_context(|| format!("cannot open the audit log {}", path.display()))?))
        };
        let lines = settings.file.as_ref().map(open).transpose()?.map(|lines| Arc::new(Mutex::new(lines)));
        Ok(Self { store, lines })
    }

    /// Records a request that is about to be passed on. Without a record it must not be.
    ///
    /// # Errors
    /// The database fails.
    pub async fn begin(&self, mut entry: AuditEntry) -> Result<AuditEntry, Problem> {
        if let Some(store) = &self.store {
            (entry.id, entry.at) = store::record(store, &entry).await?;
        } else {
            entry.at = drover_store::now().to_string();
        }
        Ok(entry)
    }

    /// Records how the request was answered. It has been carried out, so a failure is only logged.
    pub async fn end(&self, entry: AuditEntry) {
        if let (Some(store), Some(status)) = (&self.store, entry.status)
            && let Err(error) = store::record_outcome(store, entry.id, status, entry.code.as_deref()).await
        {
            tracing::error!(%error, audit.id = entry.id, status, "the outcome of a request could not be recorded");
        }
        let Some(lines) = &self.lines else { return };
        let Ok(mut line) = serde_json::to_vec(&entry) else { return };
        line.push(b'\n');
        let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = lines.write_all(&line).and_then(|()| lines.flush()) {
            tracing::error!(%error, audit.id = entry.id, "the audit log's file cannot be written");
        }
    }
}
