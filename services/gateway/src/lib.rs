//! drover-gateway
