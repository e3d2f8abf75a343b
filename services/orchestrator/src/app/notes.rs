//! What the charts of a group say to those who install them, rendered from the documents as they are now.

use serde::Serialize;
use utoipa::ToSchema;

use super::{App, Error, GroupPath, approve, group, terms};
use crate::render;

/// The notes of an app's chart.
#[derive(Debug, Serialize, ToSchema)]
pub struct Notes {
    pub app: String,
    /// The rendered text of `NOTES.txt`.
    pub notes: String,
}

/// Notes, by app.
#[derive(Debug, Serialize, ToSchema)]
pub struct NotesList {
    pub items: Vec<Notes>,
}

impl App {
    /// The notes of the charts of a group.
    ///
    /// # Errors
    /// The group does not exist, its documents are inconsistent, or helm fails.
    pub async fn notes(&self, path: &GroupPath) -> Result<NotesList, Error> {
        let mut tx = self.store.begin().await?;
        let group = group::at(&mut tx, path).await?;
        let cloud = terms::cloud(&mut tx, &group).await?;
        let sources = approve::sources(&mut tx, &self.store, &group, &cloud).await?;
        tx.rollback().await?;
        let mut items = Vec::new();
        for source in sources {
            let notes = render::notes(self.renderer.as_ref(), &source).await?;
            items.extend(notes.map(|notes| Notes { app: source.app.clone(), notes }));
        }
        Ok(NotesList { items })
    }
}
