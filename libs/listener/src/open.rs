//! The number of open connections, of each address and in all.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use super::Limits;

/// By address; those of a local socket have none.
#[derive(Clone, Debug, Default)]
pub struct OpenConnections(Arc<Mutex<HashMap<Option<IpAddr>, usize>>>);

/// An open connection. Dropping it lets another one begin.
#[derive(Debug)]
pub struct OpenConnection {
    all: OpenConnections,
    of: Option<IpAddr>,
}

impl OpenConnections {
    /// A place for a connection from this address; `None` if that would be more than the limits allow.
    pub fn take(&self, from: Option<IpAddr>, limits: Limits) -> Option<OpenConnection> {
        let of = from.map(network);
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let full = of.is_some() && counts.get(&of).is_some_and(|count| *count >= limits.per_address);
        if full || counts.values().sum::<usize>() >= limits.total {
            return None;
        }
        *counts.entry(of).or_default() += 1;
        Some(OpenConnection { all: self.clone(), of })
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut counts = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.of) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.of);
            }
        }
    }
}

/// Who counts as one client: an IPv4 address, or the /64 network that a customer of a provider has.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        address => address,
    }
}
