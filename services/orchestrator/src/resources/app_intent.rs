//! App intents: where one app may run, and what to do when that is full.

use drover_api::scheduling::{Element, Intent, Packing, WhenFull};
use drover_resources::{DocumentKind, Invalid, Place, Put, Reference, Spec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{APP, COMPOSITE_APP, GENERIC_PLACEMENT_INTENT};

/// Where an app may run. A change takes effect with the group's next approval or update; until then moves and plans use the
/// intent of the running revision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AppIntentSpec {
    /// The app that this intent is for.
    #[serde(alias = "app-name")]
    pub app: String,
    /// Clusters or cluster labels that the app must (`allOf`) or may (`anyOf`) run on.
    #[serde(default)]
    pub intent: Intent,
    /// What to do when the best provider is full; default: that of the project, else `overflow`.
    #[serde(default, rename = "whenFull", skip_serializing_if = "Option::is_none")]
    pub when_full: Option<WhenFull>,
    /// Which of equally preferred clusters to take; default: that of the project, else `spread`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packing: Option<Packing>,
    /// Whether the app may be moved although other pods may call its Services by name; default: that of the project, else `false`.
    #[serde(default, rename = "allowDependants", skip_serializing_if = "Option::is_none")]
    pub allow_dependants: Option<bool>,
}

impl Spec for AppIntentSpec {
    fn validate(&self, _: &str) -> Result<(), Invalid> {
        let mut reasons = Vec::new();
        for (index, element) in self.intent.all_of.iter().enumerate() {
            let at = format!("spec.intent.allOf[{index}]");
            if element.any_of.is_empty() {
                names_one(element, &at, &mut reasons);
            } else if element.cluster_provider.is_some() || element.cluster.is_some() || element.cluster_label.is_some() {
                reasons.push(format!("{at} has both anyOf and a cluster"));
            } else {
                any_of(&element.any_of, &at, &mut reasons);
            }
        }
        any_of(&self.intent.any_of, "spec.intent", &mut reasons);
        Invalid::unless_empty(reasons)
    }

    fn references(&self, at: &Place<'_>) -> Vec<Reference> {
        let composite_app = COMPOSITE_APP.within(at.path).unwrap_or_default();
        vec![Reference { field: "spec.app", path: format!("{composite_app}/{}/{}", APP.segment, self.app) }]
    }
}

fn any_of(elements: &[Element], at: &str, reasons: &mut Vec<String>) {
    for (index, element) in elements.iter().enumerate() {
        let at = format!("{at}.anyOf[{index}]");
        if !element.any_of.is_empty() {
            reasons.push(format!("{at} must not contain another anyOf"));
        }
        names_one(element, &at, reasons);
    }
}

fn names_one(element: &Element, at: &str, reasons: &mut Vec<String>) {
    if element.cluster_provider.as_deref().is_none_or(str::is_empty) {
        reasons.push(format!("{at} names no clusterProvider"));
    }
    let given = |field: &Option<String>| field.as_deref().is_some_and(|text| !text.is_empty());
    if given(&element.cluster) == given(&element.cluster_label) {
        reasons.push(format!("{at} must name either a cluster or a clusterLabel"));
    }
}

/// App intents.
pub static APP_INTENT: DocumentKind =
    DocumentKind::of::<AppIntentSpec>("app-intent", "AppIntent", "app-intents", &["genericAppPlacementIntent"])
        .below(&GENERIC_PLACEMENT_INTENT)
        .put(Put::Upsert)
        .lean_metadata()
        .own_list();
