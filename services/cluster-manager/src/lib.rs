//! drover-cluster-manager
