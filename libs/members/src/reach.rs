//! Which addresses a kubeconfig may lead to.
//!
//! A kubeconfig is an address that a user gives and Drover connects to from its own place in the network. Addresses that mean this
//! machine or its nearest link (loopback, link-local with the metadata services of clouds) are therefore refused unless Drover runs for
//! development, where clusters are on this machine. Names are checked when they are resolved, because a name may point anywhere.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower::Service;

use crate::{KubeconfigError, VettedKubeconfig};

/// Where members may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Not on this machine or its link.
    #[default]
    Remote,
    /// Anywhere: for development.
    Anywhere,
}

impl Reach {
    /// Whether a member may have this address.
    pub fn permits(self, address: IpAddr) -> bool {
        self == Self::Anywhere || !is_near(address.to_canonical())
    }

    /// Checks the server of a kubeconfig as far as that is possible without resolving its name.
    ///
    /// # Errors
    /// The server is on this machine or its link, and this is not allowed.
    pub fn check(self, kubeconfig: &VettedKubeconfig) -> Result<(), KubeconfigError> {
        let uri: http::Uri = kubeconfig.server().parse().map_err(|_| refused())?;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase();
        let permitted = match host.parse::<IpAddr>() {
            Ok(address) => self.permits(address),
            Err(_) => self == Self::Anywhere || !(host == "localhost" || host.ends_with(".localhost")),
        };
        if permitted { Ok(()) } else { Err(refused()) }
    }
}

fn refused() -> KubeconfigError {
    KubeconfigError::Refused {
        field: "cluster.server".into(),
        reason: "is on this machine or its link; for clusters of a development machine start Drover with --local-clusters".into(),
    }
}

fn is_near(address: IpAddr) -> bool {
    /// The metadata service of AWS by IPv6.
    const AWS_METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
    let v4 = |address: Ipv4Addr| {
        // 0.0.0.0/8 is this machine too.
        address.is_loopback() || address.octets()[0] == 0 || address.is_link_local() || address.is_broadcast() || address.is_multicast()
    };
    match address {
        IpAddr::V4(address) => v4(address),
        IpAddr::V6(address) => {
            let carried = match address.segments() {
                // NAT64 and IPv4-compatible addresses carry an IPv4 address.
                [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0, 0, 0, 0, 0, 0, high, low] => {
                    Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
                }
                _ => None,
            };
            address.is_loopback()
                || address.is_unspecified()
                || address.is_unicast_link_local()
                || address.is_multicast()
                || address == AWS_METADATA
                || carried.is_some_and(v4)
        }
    }
}

/// Resolves names and leaves out the addresses that are not permitted.
#[derive(Clone)]
pub(crate) struct PermittedResolver {
    inner: GaiResolver,
    reach: Reach,
}

impl PermittedResolver {
    pub(crate) fn new(reach: Reach) -> Self {
        Self { inner: GaiResolver::new(), reach }
    }
}

impl Service<Name> for PermittedResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Service::poll_ready(&mut self.inner, cx)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (found, reach) = (Service::call(&mut self.inner, name), self.reach);
        Box::pin(async move {
            let permitted: Vec<SocketAddr> = found.await?.filter(|address| reach.permits(address.ip())).collect();
            if permitted.is_empty() {
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, refused().to_string()));
            }
            Ok(permitted.into_iter())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubeconfig::vet;

    fn check(server: &str) -> bool {
        let text = format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: c}}}}]\nclusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n"
        );
        let vetted = vet(&text).unwrap();
        Reach::Anywhere.check(&vetted).unwrap();
        Reach::Remote.check(&vetted).is_ok()
    }

    #[test]
    fn remote_reach_refuses_this_machine_and_its_link_in_every_spelling() {
        for near in [
            "http://127.0.0.1:1/any/path",
            "https://127.9.9.9",
            "https://localhost:6443",
            "https://LOCALHOST.",
            "https://a.localhost",
            "http://[::1]:1",
            "https://0.0.0.0",
            "https://[::]",
            "https://[::ffff:127.0.0.1]",
            "https://[::127.0.0.1]",
            "https://[64:ff9b::7f00:1]",
            "https://169.254.169.254/latest/meta-data",
            "https://[fe80::1]",
            "https://[fd00:ec2::254]",
            "https://224.0.0.1",
        ] {
            assert!(!check(near), "{near}");
        }
        for far in
            ["https://10.0.0.1:6443", "https://192.168.1.2", "https://k.example", "https://[2001:db8::1]", "https://localhost.example"]
        {
            assert!(check(far), "{far}");
        }
    }

    #[tokio::test]
    async fn resolver_leaves_out_addresses_that_are_not_permitted() {
        let resolve = async |reach| PermittedResolver::new(reach).call("localhost".parse().unwrap()).await;
        assert!(resolve(Reach::Anywhere).await.unwrap().next().is_some());
        assert_eq!(resolve(Reach::Remote).await.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
