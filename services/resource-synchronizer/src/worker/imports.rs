//! Multi-cluster Services (KEP-1645): a Service for which its app brings a `ServiceExport` is imported in the members of the pod network.
//!
//! An import is part of a stand-in ([`super::names`]), which an app that exports has also where it runs: a `ServiceImport` with the cluster IP
//! that the Service has in this member, and slices with the endpoints of all copies, one for each source. Only members that serve the kind
//! get it. What was found is told in the statuses of the `ServiceExport` and of the `ServiceImport`.
//!
//! Invariant: of several apps of a pod network that export a Service of the same name in the same namespace, the one whose group is the oldest
//! has it in all members, and the others are told; an import that is not Drover's is never changed.

use std::collections::BTreeSet;

use drover_api::traffic::PortEndpoints;
use drover_members::{DEADLINE, Member, MemberError, ObjectId, labels};
use drover_scheduling::MemberKey;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::timeout;
use uuid::Uuid;

use super::Worker;
use super::binding_state::BindingState;
use super::endpoints::MANAGED_BY;
use super::names::{Copies, Whose, has_name, slices};
use crate::app::Error;
use crate::store;
use crate::store::bundles::is_export;

/// Label of a slice: the imported Service.
const SERVICE: &str = "multicluster.kubernetes.io/service-name";
/// Label of a slice: where its pods are.
const SOURCE: &str = "multicluster.kubernetes.io/source-cluster";
/// The most characters that the value of a label may have.
const LABEL: usize = 63;

/// An export of an app's bundle.
struct Export {
    /// The address of the `ServiceExport`.
    id: ObjectId,
    /// Its Service, or why it cannot be exported.
    service: Result<Value, Invalid>,
}

/// Why a Service cannot be exported, as a reason of the condition `Valid`, and in words.
type Invalid = (&'static str, &'static str);

/// Who has the import of a name in this member.
enum Holder {
    /// The member does not serve the kind.
    Nobody,
    /// This app has it, or may.
    Own {
        /// As it is.
        import: Option<Value>,
        /// An app that exported the name before still has to part with it.
        occupied: bool,
    },
    /// Another app's export goes first.
    App(String),
    /// It was made by somebody else.
    Foreign,
}

impl Export {
    /// The exports of a bundle. `default` is the namespace of objects that name none.
    fn all(bundle: &[Value], default: &str) -> Vec<Self> {
        let namespace = |object: &Value| {
            let own = object["metadata"]["namespace"].as_str().filter(|own| !own.is_empty());
            own.unwrap_or(default).to_owned()
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let export = |object: &Value| {
            let (name, at) = (text(&object["metadata"]["name"]), namespace(object));
            let is_service = |other: &&Value| {
                other["apiVersion"] == "v1"
                    && other["kind"] == "Service"
                    && other["metadata"]["name"] == name.as_str()
                    && namespace(other) == at
            };
            let service = match bundle.iter().find(is_service) {
                None => Err(("NoService", "the app has no Service of this name")),
                Some(service) if !has_name(service) => Err(("InvalidServiceType", "only a Service that selects pods can be exported")),
                Some(service) => Ok(service.clone()),
            };
            Self { id: ObjectId { api_version: text(&object["apiVersion"]), kind: "ServiceExport".into(), namespace: at, name }, service }
        };
        bundle.iter().filter(|object| is_export(object)).map(export).collect()
    }

    fn import(&self) -> ObjectId {
        ObjectId { kind: "ServiceImport".into(), ..self.id.clone() }
    }

    fn service_id(&self) -> ObjectId {
        ObjectId { api_version: "v1".into(), kind: "Service".into(), ..self.id.clone() }
    }
}

impl Worker {
    /// The objects by which this member imports what the app of a stand-in exports.
    pub(super) async fn imports(
        &self,
        member: &Member,
        bound: &BindingState,
        (here, elsewhere): (&Copies, &Copies),
        bundle: &[Value],
    ) -> Result<Vec<Value>, Error> {
        let mut objects = Vec::new();
        for export in Export::all(bundle, &bound.row.desired.namespace) {
            let Ok(service) = &export.service else { continue };
            let Holder::Own { occupied: false, .. } = self.holder(member, bound, &export).await? else { continue };
            let addresses = self.addresses(member, bound, here, &export).await?;
            objects.push(import(&export.import(), service, &addresses));
            for (copy, source) in here.iter().chain(elsewhere) {
                let published = self.app.endpoints.get(&copy.to_string());
                let ports = published.iter().flat_map(|copy| &copy.ports);
                let of_service = ports.filter(|port| port.service == export.id.name && port.namespace == export.id.namespace);
                let ports: Vec<&PortEndpoints> = of_service.filter(|port| !port.pods.is_empty()).collect();
                let source = cluster_label(source);
                let marks = json!({SERVICE: export.id.name, SOURCE: source, MANAGED_BY: labels::FIELD_MANAGER});
                let name = format!("{}-from-{source}", export.id.name);
                objects.extend(slices(&export.id.namespace, &name, &marks, ports.into_iter()));
            }
        }
        Ok(objects)
    }

    /// Tells in the statuses what was found. False: something is not as it will be, so it is to be looked at again.
    pub(super) async fn tell_exports(&self, member: &Member, id: Uuid, bundle: &[Value]) -> Result<bool, Error> {
        let bound = &self.bindings[&id];
        let (here, elsewhere) = self.copies(bound).await?;
        let sources: BTreeSet<String> = here.iter().chain(&elsewhere).map(|(_, source)| cluster_label(source)).collect();
        let clusters: Vec<Value> = sources.into_iter().map(|source| json!({"cluster": source})).collect();
        let mut complete = true;
        for export in Export::all(bundle, &bound.row.desired.namespace) {
            let holder = self.holder(member, bound, &export).await?;
            if let (Holder::Own { import, occupied }, Ok(service)) = (&holder, &export.service) {
                let needs_address = service["spec"]["clusterIP"] != "None";
                let has_address = import.as_ref().is_some_and(|import| import["spec"]["ips"].as_array().is_some_and(|ips| !ips.is_empty()));
                // An address comes with the Service, which may be that of a copy that is just being applied. Another app's gives none.
                let awaited = needs_address && self.whose(bound, &here, &export.service_id()) != Whose::Others;
                complete &= !occupied && (has_address || !awaited);
                if let Some(import) = import
                    && import["status"]["clusters"] != json!(clusters)
                {
                    complete &= self.set_status(member, &export.import(), json!({"clusters": clusters})).await?;
                }
            }
            if here.is_empty() || matches!(holder, Holder::Nobody) {
                continue;
            }
            let Some(found) = readable(member, &export.id).await? else { continue };
            let conditions = conditions(&found, &export, &holder);
            if found["status"]["conditions"] != json!(conditions) {
                complete &= self.set_status(member, &export.id, json!({"conditions": conditions})).await?;
            }
        }
        Ok(complete)
    }

    /// Writes a status; false: it could not be written, and is tried again. The names are right all the same.
    async fn set_status(&self, member: &Member, id: &ObjectId, status: Value) -> Result<bool, Error> {
        let params = PatchParams { field_manager: Some(labels::FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({"status": status}));
        let api = member.api(id).await?;
        match timeout(DEADLINE, api.patch_status(&id.name, &params, &patch)).await {
            Ok(Ok(_)) => Ok(true),
            failed => {
                tracing::warn!(cluster.id = %self.key, object = %id, ?failed, "the status of a multi-cluster Service cannot be written");
                Ok(false)
            }
        }
    }

    async fn holder(&self, member: &Member, bound: &BindingState, export: &Export) -> Result<Holder, Error> {
        let import = export.import();
        if matches!(member.mapping(&import.api_version, &import.kind).await, Err(MemberError::UnknownKind { .. })) {
            return Ok(Holder::Nobody);
        }
        let networks = self.app.networks();
        let near = |member: &MemberKey| networks.get(member).is_some_and(|network| networks.get(&self.key) == Some(network));
        let exporters = store::names::exporters(&self.app.store, &export.id.namespace, &export.id.name).await?;
        let own = (bound.row.desired.dig.id, bound.row.desired.app.as_str());
        let first = exporters.into_iter().filter(|other| near(&other.member)).map(|other| (other.dig, other.app, other.group)).min();
        if let Some((dig, app, group)) = first
            && (dig, app.as_str()) != own
        {
            return Ok(Holder::App(format!("{app} of {group}")));
        }
        let found = readable(member, &import).await?;
        let marks = found.as_ref().map(|found| &found["metadata"]["labels"]);
        let is_own = |marks: &Value| marks[labels::HUB] == self.app.hub.to_string().as_str();
        let binding = marks.map(|marks| marks[labels::BINDING].as_str().filter(|_| is_own(marks))?.parse::<Uuid>().ok());
        match binding {
            Some(None) => Ok(Holder::Foreign),
            Some(Some(binding)) => Ok(Holder::Own { import: found.filter(|_| binding == bound.id()), occupied: binding != bound.id() }),
            None => Ok(Holder::Own { import: None, occupied: false }),
        }
    }

    /// The cluster IPs that the Service has in this member, if it is the app's.
    async fn addresses(&self, member: &Member, bound: &BindingState, here: &Copies, export: &Export) -> Result<Vec<String>, Error> {
        let id = export.service_id();
        let is_own = |binding: Uuid| binding == bound.id() || here.iter().any(|(copy, _)| *copy == binding);
        if !self.view.object(&id).is_some_and(|seen| is_own(seen.binding)) {
            return Ok(Vec::new());
        }
        let spec = member.object(&id).await?.map(|service| service.data["spec"].clone()).unwrap_or_default();
        let all = spec["clusterIPs"].as_array().cloned().unwrap_or_else(|| vec![spec["clusterIP"].clone()]);
        let addresses = all.iter().filter_map(Value::as_str).filter(|address| *address != "None" && !address.is_empty());
        Ok(addresses.map(str::to_owned).collect())
    }
}

/// An object with all its fields. One that may not be read counts as missing.
async fn readable(member: &Member, id: &ObjectId) -> Result<Option<Value>, Error> {
    match member.object(id).await {
        Ok(found) => Ok(found.map(|object| serde_json::to_value(object).unwrap_or_default())),
        Err(error) if error.is_object() => {
            tracing::warn!(object = %id, %error, "a multi-cluster Service cannot be read");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

fn import(id: &ObjectId, service: &Value, addresses: &[String]) -> Value {
    let spec = &service["spec"];
    let headless = spec["clusterIP"] == "None";
    let is_tcp = |port: &&Value| port["protocol"].is_null() || port["protocol"] == "TCP";
    let port = |port: &Value| {
        let mut kept = json!({"port": port["port"], "protocol": "TCP"});
        for field in ["name", "appProtocol"] {
            if port[field].is_string() {
                kept[field] = port[field].clone();
            }
        }
        kept
    };
    let ports: Vec<Value> = spec["ports"].as_array().into_iter().flatten().filter(is_tcp).map(port).collect();
    let mut import = json!({"apiVersion": id.api_version, "kind": id.kind, "metadata": {"name": id.name, "namespace": id.namespace},
        "spec": {"type": if headless { "Headless" } else { "ClusterSetIP" }, "ports": ports}});
    if !headless && !addresses.is_empty() {
        import["spec"]["ips"] = json!(addresses);
    }
    if spec["sessionAffinity"].is_string() {
        import["spec"]["sessionAffinity"] = spec["sessionAffinity"].clone();
    }
    import
}

/// The conditions of an export: those that are Drover's as they are to be, and those of others as they are.
fn conditions(found: &Value, export: &Export, holder: &Holder) -> Vec<Value> {
    let valid = match &export.service {
        Ok(_) => ("True", "Valid", "it is exported to the clusters of the pod network".to_owned()),
        Err((reason, words)) => ("False", *reason, (*words).to_owned()),
    };
    let conflict = match holder {
        Holder::App(other) => ("True", "ExportedBefore", format!("the app {other} exports a Service of this name, and its group is older")),
        Holder::Foreign => ("True", "ImportedByOthers", "there is a ServiceImport of this name that is not Drover's".to_owned()),
        Holder::Own { .. } | Holder::Nobody => ("False", "NoConflicts", String::new()),
    };
    let before = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let known = |kind: &str| before.iter().find(|condition| condition["type"] == kind);
    let condition = |kind: &str, (status, reason, message): (&str, &str, String)| {
        let same = known(kind).filter(|before| before["status"] == status).map(|before| before["lastTransitionTime"].clone());
        json!({"type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": same.unwrap_or_else(|| json!(drover_store::now().to_string()))})
    };
    let others = before.iter().filter(|condition| condition["type"] != "Valid" && condition["type"] != "Conflict").cloned();
    [condition("Valid", valid), condition("Conflict", conflict)].into_iter().chain(others).collect()
}

/// A member's name as it is allowed in labels and names: `PROVIDER-CLUSTER`, or a hash where that is not allowed, or would be the name of
/// another member too.
fn cluster_label(member: &MemberKey) -> String {
    let plain = format!("{}-{}", member.provider(), member.cluster());
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let unique = !member.provider().contains('-');
    if unique && plain.len() <= LABEL && plain.bytes().all(fits) && !plain.starts_with('-') && !plain.ends_with('-') {
        return plain;
    }
    format!("cluster-{}", Uuid::new_v5(&Uuid::NAMESPACE_OID, member.0.as_bytes()).simple())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(spec: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec})
    }

    fn export(bundle: &[Value]) -> Export {
        let export = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceExport", "metadata": {"name": "web"}});
        Export::all(&[bundle, &[export]].concat(), "shop").remove(0)
    }

    #[test]
    fn import_has_type_ports_and_addresses_of_its_service() {
        let ports = json!([{"name": "http", "port": 80, "targetPort": 8080, "nodePort": 30080, "appProtocol": "http"}, {"port": 53, "protocol": "UDP"}]);
        let made = export(&[service(json!({"selector": {"app": "web"}, "ports": ports}))]);
        let spec = import(&made.import(), made.service.as_ref().unwrap(), &["10.0.0.1".to_owned()])["spec"].clone();
        let wanted = json!({"type": "ClusterSetIP", "ports": [{"name": "http", "port": 80, "protocol": "TCP", "appProtocol": "http"}], "ips": ["10.0.0.1"]});
        assert_eq!(spec, wanted);
        let headless = export(&[service(json!({"clusterIP": "None", "selector": {"app": "web"}, "ports": [{"port": 80}]}))]);
        let spec = import(&headless.import(), headless.service.as_ref().unwrap(), &["10.0.0.1".to_owned()])["spec"].clone();
        assert_eq!((&spec["type"], &spec["ips"]), (&json!("Headless"), &Value::Null));
    }

    #[test]
    fn conditions_say_what_is_wrong_and_keep_those_of_others_and_times() {
        let said = |export: &Export, holder: &Holder, before: Value| {
            let found = json!({"status": {"conditions": before}});
            let all = conditions(&found, export, holder);
            all.iter().map(|it| format!("{} {} {}", it["type"], it["status"], it["reason"]).replace('"', "")).collect::<Vec<_>>()
        };
        let own = Holder::Own { import: None, occupied: false };
        let valid = export(&[service(json!({"selector": {"app": "web"}}))]);
        assert_eq!(said(&valid, &own, json!([])), ["Valid True Valid", "Conflict False NoConflicts"]);
        assert_eq!(said(&export(&[]), &own, json!([])), ["Valid False NoService", "Conflict False NoConflicts"]);
        let outside = export(&[service(json!({"type": "ExternalName", "externalName": "x"}))]);
        assert_eq!(said(&outside, &own, json!([]))[0], "Valid False InvalidServiceType");
        let mine = json!([{"type": "Mine", "status": "True", "reason": "Own"}]);
        assert_eq!(said(&valid, &Holder::Foreign, mine), ["Valid True Valid", "Conflict True ImportedByOthers", "Mine True Own"]);

        let told = conditions(&Value::Null, &valid, &own);
        let found = json!({"status": {"conditions": told}});
        assert_eq!(conditions(&found, &valid, &own), told, "nothing is to be written");
    }

    #[test]
    fn members_are_named_as_labels_allow_it() {
        assert_eq!(cluster_label(&MemberKey::new("onprem", "private-a")), "onprem-private-a");
        for (provider, cluster) in
            [("On", "a"), ("on", "a.b"), ("on", "a_b"), ("-", "-"), ("eu-west", "1"), (&"x".repeat(40) as &str, &"y".repeat(40) as &str)]
        {
            let label = cluster_label(&MemberKey::new(provider, cluster));
            assert!(label.starts_with("cluster-") && label.len() <= LABEL, "{label}");
        }
    }
}
