//! Sockets that are open before the service that will listen on them.

use std::sync::{Arc, Mutex, PoisonError};

/// Sockets that were opened before the services that will listen on them, so that no other process can take an address after it was
/// chosen. [`bind`] uses such a socket if its address is asked for.
#[derive(Clone, Debug, Default)]
pub struct Reserved(Arc<Mutex<Vec<std::net::TcpListener>>>);

impl Reserved {
    /// Opens a socket on loopback, on this port if it is free, else on any free port.
    ///
    /// # Errors
    /// No port is free.
    pub fn reserve(&self, port: u16) -> std::io::Result<std::net::SocketAddr> {
        let listener = std::net::TcpListener::bind(("127.0.0.1", port)).or_else(|_| std::net::TcpListener::bind(("127.0.0.1", 0)))?;
        let address = listener.local_addr()?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(listener);
        Ok(address)
    }

    /// Removes and returns the socket of an address.
    pub(crate) fn take(&self, address: std::net::SocketAddr) -> Option<std::net::TcpListener> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = open.iter().position(|listener| listener.local_addr().is_ok_and(|own| own == address))?;
        Some(open.swap_remove(at))
    }
}
