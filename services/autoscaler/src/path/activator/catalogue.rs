//! Derives from the EndpointSlices which apps there are, where their pods are, and whether activators are in their path. Pure.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::path::Key;
use crate::path::slices::{ADMIN_PORT, SERVE_PORT, Through, port_of, read_public, whose};

/// One app.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct App {
    /// Port at which activators serve the app.
    pub port: u16,
    /// Whether clients are sent to activators.
    pub in_path: bool,
    /// The activators that share the app's pods, in order.
    pub activators: Vec<IpAddr>,
    /// Concurrent requests that a pod takes; 0: unlimited.
    pub container_concurrency: usize,
    /// By address at which a sidecar serves: its admin address. Without terminating pods.
    pub pods: BTreeMap<SocketAddr, SocketAddr>,
}

/// All apps in these slices, including pods that are not ready yet, because the activator probes them itself.
pub fn apps<'a>(slices: impl Iterator<Item = &'a EndpointSlice> + Clone) -> BTreeMap<Key, App> {
    let mut apps = BTreeMap::new();
    for slice in slices.clone() {
        if let Some((key, true)) = whose(slice)
            && let Some(path) = read_public(slice)
        {
            let in_path = path.through == Through::Activator;
            let (port, activators, container_concurrency) = (path.activator_port, path.activators, path.container_concurrency);
            apps.insert(key, App { port, in_path, activators, container_concurrency, pods: BTreeMap::new() });
        }
    }
    for slice in slices {
        if let Some((key, false)) = whose(slice)
            && let Some(app) = apps.get_mut(&key)
            && let (Some(serve), Some(admin)) = (port_of(slice, SERVE_PORT), port_of(slice, ADMIN_PORT))
        {
            for endpoint in slice.endpoints.iter() {
                let leaving = endpoint.conditions.as_ref().and_then(|conditions| conditions.terminating).unwrap_or(false);
                let addresses = endpoint.addresses.iter().filter_map(|address| address.parse::<IpAddr>().ok());
                for address in addresses.filter(|_| !leaving) {
                    app.pods.insert(SocketAddr::new(address, serve), SocketAddr::new(address, admin));
                }
            }
        }
    }
    apps
}
