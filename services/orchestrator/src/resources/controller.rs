//! EMCO's controllers: accepted and stored because EMCO's scripts create them first. Drover never calls them.

use drover_resources::{DocumentKind, Invalid, Spec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The address of a controller; has no effect.
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
    /// Order in EMCO: lower runs first.
    #[serde(default)]
    #[schema(maximum = 100)]
    pub priority: u32,
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
        Invalid::unless_empty(reasons)
    }
}

/// Controllers.
pub static CONTROLLER: DocumentKind = DocumentKind::of::<ControllerSpec>("controller", "Controller", "controllers", &["controller"]);

/// Controllers of EMCO's traffic controller, which most of its examples register first.
pub static DTC_CONTROLLER: DocumentKind =
    DocumentKind::of::<ControllerSpec>("dtc-controller", "DtcController", "dtc-controllers", &["dtcController"]);
