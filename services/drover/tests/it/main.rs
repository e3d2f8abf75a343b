//! The program `drover`, run as a process.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests, though not functions with the attribute")]

mod agents;
mod application;
mod autoscale;
mod charts;
mod cli;
mod clusters;
mod database;
mod emco;
mod how_to;
mod image;
mod lab;
mod later;
mod leaving;
mod measure;
mod memguard;
mod movable;
mod page;
mod plans;
mod program;
mod readme;
mod tutorial;
mod upgrade;
mod whole;
