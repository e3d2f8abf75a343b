//! The query of a group's status and the view for it. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::bindings::{BindingStatus, ObjectStatus, Phase};
use drover_api::scheduling::MemberKey;
use drover_api::status::{
    AppClusters, AppEntry, AppResources, AppStatus, ClusterName, ClusterStatus, DigStates, DigStatus, Gvk, ResourceDetail, ResourceName,
    ResourceStatus,
};
use uuid::Uuid;

use super::{Error, apps};
use crate::store::binding::Role;

/// Kinds that EMCO counts as `NotPresent` while they are absent.
const COUNTED_ABSENT: [&str; 8] =
    ["ConfigMap", "Service", "DaemonSet", "Deployment", "Job", "Pod", "StatefulSet", "CertificateSigningRequest"];

/// A binding with the status of its objects.
#[derive(Clone, Debug)]
pub struct AppCopy {
    pub binding: Uuid,
    pub app: String,
    pub member: MemberKey,
    pub role: Role,
    /// None until the synchronizer has reported it.
    pub status: Option<Arc<BindingStatus>>,
    /// The objects of its bundle until the synchronizer reports theirs.
    pub objects: Vec<ObjectStatus>,
}

/// How much detail is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputLevel {
    /// Totals without apps.
    Summary,
    /// Apps, clusters and objects.
    #[default]
    All,
    /// Also bindings, phases and reasons.
    Detail,
}

/// Lists of names instead of the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NamesOf {
    Apps,
    /// Clusters by app.
    Clusters,
    /// Resources by app and cluster.
    Resources,
}

/// EMCO's older form of the status, which is shown beside the present one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OlderForm {
    /// What was applied.
    Rsync,
    /// What is ready in the clusters.
    Cluster,
}

/// A parsed status query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusQuery {
    instance: Option<String>,
    output: OutputLevel,
    names: Option<NamesOf>,
    older: Option<OlderForm>,
    apps: Vec<String>,
    clusters: Vec<MemberKey>,
    resources: Vec<String>,
}

impl StatusQuery {
    /// Parses a query string. Filters may repeat; of the switches `apps`, `clusters` and `resources` the first in this order counts.
    ///
    /// # Errors
    /// A filter has an invalid value.
    pub fn parse(query: &[(String, String)]) -> Result<Self, Error> {
        let mut wanted = Self::default();
        let mut wrong = Vec::new();
        for (key, value) in query {
            let switch = |names| (value != "false").then_some(names);
            match (key.as_str(), value.as_str()) {
                ("instance", id) => wanted.instance = Some(id.to_owned()).filter(|id| !id.is_empty()),
                ("output", "summary") => wanted.output = OutputLevel::Summary,
                ("output", "all" | "") => wanted.output = OutputLevel::All,
                ("output", "detail") => wanted.output = OutputLevel::Detail,
                ("output", other) => wrong.push(format!("output must be summary, all or detail, not {other}")),
                ("status", "deployed" | "ready" | "") => {}
                ("status", other) => wrong.push(format!("status must be deployed or ready, not {other}; both are always shown")),
                ("type", "rsync") => wanted.older = Some(OlderForm::Rsync),
                ("type", "cluster") => wanted.older = Some(OlderForm::Cluster),
                ("type", "") => {}
                ("type", other) => wrong.push(format!("type must be rsync or cluster, not {other}")),
                ("app", app) => wanted.apps.push(app.to_owned()),
                // A plus that was not escaped arrives as a space.
                ("cluster", cluster) => wanted.clusters.push(MemberKey(cluster.replace(' ', "+"))),
                ("resource", resource) => wanted.resources.push(resource.to_owned()),
                ("apps", _) => wanted.names = wanted.names.into_iter().chain(switch(NamesOf::Apps)).min(),
                ("clusters", _) => wanted.names = wanted.names.into_iter().chain(switch(NamesOf::Clusters)).min(),
                ("resources", _) => wanted.names = wanted.names.into_iter().chain(switch(NamesOf::Resources)).min(),
                _ => {}
            }
        }
        if wrong.is_empty() { Ok(wanted) } else { Err(Error::Inconsistent(wrong)) }
    }

    /// The state that an earlier instance has reached, if the query asks for one. Where its objects were is not known any more.
    ///
    /// # Errors
    /// The history has no such instance.
    pub fn earlier(&self, states: &DigStates) -> Result<Option<String>, Error> {
        let Some(asked) = self.instance.as_deref().filter(|asked| *asked != states.statusctxid) else { return Ok(None) };
        let action = states.actions.iter().rev().find(|action| action.instance == asked);
        action.map(|action| Some(action.state.clone())).ok_or_else(|| Error::NotFound { what: format!("instance {asked}") })
    }

    /// Checks that everything that the filters name exists.
    ///
    /// # Errors
    /// Something that a filter names does not exist.
    pub fn check(&self, apps: &[String], copies: &[AppCopy]) -> Result<(), Error> {
        let not_found = |what: String| Err(Error::NotFound { what });
        if let Some(app) = self.apps.iter().find(|app| !apps.contains(app)) {
            return not_found(format!("app {app}"));
        }
        if let Some(cluster) = self.clusters.iter().find(|cluster| !copies.iter().any(|copy| copy.member == **cluster)) {
            return not_found(format!("cluster {cluster} of this deployment intent group"));
        }
        let known = |name: &String| copies.iter().flat_map(|copy| &copy.objects).any(|object| object.name == *name);
        if let Some(resource) = self.resources.iter().find(|resource| !known(resource)) {
            return not_found(format!("resource {resource}"));
        }
        Ok(())
    }

    /// Adds what the query asks for. A group without deployed status has nothing to add.
    pub fn show(&self, mut status: DigStatus, apps: &[String], copies: &[AppCopy]) -> DigStatus {
        status.status = self.older.and(status.deployed_status.clone());
        if status.deployed_status.is_none() {
            return status;
        }
        let apps: Vec<&String> = apps.iter().filter(|app| self.apps.is_empty() || self.apps.contains(app)).collect();
        let copies: Vec<&AppCopy> = copies
            .iter()
            .filter(|copy| {
                apps.contains(&&copy.app)
                    && (self.clusters.is_empty() || self.clusters.contains(&copy.member))
                    && (self.resources.is_empty() || self.objects(copy).next().is_some())
            })
            .collect();
        let of = |app: &str| copies.iter().copied().filter(|copy| copy.app == app).collect::<Vec<_>>();
        // With a filter on clusters or resources, apps without a match are left out.
        let narrowed = !self.clusters.is_empty() || !self.resources.is_empty();
        let shown = apps.into_iter().filter(|app| !narrowed || !of(app).is_empty());
        match self.names {
            Some(NamesOf::Apps) => {
                status.deployed_status = None;
                status.apps = Some(shown.map(|app| AppEntry::Name(app.clone())).collect());
            }
            Some(NamesOf::Clusters) => {
                status.deployed_status = None;
                status.clusters_by_app = Some(
                    shown
                        .map(|app| AppClusters {
                            app: app.clone(),
                            clusters: of(app)
                                .into_iter()
                                .map(|copy| ClusterName {
                                    cluster_provider: copy.member.provider().to_owned(),
                                    cluster: copy.member.cluster().to_owned(),
                                })
                                .collect(),
                        })
                        .collect(),
                );
            }
            Some(NamesOf::Resources) => {
                status.deployed_status = None;
                status.resources_by_app = Some(
                    copies
                        .iter()
                        .map(|copy| AppResources {
                            app: copy.app.clone(),
                            cluster_provider: copy.member.provider().to_owned(),
                            cluster: copy.member.cluster().to_owned(),
                            resources: self
                                .objects(copy)
                                .map(|object| ResourceName { name: object.name.clone(), gvk: gvk(object) })
                                .collect(),
                        })
                        .collect(),
                );
            }
            None => {
                status.ready_status = Some(if ready(&copies) { "Ready" } else { "NotReady" }.to_owned());
                let (mut deployed_counts, mut ready_counts) = (BTreeMap::new(), BTreeMap::new());
                for (copy, object) in copies.iter().flat_map(|copy| self.objects(copy).map(move |object| (copy, object))) {
                    *deployed_counts.entry(deployed(copy, object).to_owned()).or_default() += 1;
                    if copy.role != Role::Retiring {
                        *ready_counts.entry(readiness(object).to_owned()).or_default() += 1;
                    }
                }
                match self.older {
                    Some(OlderForm::Rsync) => status.rsync_status = Some(deployed_counts.clone()),
                    Some(OlderForm::Cluster) => status.cluster_status = Some(ready_counts.clone()),
                    None => {}
                }
                (status.deployed_counts, status.ready_counts) = (Some(deployed_counts), Some(ready_counts));
                if self.output != OutputLevel::Summary {
                    status.apps = Some(
                        shown
                            .map(|app| {
                                AppEntry::Full(AppStatus {
                                    name: app.clone(),
                                    clusters: of(app).into_iter().map(|copy| self.cluster(copy)).collect(),
                                })
                            })
                            .collect(),
                    );
                }
            }
        }
        status
    }

    fn objects<'a>(&'a self, copy: &'a AppCopy) -> impl Iterator<Item = &'a ObjectStatus> {
        copy.objects.iter().filter(|object| self.resources.is_empty() || self.resources.contains(&object.name))
    }

    fn cluster(&self, copy: &AppCopy) -> ClusterStatus {
        let connectivity = match copy.status.as_ref().map(|status| status.phase) {
            None => "Unknown",
            Some(Phase::Unreachable) => "Retrying",
            Some(_) => "Available",
        };
        ClusterStatus {
            cluster_provider: copy.member.provider().to_owned(),
            cluster: copy.member.cluster().to_owned(),
            connectivity: connectivity.to_owned(),
            ready_status: self.older.map(|_| connectivity.to_owned()),
            resources: self.objects(copy).map(|object| self.resource(copy, object)).collect(),
        }
    }

    fn resource(&self, copy: &AppCopy, object: &ObjectStatus) -> ResourceStatus {
        let reason = || {
            object.reason.clone().or_else(|| {
                copy.status
                    .as_ref()
                    .filter(|_| !object.ready)
                    .and_then(|status| status.unschedulable.clone().or_else(|| status.reason.clone()))
            })
        };
        ResourceStatus {
            gvk: gvk(object),
            name: object.name.clone(),
            deployed_status: deployed(copy, object).to_owned(),
            ready_status: readiness(object).to_owned(),
            rsync_status: (self.older == Some(OlderForm::Rsync)).then(|| deployed(copy, object).to_owned()),
            cluster_status: (self.older == Some(OlderForm::Cluster)).then(|| readiness(object).to_owned()),
            detail: (self.output == OutputLevel::Detail).then(|| ResourceDetail {
                binding: copy.binding,
                phase: apps::phase(copy.role, copy.status.as_deref()),
                namespace: object.namespace.clone(),
                reason: reason(),
            }),
        }
    }
}

fn gvk(object: &ObjectStatus) -> Gvk {
    Gvk { group: object.group.clone(), version: object.version.clone(), kind: object.kind.clone() }
}

fn deployed(copy: &AppCopy, object: &ObjectStatus) -> &'static str {
    match (copy.role, copy.status.as_ref().map(|status| status.phase)) {
        (Role::Retiring | Role::Gone, Some(Phase::Gone)) => "Deleted",
        (Role::Retiring | Role::Gone, _) => "Pending",
        _ if object.applied => "Applied",
        (_, Some(Phase::Failed)) => "Failed",
        _ => "Pending",
    }
}

fn readiness(object: &ObjectStatus) -> &'static str {
    match (object.ready, object.applied) {
        (true, _) => "Ready",
        (false, false) if COUNTED_ABSENT.contains(&object.kind.as_str()) => "NotPresent",
        _ => "NotReady",
    }
}

/// Whether all serving copies are ready, or all starting ones if none serves yet. During a move, copies that start or go
/// beside a serving one do not count.
fn ready(copies: &[&AppCopy]) -> bool {
    let of = |role| copies.iter().filter(move |copy| copy.role == role).collect::<Vec<_>>();
    let serving = Some(of(Role::Current)).filter(|current| !current.is_empty()).unwrap_or_else(|| of(Role::Target));
    !serving.is_empty() && serving.iter().all(|copy| copy.status.as_ref().is_some_and(|status| status.phase == Phase::Ready))
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
