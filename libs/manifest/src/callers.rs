//! Which Services the pods of some objects seem to call by name.
//!
//! Only texts tell: values of workloads and ConfigMaps that look like the name of a host. A name that is put together when the program
//! runs is not found, and a text that is a Service's name by chance is.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::objects;

/// Kinds that run pods.
pub const WORKLOADS: [&str; 8] = ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "CronJob", "Pod"];

/// Whether an object runs pods.
pub fn is_workload(object: &Value) -> bool {
    object["kind"].as_str().is_some_and(|kind| WORKLOADS.contains(&kind))
}

/// Those of these Services (`namespace/name`) that the objects name as a host: by the bare name in the Service's namespace, else with
/// the namespace. `namespace` is that of objects that name none.
///
/// All of these Services are among the [`hosts`] of the objects, by one of their [`names`].
pub fn called<'s>(objects: impl IntoIterator<Item = &'s Value>, namespace: &str, services: &'s [String]) -> BTreeSet<&'s str> {
    let mut found = BTreeSet::new();
    for object in objects.into_iter().filter(|object| may_call(object)) {
        let words = words(object);
        let own = objects::address(object, namespace).namespace;
        for service in services {
            let Some((home, name)) = service.split_once('/') else { continue };
            let qualified = format!("{name}.{home}");
            let names = |word: &&str| {
                (*word == name && own == home)
                    || word.strip_prefix(&*qualified).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            if words.iter().any(names) {
                found.insert(service.as_str());
            }
        }
    }
    found
}

/// What may be the name of a host in these objects, without the parts of a name after the second: enough to tell which objects [`called`]
/// has to look at.
pub fn hosts<'v>(objects: impl IntoIterator<Item = &'v Value>) -> BTreeSet<&'v str> {
    let words = objects.into_iter().filter(|object| may_call(object)).flat_map(words);
    words.map(first_parts).filter(|word| !word.is_empty() && word.len() <= LONGEST).collect()
}

/// Under which names a Service (`namespace/name`) may be among the [`hosts`] of objects that call it.
pub fn names(service: &str) -> impl Iterator<Item = String> {
    service.split_once('/').into_iter().flat_map(|(home, name)| [name.to_owned(), format!("{name}.{home}")])
}

/// Two names of Kubernetes objects, and the point.
const LONGEST: usize = 253 + 1 + 253;

fn first_parts(word: &str) -> &str {
    word.match_indices('.').nth(1).map_or(word, |(end, _)| &word[..end])
}

fn may_call(object: &Value) -> bool {
    is_workload(object) || object["kind"] == "ConfigMap"
}

fn words(object: &Value) -> BTreeSet<&str> {
    let mut texts = Vec::new();
    strings(object, &mut texts);
    texts.iter().flat_map(|text| text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '.'))).collect()
}

/// Texts of an object that may name hosts: values, but neither names, labels nor images.
fn strings<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => found.push(text),
        Value::Array(items) => items.iter().for_each(|item| strings(item, found)),
        Value::Object(fields) => {
            let of_hosts =
                |key: &str| !matches!(key, "metadata" | "selector" | "image" | "name" | "kind" | "apiVersion" | "volumes" | "volumeMounts");
            fields.iter().filter(|(key, _)| of_hosts(key)).for_each(|(_, value)| strings(value, found));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bare_names_are_known_in_their_own_namespace_only() {
        let services = ["shop/cart".to_owned(), "shop/web".to_owned()];
        let pod = |namespace: &str, url: &str| {
            let container = json!({"name": "web", "image": "example.com/web", "env": [{"name": "URL", "value": url}]});
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": namespace}, "spec": {"containers": [container]}})
        };
        for (namespace, url, calls) in [
            ("shop", "http://cart:80/x", true),
            ("blog", "http://cart:80/x", false),
            ("blog", "http://cart.shop:80/x", true),
            ("blog", "cart.shop.svc.cluster.local", true),
            ("shop", "cart.shop.svc", true),
            ("blog", "cart.shopping.example.org", false),
            ("shop", "my-cart", false),
        ] {
            let object = pod(namespace, url);
            let found = called([&object], "default", &services);
            let hosts = hosts([&object]);
            assert!(!calls || names("shop/cart").any(|name| hosts.contains(&*name)), "{url}: {hosts:?}");
            assert_eq!(
                found,
                BTreeSet::from_iter(calls.then_some("shop/cart")),
                "{url} in {namespace}: names of containers and images do not count"
            );
        }
        let config =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"nginx.conf": "proxy_pass http://web;"}});
        assert_eq!(called([&config], "shop", &services), BTreeSet::from(["shop/web"]));
    }
}
