//! drover-kubesim
