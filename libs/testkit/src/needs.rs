//! What a test needs of the machine and not every machine has.

use std::ffi::OsString;
use std::io::Write;
use std::panic::Location;

/// The value of the environment variable by which `make test` says where something is. Without it the test cannot prove
/// anything: that is said past the capture of test output, and where nothing may be left out (`DROVER_NO_SKIPS`, as in
/// `make test`) the test fails.
#[track_caller]
pub fn needs(variable: &str) -> Option<OsString> {
    let value = std::env::var_os(variable);
    if value.is_none() {
        let caller = Location::caller();
        let skipped = format!("SKIPPED, proves nothing: {}:{} needs {variable}, which `make test` sets", caller.file(), caller.line());
        assert!(std::env::var_os("DROVER_NO_SKIPS").is_none(), "{skipped}");
        // Not `eprintln!`: libtest would keep it to itself, as the test passes. Nobody to tell is no failure.
        let _ = writeln!(std::io::stderr().lock(), "{skipped}");
    }
    value
}
