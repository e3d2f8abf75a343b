//! `drover page`: a link that signs a browser in.

use anyhow::{Context, Result};
use reqwest::Url;

use crate::client::Client;

/// Prints the link.
///
/// # Errors
/// The request fails.
pub async fn run(client: &Client) -> Result<()> {
    println!("{}", link(client).await?);
    Ok(())
}

/// A new link; it works once.
///
/// # Errors
/// The request fails.
pub async fn link(client: &Client) -> Result<Url> {
    let made = client.post("v2/login-links", None).await?;
    let path = made.body["path"].as_str().context("unexpected answer of v2/login-links")?;
    Ok(client.base().join(path)?)
}
