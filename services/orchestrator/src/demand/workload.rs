//! The built-in workloads: the pods that they create, how many, and how many more during an update.

use std::collections::BTreeSet;

use drover_api::scheduling::{Amounts, Demand, PodGroup, StatefulPods};
use drover_members::{amounts, may_overlap};
use drover_quantity::NotAQuantity;
use k8s_openapi::api::core::v1::{PodSpec, Volume};
use serde::Deserialize;
use serde_json::Value;

use super::pod::{self, VolumeKind};

/// A manifest whose pods cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DemandError {
    /// The pod template does not match the schema.
    #[error("{workload}: its pod template cannot be read: {reason}")]
    Template { workload: String, reason: String },
    /// A request is not a Kubernetes quantity.
    #[error("{workload}: {source}")]
    Quantity { workload: String, source: NotAQuantity },
}

/// A manifest that creates pods.
pub struct Workload<'a> {
    object: &'a Value,
    pub name: String,
    kind: &'a str,
    pub pod: PodSpec,
    requests: Amounts,
}

impl<'a> Workload<'a> {
    /// Reads a manifest; none if its kind is not a built-in workload.
    ///
    /// # Errors
    /// A pod template cannot be read, or a request in it is not a quantity.
    pub fn of(object: &'a Value) -> Result<Option<Self>, DemandError> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let kind = text("/kind");
        let path = match (text("/apiVersion"), kind) {
            ("apps/v1", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet")
            | ("batch/v1", "Job")
            | ("v1", "ReplicationController") => "/spec/template/spec",
            ("batch/v1", "CronJob") => "/spec/jobTemplate/spec/template/spec",
            ("v1", "Pod") => "/spec",
            _ => return Ok(None),
        };
        let name = format!("{kind}/{}", text("/metadata/name"));
        let template = |error: serde_json::Error| DemandError::Template { workload: name.clone(), reason: error.to_string() };
        let mut spec = object.pointer(path).cloned().unwrap_or(Value::Null);
        let counted = drover_quantity::PodSpec::deserialize(&spec).map_err(template)?;
        let requests = amounts::of_pod(&counted).map_err(|source| DemandError::Quantity { workload: name.clone(), source })?;
        quantities_as_text(&mut spec);
        let pod = serde_json::from_value(spec).map_err(template)?;
        Ok(Some(Self { object, name, kind, pod, requests }))
    }

    /// The pods as the ledger counts them.
    pub fn pods(&self) -> PodGroup {
        let replicas = self.replicas();
        PodGroup {
            workload: self.name.clone(),
            replicas,
            // Their sum is used everywhere.
            surge: self.surge(replicas).min(u32::MAX - replicas),
            per_node: self.kind == "DaemonSet",
            requests: self.requests.clone(),
            tolerations: self.tolerations(),
            node_selector: self.pod.node_selector.clone().unwrap_or_default(),
            node_affinity: pod::node_affinity(&self.pod),
        }
    }

    /// Counts persistent volumes (a claim that several pods use only once) and why they keep the app in its place.
    pub fn count_volumes(&self, namespace: &str, demand: &mut Demand, claims: &mut BTreeSet<String>) {
        let name = |template: &Value| template.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let templates: Vec<String> = self.array("/spec/volumeClaimTemplates").map(name).collect();
        if !templates.is_empty() {
            demand.volumes += self.replicas() * u32::try_from(templates.len()).unwrap_or(1);
            demand.stateful.push(StatefulPods {
                namespace: namespace.to_owned(),
                set: self.name.rsplit('/').next().unwrap_or_default().to_owned(),
                start: self.number("/spec/ordinals/start").unwrap_or(0),
                replicas: self.replicas(),
                templates,
                overlaps: self.array("/spec/volumeClaimTemplates").all(may_overlap),
            });
        }
        for volume in self.pod.volumes.iter().flatten() {
            match pod::volume_kind(volume) {
                VolumeKind::Scratch => {}
                VolumeKind::HostPath => {
                    demand.immovable.push(format!("host_path: {} uses a directory of its node (volume {})", self.name, volume.name));
                }
                VolumeKind::Persistent => self.persistent(volume, demand, claims),
            }
        }
    }

    fn persistent(&self, volume: &Volume, demand: &mut Demand, claims: &mut BTreeSet<String>) {
        let claim = volume.persistent_volume_claim.as_ref().map(|source| source.claim_name.clone());
        let key = claim.clone().unwrap_or_else(|| format!("{}/{}", self.name, volume.name));
        if claims.insert(key) {
            demand.volumes += 1;
        }
        let what = claim.map_or_else(|| format!("volume {}", volume.name), |claim| format!("volume claim {claim}"));
        demand.immovable.push(format!("volume: {} keeps data in the {what}", self.name));
    }

    /// Adds the other reasons why the app cannot be moved.
    pub fn add_immovable_reasons(&self, demand: &mut Demand) {
        if self.kind == "DaemonSet" {
            demand.immovable.push(format!("daemon_set: {} belongs to every node of its member", self.name));
        }
        if pod::bound_to_node(&self.pod) {
            demand.immovable.push(format!("node_bound: the pods of {} name their node", self.name));
        }
    }

    /// Tolerations of the pods, with those that the DaemonSet controller adds.
    fn tolerations(&self) -> Vec<drover_api::scheduling::Toleration> {
        let mut tolerations = pod::tolerations(&self.pod);
        if self.kind == "DaemonSet" {
            for key in ["not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable"] {
                tolerations.push(drover_api::scheduling::Toleration {
                    key: format!("node.kubernetes.io/{key}"),
                    exists: true,
                    ..Default::default()
                });
            }
        }
        tolerations
    }

    fn replicas(&self) -> u32 {
        match self.kind {
            "Pod" => 1,
            "DaemonSet" => 0,
            "Job" => self.parallel("/spec"),
            "CronJob" => self.parallel("/spec/jobTemplate/spec"),
            _ => self.number("/spec/replicas").unwrap_or(1),
        }
    }

    /// Pods of a job that run at once: its parallelism, at most its completions.
    fn parallel(&self, spec: &str) -> u32 {
        let parallelism = self.number(&format!("{spec}/parallelism")).unwrap_or(1);
        self.number(&format!("{spec}/completions")).map_or(parallelism, |completions| parallelism.min(completions))
    }

    /// `maxSurge` of a Deployment. Percentages are rounded up; the default is 25 %.
    fn surge(&self, replicas: u32) -> u32 {
        let strategy = self.object.pointer("/spec/strategy/type").and_then(Value::as_str);
        if self.kind != "Deployment" || strategy == Some("Recreate") {
            return 0;
        }
        match self.object.pointer("/spec/strategy/rollingUpdate/maxSurge") {
            Some(Value::Number(count)) => count.as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
            Some(Value::String(text)) => {
                let share = text.strip_suffix('%').and_then(|percent| percent.parse::<u32>().ok());
                share.map_or_else(|| text.parse().unwrap_or(0), |percent| percent_of(replicas, percent))
            }
            _ => percent_of(replicas, 25),
        }
    }

    fn number(&self, pointer: &str) -> Option<u32> {
        self.object.pointer(pointer).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok())
    }

    fn array(&self, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
        self.object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
    }
}

/// This percentage of the replicas, rounded up to whole pods.
fn percent_of(replicas: u32, percent: u32) -> u32 {
    u32::try_from((u64::from(replicas) * u64::from(percent)).div_ceil(100)).unwrap_or(u32::MAX)
}

/// Turns numbers such as `cpu: 1` into strings: manifests may have both, the typed reader takes only strings.
fn quantities_as_text(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::Object(list) if matches!(key.as_str(), "requests" | "limits" | "overhead") => {
                        for amount in list.values_mut().filter(|amount| amount.is_number()) {
                            *amount = Value::String(amount.to_string());
                        }
                    }
                    Value::Number(number) if matches!(key.as_str(), "sizeLimit" | "divisor") => *value = Value::String(number.to_string()),
                    _ => quantities_as_text(value),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(quantities_as_text),
        _ => {}
    }
}
