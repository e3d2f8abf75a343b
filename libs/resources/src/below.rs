//! Documents around others, read with one statement.

use serde::de::DeserializeOwned;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::kind::DocumentKind;
use crate::store::{select, typed};
use crate::{Document, ResourceError, TypedDocument};

/// Documents of several kinds at some paths and below them, as they were when they were read.
#[derive(Clone, Debug, Default)]
pub struct Below(Vec<Document>);

impl Below {
    /// Reads all documents of each of these kinds at the path that is given with it and anywhere below it.
    ///
    /// # Errors
    /// The database cannot be reached.
    pub async fn read(db: &mut PgConnection, wanted: &[(&DocumentKind, &str)]) -> Result<Self, ResourceError> {
        let kinds: Vec<&str> = wanted.iter().map(|(kind, _)| kind.name).collect();
        let above: Vec<&str> = wanted.iter().map(|(_, path)| *path).collect();
        // Paths below another begin with it and '/'. The byte after '/' is '0', which ends the range in the index on kind and path. Others that
        // begin with it, such as a.b beside a, are in the range too. `offset 0` keeps the inner query apart: as a plain join Postgres
        // expects so many rows that it reads the whole table instead of the index.
        let query = sqlx::query_as(concat!(
            "select found.* from unnest($1::text[], $2::text[]) as wanted (of_kind, above) cross join lateral (",
            select!("where kind = of_kind and path >= above and path < above || '0' and (path = above or path > above || '/') offset 0"),
            ") found order by path"
        ));
        Ok(Self(query.bind(kinds).bind(above).fetch_all(db).await?))
    }

    /// The document of a kind at a path, if it was read.
    ///
    /// # Errors
    /// The stored spec is not a `T`.
    pub fn at<T: DeserializeOwned>(&self, kind: &DocumentKind, path: &str) -> Result<Option<TypedDocument<T>>, ResourceError> {
        let found = self.0.iter().find(|document| document.path == path && kind.within(path) == Some(path));
        found.cloned().map(typed).transpose()
    }

    /// Those of a kind directly below a document, ordered by path; none of a kind that was not read.
    ///
    /// # Errors
    /// A stored spec is not a `T`.
    pub fn children<T: DeserializeOwned>(&self, kind: &DocumentKind, parent: Uuid) -> Result<Vec<TypedDocument<T>>, ResourceError> {
        let of_kind = |document: &&Document| kind.within(&document.path) == Some(&*document.path);
        self.0.iter().filter(|document| document.parent_id == Some(parent)).filter(of_kind).cloned().map(typed).collect()
    }
}
