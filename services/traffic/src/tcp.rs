//! A TCP connection on its way: both directions are copied until each side has ended.

use std::sync::Arc;
use std::time::Duration;

use drover_proxy::forward::ends_with_its_pod;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::state::DataPath;

/// An endpoint that does not accept a connection within this time is treated as gone.
const CONNECT: Duration = Duration::from_secs(2);

/// Carries a connection to an endpoint of the port's route. Closes it if there is none.
pub async fn carry(path: &Arc<DataPath>, port: u16, mut client: TcpStream) {
    let compiled = path.compiled();
    let Some(route) = compiled.ports.get(&port).and_then(|port| port.only()).cloned() else { return };
    drop(compiled);
    let mut search = path.search(route.clone());
    loop {
        let under_way = match search.next().await {
            Ok(under_way) => under_way,
            Err(why) => {
                tracing::debug!(route = %route.name, ?why, "a connection is closed, because no endpoint takes it");
                return;
            }
        };
        match timeout(CONNECT, TcpStream::connect(under_way.endpoint.address)).await {
            Ok(Ok(mut pod)) => {
                under_way.taken();
                let _ = (client.set_nodelay(true), pod.set_nodelay(true)); // without it they are slower, but not wrong
                let _ = ends_with_its_pod(&pod); // without it a client waits for a pod that is gone
                // Either side may end it; there is nobody to report an error to.
                let _ = copy_bidirectional(&mut client, &mut pod).await;
                return;
            }
            Ok(Err(_)) | Err(_) => search.failed(&under_way),
        }
    }
}
