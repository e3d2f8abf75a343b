//! Drover's own agents in the clusters: what they consist of, and in which order clusters get a new version.
//!
//! Pure. An agent in a cluster is a deployment intent group of its own, with one app that may run only there: it claims its room in the
//! ledger, is applied, watched and undone like any other app ([`crate::app::agents`]). It is never moved, because nobody has agreed to
//! moves of it.

pub mod manifests;
pub mod rollout;
