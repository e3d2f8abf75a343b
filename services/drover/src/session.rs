//! What commands that talk to Drover need.

use anyhow::{Context, Result};

use crate::globals::{Format, Globals};
use crate::hub::Client;
use crate::tokens;

/// What commands that talk to Drover need.
pub struct Session {
    /// Client of the gateway.
    pub client: Client,
    pub project: String,
    /// Output format.
    pub format: Format,
}

impl Session {
    /// A session with the Drover that the options name, and the token that they, the environment or a running `drover up` give.
    ///
    /// # Errors
    /// The file of the token cannot be read, or the client cannot be made.
    pub fn open(globals: Globals) -> Result<Self> {
        let Globals { url, token_file, ca_file, project, output: format } = globals;
        let token = match &token_file {
            Some(file) => Some(std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?.trim().to_owned()),
            None => std::env::var("DROVER_TOKEN").ok().filter(|token| !token.is_empty()).or_else(|| tokens::of_url(&url)),
        };
        Ok(Self { client: Client::with_authority(url, token, ca_file.as_deref())?, project, format })
    }
}
