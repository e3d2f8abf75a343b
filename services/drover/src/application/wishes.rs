//! What is wished of a deployment beside its manifests.

use std::collections::BTreeSet;

use anyhow::{Result, bail, ensure};
use drover_api::ledger::ClusterCapacity;
use drover_api::scheduling::MemberKey;
use serde_json::{Value, json};

use super::values::Values;

/// Stands for every provider, or for every cluster of one, also those that are registered later.
pub(super) const EVERY: &str = MemberKey::EVERY;

/// Options of a deployment beside its manifests. `None` leaves an existing application's setting as it is.
#[derive(Default)]
pub struct Wishes {
    /// EMCO placement elements, of which one is chosen. With `None` a new application may run on every cluster of its logical cloud,
    /// including those added later.
    pub any_of: Option<Vec<Value>>,
    /// `whenFull` of the placement intent.
    pub when_full: Option<&'static str>,
    /// Whether its apps may be moved, and with which priority (1 is moved first).
    pub movable: Option<(bool, u8)>,
    /// Whether apps may be moved that others may call by the names of their Services. `Some(true)` leaves out apps that other apps of
    /// the same deployment call; for those the project's setting counts.
    pub allow_dependants: Option<bool>,
    /// Whether it is to run on all elements of `any_of` instead of one.
    pub everywhere: bool,
    /// Namespace of objects that name none.
    pub namespace: Option<String>,
    /// Values of its chart; `None`: it keeps those that it has.
    pub values: Option<Values>,
}

/// All clusters as placement elements.
pub fn every() -> Vec<Value> {
    vec![json!({"clusterProvider": EVERY, "cluster": EVERY})]
}

/// Placement elements for `--on`, `--only` and `--label`; `None` if none of these was given.
///
/// # Errors
/// No cluster is registered, or none has this name or provider.
pub fn elements(clusters: &[ClusterCapacity], on: &[String], only: Option<&str>, label: Option<&str>) -> Result<Option<Vec<Value>>> {
    ensure!(!clusters.is_empty(), "no cluster is registered; register one with `drover cluster add`");
    if on.is_empty() && only.is_none() && label.is_none() {
        return Ok(None);
    }
    let providers = || clusters.iter().map(|c| c.provider.as_str()).collect::<BTreeSet<_>>();
    for wanted in on {
        if !providers().contains(wanted.as_str()) {
            bail!(
                "no provider called {wanted} has a cluster; providers with clusters are: {}",
                providers().into_iter().collect::<Vec<_>>().join(", ")
            );
        }
    }
    if let Some(label) = label {
        return Ok(Some(vec![json!({"clusterProvider": EVERY, "clusterLabel": label})]));
    }
    let Some(only) = only else {
        return Ok(Some(on.iter().map(|provider| json!({"clusterProvider": provider, "cluster": EVERY})).collect()));
    };
    let chosen: Vec<Value> = clusters
        .iter()
        .filter(|c| c.cluster == only || c.member.0 == only || format!("{}/{}", c.provider, c.cluster) == only)
        .map(|c| json!({"clusterProvider": c.provider, "cluster": c.cluster}))
        .collect();
    if chosen.is_empty() {
        let known: Vec<String> = clusters.iter().map(|c| format!("{}/{}", c.provider, c.cluster)).collect();
        bail!("no cluster is called {only}; registered are: {}", known.join(", "));
    }
    Ok(Some(chosen))
}
