//! SQL on what cluster-manager keeps beside its documents.

pub mod credentials;
pub mod labels;
pub mod registered;
