//! Projects. EMCO's have no spec; Drover's may have defaults for placement.

use drover_api::scheduling::{Packing, WhenFull};
use drover_resources::{DocumentKind, Echo, Put, Spec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Placement defaults of a project.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProjectSpec {
    /// What to do when the best provider is full, for apps whose intent does not set it.
    #[serde(default, rename = "whenFull", skip_serializing_if = "Option::is_none")]
    pub when_full: Option<WhenFull>,
    /// Which of equally preferred clusters, for apps whose intent does not set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packing: Option<Packing>,
    /// Whether apps may be moved although others may call their Services by name; default false.
    #[serde(default, rename = "allowDependants", skip_serializing_if = "Option::is_none")]
    pub allow_dependants: Option<bool>,
}

impl Spec for ProjectSpec {}

/// Projects.
pub static PROJECT: DocumentKind =
    DocumentKind::of::<ProjectSpec>("project", "Project", "projects", &["project"]).put(Put::Ok200).echo(Echo::IfSent);
