//! The types that Drover's services exchange as JSON, a file per noun.
//!
//! Types of the pure core ([`scheduling`]) are sent as they are, without conversion. There is no logic here, except the texts of [`words`] and
//! the rule of [`grants`], by which two services judge.

pub mod access;
pub mod agents;
pub mod apps;
pub mod bindings;
pub mod digs;
#[cfg(test)]
mod earlier_tests;
pub mod grants;
pub mod ledger;
pub mod links;
pub mod members;
pub mod operations;
pub mod plans;
pub mod problem;
pub mod status;
pub mod traffic;
pub mod words;

pub use drover_scheduling as scheduling;
