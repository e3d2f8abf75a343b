//! Tests of the charts of a group: starts a run, and reads what the last one said.

use drover_api::bindings::{TestRun, TestedHook};
use drover_members::labels;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{App, Error, GroupPath, group};
use crate::store::binding::{self, Role};
use crate::store::deployment::{self, DeploymentState};
use crate::store::{bundle, hold};
use crate::workflows::{Test, test};

/// For how long tests may run if the request does not say it: as Helm waits by default.
pub const PATIENCE_S: u64 = 300;

/// The last run of the tests of an app in a cluster.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct AppTests {
    pub app: String,
    /// The cluster, as `provider+cluster`.
    pub member: String,
    /// The operation.
    pub run: Uuid,
    /// Whether it has ended.
    pub ended: bool,
    /// The tests that have begun, in their order.
    pub tests: Vec<TestedHook>,
}

/// Runs of tests, by app and cluster.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct TestList {
    pub items: Vec<AppTests>,
}

impl App {
    /// Starts to test a group. Returns the id of the operation.
    ///
    /// # Errors
    /// The group does not exist, does not run or is being changed by an operation, or a query failed.
    pub async fn test(&self, path: &GroupPath, timeout_s: u64) -> Result<Uuid, Error> {
        let id = Uuid::now_v7();
        let mut tx = self.store.begin().await?;
        let group = group::at(&mut tx, path).await?;
        let state = deployment::load(&mut tx, group.dig.id, true).await?.state;
        hold::take(&mut tx, id, &[group.dig.id]).await??;
        if state != DeploymentState::Instantiated {
            return Err(Error::WrongState { verb: "test", state, allowed: &["Instantiated"] });
        }
        let mut copies = Vec::new();
        for copy in binding::of_dig(&mut tx, group.dig.id).await?.into_iter().filter(|copy| copy.role == Role::Current) {
            let objects = bundle::objects_in(&mut tx, self.store.key()?, &copy.digest, &copy.member).await?;
            let is_test = |events: &str| events.split(',').any(|event| event == "test");
            if objects.iter().any(|object| object["metadata"]["annotations"][labels::HOOK].as_str().is_some_and(is_test)) {
                copies.push(test::Tested { binding: copy.id, app: copy.app, member: copy.member });
            }
        }
        self.engine.start_in_tx::<Test>(&mut tx, id, &test::Order { dig: group.dig, copies, timeout_s }).await?;
        tx.commit().await?;
        self.engine.nudge();
        Ok(id)
    }

    /// The last runs of the tests of a group.
    ///
    /// # Errors
    /// The group does not exist, a query failed, or resource-synchronizer does not answer.
    pub async fn tests(&self, path: &GroupPath) -> Result<TestList, Error> {
        let mut tx = self.store.begin().await?;
        let group = group::at(&mut tx, path).await?;
        let copies = binding::of_dig(&mut tx, group.dig.id).await?;
        tx.rollback().await?;
        let mut items = Vec::new();
        for copy in copies.into_iter().filter(|copy| copy.role == Role::Current) {
            let run = self.services.synchronizer.test(copy.id).await?;
            let of = |run: TestRun| AppTests {
                app: copy.app.clone(),
                member: copy.member.to_string(),
                run: run.run,
                ended: run.ended,
                tests: run.tests,
            };
            items.extend(run.map(of));
        }
        Ok(TestList { items })
    }
}
