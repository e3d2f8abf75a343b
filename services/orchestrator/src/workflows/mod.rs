//! Everything that takes longer than a request: durable workflows. Each table of steps explains the order of its steps.

mod apply;
pub mod grow;
pub mod instantiate;
pub mod readiness;
mod release;
pub mod relocate;
mod remove;
pub mod room;
pub mod surge;
pub mod terminate;
pub mod test;
pub mod update;

use std::sync::Arc;
use std::time::Duration;

use drover_api::scheduling::{AppRequest, DigRef, Element, MemberKey};
use drover_store::Timestamp;
use drover_workflow::{Ctx, Failpoint, Outcome, Registry, StepError, StepResult, Workflow};
use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::peers::PeerError;

pub use grow::Grow;
pub use instantiate::Instantiate;
pub use relocate::Relocate;
pub use remove::{SettleError, settle};
pub use terminate::Terminate;
pub use test::Test;
pub use update::Update;

/// Names of the services in which steps have effects.
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
        .with::<Test>(environment.clone())
        .with::<Grow>(environment.clone())
}

/// The failpoints of the kinds that change what runs or what is claimed, in the order of their tables. A [`Test`] changes neither; what a crash in
/// it does is tested by the generic tests.
pub fn failpoints() -> Vec<Failpoint> {
    use drover_workflow::failpoints as of;
    [of::<Instantiate>(), of::<Relocate>(), of::<Update>(), of::<Grow>(), of::<Terminate>()].concat()
}

/// A part of an intent that means this member only.
pub fn only(member: &MemberKey) -> Element {
    let (provider, cluster) = (member.provider().to_owned(), member.cluster().to_owned());
    Element { cluster_provider: Some(provider), cluster: Some(cluster), ..Element::default() }
}

/// How a group is named to people: `project/composite app/version/group`.
pub fn subject(dig: &DigRef) -> String {
    format!("{}/{}/{}/{}", dig.project, dig.composite_app, dig.version, dig.name)
}

/// An app that is to run somewhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delivery {
    /// What it needs and where it is allowed.
    pub request: AppRequest,
    /// Digest of its bundle.
    pub digest: String,
    /// Namespace of the objects that name none.
    pub namespace: String,
    /// Apps of its group that must be applied or ready first.
    #[serde(default)]
    pub after: Vec<After>,
}

impl Delivery {
    /// The app's name.
    pub fn app(&self) -> &str {
        &self.request.app
    }
}

/// A dependency on another app of the group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct After {
    pub app: String,
    /// The app must be ready, not only applied.
    pub ready: bool,
    /// Seconds to wait after it is.
    pub wait_s: u32,
}

/// The reasons for which another service refused a request.
pub(crate) fn reasons(error: &PeerError) -> Vec<String> {
    error.problem().map(|problem| problem.reasons.clone()).unwrap_or_default()
}

/// Waits if `error` says that nothing is known of a cluster at the moment, as after a restart of placement, until the deadline
/// `room`. Other errors are returned.
fn wait_for_capacity<W: Workflow<Environment = Environment>>(ctx: &mut Ctx<W>, error: PeerError) -> StepResult {
    if error.code() != Some("capacity_unknown") {
        return Err(error.into());
    }
    let reasons = reasons(&error);
    if ctx.waited() >= ctx.environment.deadlines.room {
        return Err(
            StepError::fail("capacity_unknown", "nothing is known of the capacity of clusters on which room is needed").reasons(reasons)
        );
    }
    ctx.progress(format!("waiting to hear from clusters: {}", reasons.join("; ")));
    Ok(Outcome::park::<String>([]).until(readiness::after(now(), Duration::from_secs(1))))
}

/// The time now, with the precision of the journal.
fn now() -> Timestamp {
    drover_store::now()
}
