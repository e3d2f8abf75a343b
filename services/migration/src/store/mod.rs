//! SQL of migration's own tables. Documents are kept by libs/resources.

pub mod plans;
pub mod side;
