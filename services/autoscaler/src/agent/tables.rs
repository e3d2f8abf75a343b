//! Q-tables in the cluster: the one to start from, and versions of what was learned since.
//!
//! Both are ConfigMaps in the policy's namespace. Learned versions are written under the version of the ConfigMap that was read:
//! whoever put another version in place meanwhile (a rollback) is not overwritten, its table is taken over.

use std::collections::BTreeMap;

use drover_autoscaling::qlearning::QTable;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::PostParams;
use kube::{Api, Client};

use super::target::{Trouble, within};
use crate::policy::Plan;

/// Versions that are kept, as far as they fit.
const KEPT: usize = 5;
/// A ConfigMap holds 1 MiB in all.
const ROOM: usize = 900_000;
/// Key of the number of the version that counts.
const CURRENT: &str = "current";
/// The ClusterRole that allows what happens here.
const ROLE: &str = "bind ClusterRole drover-autoscaler-tables to the agent in this namespace";

/// Name of the ConfigMap with what a policy learned.
pub fn name(policy: &str) -> String {
    format!("{policy}-learned")
}

/// Key of a version.
pub fn key(version: u64) -> String {
    format!("v{version}.json")
}

/// The number of the version that counts.
pub fn current(map: &ConfigMap) -> Option<u64> {
    map.data.as_ref()?.get(CURRENT)?.parse().ok()
}

/// A version's table.
///
/// # Errors
/// It is not there, or is none.
pub fn version(map: &ConfigMap, version: u64) -> Result<QTable, String> {
    let text = map.data.as_ref().and_then(|data| data.get(&key(version))).ok_or_else(|| format!("version {version} is not kept"))?;
    serde_json::from_str(text).map_err(|error| format!("version {version} is no Q-table: {error}"))
}

/// Puts a table in as the newest version, and lets go of old ones.
///
/// # Errors
/// It is larger than a ConfigMap may be.
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

/// Versions that are kept, oldest first.
pub fn versions(map: &ConfigMap) -> Vec<u64> {
    map.data.as_ref().map(numbers).unwrap_or_default()
}

fn numbers(data: &BTreeMap<String, String>) -> Vec<u64> {
    let mut versions: Vec<u64> = data.keys().filter_map(|key| key.strip_prefix('v')?.strip_suffix(".json")?.parse().ok()).collect();
    versions.sort_unstable();
    versions
}

/// What a policy learned, and where that is kept.
#[derive(Clone, Debug)]
pub struct Kept {
    api: Api<ConfigMap>,
    /// As it was read or written last.
    map: ConfigMap,
    /// The version that counts; 0: none was kept yet.
    pub version: u64,
}

impl Kept {
    /// The table to go on with: what was learned if it still fits, else the one to start from, else an empty one.
    ///
    /// # Errors
    /// The table that the policy names cannot be read or used; the sentence says what to do.
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
                    tracing::warn!(config_map = name, why, "what was learned does not fit any more; it starts over");
                    Ok((kept.start(plan).await?, kept))
                }
            };
        }
        let metadata = ObjectMeta { name: Some(name), owner_references: Some(vec![owner.clone()]), ..Default::default() };
        let kept = Self { api, map: ConfigMap { metadata, ..Default::default() }, version: 0 };
        Ok((kept.start(plan).await?, kept))
    }

    /// The table that the policy names, or an empty one.
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
        let table: QTable = serde_json::from_str(text).map_err(|error| format!("ConfigMap {name} holds no Q-table: {error}"))?;
        table.check(min, max).map_err(|error| format!("ConfigMap {name}: {error}"))?;
        Ok(table)
    }

    /// Keeps a table as a new version. Some: another version was put in place meanwhile, and this is its table.
    ///
    /// # Errors
    /// It cannot be written.
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
            Err(Trouble::Api(kube::Error::Api(status))) if status.code == 409 => {
                let map = within(self.api.get(&name)).await.map_err(|trouble| explained(&name, &trouble))?;
                let version_now = current(&map).unwrap_or(0);
                let table = version(&map, version_now)?;
                (self.map, self.version) = (map, version_now);
                Ok(Some(table))
            }
            Err(trouble) => Err(explained(&name, &trouble)),
        }
    }
}

fn explained(name: &str, trouble: &Trouble) -> String {
    match trouble {
        Trouble::Api(kube::Error::Api(status)) if status.code == 403 => format!("ConfigMap {name}: not allowed; {ROLE}"),
        trouble => format!("ConfigMap {name}: {trouble}"),
    }
}

#[cfg(test)]
mod tests {
    use drover_autoscaling::qlearning::QTable;
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::{current, put, version, versions};

    #[test]
    fn the_newest_versions_are_kept_and_the_last_one_counts() {
        let mut map = ConfigMap::default();
        for pods in 1..=8 {
            put(&mut map, &QTable::new(1, pods)).unwrap_or_else(|why| panic!("{why}"));
        }
        assert_eq!((current(&map), versions(&map)), (Some(8), vec![4, 5, 6, 7, 8]));
        assert_eq!(version(&map, 5), Ok(QTable::new(1, 5)));
        assert!(version(&map, 3).is_err());
    }

    #[test]
    fn large_tables_keep_as_many_versions_as_fit_and_too_large_ones_are_refused() {
        let mut map = ConfigMap::default();
        for _ in 0..4 {
            put(&mut map, &QTable::new(1, 3_000)).unwrap_or_else(|why| panic!("{why}"));
        }
        assert_eq!(versions(&map), vec![3, 4]);
        assert!(put(&mut map, &QTable::new(1, 10_000)).is_err());
        assert_eq!(current(&map), Some(4));
    }
}
