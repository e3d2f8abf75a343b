//! SQL of migration's own tables. Documents are stored by libs/resources.

pub mod plans;
pub mod side;
