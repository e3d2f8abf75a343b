//! Makes new migrations noticed.

fn main() {
    println!("cargo:rerun-if-changed=../../migrations/resource-synchronizer");
}
