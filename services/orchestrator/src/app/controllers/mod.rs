//! Controllers of users: programs that a group names in its intents and that Drover asks by REST before it decides or deploys.
//!
//! A controller gets no rights and no credentials: it answers a question, and its answer is checked and recorded. What it may not do is
//! decided as if users had written it: grants, names and demands are checked after it. docs/how-to/controllers.md is its contract.

mod action;
mod placement;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use drover_api::scheduling::MemberKey;
use drover_service::peer;
use reqwest::{Url, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sqlx::PgConnection;

pub use action::AppObjects;
pub use placement::GroupAdvice;

use super::actions::clusters::LabelledMembers;
use super::{Error, Group};
use crate::resources::controller::{ControllerHook, ControllerSpec, FailurePolicy};
use crate::resources::group_intent::GroupIntentSpec;
use crate::resources::{CONTROLLER, GROUP_INTENT};
pub use crate::store::controller_answer::ControllerAnswer;

/// The largest answer of a controller, in bytes.
const ANSWER: usize = 8 << 20;

/// Where controllers may be.
#[derive(Clone, Debug, Default)]
pub struct ControllerCalls {
    /// The origins (scheme, host, port) that the operator allows.
    pub allowed: Vec<Url>,
}

/// When a controller is asked, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerKind {
    /// Before apps are placed: which clusters are excluded or preferred.
    Placement,
    /// When a group is approved or updated: what is added to, changed in and removed from the objects of apps.
    Action,
}

impl ControllerKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Placement => "placement",
            Self::Action => "action",
        }
    }
}

/// A controller that a group names, with the name of its intent.
#[derive(Clone, Debug)]
pub struct Controller {
    name: String,
    kind: ControllerKind,
    intent: String,
    priority: u32,
    hook: ControllerHook,
}

/// The controllers of a kind that a group names and that have a hook, those with the lowest number of `priority` first.
///
/// # Errors
/// A query failed.
pub async fn named(tx: &mut PgConnection, group: &Group, kind: ControllerKind) -> Result<Vec<Controller>, Error> {
    let below = group.below(tx).await?;
    let mut intents = BTreeMap::new();
    for set in below.children::<GroupIntentSpec>(&GROUP_INTENT, group.document.id)? {
        for (name, intent) in set.spec.intent {
            intents.entry(format!("/v2/{}/{name}", CONTROLLER.segment)).or_insert((name, intent));
        }
    }
    let mut found: Vec<Controller> = Vec::new();
    for (path, (name, intent)) in intents {
        let Some(document) = below.at::<ControllerSpec>(&CONTROLLER, &path)? else { continue };
        let ControllerSpec { priority, hook, kind: of, .. } = document.spec;
        if let Some(hook) = hook.filter(|_| of == kind.as_str()) {
            found.push(Controller { name, kind, intent, priority, hook });
        }
    }
    found.sort_by(|a, b| (a.priority, &a.name).cmp(&(b.priority, &b.name)));
    Ok(found)
}

/// An answer to be read, or why there is none.
struct Asked<T> {
    answer: Option<T>,
    record: ControllerAnswer,
}

impl ControllerCalls {
    /// Asks a controller. A failure is an error, unless its failure policy says that it is ignored.
    async fn ask<T: DeserializeOwned>(&self, controller: &Controller, question: &Value) -> Result<Asked<T>, Error> {
        let started = Instant::now();
        let answer = self.post(&controller.hook, question).await;
        let record = |reason: Option<String>| ControllerAnswer {
            controller: controller.name.clone(),
            kind: controller.kind.as_str().to_owned(),
            intent: controller.intent.clone(),
            used: reason.is_none(),
            reason,
            milliseconds: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
            said: Vec::new(),
        };
        match (answer, controller.hook.failure_policy) {
            (Ok(answer), _) => Ok(Asked { answer: Some(answer), record: record(None) }),
            (Err(reason), FailurePolicy::Ignore) => {
                tracing::warn!(controller.id = %controller.name, %reason, "a controller failed and is ignored, as its failure policy says");
                Ok(Asked { answer: None, record: record(Some(reason)) })
            }
            (Err(reason), FailurePolicy::Fail) => Err(Error::Controller { name: controller.name.clone(), reason }),
        }
    }

    async fn post<T: DeserializeOwned>(&self, hook: &ControllerHook, question: &Value) -> Result<T, String> {
        let url: Url = hook.url.parse().map_err(|error| format!("its URL cannot be read: {error}"))?;
        if !self.allowed.iter().any(|allowed| allowed.origin() == url.origin()) {
            let origin = url.origin().ascii_serialization();
            return Err(format!("{origin} is not one of the origins that the operator allows with --controller-origins"));
        }
        let failed = |error: reqwest::Error| match error.is_timeout() {
            true => format!("it did not answer within {} s", hook.timeout_seconds),
            false => drover_service::problem::chain(&error.without_url()),
        };
        let request = peer::client()
            .post(url)
            .timeout(Duration::from_secs(hook.timeout_seconds.into()))
            .header(header::CONTENT_TYPE, "application/json")
            .body(question.to_string());
        let mut response = request.send().await.map_err(failed)?;
        if !response.status().is_success() {
            return Err(format!("it answered {}", response.status()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            body.extend_from_slice(&chunk);
            if body.len() > ANSWER {
                return Err(format!("its answer has more than {} MiB", ANSWER >> 20));
            }
        }
        serde_json::from_slice(&body).map_err(|error| format!("its answer cannot be used: {error}"))
    }
}

/// The part of a question that all controllers get.
fn question(controller: &Controller, group: &Group, members: &LabelledMembers, dry: bool) -> Value {
    let clusters: Vec<Value> = members
        .0
        .iter()
        .map(|(member, labels)| json!({"clusterProvider": member.provider(), "cluster": member.cluster(), "labels": labels}))
        .collect();
    json!({
        "apiVersion": "drover.io/v1",
        "kind": match controller.kind {
            ControllerKind::Placement => "PlacementQuestion",
            ControllerKind::Action => "ActionQuestion",
        },
        "controller": controller.name,
        "intent": controller.intent,
        "dryRun": dry,
        "group": {
            "project": group.dig.project,
            "compositeApp": group.dig.composite_app,
            "compositeAppVersion": group.dig.version,
            "deploymentIntentGroup": group.dig.name,
            "logicalCloud": group.document.spec.logical_cloud,
        },
        "clusters": clusters,
    })
}

/// A cluster in an answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClusterName {
    cluster_provider: String,
    cluster: String,
}

impl ClusterName {
    /// The member, which must be one of those that the controller was told.
    fn member(&self, members: &LabelledMembers) -> Result<MemberKey, String> {
        let member = MemberKey::new(&self.cluster_provider, &self.cluster);
        match members.0.contains_key(&member) {
            true => Ok(member),
            false => Err(format!("it names {member}, which is not in the logical cloud")),
        }
    }
}

/// What follows if an answer cannot be used: an error or a remark in its record.
fn unusable(controller: &Controller, record: &mut ControllerAnswer, reason: String) -> Result<(), Error> {
    match controller.hook.failure_policy {
        FailurePolicy::Fail => Err(Error::Controller { name: controller.name.clone(), reason }),
        FailurePolicy::Ignore => {
            (record.used, record.reason) = (false, Some(reason));
            record.said.clear();
            Ok(())
        }
    }
}

/// A controller that says no stops the request, whatever its failure policy.
fn refusal(controller: &Controller, refused: Vec<String>) -> Result<(), Error> {
    if refused.is_empty() { Ok(()) } else { Err(Error::Refused { name: controller.name.clone(), reasons: refused }) }
}
