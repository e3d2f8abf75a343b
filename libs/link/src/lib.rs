//! The link of a member that the hub cannot reach, because it is behind NAT or a firewall: its agent (`services/link`) connects to the hub,
//! and the hub reaches the member's API server through that connection.
//!
//! Both ends share what is here: the messages ([`wire`]), keys and certificates of agents ([`keys`]), and the streams ([`carry`]). Who is
//! let in is decided by cluster-manager.
//!
//! ```text
//! agent ── TLS, one port ──▶ hub          POST enrol, POST renew: HTTP/1.1
//! agent ── TLS, its certificate ──▶ hub   GET link: the connection changes sides; from now on the hub asks and the agent answers, by HTTP/2
//!       ◀── CONNECT api-server ──         each CONNECT is a connection to the API server, in which the hub speaks TLS with it
//! ```
//! Invariant: the agent connects to the one address of its own settings, whatever the hub asks for.

pub mod carry;
pub mod keys;
pub mod wire;
