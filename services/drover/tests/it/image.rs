//! `drover image push` against the registry of the project Distribution, which runs here.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use serde_json::{Value, json};

use crate::cli::{DROVER, Process};

/// Name and password of the only user, and the password's bcrypt hash.
const USER: &str = "ci:secret";
const LINE: &str = "ci:$2b$05$f59E0hi0lUajg43gFfuTF.2xqSQwfELAo9I1BLzy.yDvPYMop5wYm\n";

/// Starts a registry in this folder that lets only the user in; returns its address.
fn registry(folder: &Path) -> (Process, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/local-kube/registry/build.sh");
    let built = Command::new(script).stderr(Stdio::inherit()).output().unwrap();
    assert!(built.status.success(), "the registry cannot be built");
    let program = Path::new(String::from_utf8(built.stdout).unwrap().trim()).join("registry");
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    std::fs::write(folder.join("users"), LINE).unwrap();
    let settings = json!({"version": "0.1", "log": {"level": "error"}, "http": {"addr": address},
        "storage": {"filesystem": {"rootdirectory": folder.join("storage")}},
        "auth": {"htpasswd": {"realm": "test", "path": folder.join("users")}}});
    std::fs::write(folder.join("registry.yml"), settings.to_string()).unwrap();
    let mut command = Command::new(program);
    command.arg("serve").arg(folder.join("registry.yml")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let process = Process(command.spawn().unwrap());
    let began = Instant::now();
    while TcpStream::connect(&address).is_err() {
        assert!(began.elapsed() < Duration::from_secs(60), "the registry does not answer");
        std::thread::sleep(Duration::from_millis(50));
    }
    (process, address)
}

#[test]
fn image_is_pushed_once_and_is_there_as_it_was_in_the_archive() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (registry, address) = registry(folder.path());
    std::fs::write(at("program"), vec![b'x'; 3 << 20]).unwrap();
    std::fs::set_permissions(at("program"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let writer = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/local-kube/images/mkimage.py");
    let file = format!("{}=/program", at("program"));
    let made = Command::new("python3").arg(writer).args([&at("image.tar"), "tools/drover:1", "/program", &file]).output().unwrap();
    assert!(made.status.success(), "{made:?}");

    let image = format!("{address}/tools/drover:1");
    let push = |archive: &str| -> Output {
        let mut command = Command::new(DROVER);
        command.args(["image", "push", &at(archive), &image, "--plain-http", "-o", "json"]).env_clear().env("HOME", folder.path());
        command.env("DOCKER_CONFIG", folder.path().join("docker")).stdin(Stdio::null()).output().unwrap()
    };
    let refused = push("image.tar");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("docker login"), "{said}");

    std::fs::create_dir(at("docker")).unwrap();
    let login = base64::engine::general_purpose::STANDARD.encode(USER);
    std::fs::write(at("docker/config.json"), json!({"auths": {(&address): {"auth": login}}}).to_string()).unwrap();
    let pushed = |sent: bool| -> Value {
        let output = push("image.tar");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let pushed: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(pushed["layers"][0]["sent"], sent, "{pushed}");
        pushed
    };
    let first = pushed(true);
    assert_eq!(pushed(false)["digest"], first["digest"], "what is there is not sent again");

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let get = |path: &str| {
        runtime.block_on(async {
            let accepts = "application/vnd.oci.image.manifest.v1+json";
            let request = reqwest::Client::new().get(format!("http://{address}/v2/tools/drover/{path}")).basic_auth("ci", Some("secret"));
            request.header("accept", accepts).send().await.unwrap().error_for_status().unwrap().bytes().await.unwrap()
        })
    };
    let manifest: Value = serde_json::from_slice(&get("manifests/1")).unwrap();
    let layer = get(&format!("blobs/{}", manifest["layers"][0]["digest"].as_str().unwrap()));
    assert_eq!(
        (layer.len() as u64, &manifest["layers"][0]["digest"]),
        (manifest["layers"][0]["size"].as_u64().unwrap(), &first["layers"][0]["digest"])
    );
    let config: Value = serde_json::from_slice(&get(&format!("blobs/{}", manifest["config"]["digest"].as_str().unwrap()))).unwrap();
    assert_eq!((&config["config"]["Entrypoint"][0], &config["rootfs"]["diff_ids"][0]), (&json!("/program"), &first["layers"][0]["digest"]));

    std::fs::write(at("none.tar"), "no archive").unwrap();
    let refused = push("none.tar");
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("none.tar cannot be used"));
    drop(registry);
}
