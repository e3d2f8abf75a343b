//! Composite profiles: a configuration of a composite app. The values are in its profiles.

use drover_resources::{DocumentKind, Echo, NoSpec};

use super::COMPOSITE_APP;

/// Composite profiles.
pub static COMPOSITE_PROFILE: DocumentKind =
    DocumentKind::of::<NoSpec>("composite-profile", "CompositeProfile", "composite-profiles", &["compositeProfile"])
        .below(&COMPOSITE_APP)
        .echo(Echo::Never);
