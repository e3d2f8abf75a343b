//! Profiles: the override values of one app within a composite profile. One per app (ensured by `app::guard`).

use drover_resources::{DocumentKind, File, Keep, Place, Reference, Spec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{APP, COMPOSITE_APP, COMPOSITE_PROFILE};
use crate::render;

/// The app of a profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProfileSpec {
    /// App that these values are for.
    pub app: String,
}

impl Spec for ProfileSpec {
    fn references(&self, at: &Place<'_>) -> Vec<Reference> {
        let composite_app = COMPOSITE_APP.within(at.path).unwrap_or_default();
        vec![Reference { field: "spec.app", path: format!("{composite_app}/{}/{}", APP.segment, self.app) }]
    }
}

/// Profiles. The file is a tar.gz with `manifest.yaml` and the values that it names.
pub static PROFILE: DocumentKind = DocumentKind::of::<ProfileSpec>("profile", "AppProfile", "profiles", &["appProfile"])
    .below(&COMPOSITE_PROFILE)
    .filters(&[("app", "app")])
    .file(File {
        required: true,
        many: false,
        keep: Keep::Table,
        max_bytes: 4 << 20,
        content_type: "application/octet-stream",
        check: render::check_profile,
    });
