//! Attacks from outside: requests of other sites, harmful uploads, users who try to reach what is not theirs, services that are not who
//! they say.
//! Only public interfaces are used. What needs a real API server is in `e2e/security.rs`.
#![allow(clippy::unwrap_used, reason = "a helper of tests is a test, though not a function with the attribute")]

mod security {
    pub mod at_rest;
    pub mod attacks;
    pub mod certificates;
    pub mod issuer;
    pub mod tenants;
}
