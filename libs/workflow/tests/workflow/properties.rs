//! The properties that come with the engine, for the made-up move.

drover_workflow::generic_tests!(crate::fixture::Moving);
