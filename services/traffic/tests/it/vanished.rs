//! A pod that is gone without a word, as when its node or its network fails: what is sent to it gets no answer at all.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use drover_testkit::eventually;
use reqwest::StatusCode;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::support::{PATIENCE, POD_PORT, Shop, client};

/// Longer than the data path may take to notice, and far shorter than the kernel takes by itself.
const NOTICED: Duration = Duration::from_secs(90);

/// A pod with a network of its own.
struct Pod {
    network: String,
    process: Child,
    address: SocketAddr,
}

fn ip(arguments: &[&str]) {
    let done = Command::new("ip").args(arguments).output().expect("iproute2 is installed");
    assert!(done.status.success(), "ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&done.stderr));
}

/// The program of pods on real kubelets, which `cargo build --workspace --bins` has built.
fn program() -> PathBuf {
    let ours = std::env::current_exe().expect("the path of this program");
    ours.parent().and_then(Path::parent).expect("it is in <target>/<profile>/deps").join("drover-stand-in")
}

impl Pod {
    async fn start() -> Self {
        let (network, number) = (format!("drover-pod-{}", std::process::id()), std::process::id() % 60);
        let (link, here, there) = (format!("dpod{}", std::process::id()), format!("10.249.{number}.1/30"), format!("10.249.{number}.2"));
        ip(&["netns", "add", &network]);
        ip(&["link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", &network]);
        ip(&["address", "add", &here, "dev", &link]);
        ip(&["link", "set", &link, "up"]);
        ip(&["-n", &network, "address", "add", &format!("{there}/30"), "dev", "eth0"]);
        ip(&["-n", &network, "link", "set", "eth0", "up"]);
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &network]).arg(program()).arg(POD_PORT.to_string()).env("HOSTNAME", "web-far");
        let process = command.spawn().expect("the program of pods is built");
        let address = SocketAddr::new(there.parse().expect("an address"), POD_PORT);
        let pod = Self { network, process, address };
        eventually(PATIENCE, async || TcpStream::connect(address).await.ok()).await;
        pod
    }

    /// From now on nothing reaches it, and nothing comes from it.
    fn vanish(&self) {
        ip(&["-n", &self.network, "link", "set", "eth0", "down"]);
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        let _ = (self.process.kill(), self.process.wait());
        ip(&["netns", "del", &self.network]);
    }
}

#[tokio::test]
#[ignore = "long: it waits until a pod counts as gone; needs root"]
async fn connections_to_a_pod_that_is_gone_without_a_word_end() {
    let shop = Shop::start().await;
    let (pod, near) = (Pod::start().await, shop.pods[1].1);
    shop.feeds.pods(shop.copy(), &[pod.address], None);
    shop.process.reports(shop.route.id, |report| report.backends[0].endpoints == 1 && report.backends[0].answering == 1).await;
    let at = SocketAddr::from(([127, 0, 0, 1], shop.route.port));
    let client = client().timeout(NOTICED).resolve("shop.example", at).build().unwrap();
    let waiting = tokio::spawn(client.post(shop.url("/?ms=3600000")).body("order").send());
    shop.process.reports(shop.route.id, |report| report.backends[0].under_way == 1).await;
    assert_eq!(client.get(shop.url("/")).send().await.unwrap().headers()["x-pod"], "web-far", "on a connection that is kept");

    pod.vanish();
    // It takes the connection that was kept. The other pod answers it once that has ended.
    let kept = tokio::spawn(client.get(shop.url("/")).send());
    shop.process.reports(shop.route.id, |report| report.backends[0].under_way == 2).await;
    shop.feeds.pods(shop.copy(), &[pod.address, near], None);
    let answer = kept.await.unwrap().unwrap();
    assert_eq!((answer.status(), answer.headers()["x-pod"].to_str().unwrap()), (StatusCode::OK, "web-2"));
    // One that may have had an effect is not repeated.
    let broken = waiting.await.unwrap().unwrap();
    assert_eq!(broken.status(), StatusCode::BAD_GATEWAY);
    assert_eq!(broken.json::<Value>().await.unwrap()["code"], "app_broke_off");
    shop.process.running.stop().await;
}
