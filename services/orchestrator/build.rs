//! New migrations are noticed.

fn main() {
    println!("cargo:rerun-if-changed=../../migrations/orchestrator");
}
