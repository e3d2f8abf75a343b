//! Orchestrator over REST, with its own database and in-memory peers.

mod documents;
mod support;
