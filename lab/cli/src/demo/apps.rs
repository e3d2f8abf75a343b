//! The applications of the demo, as ordinary manifests. No I/O.

use drover_scheduling::Amounts;
use serde_json::{Value, json};

use drover::output;

/// Port at which the pods answer.
const PORT: u16 = 8080;
/// CPU (millicores) and memory (bytes) of the members for which the requests below are chosen.
const MEMBER: (i64, i64) = (4000, 8 << 30);

/// Factors by which requests are multiplied so that they fit smaller members; at most 1.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    cpu: f64,
    memory: f64,
}

impl Size {
    /// For members of which the smallest has this much free.
    pub fn for_members(free: &Amounts) -> Self {
        let share = |free: i64, made_for: i64| (free as f64 / made_for as f64).min(1.0);
        Self { cpu: share(free.cpu, MEMBER.0), memory: share(free.memory, MEMBER.1) }
    }

    fn cpu(self, milli: u32) -> i64 {
        (f64::from(milli) * self.cpu).floor() as i64
    }

    fn memory(self, mi: u32) -> i64 {
        (f64::from(mi) * self.memory).floor() as i64
    }
}

/// One microservice of the demo.
pub struct App {
    pub name: &'static str,
    cpu_m: u32,
    memory_mi: u32,
    /// CPU that its simulated pods use, in millicores.
    used_m: u32,
}

/// One application of the demo.
pub struct Application {
    pub name: &'static str,
    /// Priority of being moved (1 is moved first); `None` if it may not be moved.
    pub movable: Option<u8>,
    /// Its microservices.
    pub apps: &'static [App],
}

const fn app(name: &'static str, cpu_m: u32, memory_mi: u32, used_m: u32) -> App {
    App { name, cpu_m, memory_mi, used_m }
}

/// Six applications of nine microservices that fill the preferred provider.
pub const APPLICATIONS: [Application; 6] = [
    Application { name: "shop", movable: Some(5), apps: &[app("catalogue", 600, 512, 200), app("cart", 700, 1024, 35)] },
    Application { name: "blog", movable: Some(5), apps: &[app("web", 600, 1024, 18), app("comments", 500, 512, 150)] },
    Application { name: "db", movable: None, apps: &[app("postgres", 900, 1024, 400)] },
    Application { name: "mail", movable: None, apps: &[app("smtp", 800, 1024, 320)] },
    Application { name: "wiki", movable: Some(8), apps: &[app("pages", 900, 1024, 90)] },
    Application { name: "build", movable: Some(5), apps: &[app("ci", 1000, 1024, 850), app("cache", 700, 512, 500)] },
];

/// The application that has no room in any cluster where it may run.
pub const NEWCOMER: Application = Application { name: "ledger", movable: None, apps: &[app("ledger", 1500, 2048, 700)] };

/// Requests of the newcomer's pod, as text.
pub fn newcomer_needs(size: Size) -> String {
    let app = &NEWCOMER.apps[0];
    output::amounts(&Amounts { cpu: size.cpu(app.cpu_m), memory: size.memory(app.memory_mi) << 20, ..Amounts::default() })
}

impl Application {
    /// Its manifests in YAML; its containers run `image`.
    pub fn manifests(&self, image: &str, command: &[&str], size: Size) -> String {
        self.apps
            .iter()
            .map(|app| format!("{}---\n{}", yaml(&app.deployment(image, command, size)), yaml(&app.service())))
            .collect::<Vec<_>>()
            .join("---\n")
    }
}

impl App {
    fn deployment(&self, image: &str, command: &[&str], size: Size) -> Value {
        let used = format!("{}m", size.cpu(self.used_m));
        let requests = json!({"cpu": format!("{}m", size.cpu(self.cpu_m)), "memory": format!("{}Mi", size.memory(self.memory_mi))});
        let mut container = json!({
            "name": "main", "image": image, "imagePullPolicy": "IfNotPresent", "ports": [{"containerPort": PORT}],
            "resources": {"requests": requests},
        });
        if !command.is_empty() {
            container["command"] = json!(command);
        }
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": self.name},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": self.name}},
                "template": {
                    "metadata": {"labels": {"app": self.name}, "annotations": {"kit/cpu": used, "kit/mem": "64Mi"}},
                    "spec": {
                        "terminationGracePeriodSeconds": 1,
                        "containers": [container],
                    },
                },
            },
        })
    }

    fn service(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": self.name},
            "spec": {"selector": {"app": self.name}, "ports": [{"port": 80, "targetPort": PORT}]},
        })
    }
}

fn yaml(value: &Value) -> String {
    serde_yaml::to_string(value).unwrap_or_default()
}
