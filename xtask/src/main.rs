//! Generates files from the code: `cargo run -p xtask -- <openapi|public|clients|errors|roles> [--check]`.
//!
//! They are checked in, so that reviews see changes of the interfaces. Tests check the same as `--check`.

mod clients;
#[cfg(feature = "services")]
mod errors;
mod examples;
#[cfg(feature = "services")]
mod openapi;
mod public;
#[cfg(feature = "services")]
mod roles;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let check = args.iter().any(|arg| arg == "--check");
    let files = match args.first().map(String::as_str) {
        #[cfg(feature = "services")]
        Some("openapi") => openapi::files(),
        Some("public") => public::files(),
        Some("clients") => clients::files(),
        #[cfg(feature = "services")]
        Some("errors") => errors::files(),
        #[cfg(feature = "services")]
        Some("roles") => roles::files(),
        _ => {
            eprintln!("usage: cargo run -p xtask -- <openapi|public|clients|errors|roles> [--check]");
            return ExitCode::from(2);
        }
    };
    match files.and_then(|files| settle(&files, check)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A file and its expected content.
struct File {
    path: PathBuf,
    text: String,
}

/// The root of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Writes the files; with `check` only reports those that are not up to date.
fn settle(files: &[File], check: bool) -> anyhow::Result<()> {
    ensure!(!files.is_empty(), "there are no files to generate");
    let mut stale = Vec::new();
    for File { path, text } in files {
        let name = path.strip_prefix(root()).unwrap_or(path).display().to_string();
        if std::fs::read_to_string(path).is_ok_and(|found| found == *text) {
            continue;
        }
        if check {
            stale.push(name);
        } else {
            std::fs::write(path, text).with_context(|| format!("cannot write {name}"))?;
            println!("wrote {name}");
        }
    }
    if !stale.is_empty() {
        bail!("not up to date: {}", stale.join(", "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_match_the_documents() {
        settle(&clients::files().unwrap(), true).expect("run `cargo run -p xtask -- clients`");
    }
}
