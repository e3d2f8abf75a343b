//! Databases for `drover up` that are made already: initdb takes seconds of each test, and two tests that leave it to `drover up` are enough.

use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Puts the files of a database server into the data directory of a Drover in this folder, unless it has that directory. The server does
/// not wait for the disk.
pub(crate) fn prepare(folder: &Path) {
    let data = folder.join("data");
    if data.exists() {
        return;
    }
    let postgres = data.join("postgres");
    tokio::runtime::Runtime::new().unwrap().block_on(drover_testkit::prepared_cluster(&postgres));
    let mut settings = File::options().append(true).open(postgres.join("data/postgresql.conf")).unwrap();
    writeln!(settings, "fsync = off").unwrap();
}
