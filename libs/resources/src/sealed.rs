//! What is sealed of documents: files as a whole, and of the specs of some kinds the texts in some fields, each by itself. A spec with sealed
//! texts keeps its shape, so that it can be read as its type and searched without the key.
//!
//! Numbers and truth values stay in clear text, and so do the keys of maps.

use drover_store::{Place, SealKey, SealedTable, Store, StoreError};
use secrecy::ExposeSecret;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sqlx::types::Json;
use uuid::Uuid;

use crate::{Document, DocumentKind, ResourceError, TypedDocument};

/// The table of files.
pub(crate) const FILES: SealedTable = SealedTable { table: "file", row: "encode(digest, 'hex')", plain: "bytes", bytes: "bytes" };

/// How many documents one transaction seals.
const BATCH: usize = 100;

/// Calls `change` on all texts of a value that are in the sealed fields. A field is a path of names; `*` is each item of a list.
fn each_text<E>(value: &mut Value, field: &[&str], change: &mut impl FnMut(&mut String) -> Result<(), E>) -> Result<(), E> {
    match (value, field) {
        (Value::Array(items), ["*", rest @ ..]) => items.iter_mut().try_for_each(|item| each_text(item, rest, change)),
        (Value::Object(fields), [name, rest @ ..]) => fields.get_mut(*name).map_or(Ok(()), |value| each_text(value, rest, change)),
        (Value::String(text), []) => change(text),
        (Value::Array(items), []) => items.iter_mut().try_for_each(|item| each_text(item, &[], change)),
        (Value::Object(fields), []) => fields.values_mut().try_for_each(|value| each_text(value, &[], change)),
        _ => Ok(()),
    }
}

fn place(row: &str) -> Place<'_> {
    Place { table: "resource", column: "spec", row }
}

/// The spec of the document `id` as it is stored.
pub(crate) fn seal(store: &Store, kind: &DocumentKind, id: Uuid, spec: &Value) -> Result<Value, StoreError> {
    let mut sealed = spec.clone();
    if !kind.sealed.is_empty() {
        let (key, row) = (store.key()?, id.to_string());
        for field in kind.sealed {
            each_text(&mut sealed, field, &mut |text| {
                *text = key.seal_text(place(&row), text);
                Ok::<_, StoreError>(())
            })?;
        }
    }
    Ok(sealed)
}

fn open_spec(store: &Store, kind: &DocumentKind, id: Uuid, spec: &mut Value) -> Result<(), StoreError> {
    if kind.sealed.is_empty() {
        return Ok(());
    }
    let (key, row) = (store.key()?, id.to_string());
    for field in kind.sealed {
        each_text(spec, field, &mut |text| {
            if let Some(plain) = key.open_sealed_text(place(&row), text)? {
                plain.expose_secret().clone_into(text);
            }
            Ok::<_, StoreError>(())
        })?;
    }
    Ok(())
}

/// The document with its spec in clear text.
pub(crate) fn open(store: &Store, kind: &DocumentKind, mut document: Document) -> Result<Document, StoreError> {
    open_spec(store, kind, document.id, &mut document.spec)?;
    Ok(document)
}

/// The spec of a document that was read as a type, in clear text.
///
/// # Errors
/// The spec was sealed with a key that the service does not have.
pub fn opened<T: Serialize + DeserializeOwned>(
    store: &Store,
    kind: &DocumentKind,
    document: &TypedDocument<T>,
) -> Result<T, ResourceError> {
    let unreadable = |source| ResourceError::Unreadable { path: document.path.clone(), source };
    let mut spec = serde_json::to_value(&document.spec).map_err(unreadable)?;
    open_spec(store, kind, document.id, &mut spec)?;
    serde_json::from_value(spec).map_err(unreadable)
}

/// Seals the files and specs that are not sealed with the newest key; a service whose kinds have such fields calls it when it starts, before
/// it serves.
///
/// # Errors
/// The store fails or has no key, or something was sealed with a key that is not in the key file.
pub async fn seal_all(store: &Store, kinds: impl IntoIterator<Item = &&'static DocumentKind>) -> Result<(), StoreError> {
    FILES.seal_all(store, None).await?;
    for kind in kinds.into_iter().filter(|kind| !kind.sealed.is_empty()) {
        let ids: Vec<Uuid> = sqlx::query_scalar("select id from resource where kind = $1 order by id")
            .bind(kind.name)
            .fetch_all(&mut *store.acquire().await?)
            .await?;
        for batch in ids.chunks(BATCH) {
            let mut tx = store.begin().await?;
            let rows: Vec<(Uuid, Json<Value>)> =
                sqlx::query_as("select id, spec from resource where id = any($1) for update").bind(batch).fetch_all(&mut *tx).await?;
            for (id, Json(mut spec)) in rows {
                if !is_stale(store.key()?, kind, &mut spec)? {
                    continue;
                }
                open_spec(store, kind, id, &mut spec)?;
                let sealed = seal(store, kind, id, &spec)?;
                // The document is the same, and so is its version.
                sqlx::query("update resource set spec = $2 where id = $1").bind(id).bind(Json(sealed)).execute(&mut *tx).await?;
            }
            tx.commit().await?;
        }
    }
    Ok(())
}

fn is_stale(key: &SealKey, kind: &DocumentKind, spec: &mut Value) -> Result<bool, StoreError> {
    let mut stale = false;
    for field in kind.sealed {
        each_text(spec, field, &mut |text| {
            stale |= key.is_stale_text(text);
            Ok::<_, StoreError>(())
        })?;
    }
    Ok(stale)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use serde_json::json;

    use super::*;

    #[test]
    fn texts_below_a_field_are_changed_and_no_others() {
        let mut spec = json!({"overrideValues": [{"app": "web", "values": {"a": "1", "b": ["2", {"c": "3"}], "n": 4}}], "version": "r1"});
        let mut hide = |text: &mut String| {
            "x".clone_into(text);
            Ok::<_, Infallible>(())
        };
        each_text(&mut spec, &["overrideValues", "*", "values"], &mut hide).unwrap();
        each_text(&mut spec, &["nothing", "*"], &mut hide).unwrap();
        let hidden = json!({"a": "x", "b": ["x", {"c": "x"}], "n": 4});
        assert_eq!(spec, json!({"overrideValues": [{"app": "web", "values": hidden}], "version": "r1"}));
    }
}
