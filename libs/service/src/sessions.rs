//! Browsers that have signed in: a link that works once becomes a cookie.
//!
//! Both are random, known to this process only, and end with it. A browser sends the cookie only with requests of our own pages
//! (`SameSite=Strict`), and no script can read it (`HttpOnly`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderValue, header};
use uuid::Uuid;

use crate::Identity;

const COOKIE: &str = "drover_session";
/// How long a link may be used.
pub const LINK_LIFETIME: Duration = Duration::from_secs(600);
/// How long a browser stays signed in.
pub const SESSION_LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// Links and sessions at most, of each; the oldest ends when there are more.
const MOST: usize = 1000;

/// The links and sessions of one process; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Sessions(Arc<Mutex<Tables>>);

#[derive(Debug, Default)]
struct Tables {
    links: Table,
    sessions: Table,
}

/// Since when each key is known, and whose it is.
type Table = HashMap<String, (Instant, Identity)>;

impl Sessions {
    /// The key of a new link that signs in as `identity`.
    pub fn link(&self, identity: Identity) -> String {
        put(&mut self.tables().links, identity)
    }

    /// Uses up a link and starts a session: the value of `Set-Cookie`, or none if the link has been used, has expired or never existed.
    pub fn sign_in(&self, key: &str) -> Option<HeaderValue> {
        let (_, identity) = self.tables().links.remove(key).filter(|(made, _)| made.elapsed() < LINK_LIFETIME)?;
        self.begin(identity)
    }

    /// Starts a session of somebody who is known already: the value of `Set-Cookie`.
    pub fn begin(&self, identity: Identity) -> Option<HeaderValue> {
        let session = put(&mut self.tables().sessions, identity);
        let seconds = SESSION_LIFETIME.as_secs();
        let cookie = format!("{COOKIE}={session}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict");
        HeaderValue::from_str(&cookie).ok()
    }

    /// Who has signed in with the browser that sends this request.
    pub fn signed_in(&self, headers: &HeaderMap) -> Option<Identity> {
        let sessions = &self.tables().sessions;
        let cookies = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
        let ours = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let mut known = ours.filter(|(name, _)| *name == COOKIE).filter_map(|(_, value)| sessions.get(value));
        known.find(|(made, _)| made.elapsed() < SESSION_LIFETIME).map(|(_, identity)| identity.clone())
    }

    fn tables(&self) -> std::sync::MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn put(table: &mut Table, identity: Identity) -> String {
    if table.len() >= MOST
        && let Some(oldest) = table.iter().min_by_key(|(_, (made, _))| *made).map(|(key, _)| key.clone())
    {
        table.remove(&oldest);
    }
    // 244 random bits of the operating system.
    let key = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
    table.insert(key.clone(), (Instant::now(), identity));
    key
}
