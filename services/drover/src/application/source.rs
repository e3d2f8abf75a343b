//! What the user deploys: objects or a chart, its values and its namespace. `drover deploy` and `drover diff` take the same.

use anyhow::{Result, bail, ensure};
use clap::Args;

use super::prepare::cloud_of;
use super::values::{Values, ValuesArgs};
use super::wishes::Wishes;
use super::{Application, names, state, zero};
use crate::input::{Input, InputArgs};
use crate::manifests::{self, Deployable};
use crate::session::Session;

/// What is deployed.
#[derive(Debug, Args)]
pub struct SourceArgs {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    values: ValuesArgs,
    /// Namespace of objects that name none; it is created where it does not exist [default: as it was; `default` for a new application].
    #[arg(short = 'n', long, value_name = "NAME")]
    namespace: Option<String>,
    /// Place and move each workload by itself, with the objects that belong to it. Without it everything stays together in one cluster.
    #[arg(long)]
    split: bool,
    /// Scale its Deployments that have a Service to zero while nobody uses them, and back on the first request. The autoscaler must run
    /// in the cluster (`drover agents set autoscaler`). SETTINGS are max=PODS and concurrency=REQUESTS, separated by a comma.
    #[arg(long, value_name = "SETTINGS", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    scale_to_zero: Option<String>,
}

/// What was read.
pub struct Source {
    pub deployable: Deployable,
    /// Whether there is no such application yet.
    pub is_new: bool,
}

impl SourceArgs {
    /// Reads it. An application that is there keeps the way in which it was taken apart.
    ///
    /// # Errors
    /// It cannot be read, does not go together with what runs, or a request fails.
    pub async fn read(&self, session: &Session, application: &Application) -> Result<Source> {
        let mut input = self.input.read().await?;
        if let Some(settings) = &self.scale_to_zero {
            zero::annotate(&mut input, settings)?;
        }
        let namespace = cloud_of(session, application, self.namespace.as_deref()).await?.1;
        let known = names(session, &format!("{}/apps", application.composite)).await?;
        let was_split = !known.is_empty() && known != [application.name.as_str()];
        if self.split && !known.is_empty() && !was_split && state(session, application).await?.as_deref() == Some("Instantiated") {
            bail!("{0} runs as one app; to split it, run `drover delete {0}` and deploy it again with --split", application.name);
        }
        let is_chart = matches!(input, Input::Archive(_));
        if was_split && !self.split && !is_chart {
            eprintln!("note: {} was deployed with --split and stays split", application.name);
        }
        ensure!(!self.values.are_given() || is_chart, "--set, --set-string and --values are for a Helm chart; manifests have no values");
        let deployable = match self.split || (was_split && !is_chart) {
            true => manifests::apart(input, &namespace)?,
            false => manifests::together(input, &application.name, &namespace)?,
        };
        Ok(Source { deployable, is_new: known.is_empty() })
    }

    /// What is wished of the namespace and the values, and nothing else.
    ///
    /// # Errors
    /// As [`Values::of`].
    pub fn wishes(&self) -> Result<Wishes> {
        Ok(Wishes { namespace: self.namespace.clone(), values: Values::of(&self.values)?, ..Wishes::default() })
    }
}
