//! Generic placement intents: sets of app intents. If a group has several, a group intent chooses one.

use drover_resources::{DocumentKind, Echo, NoSpec, Put};

use super::DIG;

/// Generic placement intents.
pub static GENERIC_PLACEMENT_INTENT: DocumentKind = DocumentKind::of::<NoSpec>(
    "generic-placement-intent",
    "GenericPlacementIntent",
    "generic-placement-intents",
    &["genericPlacementIntent"],
)
.below(&DIG)
.put(Put::Upsert)
.echo(Echo::Never);
