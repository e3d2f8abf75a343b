//! Saves an application's documents before a dry run and restores them after it.
//!
//! Services decide from documents, so a dry run of other manifests has to write those first.

use anyhow::Result;
use base64::Engine;
use serde_json::{Value, json};

use super::Session;
use super::deploy::{Application, names};
use crate::client::segment;

/// An application's apps with their files, and its intents, by collection.
pub struct Before {
    apps: Vec<(String, Vec<u8>)>,
    intents: Vec<(String, Vec<Value>)>,
}

impl Before {
    /// Reads them; `None` if there is no such application.
    ///
    /// # Errors
    /// A request fails.
    pub async fn read(session: &Session, application: &Application) -> Result<Option<Self>> {
        if session.client.find(&application.composite).await?.is_none() {
            return Ok(None);
        }
        let collection = format!("{}/apps", application.composite);
        let mut apps = Vec::new();
        for name in names(session, &collection).await? {
            let file = session.client.file(&format!("{collection}/{}", segment(&name))).await?;
            apps.push((name, file));
        }
        let mut intents = Vec::new();
        for collection in application.intents() {
            let found = session.client.find(&collection).await?.unwrap_or_default();
            intents.push((collection, found.as_array().cloned().unwrap_or_default()));
        }
        Ok(Some(Self { apps, intents }))
    }

    /// Writes them again, and deletes those that were added since.
    ///
    /// # Errors
    /// A request fails.
    pub async fn restore(self, session: &Session, application: &Application) -> Result<()> {
        let client = &session.client;
        let collection = format!("{}/apps", application.composite);
        for (name, file) in &self.apps {
            let file = base64::engine::general_purpose::STANDARD.encode(file);
            client.upsert(&collection, &segment(name), &json!({"metadata": {"name": name}, "file": file})).await?;
        }
        for (intents, documents) in &self.intents {
            for document in documents {
                client.upsert(intents, &segment(name_of(document)), document).await?;
            }
            for name in names(session, intents).await? {
                if !documents.iter().any(|document| name_of(document) == name) {
                    client.delete(&format!("{intents}/{}", segment(&name))).await?;
                }
            }
        }
        for name in names(session, &collection).await? {
            if !self.apps.iter().any(|(known, _)| *known == name) {
                client.delete(&format!("{collection}/{}", segment(&name))).await?;
            }
        }
        Ok(())
    }
}

fn name_of(document: &Value) -> &str {
    document["metadata"]["name"].as_str().unwrap_or_default()
}
