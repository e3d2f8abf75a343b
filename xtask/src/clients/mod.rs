//! `libs/service/src/clients/<service>.rs`: clients for the requests between services, generated from the documents in openapi/.
//!
//! Operations tagged `peer` become methods (progenitor, positional style). Clients have no types of their own but use those of libs/api.
//! Requests are sent by the `Peer` that each client has, see libs/service/src/peer.rs.

pub mod projection;
mod types;

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use progenitor_impl::{GenerationSettings, Generator, HooksMode, TypeImpl};
use quote::quote;
use serde_json::Value;

use crate::{File, root};

/// Services that other services send requests to.
const SERVICES: [&str; 5] = ["cluster-manager", "migration", "orchestrator", "placement", "resource-synchronizer"];

/// One file per service.
///
/// # Errors
/// A document cannot be read, has a schema that is not known in `types.rs`, or rustfmt fails.
pub fn files() -> anyhow::Result<Vec<File>> {
    let files = SERVICES.into_iter().map(|service| {
        let document = root().join("openapi").join(format!("{service}.json"));
        let text = std::fs::read_to_string(&document).with_context(|| format!("cannot read {}", document.display()))?;
        let text = client(service, &serde_json::from_str(&text)?).with_context(|| format!("cannot generate the client of {service}"))?;
        Ok(File { path: root().join("libs/service/src/clients").join(format!("{}.rs", service.replace('-', "_"))), text })
    });
    files.collect()
}

fn client(service: &str, document: &Value) -> anyhow::Result<String> {
    let (projected, schemas) = projection::project(document)?;
    let mut settings = GenerationSettings::default();
    settings.with_inner_type(quote!(crate::Peer)).with_hooks(HooksMode::Expected);
    for schema in &schemas {
        settings.with_replacement(schema, types::of(schema)?, std::iter::empty::<TypeImpl>());
    }
    let mut generator = Generator::new(&settings);
    let tokens = generator.generate_tokens(&serde_json::from_value(projected)?)?;
    let types = generator.get_type_space().iter_types().map(|kind| kind.ident().to_string());
    let own: BTreeSet<String> = types.filter(|ident| ident.starts_with("types ::")).collect();
    ensure!(own.is_empty(), "these schemas have no name in the document, so they would become types of the client: {own:?}");
    let header = format!(
        "//! What other services may ask of {service}. Made from openapi/{service}.json by `cargo run -p xtask -- clients`; not to be edited.\n\n"
    );
    formatted(header + &tokens.to_string())
}

/// Formats the code as `cargo fmt` does.
fn formatted(code: String) -> anyhow::Result<String> {
    let mut rustfmt = Command::new("rustfmt")
        .args(["--edition", "2024", "--config-path"])
        .arg(root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("rustfmt does not start: `rustup component add rustfmt`")?;
    let mut input = rustfmt.stdin.take().context("rustfmt has no input")?;
    // In a thread of its own, because rustfmt may write output before it has read all input.
    let writer = std::thread::spawn(move || input.write_all(code.as_bytes()));
    let output = rustfmt.wait_with_output()?;
    writer.join().map_err(|_| anyhow::anyhow!("writing to rustfmt panicked"))??;
    ensure!(output.status.success(), "rustfmt cannot format the client");
    Ok(String::from_utf8(output.stdout)?)
}
