//! What takes longer than a request: durable workflows, a file each. The order of steps is explained where they are listed.

mod bring;
pub mod instantiate;
pub mod judge;
mod release;
pub mod relocate;
mod remove;
pub mod room;
pub mod terminate;
pub mod update;

use std::sync::Arc;
use std::time::Duration;

use drover_api::scheduling::{AppRequest, DigRef};
use drover_store::Timestamp;
use drover_workflow::{Ctx, Failpoint, Outcome, Registry, StepError, StepResult, Workflow};
use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::peers::PeerError;

pub use instantiate::Instantiate;
pub use relocate::Relocate;
pub use remove::{SettleError, settle};
pub use terminate::Terminate;
pub use update::Update;

/// Services that steps have their effects in, as they call themselves.
const PLACEMENT: &str = "placement";
const MIGRATION: &str = "migration";
const SYNCHRONIZER: &str = "resource-synchronizer";

/// All kinds of workflow, working in `environment`.
pub fn registry(environment: &Arc<Environment>) -> Registry {
    Registry::new()
        .with::<Instantiate>(environment.clone())
        .with::<Terminate>(environment.clone())
        .with::<Relocate>(environment.clone())
        .with::<Update>(environment.clone())
}

/// Where the workflows of this service can be stopped: all kinds, in the order of their tables.
pub fn failpoints() -> Vec<Failpoint> {
    use drover_workflow::failpoints as of;
    [of::<Instantiate>(), of::<Relocate>(), of::<Update>(), of::<Terminate>()].concat()
}

/// How a group is named to people: `project/composite app/version/group`.
pub fn subject(dig: &DigRef) -> String {
    format!("{}/{}/{}/{}", dig.project, dig.composite_app, dig.version, dig.name)
}

/// An app to be run somewhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delivery {
    /// What it needs and where it may go.
    pub request: AppRequest,
    /// Its bundle.
    pub digest: String,
    /// Namespace of objects that name none.
    pub namespace: String,
    /// Apps of its group that must be there first.
    #[serde(default)]
    pub after: Vec<After>,
}

impl Delivery {
    /// The app's name.
    pub fn app(&self) -> &str {
        &self.request.app
    }
}

/// One dependency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct After {
    /// The app that must be there first.
    pub app: String,
    /// It must be Ready, not only applied.
    pub ready: bool,
    /// Seconds to wait after that.
    pub wait_s: u32,
}

/// What another service says against what it was asked.
pub(crate) fn reasons(error: &PeerError) -> Vec<String> {
    error.problem().map(|problem| problem.reasons.clone()).unwrap_or_default()
}

/// Room was asked for where nothing is known at the moment, though that may soon change (placement has just been started): the
/// step is to look again, for as long as room is waited for. Other errors come back.
fn unheard<W: Workflow<World = Environment>>(ctx: &mut Ctx<W>, error: PeerError) -> StepResult {
    if error.code() != Some("capacity_unknown") {
        return Err(error.into());
    }
    let reasons = reasons(&error);
    if ctx.waited() >= ctx.world.deadlines.room {
        return Err(StepError::fail("capacity_unknown", "clusters that room is needed on have not been heard of").reasons(reasons));
    }
    ctx.progress(format!("waiting to hear from clusters: {}", reasons.join("; ")));
    Ok(Outcome::park::<String>([]).until(judge::after(now(), Duration::from_secs(1))))
}

/// The time now, as the journal writes it.
fn now() -> Timestamp {
    drover_store::now()
}
