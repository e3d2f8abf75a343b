//! What a test needs that not every machine has.

use std::ffi::OsString;
use std::io::Write;
use std::panic::Location;

/// The value of an environment variable by which `make test` says where something is. Without it the test is skipped, with a message that
/// is printed even when test output is captured.
///
/// # Panics
/// The variable is not set and `DROVER_NO_SKIPS` is, as in `make test`: then no test may be skipped.
#[track_caller]
pub fn needs(variable: &str) -> Option<OsString> {
    let value = std::env::var_os(variable);
    if value.is_none() {
        let caller = Location::caller();
        let skipped = format!("SKIPPED, proves nothing: {}:{} needs {variable}, which `make test` sets", caller.file(), caller.line());
        assert!(std::env::var_os("DROVER_NO_SKIPS").is_none(), "{skipped}");
        // Not `eprintln!`, whose output libtest hides when the test passes. The message is only a hint, so an error does not matter.
        let _ = writeln!(std::io::stderr().lock(), "{skipped}");
    }
    value
}
