//! What a dry run depends on, so that the deed that follows it can say what has changed since then. No I/O.

use std::collections::{BTreeMap, BTreeSet};

use drover_api::scheduling::{AppRequest, Decision, Plan};
use drover_store::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

/// What the answer of a dry run depends on. Sent back in the body of the verb, the operation says in `changedSinceDryRun` what of it
/// has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Basis {
    /// Ledger sequence: it grows with every change of a claim.
    pub ledger: i64,
    /// Digest of the demand and the terms of each app, by app.
    #[serde(default)]
    pub apps: BTreeMap<String, String>,
    /// What was found of each cluster that was considered, by `app on provider+cluster`.
    #[serde(default)]
    pub clusters: BTreeMap<String, String>,
    /// The moves that would make room, as `group/app provider+cluster -> provider+cluster`.
    #[serde(default)]
    pub moves: BTreeSet<String>,
}

impl Basis {
    /// The basis of a decision on these apps, and of the plan that was made because there was no room.
    pub fn of(apps: &[AppRequest], decision: &Decision, plan: Option<&Plan>) -> Self {
        let clusters = decision.apps.iter().flat_map(|app| {
            let considered = app.groups.iter().flat_map(|group| &group.considered);
            considered.map(|one| (format!("{} on {}", app.app, one.member), one.reason.clone()))
        });
        let moves = plan.iter().flat_map(|plan| plan.waves.iter().flatten());
        Self {
            ledger: decision.seq,
            apps: Self::digests(apps),
            clusters: clusters.collect(),
            moves: moves.map(|one| format!("{}/{} {} -> {}", one.dig.name, one.app, one.from, one.to)).collect(),
        }
    }

    /// Adds apps that are not placed anew.
    pub fn with(mut self, apps: &[AppRequest]) -> Self {
        self.apps.extend(Self::digests(apps));
        self
    }

    fn digests(apps: &[AppRequest]) -> BTreeMap<String, String> {
        let digest = |app: &AppRequest| {
            let text = serde_json::to_vec(app).unwrap_or_default();
            hex(&Sha256::digest(text)[..8])
        };
        apps.iter().map(|app| (app.app.clone(), digest(app))).collect()
    }

    /// What has changed from this basis to `now`, for people. Empty if nothing has.
    pub fn changes(&self, now: &Self) -> Vec<String> {
        let mut changes = Vec::new();
        for app in both(&self.apps, &now.apps) {
            match (self.apps.get(app), now.apps.get(app)) {
                (Some(then), Some(now)) if then != now => changes.push(format!("{app}: its demand or its placement has changed")),
                (Some(_), None) => changes.push(format!("{app}: it is no longer part of the application")),
                (None, Some(_)) => changes.push(format!("{app}: it is new in the application")),
                _ => {}
            }
        }
        for place in both(&self.clusters, &now.clusters) {
            let word = |found: Option<&String>| found.map_or("not considered", String::as_str).to_owned();
            let (then, now) = (word(self.clusters.get(place)), word(now.clusters.get(place)));
            if then != now {
                changes.push(format!("{place}: {now}; it was: {then}"));
            }
        }
        changes.extend(now.moves.difference(&self.moves).map(|one| format!("now moved: {one}")));
        changes.extend(self.moves.difference(&now.moves).map(|one| format!("no longer moved: {one}")));
        if self.ledger != now.ledger {
            changes.push(format!("claims: ledger sequence {}, it was {}", now.ledger, self.ledger));
        }
        changes
    }
}

fn both<'a>(then: &'a BTreeMap<String, String>, now: &'a BTreeMap<String, String>) -> BTreeSet<&'a String> {
    then.keys().chain(now.keys()).collect()
}

/// The optional body of a verb.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct VerbBody {
    /// The `basis` that a dry run of the same verb returned.
    #[serde(default)]
    pub basis: Option<Basis>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn basis(ledger: i64, web: &str, room: &str, moves: &[&str]) -> Basis {
        Basis {
            ledger,
            apps: [("web".to_owned(), web.to_owned())].into(),
            clusters: [("web on onprem+a".to_owned(), room.to_owned())].into(),
            moves: moves.iter().map(|one| (*one).to_owned()).collect(),
        }
    }

    #[test]
    fn unchanged_basis_has_no_changes() {
        assert!(basis(1, "a", "fits", &["m"]).changes(&basis(1, "a", "fits", &["m"])).is_empty());
    }

    #[test]
    fn each_part_that_changed_is_named_with_both_values() {
        let changes = basis(1, "a", "fits", &["shop/x a -> b"]).changes(&basis(3, "b", "no room", &["shop/y a -> b"]));

        assert_eq!(
            changes,
            [
                "web: its demand or its placement has changed",
                "web on onprem+a: no room; it was: fits",
                "now moved: shop/y a -> b",
                "no longer moved: shop/x a -> b",
                "claims: ledger sequence 3, it was 1",
            ]
        );
    }

    #[test]
    fn apps_that_came_or_went_are_named() {
        let then = Basis { apps: [("old".to_owned(), "1".to_owned())].into(), ..Basis::default() };
        let now = Basis { apps: [("new".to_owned(), "1".to_owned())].into(), ..Basis::default() };

        assert_eq!(then.changes(&now), ["new: it is new in the application", "old: it is no longer part of the application"]);
    }
}
