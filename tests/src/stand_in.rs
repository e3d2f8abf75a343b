//! Apps on real kubelets that answer as simulated pods do, and the load on them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use drover::hub::Client;
use drover_api::traffic::RouteList;
use drover_lab::load::{Load, Plan};
use drover_testkit::{Image, eventually};

use crate::apps::App;

/// Host name of the routes.
pub const HOST: &str = "web.example";
const IMAGE: &str = "drover.local/stand-in:1";
const PATIENCE: Duration = Duration::from_secs(120);

/// An image with the program that answers, which `cargo build --workspace --bins` has built.
pub fn image(folder: &Path) -> PathBuf {
    let ours = std::env::current_exe().expect("the path of this program");
    let programs = ours.parent().and_then(Path::parent).expect("it is in <target>/<profile>/deps");
    Image::new(IMAGE, "/bin/sh").shell().built(&programs.join("drover-stand-in"), "/bin/drover-stand-in").write(folder)
}

/// An app of two pods that answer on port 8080.
pub fn answering(name: &str) -> App {
    App::new(name, 100).memory(32).replicas(2).running(IMAGE, "exec /bin/drover-stand-in 8080").serving(8080)
}

/// Waits until the route of an app serves, and begins to send this many requests per second to it, and streams.
pub async fn load(client: &Client, app: &str, port: u16, rate: f64) -> Load {
    eventually(PATIENCE, async || {
        let routes = client.get::<RouteList>("/v2/routes?project=e2e").await.ok()?.items;
        routes.iter().any(|route| route.composite_app == app && route.state == "serving").then_some(())
    })
    .await;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    Load::start(Plan { address, host: HOST.to_owned(), rate, slow_every: 50, streams: true }).expect("a client can be made")
}
