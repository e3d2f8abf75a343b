//! Profiles: the override values of one app within a composite profile. One per app (ensured by `app::guard`).

use drover_resources::{DocumentKind, File, Invalid, Keep, Place, Reference, Spec};
use drover_service::codes;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{APP, COMPOSITE_APP, COMPOSITE_PROFILE};
use crate::render::Profile;

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

fn check(file: &[u8]) -> Result<(), Invalid> {
    Profile::read(file).map(drop).map_err(|reason| Invalid::with(codes::MALFORMED_UPLOAD, format!("Error in file format: {reason}")))
}

/// Profiles. The file is a tar.gz with `manifest.yaml` and the values that it names.
pub static PROFILE: DocumentKind = DocumentKind::of::<ProfileSpec>("profile", "AppProfile", "profiles", &["appProfile"])
    .below(&COMPOSITE_PROFILE)
    .filters(&[("app", "app")])
    .file(File { required: true, keep: Keep::Table, max_bytes: 4 << 20, content_type: "application/octet-stream", check });
