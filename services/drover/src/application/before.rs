//! Saves an application's documents before a dry run and restores them after it.
//!
//! Services decide from documents, so a dry run of other manifests has to write those first.

use anyhow::{Context, Result};
use base64::Engine;
use serde_json::{Value, json};

use super::prepare::cloud_of;
use super::values::put_profile;
use super::wishes::Wishes;
use super::{Application, names, remove};
use crate::hub::segment;
use crate::session::Session;

/// What an application and its project were.
pub struct Before {
    /// Whether there was the project.
    project: bool,
    /// The logical cloud that it will have, if there was none of that name.
    cloud: Option<String>,
    /// `None`: there was no such application.
    documents: Option<Documents>,
}

/// An application's group, its apps and profiles with their files, and its intents, by collection.
struct Documents {
    group: Option<Value>,
    apps: Vec<(String, Vec<u8>)>,
    profiles: Vec<(String, Vec<u8>)>,
    intents: Vec<(String, Vec<Value>)>,
}

impl Before {
    /// Reads it.
    ///
    /// # Errors
    /// A request fails.
    pub async fn read(session: &Session, application: &Application, wishes: &Wishes) -> Result<Self> {
        if session.client.find(&application.composite).await?.is_none() {
            let project = session.client.find(application.project()).await?.is_some();
            let (cloud, _) = cloud_of(session, application, wishes.namespace.as_deref()).await?;
            let known = session.client.find(&format!("{}/logical-clouds/{}", application.project, segment(&cloud))).await?;
            return Ok(Self { project, cloud: Some(cloud).filter(|_| known.is_none()), documents: None });
        }
        let apps = files(session, &format!("{}/apps", application.composite)).await?;
        let profiles = files(session, &application.profiles()).await?;
        let group = session.client.find(&application.group).await?;
        let mut intents = Vec::new();
        for collection in application.intents() {
            let found = session.client.find(&collection).await?.unwrap_or_default();
            intents.push((collection, found.as_array().cloned().unwrap_or_default()));
        }
        Ok(Self { project: true, cloud: None, documents: Some(Documents { group, apps, profiles, intents }) })
    }

    /// Restores the documents after an attempt, and returns its outcome. If both fail, the error has both reasons.
    ///
    /// # Errors
    /// The attempt failed, or the documents cannot be restored.
    pub async fn restore_after<T>(self, session: &Session, application: &Application, outcome: Result<T>) -> Result<T> {
        let restored = self.restore(session, application).await.context("documents that were changed for it could not be restored");
        match (outcome, restored) {
            (outcome, Ok(())) => outcome,
            (Ok(_), Err(lost)) => Err(lost),
            (Err(error), Err(lost)) => Err(error.context(format!("{lost:#}"))),
        }
    }

    /// Whether there was no such application.
    pub fn is_new(&self) -> bool {
        self.documents.is_none()
    }

    /// Writes the documents again, and deletes those that were added since: the application, its logical cloud and its project, too, if there
    /// were none.
    ///
    /// # Errors
    /// A request fails.
    async fn restore(self, session: &Session, application: &Application) -> Result<()> {
        let Some(documents) = self.documents else {
            remove::remove(session, application).await?;
            if let Some(cloud) = &self.cloud {
                remove::remove_cloud(session, application, cloud).await?;
            }
            return if self.project { Ok(()) } else { session.client.delete(&application.project).await };
        };
        documents.restore(session, application).await
    }
}

impl Documents {
    async fn restore(self, session: &Session, application: &Application) -> Result<()> {
        let client = &session.client;
        let collection = format!("{}/apps", application.composite);
        for (name, file) in &self.apps {
            let file = base64::engine::general_purpose::STANDARD.encode(file);
            client.upsert(&collection, &segment(name), &json!({"metadata": {"name": name}, "file": file})).await?;
        }
        for (name, file) in &self.profiles {
            put_profile(session, &application.profiles(), name, file).await?;
        }
        for name in names(session, &application.profiles()).await? {
            if !self.profiles.iter().any(|(known, _)| *known == name) {
                client.delete(&format!("{}/{}", application.profiles(), segment(&name))).await?;
            }
        }
        if let Some(group) = &self.group
            && client.find(&application.group).await?.is_some_and(|now| now["spec"] != group["spec"])
        {
            let collection = format!("{}/deployment-intent-groups", application.composite);
            client.upsert(&collection, &segment(name_of(group)), group).await?;
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

/// The documents of a collection with their files.
async fn files(session: &Session, collection: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for name in names(session, collection).await? {
        let file = session.client.file(&format!("{collection}/{}", segment(&name))).await?;
        files.push((name, file));
    }
    Ok(files)
}

fn name_of(document: &Value) -> &str {
    document["metadata"]["name"].as_str().unwrap_or_default()
}
