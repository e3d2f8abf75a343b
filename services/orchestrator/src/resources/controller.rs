//! Controllers. Those of EMCO are accepted and stored because EMCO's scripts create them first; Drover calls those that have a hook, if a
//! group names them in its intents (`app::controllers`).

use drover_resources::{DocumentKind, Invalid, Spec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A controller: its address, which has no effect, and its hook.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ControllerSpec {
    /// Host name or address.
    #[serde(default)]
    #[schema(max_length = 128)]
    pub host: String,
    /// TCP port.
    #[serde(default)]
    #[schema(maximum = 50000)]
    pub port: u32,
    /// `placement`, `action` or `migration`.
    #[serde(default, rename = "type")]
    #[schema(max_length = 48)]
    pub kind: String,
    /// Controllers with a lower number are called first.
    #[serde(default)]
    #[schema(maximum = 100)]
    pub priority: u32,
    /// How Drover calls it. Without a hook it is only kept: Drover does not speak EMCO's gRPC, whose messages name data in EMCO's etcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<ControllerHook>,
}

/// Where and how a controller is called.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControllerHook {
    /// Questions are sent there by POST. Its origin must be one of those that the operator allows (`--controller-origins`).
    pub url: String,
    /// After this time the controller has failed.
    #[serde(default = "five")]
    #[schema(minimum = 1, maximum = 30, default = 5)]
    pub timeout_seconds: u32,
    /// What a failure means.
    #[serde(default)]
    pub failure_policy: FailurePolicy,
}

/// What it means if a controller does not answer, or its answer cannot be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum FailurePolicy {
    /// What was asked for fails.
    #[default]
    Fail,
    /// It is recorded, and things go on as if there were no such controller.
    Ignore,
}

fn five() -> u32 {
    5
}

impl ControllerHook {
    fn broken(&self, kind: &str) -> Vec<String> {
        let mut reasons = Vec::new();
        let is_http = |url: &reqwest::Url| ["http", "https"].contains(&url.scheme()) && url.has_host();
        if !self.url.parse().is_ok_and(|url: reqwest::Url| is_http(&url)) {
            reasons.push(format!("spec.hook.url: {:?} is not an http or https URL", self.url));
        }
        if !(1..=30).contains(&self.timeout_seconds) {
            reasons.push(format!("spec.hook.timeoutSeconds: {} is not in 1..30", self.timeout_seconds));
        }
        if !["placement", "action"].contains(&kind) {
            reasons.push(format!("spec.type: {kind:?} is not placement or action, and no others are called"));
        }
        reasons
    }
}

impl Spec for ControllerSpec {
    fn validate(&self, _: &str) -> Result<(), Invalid> {
        let mut reasons = Vec::new();
        let mut check = |broken: bool, reason: &str| {
            if broken {
                reasons.push(reason.to_owned())
            }
        };
        check(self.host.len() > 128, "spec.host has more than 128 characters");
        check(self.port > 50_000, "spec.port is over 50000");
        check(self.kind.len() > 48, "spec.type has more than 48 characters");
        check(self.priority > 100, "spec.priority is over 100");
        reasons.extend(self.hook.iter().flat_map(|hook| hook.broken(&self.kind)));
        Invalid::unless_empty(reasons)
    }
}

/// Controllers.
pub static CONTROLLER: DocumentKind = DocumentKind::of::<ControllerSpec>("controller", "Controller", "controllers", &["controller"]);

/// Controllers of EMCO's traffic controller, which most of its examples register first.
pub static DTC_CONTROLLER: DocumentKind =
    DocumentKind::of::<ControllerSpec>("dtc-controller", "DtcController", "dtc-controllers", &["dtcController"]);
