//! Policies with the definitions of all algorithms and parameters that they may use.

use drover_resources::{get, of_kind};
use drover_scheduling::{Candidate, Ledger, MemberKey, Policy, policy_test};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{App, PlanError};
use crate::resources::algorithm::{ALGORITHM, AlgorithmSpec};
use crate::resources::parameter::{PARAMETER, ParameterSpec};
use crate::resources::policy::{POLICY, PolicySpec};
use crate::resources::rules::lookup;
use crate::store::side;

/// `POST /v2/policy-tests`: asks for the order in which a policy would take the current candidates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PolicyTest {
    /// Project of the policy; `default` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Name of a policy of the project, active or not, or the spec of a policy that is not stored.
    pub policy: PolicyChoice,
    /// `<provider>+<cluster>`.
    pub member: MemberKey,
}

/// A policy by name or in full.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum PolicyChoice {
    /// Name.
    Named(String),
    /// Spec.
    Inline(PolicySpec),
}

/// The candidates in the order in which they would be taken, with their scores; then the apps that may not move, with the reasons.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PolicyTestResult {
    pub candidates: Vec<Candidate>,
}

impl App {
    /// The active policy of a project, or an empty one, which orders candidates by the priority of their intents.
    ///
    /// # Errors
    /// The store or orchestrator fails.
    pub async fn policy_of(&self, project: Option<&str>) -> Result<Policy, PlanError> {
        let id = match project {
            Some(name) => lookup(&self.orchestrator, &format!("/v2/projects/{name}")).await?,
            None => None,
        };
        let mut db = self.store.acquire().await?;
        let active = match id {
            Some(id) => side::active(&mut db, id).await?,
            None => None,
        };
        let policy = match active {
            Some(policy) => drover_resources::by_id::<PolicySpec>(&mut db, &POLICY, policy).await?,
            None => None,
        };
        drop(db);
        match policy {
            Some(policy) => self.defined(policy.name, policy.spec).await,
            None => self.defined(String::new(), PolicySpec::default()).await,
        }
    }

    /// Adds the definitions of all algorithms and parameters to a policy.
    async fn defined(&self, name: String, spec: PolicySpec) -> Result<Policy, PlanError> {
        let mut db = self.store.acquire().await?;
        let definitions = of_kind::<AlgorithmSpec>(&mut db, &ALGORITHM).await?;
        let parameters = of_kind::<ParameterSpec>(&mut db, &PARAMETER).await?;
        Ok(Policy {
            name,
            mode: spec.mode,
            algorithms: spec.algorithms,
            cascade_depth: spec.cascade_depth,
            definitions: definitions.into_iter().map(|algorithm| (algorithm.name, algorithm.spec.into())).collect(),
            parameters: parameters.into_iter().map(|parameter| (parameter.name, parameter.spec.into())).collect(),
        })
    }

    /// Returns the current candidates on a member under a policy.
    ///
    /// # Errors
    /// The policy, an algorithm or the member does not exist, the spec is invalid, the fleet is not known yet, or the store fails.
    pub async fn test_policy(&self, test: PolicyTest) -> Result<PolicyTestResult, PlanError> {
        let policy = match test.policy {
            PolicyChoice::Named(name) => {
                let project = test.project.as_deref().unwrap_or("default");
                let path = format!("/v2/projects/{project}/{}/{name}", POLICY.segment);
                let mut db = self.store.acquire().await?;
                let found = get::<PolicySpec>(&mut db, &POLICY, &path).await?;
                drop(db);
                let found = found.ok_or_else(|| PlanError::UnknownPolicy(format!("There is no policy {name} in project {project}")))?;
                self.defined(name, found.spec).await?
            }
            PolicyChoice::Inline(spec) => {
                if let Some(wrong) = spec.wrong().into_iter().next() {
                    return Err(PlanError::Invalid(wrong));
                }
                self.defined(String::new(), spec).await?
            }
        };
        if let Some(unknown) = policy.algorithms.iter().find(|used| !policy.definitions.contains_key(&used.algorithm)) {
            return Err(PlanError::Invalid(format!("There is no algorithm {}", unknown.algorithm)));
        }
        let known = self.fleet.snapshot(None).await.ok_or_else(|| PlanError::FleetBehind("The ledger is not known yet".to_owned()))?;
        if !known.fleet.members.contains_key(&test.member) {
            return Err(PlanError::UnknownCluster(test.member.to_string()));
        }
        let mut db = self.store.acquire().await?;
        let movability = side::movability(&mut db).await?;
        drop(db);
        let external = self.prometheus.values(&policy, &known.fleet, &movability).await;
        let candidates = policy_test(&Ledger::from(&known.fleet), &test.member, &policy, &movability, &external);
        Ok(PolicyTestResult { candidates })
    }
}
