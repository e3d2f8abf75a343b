//! Apps with volumes: directories that all clusters of this machine reach, and an audit of who writes into them.
//!
//! Each pod writes its node and the time of the machine to its volume every 50 ms. A volume whose lines change from one node to another more
//! often than it was moved had two writers.

use std::path::{Path, PathBuf};

use drover_testkit::eventually;
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use crate::Member;
use crate::apps::App;

/// The StorageClass of the volumes.
pub const CLASS: &str = "e2e-directory";
/// Waits at most for this long for a pod that serves its volume.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(120);
/// Serves the volume on port 8080, and writes who and when into it.
const PROGRAM: &str =
    "httpd -p 8080 -h /data; while true; do read now idle < /proc/uptime; echo \"$NODE $now\" >> /data/writers; usleep 50000; done";

/// A StorageClass whose volumes are directories that every cluster has, or that only this one has.
pub async fn class(member: &Member, shared: bool) {
    let classes: Api<StorageClass> = Api::all(member.client.clone());
    let labels = if shared { json!({"drover.io/shared": "true"}) } else { json!({}) };
    let class = json!({"metadata": {"name": CLASS, "labels": labels}, "provisioner": "kubernetes.io/no-provisioner"});
    let class = serde_json::from_value(class).expect("a StorageClass");
    classes.create(&PostParams::default(), &class).await.expect("the member accepts the class");
}

/// A volume for one claim of the app. Whether several pods may write it is up to the claim.
pub async fn volume(member: &Member, app: &str, ordinal: u32, path: &str) {
    let volumes: Api<PersistentVolume> = Api::all(member.client.clone());
    let volume = json!({"metadata": {"name": format!("{app}-{ordinal}")}, "spec": {"capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce", "ReadWriteMany"], "persistentVolumeReclaimPolicy": "Delete", "storageClassName": CLASS,
        "hostPath": {"path": path}, "claimRef": {"namespace": "default", "name": format!("data-{app}-{ordinal}")}}});
    let volume = serde_json::from_value(volume).expect("a PersistentVolume");
    volumes.create(&PostParams::default(), &volume).await.expect("the member accepts the volume");
}

/// Two directories of this machine, each the volume of one of two pods.
pub struct Directories(tempfile::TempDir);

impl Directories {
    /// Makes them, with a page in each that its pod serves, and tells the members of them. The volumes are in the first one.
    pub async fn shared_by(members: &[Member]) -> Self {
        let directories = Self(tempfile::tempdir().expect("a temporary folder"));
        for member in members {
            class(member, true).await;
        }
        for ordinal in 0..2 {
            let directory = directories.of(ordinal);
            std::fs::create_dir(&directory).expect("the folder is ours");
            std::fs::write(directory.join("index.html"), page(ordinal)).expect("the folder is ours");
            volume(&members[0], "db", ordinal, &directory.display().to_string()).await;
        }
        directories
    }

    /// The app of two pods that serve them and write into them.
    pub fn app() -> App {
        App::new("db", 100).memory(32).replicas(2).stateful(CLASS).running("drover.local/busybox:1", PROGRAM)
    }

    fn of(&self, ordinal: u32) -> PathBuf {
        self.0.path().join(format!("volume-{ordinal}"))
    }

    /// Waits until each pod of the app in this member serves its own volume.
    pub async fn are_served(&self, member: &Member) {
        for ordinal in 0..2 {
            let wanted = page(ordinal);
            eventually(PATIENCE, async || (served(member, ordinal).await? == wanted).then_some(())).await;
        }
    }

    /// The writers of each volume in their order, and the longest time between two of them in seconds.
    ///
    /// # Errors
    /// Two wrote at once.
    pub fn writers(&self) -> Result<[(Vec<String>, f64); 2], String> {
        Ok([writers(&self.of(0))?, writers(&self.of(1))?])
    }
}

fn page(ordinal: u32) -> String {
    format!("volume {ordinal}")
}

/// What the pod with this ordinal answers.
async fn served(member: &Member, ordinal: u32) -> Option<String> {
    let pod = member.pods().get_opt(&format!("db-{ordinal}")).await.ok()??;
    let address = pod.status?.pod_ip?;
    reqwest::get(format!("http://{address}:8080/index.html")).await.ok()?.text().await.ok()
}

fn writers(volume: &Path) -> Result<(Vec<String>, f64), String> {
    let text = std::fs::read_to_string(volume.join("writers")).map_err(|error| error.to_string())?;
    let (mut writers, mut last, mut gap) = (Vec::<String>::new(), 0.0, 0.0_f64);
    // The last line may just be being written.
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    for line in complete.lines() {
        let (node, time) = line.split_once(' ').ok_or_else(|| format!("{line:?} is not what a pod writes"))?;
        let time: f64 = time.parse().map_err(|_| format!("{line:?} has no time"))?;
        if writers.last().is_none_or(|writer| writer != node) {
            if !writers.is_empty() {
                gap = gap.max(time - last);
            }
            writers.push(node.to_owned());
        }
        if time < last {
            return Err(format!("{line} after {last}: two writers at once"));
        }
        last = time;
    }
    Ok((writers, gap))
}
