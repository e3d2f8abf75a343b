//! drover-workflow
