//! drover-placement
