//! Manifests of the apps in scenarios. No I/O.

use serde_json::{Value, json};

/// An app: a Deployment, and a volume claim if wanted.
#[derive(Clone, Debug)]
pub struct App {
    pub name: String,
    replicas: u32,
    cpu_m: u32,
    memory_mi: u32,
    annotations: Value,
    volume: bool,
    /// StorageClass of the volume of each pod; it is a StatefulSet then.
    class: Option<String>,
    /// Whether several pods may write these volumes at the same time.
    overlaps: bool,
    /// Whether its Service is exported to other clusters.
    exported: bool,
    /// Annotations of its Service.
    service_annotations: Value,
    /// Image and shell command.
    program: Option<(String, String)>,
    /// The user that its containers run as, if not that of the image.
    user: Option<u32>,
    nodes: Option<String>,
    /// The port on which its pods answer; it has a Service of its name then.
    port: Option<u16>,
    /// Type of that Service.
    service_type: Option<&'static str>,
    /// The clusters where it may run, as `provider/cluster`, if not those of its group.
    pub any_of: Option<Vec<String>>,
}

impl App {
    /// A Deployment with one pod that requests `cpu_m` millicores and 256 MiB.
    pub fn new(name: &str, cpu_m: u32) -> Self {
        Self {
            name: name.into(),
            replicas: 1,
            cpu_m,
            memory_mi: 256,
            annotations: json!({}),
            volume: false,
            class: None,
            overlaps: false,
            exported: false,
            service_annotations: json!({}),
            program: None,
            user: None,
            nodes: None,
            port: None,
            service_type: None,
            any_of: None,
        }
    }
    /// Sets the requested memory, in MiB.
    pub fn memory(mut self, mebibytes: u32) -> Self {
        self.memory_mi = mebibytes;
        self
    }
    /// Restricts it to these members (`provider/cluster`), whatever its group says.
    pub fn on(mut self, members: impl IntoIterator<Item = &'static str>) -> Self {
        self.any_of = Some(members.into_iter().map(str::to_owned).collect());
        self
    }
    /// Sets the number of pods.
    pub fn replicas(mut self, n: u32) -> Self {
        self.replicas = n;
        self
    }
    /// Sets the CPU use that simulated nodes report for each pod, in millicores.
    pub fn uses(mut self, cpu_m: u32) -> Self {
        self.annotations["kit/cpu"] = format!("{cpu_m}m").into();
        self
    }
    /// Adds an annotation to the pods, such as `kit/start-delay`.
    pub fn annotated(mut self, key: &str, value: &str) -> Self {
        self.annotations[key] = value.into();
        self
    }
    /// Lets its pods answer on this port, behind a Service of its name with port 80.
    pub fn serving(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }
    /// Opens the Service on a port of the nodes.
    pub fn on_node_ports(mut self) -> Self {
        self.service_type = Some("NodePort");
        self
    }
    /// Adds a persistent volume claim.
    pub fn with_volume(mut self) -> Self {
        self.volume = true;
        self
    }

    /// Makes it a StatefulSet in which each pod has a volume of this class.
    pub fn stateful(mut self, class: &str) -> Self {
        self.class = Some(class.into());
        self
    }

    /// Lets several pods write its volumes at the same time, so that a pod may start elsewhere before it has stopped.
    pub fn overlapping(mut self) -> Self {
        self.overlaps = true;
        self
    }

    /// Exports its Service to the clusters of its pod network.
    pub fn exported(mut self) -> Self {
        self.exported = true;
        self
    }

    /// Lets it count as serving when its Service answers a request of this path.
    pub fn serving_when_it_answers(mut self, path: &str) -> Self {
        self.service_annotations["drover.io/serving-http"] = path.into();
        self
    }

    /// Gives its pods this image and this command; the volume of a StatefulSet is at `/data`.
    pub fn running(mut self, image: &str, command: &str) -> Self {
        self.program = Some((image.into(), command.into()));
        self
    }

    /// Runs its containers as this user.
    pub fn as_user(mut self, user: u32) -> Self {
        self.user = Some(user);
        self
    }

    /// Restricts its pods to nodes with the label `scene` of this value and a taint of the same name.
    pub fn on_nodes(mut self, scene: &str) -> Self {
        self.nodes = Some(scene.into());
        self
    }

    /// The objects as YAML documents.
    pub fn manifests(&self) -> String {
        let name = &self.name;
        let mut pod = json!({
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main", "image": "registry.example/app:1",
                "resources": {"requests": {"cpu": format!("{}m", self.cpu_m), "memory": format!("{}Mi", self.memory_mi)}},
            }],
        });
        if let Some(scene) = &self.nodes {
            pod["nodeSelector"] = json!({"scene": scene});
            pod["tolerations"] = json!([{"key": "scene", "operator": "Exists"}]);
        }
        if let Some((image, command)) = &self.program {
            let node = json!({"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}});
            let container = &mut pod["containers"][0];
            (container["image"], container["imagePullPolicy"]) = (json!(image), json!("Never"));
            (container["command"], container["env"]) = (json!(["sh", "-c", command]), json!([node]));
        }
        if let Some(user) = self.user {
            pod["securityContext"] = json!({"runAsUser": user});
        }
        if self.class.is_some() {
            pod["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
        }
        let mut documents = Vec::new();
        if self.volume {
            pod["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": name}}]);
            documents.push(json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            }));
        }
        if let Some(port) = self.port {
            pod["containers"][0]["ports"] = json!([{"containerPort": port}]);
            documents.push(json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "annotations": self.service_annotations},
                "spec": {"type": self.service_type.unwrap_or("ClusterIP"), "selector": {"app": name}, "ports": [{"port": 80, "targetPort": port}]},
            }));
        }
        if self.exported {
            let export = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceExport", "metadata": {"name": name}});
            documents.push(export);
        }
        let mut workload = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {
                "replicas": self.replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}, "annotations": self.annotations}, "spec": pod},
            },
        });
        if let Some(class) = &self.class {
            workload["kind"] = "StatefulSet".into();
            workload["spec"]["serviceName"] = json!(name);
            let (mode, annotations) = match self.overlaps {
                true => ("ReadWriteMany", json!({"drover.io/may-overlap": "true"})),
                false => ("ReadWriteOnce", json!({})),
            };
            workload["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data", "annotations": annotations}, "spec": {
                "accessModes": [mode], "storageClassName": class, "resources": {"requests": {"storage": "1Gi"}},
            }}]);
        }
        documents.push(workload);
        // JSON is valid YAML.
        documents.iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n")
    }
}
