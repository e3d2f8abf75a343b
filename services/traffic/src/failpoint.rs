//! Places at which a test ends the process, set by `DROVER_FAILPOINTS=name=crash` as in the other services. Theirs come with the store,
//! which the data path does not have.

use std::sync::LazyLock;

/// All places: where the table changes, where it is stored, and where the ports are handed over.
pub const FAILPOINTS: [&str; 11] = [
    "traffic/routes/before",
    "traffic/routes/after",
    "traffic/endpoints/before",
    "traffic/store/before",
    "traffic/store/written",
    "traffic/store/after",
    "traffic/take/taken",
    "traffic/take/served",
    "traffic/give/asked",
    "traffic/give/given",
    "traffic/give/served",
];

/// Ends the process if a test wants that here.
pub fn reached(name: &str) {
    static CRASH: LazyLock<Option<String>> =
        LazyLock::new(|| std::env::var("DROVER_FAILPOINTS").ok()?.strip_suffix("=crash").map(str::to_owned));
    if CRASH.as_deref() == Some(name) {
        std::process::abort();
    }
}
