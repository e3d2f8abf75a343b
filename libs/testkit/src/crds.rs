//! CustomResourceDefinitions of other projects, for tests on real API servers.

use std::path::Path;
use std::process::Command;

use serde::Deserialize;
use serde_json::Value;

/// The CustomResourceDefinitions of a Go module, as `deploy/local-kube/crds.sh` prints them: `gateway-api` or `mcs-api`.
///
/// # Panics
/// They cannot be downloaded.
pub fn crds(module: &str) -> Vec<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/local-kube/crds.sh");
    let printed = Command::new(script).arg(module).output().expect("the script can be run");
    assert!(printed.status.success(), "crds.sh {module}: {}", String::from_utf8_lossy(&printed.stderr));
    let documents = serde_yaml::Deserializer::from_slice(&printed.stdout).map(|document| Value::deserialize(document).expect("YAML"));
    documents.filter(Value::is_object).collect()
}
