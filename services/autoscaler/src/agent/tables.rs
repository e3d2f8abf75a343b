//! Q-tables in the cluster: the one to start from, and versions of what was learned since.
//!
//! Both are ConfigMaps in the policy's namespace. A learned version is written only if the ConfigMap has not changed since it was read: if
//! somebody put another version in place (a rollback), that version is loaded instead of being overwritten.

use std::collections::BTreeMap;

use drover_autoscaling::qlearning::QTable;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::PostParams;
use kube::{Api, Client};

use super::target::{CallError, within};
use crate::policy::Plan;

/// Maximum number of versions that are kept.
const KEPT: usize = 5;
/// Bytes for Q-tables in a ConfigMap, which holds 1 MiB in all.
const ROOM: usize = 900_000;
/// Key of the number of the current version.
const CURRENT: &str = "current";
/// What to do when access to the ConfigMap is denied.
const ROLE: &str = "bind ClusterRole drover-autoscaler-tables to the agent in this namespace";

/// Name of the ConfigMap with what a policy learned.
pub fn name(policy: &str) -> String {
    format!("{policy}-learned")
}

/// Key of a version.
pub fn key(version: u64) -> String {
    format!("v{version}.json")
}

/// Number of the current version.
pub fn current(map: &ConfigMap) -> Option<u64> {
    map.data.as_ref()?.get(CURRENT)?.parse().ok()
}

/// The Q-table of a version.
///
/// # Errors
/// If the version is not kept, or is not a Q-table.
pub fn version(map: &ConfigMap, version: u64) -> Result<QTable, String> {
    let text = map.data.as_ref().and_then(|data| data.get(&key(version))).ok_or_else(|| format!("version {version} is not kept"))?;
    serde_json::from_str(text).map_err(|error| format!("version {version} is not a Q-table: {error}"))
}

/// Adds a Q-table as the newest version, and removes old versions.
///
/// # Errors
/// If it is larger than a ConfigMap may be.
pub fn put(map: &mut ConfigMap, table: &QTable) -> Result<u64, String> {
    let text = serde_json::to_string(table).map_err(|error| error.to_string())?;
    if text.len() > ROOM {
        return Err(format!("the table takes {} bytes, a ConfigMap holds {ROOM}: choose a smaller maxReplicas", text.len()));
    }
    let newest = current(map).map_or(1, |version| version + 1);
    let data = map.data.get_or_insert_default();
    data.insert(key(newest), text);
    data.insert(CURRENT.to_owned(), newest.to_string());
    let mut versions: Vec<u64> = numbers(data);
    let size = |data: &BTreeMap<String, String>| data.values().map(String::len).sum::<usize>();
    while versions.len() > KEPT || (size(data) > ROOM && versions.len() > 1) {
        data.remove(&key(versions.remove(0)));
    }
    Ok(newest)
}

/// Numbers of the versions that are kept, oldest first.
pub fn versions(map: &ConfigMap) -> Vec<u64> {
    map.data.as_ref().map(numbers).unwrap_or_default()
}

fn numbers(data: &BTreeMap<String, String>) -> Vec<u64> {
    let mut versions: Vec<u64> = data.keys().filter_map(|key| key.strip_prefix('v')?.strip_suffix(".json")?.parse().ok()).collect();
    versions.sort_unstable();
    versions
}

/// The ConfigMap with the Q-table that a policy learned.
#[derive(Clone, Debug)]
pub struct LearnedTables {
    api: Api<ConfigMap>,
    /// The ConfigMap as it was last read or written.
    map: ConfigMap,
    /// Number of the current version; 0: none was saved yet.
    pub version: u64,
}

impl LearnedTables {
    /// The Q-table to continue with: the learned one if it fits the policy, else the one that the policy names, else an empty one.
    ///
    /// # Errors
    /// If the Q-table that the policy names cannot be read or used; the message says what to do.
    pub async fn load(client: &Client, namespace: &str, owner: &OwnerReference, plan: &Plan) -> Result<(QTable, Self), String> {
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        let name = name(&owner.name);
        let (min, max) = (plan.limits.min_replicas, plan.limits.max_replicas);
        let found = within(api.get_opt(&name)).await.map_err(|trouble| explained(&name, &trouble))?;
        if let Some(map) = found {
            let version_now = current(&map).unwrap_or(0);
            let learned = version(&map, version_now).and_then(|table| match table.check(min, max) {
                Ok(()) => Ok(table),
                Err(error) => Err(error.to_string()),
            });
            let kept = Self { api, map, version: version_now };
            return match learned {
                Ok(table) => Ok((table, kept)),
                Err(why) => {
                    tracing::warn!(config_map = name, why, "the learned Q-table no longer fits the policy; starting again");
                    Ok((kept.start(plan).await?, kept))
                }
            };
        }
        let metadata = ObjectMeta { name: Some(name), owner_references: Some(vec![owner.clone()]), ..Default::default() };
        let kept = Self { api, map: ConfigMap { metadata, ..Default::default() }, version: 0 };
        Ok((kept.start(plan).await?, kept))
    }

    /// The Q-table that the policy names, or an empty one.
    async fn start(&self, plan: &Plan) -> Result<QTable, String> {
        let (min, max) = (plan.limits.min_replicas, plan.limits.max_replicas);
        let named = plan.spec.scaling.qlearning.as_ref().and_then(|spec| spec.initial_table.as_ref());
        let Some(name) = named else { return Ok(QTable::new(min, max)) };
        let map = within(self.api.get_opt(name)).await.map_err(|trouble| explained(name, &trouble))?;
        let map = map.ok_or_else(|| {
            format!("there is no ConfigMap {name}; make it with `kubectl create configmap {name} --from-file=table.json`")
        })?;
        let data = map.data.unwrap_or_default();
        let text = match (data.get("table.json"), data.len()) {
            (Some(text), _) => Some(text),
            (None, 1) => data.values().next(),
            (None, _) => None,
        };
        let text = text.ok_or_else(|| format!("ConfigMap {name} has no key table.json"))?;
        let table: QTable = serde_json::from_str(text).map_err(|error| format!("ConfigMap {name} does not contain a Q-table: {error}"))?;
        table.check(min, max).map_err(|error| format!("ConfigMap {name}: {error}"))?;
        Ok(table)
    }

    /// Saves a Q-table as a new version. Some: somebody put another version in place meanwhile, and this is its table.
    ///
    /// # Errors
    /// If it cannot be written.
    pub async fn keep(&mut self, table: &QTable) -> Result<Option<QTable>, String> {
        let name = self.map.metadata.name.clone().unwrap_or_default();
        let mut map = self.map.clone();
        let newest = put(&mut map, table)?;
        let written = if map.metadata.resource_version.is_some() {
            within(self.api.replace(&name, &PostParams::default(), &map)).await
        } else {
            within(self.api.create(&PostParams::default(), &map)).await
        };
        match written {
            Ok(map) => {
                (self.map, self.version) = (map, newest);
                Ok(None)
            }
            Err(CallError::Api(kube::Error::Api(status))) if status.code == 409 => {
                let map = within(self.api.get(&name)).await.map_err(|trouble| explained(&name, &trouble))?;
                let version_now = current(&map).unwrap_or(0);
                let table = version(&map, version_now)?;
                (self.map, self.version) = (map, version_now);
                Ok(Some(table))
            }
            // Somebody deleted it; the next time it is made again.
            Err(CallError::Api(kube::Error::Api(status))) if status.code == 404 => {
                self.map.metadata.resource_version = None;
                self.map.metadata.uid = None;
                Err(format!("ConfigMap {name} was deleted; it is made again when the table is saved the next time"))
            }
            Err(trouble) => Err(explained(&name, &trouble)),
        }
    }
}

fn explained(name: &str, trouble: &CallError) -> String {
    match trouble {
        CallError::Api(kube::Error::Api(status)) if status.code == 403 => format!("ConfigMap {name}: not allowed; {ROLE}"),
        trouble => format!("ConfigMap {name}: {trouble}"),
    }
}

#[cfg(test)]
mod tests {
    use drover_autoscaling::qlearning::QTable;
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::{current, put, version, versions};

    #[test]
    fn put_keeps_newest_versions_and_sets_current() {
        let mut map = ConfigMap::default();
        for pods in 1..=8 {
            put(&mut map, &QTable::new(1, pods)).unwrap_or_else(|why| panic!("{why}"));
        }
        assert_eq!((current(&map), versions(&map)), (Some(8), vec![4, 5, 6, 7, 8]));
        assert_eq!(version(&map, 5), Ok(QTable::new(1, 5)));
        assert!(version(&map, 3).is_err());
    }

    #[test]
    fn put_keeps_versions_that_fit_and_refuses_too_large_tables() {
        let mut map = ConfigMap::default();
        for _ in 0..4 {
            put(&mut map, &QTable::new(1, 3_000)).unwrap_or_else(|why| panic!("{why}"));
        }
        assert_eq!(versions(&map), vec![3, 4]);
        assert!(put(&mut map, &QTable::new(1, 10_000)).is_err());
        assert_eq!(current(&map), Some(4));
    }
}
