//! The SQL statements on the tables `resource`, `resource_reference` and `file`, and typed access for other code of a service.

use drover_store::{ResultExt, Sealed, Store, StoreError, hex};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use crate::kind::{DocumentKind, Parent, Reference};
use crate::sealed::{self, FILES};
use crate::{Document, ResourceError, TypedDocument};

/// A query for documents that ends with this text.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "select id, path, name, parent_id, foreign_parent, version, metadata, spec, file_digest, created_at, updated_at from resource ",
            $rest
        )
    };
}

pub(crate) use select;

/// The document at `path`, if there is one.
///
/// # Errors
/// The database cannot be reached.
pub async fn find(db: &mut PgConnection, kind: &DocumentKind, path: &str) -> Result<Option<Document>, ResourceError> {
    Ok(sqlx::query_as(select!("where kind = $1 and path = $2")).bind(kind.name).bind(path).fetch_optional(db).await?)
}

/// The document at `path`, locked until the transaction ends.
pub(crate) async fn lock(db: &mut PgConnection, kind: &DocumentKind, path: &str) -> Result<Option<Document>, ResourceError> {
    Ok(sqlx::query_as(select!("where kind = $1 and path = $2 for update")).bind(kind.name).bind(path).fetch_optional(db).await?)
}

/// The document at `path` with its spec as `T`, if there is one.
///
/// # Errors
/// The database cannot be reached, or the stored spec is not a `T`.
pub async fn get<T: DeserializeOwned>(
    db: &mut PgConnection,
    kind: &DocumentKind,
    path: &str,
) -> Result<Option<TypedDocument<T>>, ResourceError> {
    find(db, kind, path).await?.map(typed).transpose()
}

/// The documents of these kinds at these paths, of those that exist, in any order. A path has one kind only.
///
/// # Errors
/// The database cannot be reached.
pub async fn at_paths(db: &mut PgConnection, kinds: &[&DocumentKind], paths: &[&str]) -> Result<Vec<Document>, ResourceError> {
    let kinds: Vec<&str> = kinds.iter().map(|kind| kind.name).collect();
    Ok(sqlx::query_as(select!("where path = any($1) and kind = any($2)")).bind(paths).bind(kinds).fetch_all(db).await?)
}

/// The document of this id, if there is one.
///
/// # Errors
/// The database cannot be reached, or the stored spec is not a `T`.
pub async fn by_id<T: DeserializeOwned>(
    db: &mut PgConnection,
    kind: &DocumentKind,
    id: Uuid,
) -> Result<Option<TypedDocument<T>>, ResourceError> {
    let found: Option<Document> =
        sqlx::query_as(select!("where kind = $1 and id = $2")).bind(kind.name).bind(id).fetch_optional(db).await?;
    found.map(typed).transpose()
}

/// All documents of a kind directly below a document of this service, ordered by path.
///
/// # Errors
/// The database cannot be reached, or a stored spec is not a `T`.
pub async fn children<T: DeserializeOwned>(
    db: &mut PgConnection,
    kind: &DocumentKind,
    parent: Uuid,
) -> Result<Vec<TypedDocument<T>>, ResourceError> {
    let rows: Vec<Document> =
        sqlx::query_as(select!("where parent_id = $1 and kind = $2 order by path")).bind(parent).bind(kind.name).fetch_all(db).await?;
    rows.into_iter().map(typed).collect()
}

/// All documents of a kind anywhere below a document of another service, ordered by path.
///
/// # Errors
/// The database cannot be reached, or a stored spec is not a `T`.
pub async fn below_foreign<T: DeserializeOwned>(
    db: &mut PgConnection,
    kind: &DocumentKind,
    foreign: Uuid,
) -> Result<Vec<TypedDocument<T>>, ResourceError> {
    let rows: Vec<Document> = sqlx::query_as(select!("where foreign_parent = $1 and kind = $2 order by path"))
        .bind(foreign)
        .bind(kind.name)
        .fetch_all(db)
        .await?;
    rows.into_iter().map(typed).collect()
}

/// All documents of a kind, ordered by path.
///
/// # Errors
/// The database cannot be reached, or a stored spec is not a `T`.
pub async fn of_kind<T: DeserializeOwned>(db: &mut PgConnection, kind: &DocumentKind) -> Result<Vec<TypedDocument<T>>, ResourceError> {
    let rows: Vec<Document> = sqlx::query_as(select!("where kind = $1 order by path")).bind(kind.name).fetch_all(db).await?;
    rows.into_iter().map(typed).collect()
}

/// A document with its spec as `T`.
///
/// # Errors
/// The stored spec is not a `T`.
pub fn typed<T: DeserializeOwned>(document: Document) -> Result<TypedDocument<T>, ResourceError> {
    let path = document.path.clone();
    document.typed().map_err(|source| ResourceError::Unreadable { path, source })
}

/// Which documents of a kind a page of a list has: those below the path `parent` that were created after the document `after`.
pub(crate) struct Page<'a> {
    pub parent: &'a str,
    pub foreign: Option<Uuid>,
    pub after: Option<Uuid>,
    pub name: Option<&'a str>,
    pub filters: serde_json::Value,
    pub limit: i64,
}

pub(crate) async fn page(db: &mut PgConnection, kind: &DocumentKind, page: Page<'_>) -> Result<Vec<Document>, ResourceError> {
    // All paths of the collection begin with `…/`. The byte after '/' is '0', which ends the range in the index on the path.
    let from = format!("{}/{}/", page.parent, kind.segment);
    let to = format!("{}/{}0", page.parent, kind.segment);
    let query = sqlx::query_as(select!(
        "where kind = $1 and path > $2 and path < $4 and ($3::uuid is null or id > $3)
        and ($5::uuid is null or foreign_parent = $5) and ($6 = '{}'::jsonb or spec @> $6)
        and ($8::text is null or name = $8) order by id limit $7"
    ));
    Ok(query
        .bind(kind.name)
        .bind(from)
        .bind(page.after)
        .bind(to)
        .bind(page.foreign)
        .bind(page.filters)
        .bind(page.limit)
        .bind(page.name)
        .fetch_all(db)
        .await?)
}

/// Inserts a document below its parent, and sets its parents and version.
pub(crate) async fn insert(
    db: &mut PgConnection,
    store: &Store,
    kind: &DocumentKind,
    document: &mut Document,
    parent: &str,
    foreign: Option<Uuid>,
) -> Result<(), ResourceError> {
    let taken = |name: &str| (name == "resource_path_key").then_some(ResourceError::AlreadyExists { title: kind.title });
    let (metadata, spec) = (Json(&document.metadata), Json(sealed::seal(store, kind, document.id, &document.spec)?));
    let row: Option<(i64, Option<Uuid>)> = match kind.parent {
        Parent::Local(above) => sqlx::query_as(
            "insert into resource (id, kind, path, name, parent_id, foreign_parent, metadata, spec, file_digest)
                select $1, $2, $3, $4, parent.id, parent.foreign_parent, $5, $6, $7 from resource parent
                where parent.path = $8 and parent.kind = $9 and parent.foreign_parent is not distinct from $10
                returning version, parent_id",
        )
        .bind(document.id)
        .bind(kind.name)
        .bind(&document.path)
        .bind(&document.name)
        .bind(metadata)
        .bind(spec)
        .bind(&document.file_digest)
        .bind(parent)
        .bind(above.name)
        .bind(foreign)
        .fetch_optional(&mut *db)
        .await
        .map_constraint(taken)?,
        Parent::Root | Parent::Foreign(_) => sqlx::query_as(
            "insert into resource (id, kind, path, name, foreign_parent, metadata, spec, file_digest)
                values ($1, $2, $3, $4, $8, $5, $6, $7) returning version, parent_id",
        )
        .bind(document.id)
        .bind(kind.name)
        .bind(&document.path)
        .bind(&document.name)
        .bind(metadata)
        .bind(spec)
        .bind(&document.file_digest)
        .bind(foreign)
        .fetch_optional(&mut *db)
        .await
        .map_constraint(taken)?,
    };
    let (version, parent_id) = row.ok_or_else(|| ResourceError::ParentNotFound { path: parent.to_owned() })?;
    (document.version, document.parent_id, document.foreign_parent) = (version, parent_id, foreign);
    Ok(())
}

/// Writes metadata, spec and file of a locked document, and sets its new version.
pub(crate) async fn update(
    db: &mut PgConnection,
    store: &Store,
    kind: &DocumentKind,
    document: &mut Document,
) -> Result<(), ResourceError> {
    let (metadata, spec) = (Json(&document.metadata), Json(sealed::seal(store, kind, document.id, &document.spec)?));
    let version = sqlx::query_scalar(
        "update resource set metadata = $2, spec = $3, file_digest = $4, updated_at = now(), version = nextval('resource_version')
        where id = $1 returning version",
    )
    .bind(document.id)
    .bind(metadata)
    .bind(spec)
    .bind(&document.file_digest)
    .fetch_one(db)
    .await?;
    document.version = version;
    Ok(())
}

/// Writes a default that only became known later into the spec of a document, which gets a new version.
///
/// # Errors
/// The spec cannot be written as JSON, or the database cannot be reached.
pub async fn set_spec<T: Serialize>(db: &mut PgConnection, id: Uuid, spec: &T) -> Result<(), ResourceError> {
    sqlx::query("update resource set spec = $2, updated_at = now(), version = nextval('resource_version') where id = $1")
        .bind(id)
        .bind(Json(spec))
        .execute(db)
        .await?;
    Ok(())
}

/// Deletes a document. It fails if other documents are below it or refer to it.
pub(crate) async fn delete(db: &mut PgConnection, document: &Document) -> Result<(), ResourceError> {
    sqlx::query("delete from resource where id = $1").bind(document.id).execute(db).await.map_constraint(|name| match name {
        "resource_parent_id_fkey" => Some(ResourceError::HasChildren),
        "resource_reference_to_id_fkey" => Some(ResourceError::HasReferences { paths: Vec::new() }),
        _ => None,
    })?;
    Ok(())
}

/// The paths of some of the documents that refer to this one.
pub(crate) async fn referrers(db: &mut PgConnection, id: Uuid) -> Result<Vec<String>, ResourceError> {
    Ok(sqlx::query_scalar(
        "select path from resource join resource_reference on from_id = resource.id where to_id = $1 order by path limit 16",
    )
    .bind(id)
    .fetch_all(db)
    .await?)
}

/// Replaces the references of a document.
pub(crate) async fn set_references(db: &mut PgConnection, id: Uuid, references: &[Reference]) -> Result<(), ResourceError> {
    sqlx::query("delete from resource_reference where from_id = $1").bind(id).execute(&mut *db).await?;
    for reference in references {
        let done = sqlx::query(
            "insert into resource_reference (from_id, field, to_id)
            select $1, $2, id from resource where path = $3 on conflict do nothing",
        )
        .bind(id)
        .bind(reference.field)
        .bind(&reference.path)
        .execute(&mut *db)
        .await?;
        // No row was inserted either because the reference is there already, or because its target does not exist.
        if done.rows_affected() == 0 && !exists(&mut *db, &reference.path).await? {
            return Err(ResourceError::ReferenceNotFound { field: reference.field, path: reference.path.clone() });
        }
    }
    Ok(())
}

async fn exists(db: &mut PgConnection, path: &str) -> Result<bool, ResourceError> {
    Ok(sqlx::query_scalar("select exists (select from resource where path = $1)").bind(path).fetch_one(db).await?)
}

/// Stores the bytes unless they are stored already, and returns their digest.
pub(crate) async fn put_file(db: &mut PgConnection, store: &Store, bytes: &[u8]) -> Result<Vec<u8>, ResourceError> {
    let digest = Sha256::digest(bytes).to_vec();
    let sealed = store.key()?.seal(FILES.place(&hex(&digest)), bytes);
    sqlx::query("insert into file (digest, sealed) values ($1, $2) on conflict do nothing").bind(&digest).bind(sealed).execute(db).await?;
    Ok(digest)
}

/// The stored bytes with this digest, if there are any.
///
/// # Errors
/// The database cannot be reached, or the bytes are sealed with a key that the service does not have.
pub async fn file(db: &mut PgConnection, store: &Store, digest: &[u8]) -> Result<Option<Vec<u8>>, ResourceError> {
    let row: Option<(Option<Sealed>, Option<Vec<u8>>)> =
        sqlx::query_as("select sealed, bytes from file where digest = $1").bind(digest).fetch_optional(db).await?;
    let Some((sealed, plain)) = row else { return Ok(None) };
    Ok(Some(FILES.open(store.key()?, &hex(digest), sealed, plain)?))
}

/// Deletes bytes that no document uses any more. If another transaction uses them at the same time, the foreign key refuses the deletion.
pub(crate) async fn drop_file(db: &mut PgConnection, digest: &[u8]) -> Result<(), ResourceError> {
    let outcome = sqlx::query("delete from file where digest = $1 and not exists (select from resource where file_digest = $1)")
        .bind(digest)
        .execute(db)
        .await
        .map_err(StoreError::from);
    match outcome {
        Err(error) if error.constraint().is_none() => Err(error.into()),
        _ => Ok(()),
    }
}

/// Deletes all documents below the document `id` of another service, which no longer exists. Returns their number.
///
/// # Errors
/// The database cannot be reached.
pub async fn purge_foreign(db: &mut PgConnection, id: Uuid) -> Result<u64, ResourceError> {
    let mut purged = 0;
    loop {
        // Each round deletes the documents without children and referrers, which makes their parents deletable in the next one.
        let done = sqlx::query(
            "delete from resource r where foreign_parent = $1
            and not exists (select from resource child where child.parent_id = r.id)
            and not exists (select from resource_reference where to_id = r.id)",
        )
        .bind(id)
        .execute(&mut *db)
        .await?;
        if done.rows_affected() == 0 {
            return Ok(purged);
        }
        purged += done.rows_affected();
    }
}

/// The foreign parent of the document at `path` if it is not `current`: the document is left from an earlier parent of the same name.
pub(crate) async fn orphaned(db: &mut PgConnection, path: &str, current: Uuid) -> Result<Option<Uuid>, ResourceError> {
    Ok(sqlx::query_scalar("select foreign_parent from resource where path = $1 and foreign_parent <> $2")
        .bind(path)
        .bind(current)
        .fetch_optional(db)
        .await?)
}
