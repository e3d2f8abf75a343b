//! `libs/service/src/clients/<service>.rs`: what services may ask of each other, made from the golden documents.
//!
//! Operations tagged `peer` become methods (progenitor, positional style), with the types of libs/api: a client has none
//! of its own. How requests travel is not here: each client has a `Peer`, see libs/service/src/peer.rs.

mod projection;
mod types;

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use progenitor_impl::{GenerationSettings, Generator, HooksMode, TypeImpl};
use quote::quote;
use serde_json::Value;

use crate::{File, root};

/// Services that others ask something.
const SERVICES: [&str; 5] = ["cluster-manager", "migration", "orchestrator", "placement", "resource-synchronizer"];

/// One file per service.
pub fn files() -> anyhow::Result<Vec<File>> {
    let files = SERVICES.into_iter().map(|service| {
        let document = root().join("openapi").join(format!("{service}.json"));
        let text = std::fs::read_to_string(&document).with_context(|| format!("cannot read {}", document.display()))?;
        let text = client(service, &serde_json::from_str(&text)?).with_context(|| format!("no client of {service}"))?;
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
    ensure!(own.is_empty(), "schemas without a name in the document would become types of the client alone: {own:?}");
    let header = format!(
        "//! What other services may ask of {service}. Made from openapi/{service}.json by `cargo run -p xtask -- clients`; not to be edited.\n\n"
    );
    formatted(header + &tokens.to_string())
}

/// As `cargo fmt` would leave it.
fn formatted(code: String) -> anyhow::Result<String> {
    let mut rustfmt = Command::new("rustfmt")
        .args(["--edition", "2024", "--config-path"])
        .arg(root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("rustfmt does not start: `rustup component add rustfmt`")?;
    let mut input = rustfmt.stdin.take().context("rustfmt has no input")?;
    // In a thread of its own: rustfmt may answer before it has read everything.
    let writer = std::thread::spawn(move || input.write_all(code.as_bytes()));
    let output = rustfmt.wait_with_output()?;
    writer.join().map_err(|_| anyhow::anyhow!("writing to rustfmt panicked"))??;
    ensure!(output.status.success(), "rustfmt refuses the client");
    Ok(String::from_utf8(output.stdout)?)
}
