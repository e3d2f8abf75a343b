//! drover-testkit
