//! drover-api
