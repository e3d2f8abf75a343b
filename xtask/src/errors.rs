//! `docs/errors/README.md`: the table of all error codes. The pages themselves are written by people.

use std::fmt::Write;

use drover_service::codes::ALL;

use crate::{File, root};

/// The table.
pub fn files() -> anyhow::Result<Vec<File>> {
    let mut codes = ALL.to_vec();
    codes.sort_by_key(|code| code.name);
    let mut text = String::from(
        "# Error codes\n\nEvery error is `application/problem+json` with one of these codes; each has a page. Made by `cargo run -p xtask -- errors`.\n\n\
         | code | HTTP | meaning |\n|---|---|---|\n",
    );
    for code in codes {
        writeln!(text, "| [`{0}`]({0}.md) | {1} | {2} |", code.name, code.status, code.title)?;
    }
    Ok(vec![File { path: root().join("docs/errors/README.md"), text }])
}
