//! The revisions of a group: which there were, how they differ, and going back to one of them.

use std::collections::BTreeMap;

use drover_members::labels;
use drover_store::{SealKey, hex};
use serde::Serialize;
use serde_json::Value;
use sqlx::PgConnection;
use utoipa::ToSchema;
use uuid::Uuid;

use super::controllers::ControllerAnswer;
use super::lifecycle::RevisionChange;
use super::{App, Error, Group, GroupPath, group};
use crate::store::deployment::{self, DeploymentState};
use crate::store::revision::{self, Requester, Revision, RevisionApp};
use crate::store::{bundle, hold};

/// The revisions of a group, oldest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct RevisionList {
    pub items: Vec<RevisionView>,
}

/// A revision of a group.
#[derive(Debug, Serialize, ToSchema)]
pub struct RevisionView {
    pub revision: i64,
    /// Whether this revision runs now.
    pub current: bool,
    /// `instantiate`, `update` or `rollback`.
    pub kind: String,
    /// Of a rollback: the revision that it went back to.
    #[serde(rename = "rollbackTo", skip_serializing_if = "Option::is_none")]
    pub rollback_to: Option<i64>,
    /// The operation that brought it about.
    pub operation: Uuid,
    /// When it was reached, RFC 3339.
    pub time: String,
    /// Who asked for it, as the client says (header `Drover-User`); empty if it does not say.
    #[serde(rename = "requestedBy")]
    pub requested_by: String,
    pub description: String,
    /// Changes if any object of any app changes.
    pub digest: String,
    pub apps: Vec<AppDigest>,
    /// What controllers answered when it was made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub controllers: Vec<ControllerAnswer>,
}

/// An app of a revision.
#[derive(Debug, Serialize, ToSchema)]
pub struct AppDigest {
    pub app: String,
    /// Digest of its objects.
    pub digest: String,
}

/// How one revision differs from another.
#[derive(Debug, Serialize, ToSchema)]
pub struct RevisionDiff {
    pub from: i64,
    pub to: i64,
    /// Objects that differ, by app and name.
    pub objects: Vec<ObjectDiff>,
    /// Apps whose placement terms differ.
    pub placement: Vec<String>,
}

/// An object that differs between two revisions.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ObjectDiff {
    pub app: String,
    /// `Deployment/web`
    pub object: String,
    /// `added`, `removed` or `changed`.
    pub change: &'static str,
    /// The JSON patch (RFC 6902) that leads from one to the other. The values of Secrets are left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub patch: Vec<Value>,
}

impl App {
    /// The revisions of a group.
    ///
    /// # Errors
    /// The group does not exist, or a query failed.
    pub async fn revisions(&self, path: &GroupPath) -> Result<RevisionList, Error> {
        let mut db = self.store.acquire().await?;
        let group = group::at(&mut db, path).await?;
        let runs = deployment::load(&mut db, group.dig.id, false).await?.state == DeploymentState::Instantiated;
        let reached = revision::reached(&mut db, group.dig.id).await?;
        let last = reached.iter().map(|revision| revision.revision).max().filter(|_| runs);
        let mut items = Vec::new();
        for found in reached {
            let apps = revision::apps(&mut db, group.dig.id, found.revision).await?;
            let current = Some(found.revision) == last;
            items.push(view(found, &apps, current));
        }
        Ok(RevisionList { items })
    }

    /// How the revision `to` differs from the revision `from`.
    ///
    /// # Errors
    /// The group or a revision does not exist, or a query failed.
    pub async fn diff(&self, path: &GroupPath, from: i64, to: i64) -> Result<RevisionDiff, Error> {
        let mut db = self.store.acquire().await?;
        let group = group::at(&mut db, path).await?;
        let (_, old) = at(&mut db, &group, from).await?;
        let (_, new) = at(&mut db, &group, to).await?;
        let terms = |apps: &[RevisionApp]| -> BTreeMap<String, Value> {
            apps.iter().map(|app| (app.app.app.clone(), serde_json::json!(app.terms.intent))).collect()
        };
        let (before, after) = (terms(&old), terms(&new));
        let placement = after.iter().filter(|(app, terms)| before.get(*app).is_some_and(|old| old != *terms));
        let placement = placement.map(|(app, _)| app.clone()).collect();
        let key = self.store.key()?;
        let (old, new) = (objects(&mut db, key, &old).await?, objects(&mut db, key, &new).await?);
        Ok(RevisionDiff { from, to, objects: differences(&old, &new), placement })
    }

    /// Starts to bring a group back to one of its revisions, which gets a new number. Returns the id of the operation and the number.
    ///
    /// # Errors
    /// The group or the revision does not exist, the group does not run or is being changed by an operation, or a query failed.
    pub async fn rollback(&self, path: &GroupPath, to: i64, by: &Requester, description: &str) -> Result<(Uuid, i64), Error> {
        let mut db = self.store.acquire().await?;
        let group = group::at(&mut db, path).await?;
        if let Some(holder) = hold::holder(&mut db, group.dig.id).await? {
            return Err(Error::Busy { holder });
        }
        let (_, apps) = at(&mut db, &group, to).await?;
        // Labels are another service's, which is asked without a connection.
        drop(db);
        let labelled = self.labelled_for(&apps).await?;
        let mut tx = self.store.begin().await?;
        let (verb, changed) = ("rollback", Vec::new());
        let change = RevisionChange { verb, from_revision: Some(to), by, description, answers: &[], labelled, changed };
        let started = self.change_in(&mut tx, &group, &apps, &change).await?;
        tx.commit().await?;
        self.engine.nudge();
        Ok(started)
    }
}

async fn at(tx: &mut PgConnection, group: &Group, wanted: i64) -> Result<(Revision, Vec<RevisionApp>), Error> {
    let reached = revision::reached(&mut *tx, group.dig.id).await?;
    let known: Vec<String> = reached.iter().map(|revision| revision.revision.to_string()).collect();
    let found = reached.into_iter().find(|revision| revision.revision == wanted).ok_or_else(|| Error::NotFound {
        what: format!(
            "revision {wanted} of {} (it has {})",
            group.subject(),
            if known.is_empty() { "none".into() } else { known.join(", ") }
        ),
    })?;
    let apps = revision::apps(tx, group.dig.id, wanted).await?;
    Ok((found, apps))
}

fn view(found: Revision, apps: &[RevisionApp], current: bool) -> RevisionView {
    use sha2::{Digest, Sha256};
    let mut digest = Sha256::new();
    for app in apps {
        digest.update(format!("{}={}\n", app.app.app, app.app.digest));
    }
    RevisionView {
        revision: found.revision,
        current,
        kind: found.kind,
        rollback_to: found.from_revision,
        operation: found.operation,
        time: found.at.to_string(),
        requested_by: found.requested_by,
        description: found.description,
        digest: hex(&digest.finalize()),
        apps: apps.iter().map(|app| AppDigest { app: app.app.app.clone(), digest: app.app.digest.clone() }).collect(),
        controllers: found.controllers.0,
    }
}

/// The objects of apps, by app and name.
#[derive(Default)]
pub(super) struct Objects(BTreeMap<(String, String), Value>);

impl Objects {
    /// Adds the objects of an app, without those that only run when its tests are asked for: no deployment writes them, and charts give them
    /// a random name each time.
    pub fn add(&mut self, app: &str, objects: impl IntoIterator<Item = Value>) {
        for object in objects.into_iter().filter(|object| object["metadata"]["annotations"][labels::HOOK] != "test") {
            self.0.insert((app.to_owned(), name_of(&object)), object);
        }
    }

    /// Adds the objects that an app has on one member only.
    fn add_on(&mut self, app: &str, member: &str, objects: impl IntoIterator<Item = Value>) {
        for object in objects {
            self.0.insert((app.to_owned(), format!("{} on {member}", name_of(&object))), object);
        }
    }
}

async fn objects(tx: &mut PgConnection, key: &SealKey, apps: &[RevisionApp]) -> Result<Objects, Error> {
    let mut found = Objects::default();
    for app in apps {
        let everywhere = bundle::objects(&mut *tx, key, &app.app.digest).await?;
        for (member, objects) in bundle::variants(&mut *tx, key, &app.app.digest).await? {
            let own = objects.into_iter().filter(|object| !everywhere.contains(object));
            found.add_on(&app.app.app, &member.to_string(), own);
        }
        found.add(&app.app.app, everywhere);
    }
    Ok(found)
}

/// `Deployment/web`
fn name_of(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (kind, name, namespace) = (text("/kind"), text("/metadata/name"), text("/metadata/namespace"));
    if namespace.is_empty() { format!("{kind}/{name}") } else { format!("{kind}/{namespace}/{name}") }
}

/// The objects that differ, in order.
pub(super) fn differences(old: &Objects, new: &Objects) -> Vec<ObjectDiff> {
    let (Objects(old), Objects(new)) = (old, new);
    let one = |(app, object): &(String, String), change, patch| ObjectDiff { app: app.clone(), object: object.clone(), change, patch };
    let mut found: Vec<ObjectDiff> = old.keys().filter(|key| !new.contains_key(*key)).map(|key| one(key, "removed", Vec::new())).collect();
    for (key, after) in new {
        match old.get(key) {
            None => found.push(one(key, "added", Vec::new())),
            Some(before) if before != after => {
                let secret = after["kind"] == "Secret";
                let patch = json_patch::diff(before, after).0.iter().map(|operation| shown(operation, secret)).collect();
                found.push(one(key, "changed", patch));
            }
            Some(_) => {}
        }
    }
    found.sort_by(|a, b| (&a.app, &a.object).cmp(&(&b.app, &b.object)));
    found
}

fn shown(operation: &json_patch::PatchOperation, secret: bool) -> Value {
    let mut shown = serde_json::to_value(operation).unwrap_or_default();
    if let Some(fields) = shown.as_object_mut().filter(|_| secret) {
        fields.remove("value");
    }
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tests_of_a_chart_are_no_difference() {
        let (mut old, mut new) = (Objects::default(), Objects::default());
        let hook = |name: &str, events: &str| json!({"kind": "Pod", "metadata": {"name": name, "annotations": {"drover.io/hook": events}}});
        old.add("web", [hook("web-test-x1", "test"), hook("before", "pre-upgrade")]);
        new.add("web", [hook("web-test-y2", "test")]);
        let found = differences(&old, &new);
        assert!(
            matches!(&found[..], [one] if one.object == "Pod/before" && one.change == "removed"),
            "{}",
            serde_json::to_string(&found).unwrap()
        );
    }

    #[test]
    fn differences_are_patches_and_hide_secret_values() {
        let of = |list: &[(&str, Value)]| -> Objects {
            Objects(list.iter().map(|(name, object)| (("web".to_owned(), (*name).to_owned()), object.clone())).collect())
        };
        let old = of(&[
            ("Deployment/web", json!({"kind": "Deployment", "spec": {"replicas": 1}})),
            ("Secret/key", json!({"kind": "Secret", "data": {"key": "b2xk"}})),
            ("Service/web", json!({"kind": "Service"})),
            ("ConfigMap/same", json!({"kind": "ConfigMap"})),
        ]);
        let new = of(&[
            ("Deployment/web", json!({"kind": "Deployment", "spec": {"replicas": 3}})),
            ("Secret/key", json!({"kind": "Secret", "data": {"key": "bmV3"}})),
            ("ConfigMap/same", json!({"kind": "ConfigMap"})),
            ("Job/once", json!({"kind": "Job"})),
        ]);
        let found = serde_json::to_value(differences(&old, &new)).unwrap();
        assert_eq!(
            found,
            json!([
                {"app": "web", "object": "Deployment/web", "change": "changed", "patch": [{"op": "replace", "path": "/spec/replicas", "value": 3}]},
                {"app": "web", "object": "Job/once", "change": "added"},
                {"app": "web", "object": "Secret/key", "change": "changed", "patch": [{"op": "replace", "path": "/data/key"}]},
                {"app": "web", "object": "Service/web", "change": "removed"},
            ])
        );
    }
}
