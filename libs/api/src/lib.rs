//! What travels between Drover's services: wire types, a file per noun.
//!
//! Types of the pure core travel as they are ([`scheduling`]); nothing is converted at a border.
//! No logic here: whoever sends or receives decides; only [`words`] says how people read it.

pub mod apps;
pub mod bindings;
pub mod digs;
pub mod ledger;
pub mod members;
pub mod operations;
pub mod plans;
pub mod problem;
pub mod status;
pub mod words;

pub use drover_scheduling as scheduling;
