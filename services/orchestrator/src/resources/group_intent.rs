//! Group intents: EMCO's map of controllers to intents. Drover reads only `genericPlacementIntent`, which chooses among several
//! ones, and stores the rest. The list has EMCO's shape (`http::intents`).

use std::collections::BTreeMap;

use drover_resources::{DocumentKind, Put, Spec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::DIG;

/// Controllers and their intents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GroupIntentSpec {
    /// Controller (or `genericPlacementIntent`) to name of its intent.
    pub intent: BTreeMap<String, String>,
}

impl GroupIntentSpec {
    /// The generic placement intent that is chosen.
    pub fn generic_placement_intent(&self) -> Option<&str> {
        self.intent.iter().find(|(key, _)| key.eq_ignore_ascii_case("genericPlacementIntent")).map(|(_, name)| name.as_str())
    }
}

impl Spec for GroupIntentSpec {}

/// Group intents.
pub static GROUP_INTENT: DocumentKind =
    DocumentKind::of::<GroupIntentSpec>("group-intent", "GroupIntent", "intents", &["groupIntent"]).below(&DIG).put(Put::Upsert).own_list();
