//! Apps: a Helm chart or plain manifests, placed as a unit.

use drover_resources::{DocumentKind, Echo, File, Invalid, Keep, Spec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::COMPOSITE_APP;
use crate::render;

/// An app has no spec; everything is in its file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AppSpec {}

impl Spec for AppSpec {
    fn validate(&self, name: &str) -> Result<(), Invalid> {
        // The name becomes a label value on every object.
        if name.len() > 63 {
            return Err(Invalid::rule("the name of an app has at most 63 characters, because Kubernetes' label values do"));
        }
        Ok(())
    }
}

/// Apps. The file is a chart (tar.gz), a bundle of manifests (tar.gz of YAML) or one YAML text.
pub static APP: DocumentKind =
    DocumentKind::of::<AppSpec>("app", "App", "apps", &["app"]).below(&COMPOSITE_APP).echo(Echo::Never).file(File {
        required: true,
        many: false,
        keep: Keep::Table,
        max_bytes: 32 << 20,
        content_type: "application/octet-stream",
        check: render::check_upload,
    });
