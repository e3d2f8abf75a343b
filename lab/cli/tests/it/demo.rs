//! The demo with simulated members.

use std::process::{Command, Stdio};

#[test]
fn demo_succeeds_with_simulated_members() {
    let mut demo = Command::new(crate::drover());
    demo.args(["demo", "--once", "--listen", "127.0.0.1:0"]).env_remove("DATABASE_URL").env_remove("MEMBERS");
    let output = demo.stdin(Stdio::null()).output().unwrap();
    let (told, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}\n{log}");
    assert!(told.contains("✔ moved") && told.contains("private-b") && told.contains("public-c"), "{told}");
}
