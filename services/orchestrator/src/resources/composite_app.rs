//! Composite apps: apps that belong together. The version is part of the key.

use drover_resources::{DocumentKind, Spec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::PROJECT;

/// Version of a composite app.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CompositeAppSpec {
    /// Version, part of the key.
    #[serde(rename = "compositeAppVersion", alias = "version")]
    pub composite_app_version: String,
}

impl Spec for CompositeAppSpec {}

/// Composite apps.
pub static COMPOSITE_APP: DocumentKind =
    DocumentKind::of::<CompositeAppSpec>("composite-app", "CompositeApp", "composite-apps", &["compositeApp", "compositeAppVersion"])
        .below(&PROJECT);
