//! Server-side apply, and the ownership of fields that all other writes record for it.
//!
//! Ownership is per leaf and per manager (name, operation, subresource), as in a real server. Controllers inside the
//! simulator record none: they write only status and objects of their own.

mod doubled;
pub mod fields;

use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::object::{list, map_mut, text};
use crate::schema::{ListShape, atomic_map, item_key, list_shape};
use crate::target::{Options, Target};
use fields::FieldSet;

/// One entry of `managedFields`.
struct Manager {
    entry: Value,
    set: FieldSet,
}

impl Manager {
    fn new(target: &Target, options: &Options, operation: &str) -> Self {
        let mut entry = json!({"manager": options.manager, "operation": operation,
            "apiVersion": target.kind.api_version(), "fieldsType": "FieldsV1"});
        if !target.sub.is_empty() {
            entry["subresource"] = json!(target.sub);
        }
        Self { entry, set: FieldSet::new() }
    }

    fn is(&self, other: &Self) -> bool {
        ["/manager", "/operation", "/subresource"].iter().all(|p| text(&self.entry, p) == text(&other.entry, p))
    }

    /// The entry as JSON. Its time changes only if the fields do.
    fn entry(mut self, before: &[Value], now: &str) -> Value {
        let set = fields::to_v1(&self.set);
        if self.entry["fieldsV1"] != set || !before.contains(&self.entry) {
            self.entry["time"] = json!(now);
        }
        self.entry["fieldsV1"] = set;
        self.entry
    }
}

fn managers(object: &Value) -> Vec<Manager> {
    list(object, "/metadata/managedFields")
        .iter()
        .map(|entry| Manager { entry: entry.clone(), set: fields::from_v1(&entry["fieldsV1"]) })
        .collect()
}

fn write_managers(object: &mut Value, managers: Vec<Manager>, now: &str) {
    let before = list(object, "/metadata/managedFields").to_vec();
    let entries: Vec<Value> = managers.into_iter().filter(|m| !m.set.is_empty()).map(|manager| manager.entry(&before, now)).collect();
    map_mut(object, &["metadata"]).insert("managedFields".into(), entries.into());
}

/// The entry of this writer among all entries.
fn mine(managers: &mut Vec<Manager>, new: Manager) -> &mut Manager {
    let at = managers.iter().position(|m| m.is(&new)).unwrap_or_else(|| {
        managers.push(new);
        managers.len() - 1
    });
    &mut managers[at]
}

/// Records the fields of a POST: all of them, defaults included.
pub fn record_create(object: &mut Value, target: &Target, options: &Options, now: &str) {
    crate::object::remove(object, &["metadata"], "managedFields");
    let mut manager = Manager::new(target, options, "Update");
    manager.set = fields::of(object, target.kind.custom);
    write_managers(object, vec![manager], now);
}

/// Records the fields that a PUT or PATCH changed, and removes them from other managers.
pub fn record_update(old: &Value, new: &mut Value, target: &Target, options: &Options, now: &str) {
    let custom = target.kind.custom;
    let (before, after) = (fields::of(old, custom), fields::of(new, custom));
    let changed: FieldSet = after.iter().filter(|p| !before.contains(*p) || fields::at(old, p) != fields::at(new, p)).cloned().collect();
    // A list item itself changes only when it is added or removed, not when its fields change.
    let changed: FieldSet = changed.into_iter().filter(|p| !p.last().is_some_and(|s| s.starts_with("k:")) || !before.contains(p)).collect();
    let mut managers = managers(old);
    new["metadata"]["managedFields"] = old.pointer("/metadata/managedFields").cloned().unwrap_or_else(|| json!([]));
    for manager in &mut managers {
        manager.set.retain(|path| after.contains(path) && !changed.contains(path));
    }
    if !changed.is_empty() {
        mine(&mut managers, Manager::new(target, options, "Update")).set.extend(changed);
    }
    write_managers(new, managers, now);
}

/// The object after an apply; `live` is absent when apply creates it.
///
/// # Errors
/// 409 with the conflicting fields.
pub fn apply(live: Option<&Value>, mut applied: Value, target: &Target, options: &Options, now: &str) -> Result<Value, ApiError> {
    if !list(&applied, "/metadata/managedFields").is_empty() {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    if target.kind.status && target.sub.is_empty() && &*target.kind.resource != "nodes" {
        crate::object::remove(&mut applied, &[], "status");
    }
    drop_nulls(&mut applied);
    let custom = target.kind.custom;
    let doubled = doubled::items(&applied, custom);
    if !doubled.is_empty() {
        return Err(ApiError::untyped(&applied, &doubled));
    }
    let wanted = fields::of(&applied, custom);
    let me = Manager::new(target, options, "Apply");
    let Some(live) = live else {
        let mut created = applied;
        write_managers(&mut created, vec![Manager { set: wanted, ..me }], now);
        return Ok(created);
    };

    let mut managers = managers(live);
    let mut conflicts = Vec::new();
    for manager in managers.iter_mut().filter(|m| !m.is(&me)) {
        let taken: Vec<_> = manager
            .set
            .intersection(&wanted)
            .filter(|path| !path.last().is_some_and(|s| s.starts_with("k:")))
            .filter(|path| fields::at(live, path) != fields::at(&applied, path))
            .cloned()
            .collect();
        for path in taken {
            if options.force {
                manager.set.remove(&path);
            } else {
                conflicts.push((text(&manager.entry, "/manager").to_string(), fields::show(&path)));
            }
        }
    }
    if !conflicts.is_empty() {
        return Err(ApiError::apply_conflict(&conflicts));
    }

    let mut merged = live.clone();
    merge(&mut merged, &applied, "", "", custom);
    let entry = mine(&mut managers, me);
    let dropped = std::mem::replace(&mut entry.set, wanted);
    // In order, so that an item is removed before its fields, while its key can still be read.
    for path in &dropped {
        let kept = managers.iter().any(|m| m.set.iter().any(|owned| owned.starts_with(path)));
        if !kept && !fields::is_key(path) {
            fields::remove(&mut merged, path);
        }
    }
    if let Some(version) = applied.pointer("/metadata/resourceVersion") {
        merged["metadata"]["resourceVersion"] = version.clone();
    }
    write_managers(&mut merged, managers, now);
    Ok(merged)
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Merges keyed lists: existing items keep their places, new ones follow.
fn merge(live: &mut Value, applied: &Value, field: &str, parent: &str, custom: bool) {
    match (live, applied) {
        (Value::Object(live), Value::Object(applied)) if !atomic_map(field, parent, custom) => {
            merge_maps(live, applied, field, custom);
        }
        (Value::Array(live), Value::Array(applied)) => match list_shape(field, parent, custom) {
            ListShape::Atomic => *live = applied.clone(),
            ListShape::Set => live.extend(applied.iter().filter(|v| !live.contains(v)).cloned().collect::<Vec<_>>()),
            ListShape::Keyed(keys) => {
                for item in applied {
                    let key = item_key(item, keys);
                    match live.iter_mut().find(|have| item_key(have, keys) == key) {
                        Some(Value::Object(have)) => {
                            if let Value::Object(item) = item {
                                merge_maps(have, item, field, custom);
                            }
                        }
                        _ => live.push(item.clone()),
                    }
                }
            }
        },
        (live, applied) => *live = applied.clone(),
    }
}

fn merge_maps(live: &mut Map<String, Value>, applied: &Map<String, Value>, field: &str, custom: bool) {
    for (key, value) in applied {
        match live.get_mut(key) {
            Some(have) => merge(have, value, key, field, custom),
            None => drop(live.insert(key.clone(), value.clone())),
        }
    }
}

#[cfg(test)]
mod tests;
