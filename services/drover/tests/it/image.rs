//! `drover image push` against the registry of the project Distribution, which runs here.

use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use drover_testkit::free_port;
use serde_json::{Value, json};

use crate::program::{DROVER, Process};

/// Name and password of the only user, and the password's bcrypt hash.
const USER: &str = "ci:secret";
const LINE: &str = "ci:$2b$05$f59E0hi0lUajg43gFfuTF.2xqSQwfELAo9I1BLzy.yDvPYMop5wYm\n";

/// Starts a registry in this folder that lets only the user in, and shows `tls` (certificate and key) if it has that; returns its address.
fn registry(folder: &Path, tls: Option<Value>) -> (Process, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/local-kube/registry/build.sh");
    let built = Command::new(script).stderr(Stdio::inherit()).output().unwrap();
    assert!(built.status.success(), "the registry cannot be built");
    let program = Path::new(String::from_utf8(built.stdout).unwrap().trim()).join("registry");
    let address = format!("127.0.0.1:{}", free_port());
    std::fs::write(folder.join("users"), LINE).unwrap();
    let settings = json!({"version": "0.1", "log": {"level": "error"}, "http": {"addr": address, "tls": tls},
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

/// An archive of an image with one program.
fn archive(folder: &Path) -> String {
    let at = |name: &str| folder.join(name).display().to_string();
    std::fs::write(at("program"), vec![b'x'; 3 << 20]).unwrap();
    std::fs::set_permissions(at("program"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let writer = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/local-kube/images/mkimage.py");
    let file = format!("{}=/program", at("program"));
    let made = Command::new("python3").arg(writer).args([&at("image.tar"), "tools/drover:1", "/program", &file]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    at("image.tar")
}

/// Stores the user's password as `docker login` does.
fn logged_in(folder: &Path, address: &str) {
    std::fs::create_dir(folder.join("docker")).unwrap();
    let login = base64::engine::general_purpose::STANDARD.encode(USER);
    std::fs::write(folder.join("docker/config.json"), json!({"auths": {address: {"auth": login}}}).to_string()).unwrap();
}

fn push(folder: &Path, archive: &str, image: &str, options: &[&str]) -> Output {
    let mut command = Command::new(DROVER);
    command.args(["image", "push", archive, image, "-o", "json"]).args(options).env_clear().env("HOME", folder);
    command.env("DOCKER_CONFIG", folder.join("docker")).stdin(Stdio::null()).output().unwrap()
}

/// A certificate for this machine, of an authority that nobody knows: `ca.pem`, `tls.pem` and `tls.key` in the folder.
fn certified(folder: &Path) {
    let openssl = |line: &str| {
        let made = Command::new("openssl").args(line.split(' ')).current_dir(folder).output().unwrap();
        assert!(made.status.success(), "{made:?}");
    };
    let new = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    openssl(&format!("{new} -subj /CN=authority -addext basicConstraints=critical,CA:TRUE -keyout ca.key -out ca.pem"));
    openssl(&format!(
        "{new} -subj /CN=registry -addext basicConstraints=critical,CA:FALSE -addext subjectAltName=IP:127.0.0.1 -CA ca.pem -CAkey ca.key \
         -keyout tls.key -out tls.pem"
    ));
}

#[test]
fn image_is_pushed_to_a_registry_whose_authority_is_named_and_to_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    certified(folder);
    let (registry, address) = registry(folder, Some(json!({"certificate": folder.join("tls.pem"), "key": folder.join("tls.key")})));
    let (archive, image) = (archive(folder), format!("{address}/tools/drover:1"));
    logged_in(folder, &address);
    let authority = folder.join("ca.pem").display().to_string();
    let push = |options: &[&str]| push(folder, &archive, &image, options);
    let there = || {
        let authority = reqwest::Certificate::from_pem(&std::fs::read(&authority).unwrap()).unwrap();
        let client = reqwest::Client::builder().add_root_certificate(authority).build().unwrap();
        let asked = client.get(format!("https://{address}/v2/tools/drover/manifests/1")).basic_auth("ci", Some("secret"));
        let asked = asked.header("accept", "application/vnd.oci.image.manifest.v1+json");
        tokio::runtime::Runtime::new().unwrap().block_on(async { asked.send().await.unwrap().status().as_u16() })
    };

    let stranger = push(&[]);
    let said = String::from_utf8_lossy(&stranger.stderr);
    assert!(!stranger.status.success() && said.contains("certificate"), "{said}");
    let missing = push(&["--registry-ca", "nowhere.pem"]);
    assert!(!missing.status.success() && String::from_utf8_lossy(&missing.stderr).contains("cannot read nowhere.pem"), "{missing:?}");
    assert_eq!(there(), 404, "nothing is sent to a registry that is not known");

    let pushed = push(&["--registry-ca", &authority]);
    assert!(pushed.status.success(), "{}", String::from_utf8_lossy(&pushed.stderr));
    assert_eq!(there(), 200);
    drop(registry);
}

#[test]
fn image_is_pushed_once_and_is_there_as_it_was_in_the_archive() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (registry, address) = registry(folder.path(), None);
    archive(folder.path());
    let image = format!("{address}/tools/drover:1");
    let push = |archive: &str| push(folder.path(), &at(archive), &image, &["--plain-http"]);
    let refused = push("image.tar");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("docker login"), "{said}");

    logged_in(folder.path(), &address);
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
