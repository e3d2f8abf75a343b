//! Composite profiles: one way of running a composite app; its profiles hold the values.

use drover_resources::{Echo, Kind, NoSpec};

use super::COMPOSITE_APP;

/// Composite profiles.
pub static COMPOSITE_PROFILE: Kind =
    Kind::of::<NoSpec>("composite-profile", "CompositeProfile", "composite-profiles", &["compositeProfile"])
        .below(&COMPOSITE_APP)
        .echo(Echo::Never);
