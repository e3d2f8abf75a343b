//! The rendered objects of an app, in canonical order and without duplicates, with a digest of their content.
//!
//! In some clusters the objects may differ. The digest of the app then covers all variants, so an app has one digest wherever it runs,
//! and the copy in a cluster is sent under a digest of its own ([`sent_digest`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use drover_api::scheduling::MemberKey;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::prefer::{self, PreferredPeers};

/// A rendered app.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    /// The objects, in canonical order.
    pub objects: Vec<Value>,
    /// `sha256:<hex>` of their canonical form.
    pub digest: String,
    /// The objects in the clusters where they differ.
    pub variants: BTreeMap<MemberKey, Vec<Value>>,
}

/// The end of the digest of an app whose objects differ between clusters.
const PER_MEMBER: &str = ":per-member";

/// The digest under which the objects of an app are sent to resource-synchronizer for a copy in this member.
pub fn sent_digest(digest: &str, member: &MemberKey) -> String {
    if is_per_member(digest) { format!("{digest}:{member}") } else { digest.to_owned() }
}

/// Whether the objects of the app of this digest differ between clusters.
pub fn is_per_member(digest: &str) -> bool {
    digest.ends_with(PER_MEMBER)
}

/// The digest of the app that was sent under this digest.
pub fn digest_of_app(sent: &str) -> &str {
    sent.find(PER_MEMBER).map_or(sent, |at| &sent[..at + PER_MEMBER.len()])
}

impl Rendered {
    /// Sorts the objects and computes their digest.
    ///
    /// # Errors
    /// There are no objects, or one is there twice.
    pub fn of(objects: Vec<Value>) -> Result<Self, String> {
        let objects = in_order(objects)?;
        Ok(Self { digest: digest(&objects), objects, variants: BTreeMap::new() })
    }

    /// The app with other objects in these clusters.
    ///
    /// # Errors
    /// In one of them there are no objects, or one is there twice.
    pub fn with_variants(self, variants: BTreeMap<MemberKey, Vec<Value>>) -> Result<Self, String> {
        let mut kept = BTreeMap::new();
        for (member, objects) in variants {
            let objects = in_order(objects).map_err(|reason| format!("{reason}, in {member}"))?;
            if objects != self.objects {
                kept.insert(member, objects);
            }
        }
        Ok(Self { variants: kept, ..self }.digested())
    }

    /// The objects in this cluster.
    pub fn in_member(&self, member: &MemberKey) -> &[Value] {
        self.variants.get(member).unwrap_or(&self.objects)
    }

    /// Adds preferences of the pods for the nodes of `peers`.
    pub fn preferring(mut self, peers: &PreferredPeers) -> Self {
        prefer::nodes(&mut self.objects, peers);
        self.variants.values_mut().for_each(|objects| prefer::nodes(objects, peers));
        self.digested()
    }

    fn digested(mut self) -> Self {
        self.digest = digest(&self.objects);
        if !self.variants.is_empty() {
            let variants: BTreeMap<&str, &Vec<Value>> =
                self.variants.iter().map(|(member, objects)| (member.0.as_str(), objects)).collect();
            self.digest = format!("{}{PER_MEMBER}", digest(&[json!(self.digest), json!(variants)]));
        }
        self
    }
}

/// Sorts objects by what identifies them. An error if there are none, or one is there twice.
fn in_order(mut objects: Vec<Value>) -> Result<Vec<Value>, String> {
    if objects.is_empty() {
        return Err("it renders to no objects".to_owned());
    }
    objects.sort_by_cached_key(identity);
    let mut seen = BTreeSet::new();
    for object in &objects {
        let identity = identity(object);
        if !seen.insert(identity.clone()) {
            let [group, kind, namespace, name] = identity;
            return Err(format!("{kind} {namespace}{}{name} ({group}) is there twice", if namespace.is_empty() { "" } else { "/" }));
        }
    }
    Ok(objects)
}

fn digest(objects: &[Value]) -> String {
    let mut text = String::new();
    canonical(&Value::Array(objects.to_vec()), &mut text);
    let mut digest = String::from("sha256:");
    for byte in Sha256::digest(text.as_bytes()) {
        write!(digest, "{byte:02x}").expect("writing to a string cannot fail");
    }
    digest
}

/// What identifies an object: group, kind, namespace and name, but not the version.
fn identity(object: &Value) -> [String; 4] {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let group = text("/apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
    [group, text("/kind"), text("/metadata/namespace"), text("/metadata/name")].map(str::to_owned)
}

/// JSON with sorted keys.
fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<_> = map.keys().collect();
            keys.sort_unstable();
            out.push('{');
            for (index, key) in keys.into_iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                out.push_str(&Value::String(key.clone()).to_string());
                out.push(':');
                canonical(&map[key], out);
            }
            out.push('}');
        }
        Value::Array(list) => {
            out.push('[');
            for (index, item) in list.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                canonical(item, out);
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(name: &str, value: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": value}})
    }

    #[test]
    fn app_with_variants_has_one_digest_and_is_sent_under_one_per_member() {
        let (edge, core) = (MemberKey::new("p", "edge"), MemberKey::new("p", "core"));
        let plain = Rendered::of(vec![map("a", "1")]).unwrap();
        let same = plain.clone().with_variants(BTreeMap::from([(edge.clone(), vec![map("a", "1")])])).unwrap();
        assert_eq!(same, plain, "equal objects are no variant");
        let varied = |value: &str| plain.clone().with_variants(BTreeMap::from([(edge.clone(), vec![map("a", value)])])).unwrap();
        assert_ne!(varied("2").digest, varied("3").digest);
        let digest = varied("2").digest;
        assert_eq!((varied("2").in_member(&edge), varied("2").in_member(&core)), (&[map("a", "2")][..], &[map("a", "1")][..]));
        let sent = [&edge, &core].map(|member| sent_digest(&digest, member));
        assert_ne!(sent[0], sent[1]);
        assert_eq!(sent.each_ref().map(|sent| digest_of_app(sent)), [digest.as_str(); 2]);
        assert_eq!((sent_digest(&plain.digest, &edge), digest_of_app(&plain.digest)), (plain.digest.clone(), plain.digest.as_str()));
    }
}
