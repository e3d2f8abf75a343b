//! Races and faults, through the gateway's REST, on simulated members: who wants the same room, who gets into whose way, what a
//! member and the database may do to us. What must hold is said by [`faults::look`], whatever happened.
#![allow(clippy::unwrap_used, reason = "a scenario is a test, though not a function with the attribute")]

mod faults {
    pub mod disk;
    pub mod look;
    pub mod model;
    pub mod races;
    pub mod servers;
    pub mod stages;
    pub mod unreachable;
    pub mod walk;
}
