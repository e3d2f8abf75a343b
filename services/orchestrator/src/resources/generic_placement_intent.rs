//! Generic placement intents: a set of app intents. A group's only one counts; group intents choose among several.

use drover_resources::{Echo, Kind, NoSpec, Put};

use super::DIG;

/// Generic placement intents.
pub static GENERIC_PLACEMENT_INTENT: Kind =
    Kind::of::<NoSpec>("generic-placement-intent", "GenericPlacementIntent", "generic-placement-intents", &["genericPlacementIntent"])
        .below(&DIG)
        .put(Put::Upsert)
        .echo(Echo::Never);
