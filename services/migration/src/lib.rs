//! drover-migration
