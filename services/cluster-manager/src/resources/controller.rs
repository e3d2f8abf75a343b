//! Controllers of EMCO's cluster manager. EMCO's scripts register them; Drover stores them and calls none.

use drover_resources::{DocumentKind, Put, Spec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Spec of a controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ControllerSpec {
    pub host: String,
    pub port: u16,
    /// Lower numbers are called first in EMCO; Drover ignores it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
}

impl Spec for ControllerSpec {}

/// `clm-controllers/{controller}`
pub static CONTROLLER: DocumentKind =
    DocumentKind::of::<ControllerSpec>("clm-controller", "ClmController", "clm-controllers", &["controller"]).put(Put::Ok200);
