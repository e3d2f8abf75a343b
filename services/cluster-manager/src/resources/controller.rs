//! Controllers that EMCO's cluster manager would call. EMCO's scripts register them; they are accepted and kept.

use drover_resources::{Kind, Put, Spec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Spec of a controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ControllerSpec {
    /// Host name.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Lower numbers are called first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
}

impl Spec for ControllerSpec {}

/// `clm-controllers/{controller}`
pub static CONTROLLER: Kind =
    Kind::of::<ControllerSpec>("clm-controller", "ClmController", "clm-controllers", &["controller"]).put(Put::Ok200);
