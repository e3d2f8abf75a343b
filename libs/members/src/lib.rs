//! drover-members
