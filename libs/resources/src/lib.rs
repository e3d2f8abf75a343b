//! drover-resources
