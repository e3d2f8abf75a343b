//! drover-scheduling
