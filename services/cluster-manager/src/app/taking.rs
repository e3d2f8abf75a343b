//! What is needed to take agents of clusters: the address to which they connect, and the authority, which is replaced when it is due.

use std::sync::{PoisonError, RwLock};
use std::time::SystemTime;

use anyhow::Context;
use drover_store::{SealKey, Store, Timestamp};

use super::authority::{Authority, Made};
use super::succession::{KEPT, MOST};
use crate::store::authorities::{self, New};

/// Set where agents of clusters are taken.
pub struct TakesAgents {
    authority: RwLock<Authority>,
    /// The address to which agents connect, HOST:PORT.
    pub address: String,
}

impl TakesAgents {
    /// Reads the authority, or makes the first one. It is replaced if it is due, or if its key is sealed with a key that was replaced:
    /// who knows that one may know the authority's key.
    ///
    /// # Errors
    /// The store fails, or the key was sealed with a key that this process does not have.
    pub async fn start(store: &Store, key: &SealKey, address: String) -> anyhow::Result<Self> {
        Ok(Self { authority: RwLock::new(present(store, key).await?), address })
    }

    /// The authority that signs now.
    pub fn authority(&self) -> Authority {
        self.authority.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the authority if it is due.
    ///
    /// # Errors
    /// The store fails.
    pub async fn keep_valid(&self, store: &Store, key: &SealKey) -> anyhow::Result<()> {
        if self.authority().is_due(SystemTime::now()) {
            let newest = present(store, key).await?;
            *self.authority.write().unwrap_or_else(PoisonError::into_inner) = newest;
        }
        Ok(())
    }
}

/// The authority of the store, replaced if that has to be. All of it is one transaction: whoever dies in it has changed nothing.
async fn present(store: &Store, key: &SealKey) -> anyhow::Result<Authority> {
    const GONE: &str = "the authority of links was removed meanwhile";
    let mut tx = store.begin().await?;
    if authorities::get(&mut tx, key).await?.is_none() {
        authorities::begin(&mut tx, key, &new(&Authority::first()?)).await?;
    }
    let stored = authorities::get(&mut tx, key).await?.context(GONE)?;
    let mut authority = Authority::read(&stored)?;
    let now = SystemTime::now();
    if stored.stale || authority.is_due(now) {
        let kept_since = Timestamp::from(jiff::Timestamp::try_from(now - KEPT)?);
        authorities::replace(&mut tx, key, &new(&authority.successor()?), kept_since, MOST).await?;
        authority = Authority::read(&authorities::get(&mut tx, key).await?.context(GONE)?)?;
        tracing::info!("the authority of links was replaced; agents learn the new one with their next certificates");
    }
    tx.commit().await?;
    Ok(authority)
}

fn new(made: &Made) -> New<'_> {
    New { certificate: &made.certificate, crossed: made.crossed.as_deref(), secret: &made.secret }
}
