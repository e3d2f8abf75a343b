//! drover-resource-synchronizer
