//! How many of something are open, of each who opened it and in all.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use super::Limits;

/// Places, by who has them. Those of nobody in particular count only in all.
#[derive(Debug)]
pub struct Places<K>(Arc<Mutex<HashMap<Option<K>, usize>>>);

/// A place that is taken. Dropping it lets somebody else have it.
#[derive(Debug)]
pub struct Place<K: Eq + Hash> {
    all: Places<K>,
    of: Option<K>,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Who asks has as many as one may have.
    Own,
    /// There are as many as there may be.
    All,
}

impl<K: Eq + Hash + Clone> Places<K> {
    /// A place, if `of` then has at most `each` and all have at most `total`.
    ///
    /// # Errors
    /// There is none.
    pub fn take(&self, of: Option<K>, each: usize, total: usize) -> Result<Place<K>, Full> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if of.is_some() && counts.get(&of).is_some_and(|count| *count >= each) {
            return Err(Full::Own);
        }
        if counts.values().sum::<usize>() >= total {
            return Err(Full::All);
        }
        *counts.entry(of.clone()).or_default() += 1;
        Ok(Place { all: self.clone(), of })
    }
}

impl<K> Clone for Places<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K> Default for Places<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Eq + Hash> Drop for Place<K> {
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

/// Connections by address; those of a local socket have none.
#[derive(Clone, Debug, Default)]
pub struct OpenConnections(Places<IpAddr>);

/// An open connection. Dropping it lets another one begin.
pub type OpenConnection = Place<IpAddr>;

impl OpenConnections {
    /// A place for a connection from this address; `None` if that would be more than the limits allow.
    pub fn take(&self, from: Option<IpAddr>, limits: Limits) -> Option<OpenConnection> {
        self.0.take(from.map(network), limits.per_address, limits.total).ok()
    }
}

/// Who counts as one client: an IPv4 address, or the /64 network that a customer of a provider has.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        address => address,
    }
}
