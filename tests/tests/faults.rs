//! Races between operations, and faults of members and the database, with simulated members and requests through the gateway.
//! [`faults::look`] has the checks that must hold in every case.
#![allow(clippy::unwrap_used, reason = "a scenario is a test, though not a function with the attribute")]

mod faults {
    pub mod disk;
    pub mod look;
    pub mod model;
    pub mod races;
    pub mod servers;
    pub mod stages;
    pub mod tasks;
    pub mod unreachable;
    pub mod walk;
}
