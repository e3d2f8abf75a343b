//! The JSON that containerd adds to the verbose status of a container, reduced to the fields that the guard reads.

use serde::Deserialize;

use super::InspectedContainer;
use crate::cgroup::CpuQuota;
use crate::proto::runtime::v1 as cri;

/// The verbose status. Every field may be missing, because other runtimes write other things.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct VerboseStatus {
    pid: i32,
    #[serde(rename = "sandboxID")]
    sandbox: String,
    config: Config,
    #[serde(rename = "runtimeSpec")]
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Config {
    linux: LinuxConfig,
    mounts: Vec<MountConfig>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct LinuxConfig {
    resources: Resources,
    security_context: SecurityContext,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Resources {
    cpu_period: Option<u64>,
    cpu_quota: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SecurityContext {
    privileged: bool,
    namespace_options: NamespaceOptions,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamespaceOptions {
    pid: i32,
    ipc: i32,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MountConfig {
    host_path: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    linux: SpecLinux,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SpecLinux {
    #[serde(rename = "cgroupsPath")]
    cgroups_path: String,
}

impl VerboseStatus {
    pub(super) fn inspected(self, status: &cri::ContainerStatus, exited: bool) -> InspectedContainer {
        let node = i32::from(cri::NamespaceMode::Node);
        let context = &self.config.linux.security_context;
        let resources = &self.config.linux.resources;
        InspectedContainer {
            pid: self.pid,
            sandbox: self.sandbox,
            started: if status.started_at > 0 { status.started_at } else { status.created_at },
            cgroups_path: self.spec.linux.cgroups_path,
            privileged: context.privileged || context.namespace_options.pid == node || context.namespace_options.ipc == node,
            host_paths: self.config.mounts.into_iter().map(|mount| mount.host_path).collect(),
            labels: status.labels.clone(),
            created_quota: resources
                .cpu_period
                .filter(|period| *period > 0)
                .map(|period| CpuQuota { quota: resources.cpu_quota.filter(|quota| *quota != 0).unwrap_or(-1), period }),
            exit_code: exited.then_some(status.exit_code),
        }
    }
}
