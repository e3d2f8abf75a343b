//! Orchestrator over REST, with its own database and in-memory peers.

mod base;
mod documents;
mod fakes;
mod generic;
mod outward;
mod readside;
mod scenarios;
mod support;
