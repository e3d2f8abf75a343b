//! A document as it is stored.

use drover_store::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::types::Json;
use utoipa::ToSchema;
use uuid::Uuid;

/// EMCO's metadata. All four are always in the output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Metadata {
    /// Name, unique below the parent.
    #[schema(max_length = 128, pattern = "^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$")]
    pub name: String,
    /// Whatever the user wants to say.
    #[serde(default)]
    #[schema(max_length = 1024)]
    pub description: String,
    /// The user's own data.
    #[serde(default, rename = "userData1", alias = "userdata1")]
    #[schema(max_length = 512)]
    pub user_data1: String,
    /// The user's own data.
    #[serde(default, rename = "userData2", alias = "userdata2")]
    #[schema(max_length = 512)]
    pub user_data2: String,
}

/// A row of `resource`.
#[derive(Clone, Debug, PartialEq, sqlx::FromRow)]
pub struct Document {
    /// Id; another one when it is made again under the same name.
    pub id: Uuid,
    /// Path from `/v2`.
    pub path: String,
    /// Name.
    pub name: String,
    /// Document of this service above it.
    pub parent_id: Option<Uuid>,
    /// Document of another service above it, near or far.
    pub foreign_parent: Option<Uuid>,
    /// Version, the ETag.
    pub version: i64,
    /// Metadata.
    #[sqlx(json)]
    pub metadata: Metadata,
    /// Spec, normalised; null if the client sent none and the kind echoes only what was sent.
    #[sqlx(json)]
    pub spec: Value,
    /// Digest (SHA-256) of its file.
    pub file_digest: Option<Vec<u8>>,
    /// Made.
    pub created_at: Timestamp,
    /// Last written.
    pub updated_at: Timestamp,
}

/// A document with its spec as a type.
#[derive(Clone, Debug, PartialEq)]
pub struct Typed<T> {
    /// Id.
    pub id: Uuid,
    /// Path from `/v2`.
    pub path: String,
    /// Name.
    pub name: String,
    /// Document of this service above it.
    pub parent_id: Option<Uuid>,
    /// Document of another service above it.
    pub foreign_parent: Option<Uuid>,
    /// Version.
    pub version: i64,
    /// Metadata.
    pub metadata: Metadata,
    /// Spec.
    pub spec: T,
    /// Digest of its file.
    pub file_digest: Option<Vec<u8>>,
}

impl Document {
    /// The spec as its type; a spec that was not sent is the type's default.
    pub fn spec<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        match &self.spec {
            Value::Null => serde_json::from_value(Value::Object(serde_json::Map::new())),
            spec => T::deserialize(spec),
        }
    }

    /// The document with its spec as its type.
    pub fn typed<T: DeserializeOwned>(self) -> Result<Typed<T>, serde_json::Error> {
        Ok(Typed {
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

    pub(crate) fn json_parts(&self) -> (Json<&Metadata>, Json<&Value>) {
        (Json(&self.metadata), Json(&self.spec))
    }
}
