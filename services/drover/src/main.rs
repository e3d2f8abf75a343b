//! drover
fn main() {}
