//! Documents as they are stored.

use drover_store::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

/// EMCO's metadata. All four fields are always in the output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Metadata {
    /// The name of the document, unique below its parent.
    #[schema(max_length = 128, pattern = "^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$")]
    pub name: String,
    /// A description for people.
    #[serde(default)]
    #[schema(max_length = 1024)]
    pub description: String,
    /// Data of the user, which Drover stores and does not read.
    #[serde(default, rename = "userData1", alias = "userdata1")]
    #[schema(max_length = 512)]
    pub user_data1: String,
    /// Data of the user, which Drover stores and does not read.
    #[serde(default, rename = "userData2", alias = "userdata2")]
    #[schema(max_length = 512)]
    pub user_data2: String,
}

/// A row of `resource`.
#[derive(Clone, Debug, PartialEq, sqlx::FromRow)]
pub struct Document {
    /// A document that is deleted and created again under the same name has another id.
    pub id: Uuid,
    /// The path, which begins with `/v2`.
    pub path: String,
    pub name: String,
    /// The parent, if it is a document of this service.
    pub parent_id: Option<Uuid>,
    /// The nearest ancestor that is a document of another service.
    pub foreign_parent: Option<Uuid>,
    /// Changes with each write; the ETag.
    pub version: i64,
    #[sqlx(json)]
    pub metadata: Metadata,
    /// The spec with its defaults; null if the client sent none and the kind only returns a spec that was sent.
    #[sqlx(json)]
    pub spec: Value,
    /// SHA-256 digest of its file.
    pub file_digest: Option<Vec<u8>>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A [`Document`] whose spec has been read as a type.
#[derive(Clone, Debug, PartialEq)]
pub struct TypedDocument<T> {
    pub id: Uuid,
    pub path: String,
    pub name: String,
    pub parent_id: Option<Uuid>,
    pub foreign_parent: Option<Uuid>,
    pub version: i64,
    pub metadata: Metadata,
    pub spec: T,
    pub file_digest: Option<Vec<u8>>,
}

impl Document {
    /// The spec as its type. A spec that was not sent is read as an empty object.
    ///
    /// # Errors
    /// The stored spec does not fit the type.
    pub fn spec<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        match &self.spec {
            Value::Null => serde_json::from_value(Value::Object(serde_json::Map::new())),
            spec => T::deserialize(spec),
        }
    }

    /// The document with its spec as its type.
    ///
    /// # Errors
    /// The stored spec does not fit the type.
    pub fn typed<T: DeserializeOwned>(self) -> Result<TypedDocument<T>, serde_json::Error> {
        Ok(TypedDocument {
            spec: self.spec()?,
            id: self.id,
            path: self.path,
            name: self.name,
            parent_id: self.parent_id,
            foreign_parent: self.foreign_parent,
            version: self.version,
            metadata: self.metadata,
            file_digest: self.file_digest,
        })
    }

    /// The version as an HTTP entity tag.
    pub fn etag(&self) -> String {
        format!("\"{}\"", self.version)
    }

    pub(crate) fn draft(id: Uuid, path: String, name: String, metadata: Metadata, spec: Value, file_digest: Option<Vec<u8>>) -> Self {
        let now = drover_store::now();
        Self {
            id,
            path,
            name,
            parent_id: None,
            foreign_parent: None,
            version: 0,
            metadata,
            spec,
            file_digest,
            created_at: now,
            updated_at: now,
        }
    }
}
