//! `drover page`: a link that signs a browser in.

use anyhow::{Context, Result};
use reqwest::Url;

use crate::hub::Client;

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
    let made = client.answer(client.api.login_link_create()).await?;
    let path = made.body["path"].as_str().context("unexpected answer of v2/login-links")?;
    Ok(client.base().join(path)?)
}
