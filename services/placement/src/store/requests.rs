//! Requests of apps, each content stored once; decisions and claims refer to it by its digest.
//!
//! The invariant: rows are only added, so a digest that is known to be stored stays valid.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use drover_scheduling::{AppRequest, Interner};
use drover_store::{Store, StoreResult};
use sha2::{Digest as _, Sha256};

use super::packed;

/// SHA-256 of the request's JSON.
pub type Digest = [u8; 32];

/// A packed request with its digest.
#[derive(Clone, Debug)]
pub struct Content {
    pub digest: Digest,
    /// The request's JSON, packed as [`packed`] says.
    pub body: Vec<u8>,
}

impl Content {
    /// Packs a request.
    pub fn of(request: &AppRequest) -> Self {
        let json = packed::json(request);
        Self { digest: Sha256::digest(&json).into(), body: packed::pack_json(&json) }
    }
}

/// Digests that are known to be stored, so that their contents are not sent again.
#[derive(Debug, Default)]
pub struct Known(HashSet<Digest>);

impl Known {
    /// 2 MiB of digests. Forgetting them is harmless: the next batch sends the content again.
    const MOST: usize = 1 << 16;

    /// Whether the content of this digest is stored.
    pub fn has(&self, digest: &Digest) -> bool {
        self.0.contains(digest)
    }

    /// Adds digests that are now stored.
    pub fn add(&mut self, written: impl IntoIterator<Item = Digest>) {
        self.0.extend(written);
        if self.0.len() > Self::MOST {
            self.0.clear();
        }
    }
}

/// The requests of these digests; equal logical clouds share memory.
///
/// # Errors
/// The store fails, or a content is damaged.
pub async fn requests(store: &Store, digests: Vec<Digest>) -> StoreResult<HashMap<Digest, Arc<AppRequest>>> {
    let digests: HashSet<Digest> = digests.into_iter().collect();
    let digests: Vec<Digest> = digests.into_iter().collect();
    let rows: Vec<(Digest, Vec<u8>)> = sqlx::query_as("select digest, body from app_request where digest = any($1)")
        .persistent(false)
        .bind(digests)
        .fetch_all(&mut *store.acquire().await?)
        .await?;
    let mut clouds = Interner::default();
    let mut unpack = |body: &[u8]| -> StoreResult<AppRequest> {
        let mut request: AppRequest = packed::unpack(body)?;
        request.terms.logical_cloud = clouds.intern(request.terms.logical_cloud);
        Ok(request)
    };
    rows.into_iter().map(|(digest, body)| Ok((digest, Arc::new(unpack(&body)?)))).collect()
}
