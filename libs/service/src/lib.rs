//! drover-service
