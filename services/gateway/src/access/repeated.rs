//! `Idempotency-Key`: a POST that is sent again with the same key is carried out once, and answered as it was the first time.
//!
//! A row is written before the request is passed on, and the answer of one that was carried out (2xx) is added to it. A request that was
//! refused, or whose service did not answer, may be sent again with its key: its row goes. If the gateway dies between the two, the row is
//! given up after [`ATTEMPT`] and a repetition is passed on again, which the services then refuse or, for a plan, which reserves nothing,
//! carry out. Without a database the key is ignored.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use drover_service::{Identity, Principal, Problem, codes};
use drover_store::{Place, Sealed, Store, StoreError, StoreResult};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use secrecy::ExposeSecret;
use sha2::{Digest, Sha256};
use sqlx::types::Json;
use uuid::Uuid;

/// The header with the key.
pub const KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Says that an answer is that of an earlier request.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Headers of an answer that are kept with it.
const KEPT: [HeaderName; 6] = [
    header::CONTENT_TYPE,
    header::LOCATION,
    header::ETAG,
    header::WARNING,
    HeaderName::from_static("preference-applied"),
    HeaderName::from_static("deprecation"),
];
/// Longer than any request may take.
const ATTEMPT: Duration = Duration::from_secs(120);
/// How long an answer is kept.
const ANSWER: Duration = Duration::from_secs(24 * 3600);
/// How long a request waits for the answer of an equal one that is carried out at present.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(200);
/// Bodies of requests with a key; charts are smaller.
const BODY: usize = 48 << 20;
/// Bodies of answers that are kept.
const LARGEST: usize = 1 << 20;
/// Rows that are removed at most when one is written.
const TIDIED: i64 = 20;

/// A request with a key.
pub struct Keyed {
    sender: String,
    key: String,
    digest: Vec<u8>,
}

/// What is known of a key.
pub enum Found {
    /// The request is to be carried out now, and its answer to be [`Attempt::end`]ed.
    New(Attempt),
    /// It was carried out; this was its answer.
    Answered(Response),
}

/// The right to carry out a request with a key.
pub struct Attempt {
    db: Store,
    keyed: Keyed,
    id: Uuid,
}

type Row = (Vec<u8>, Option<i16>, Option<Json<BTreeMap<String, String>>>, Option<Sealed>);

impl Keyed {
    /// Whether a request is a POST with a key.
    pub fn has_key(request: &Request) -> bool {
        request.method() == Method::POST && request.headers().contains_key(KEY)
    }

    /// The key of a request that has one.
    ///
    /// # Errors
    /// The key is not valid, or the body is too large.
    pub async fn of(principal: &Principal, request: &mut Request) -> Result<Self, Problem> {
        let key = request.headers().get(KEY).and_then(|key| key.to_str().ok()).filter(|key| (1..=200).contains(&key.len()));
        let key =
            key.ok_or_else(|| codes::INVALID.problem("Idempotency-Key must be 1 to 200 printable ASCII characters, for example a UUID"))?;
        let sender = match &principal.identity {
            Identity::Token(id) => format!("token {id}"),
            Identity::User(user) => format!("user {}", user.subject),
            other => other.via().to_owned(),
        };
        let key = key.to_owned();
        let body = to_bytes(std::mem::take(request.body_mut()), BODY).await;
        let body = body.map_err(|_| codes::TOO_LARGE.problem(format!("A request with an Idempotency-Key has at most {BODY} bytes")))?;
        let digest = digest(request, &body);
        *request.body_mut() = Body::from(body);
        // An answer that is kept must not be compressed.
        request.headers_mut().remove(header::ACCEPT_ENCODING);
        Ok(Self { sender, key, digest })
    }

    /// Begins the request, or finds its answer. An equal request that is carried out at present is waited for.
    ///
    /// # Errors
    /// The key belongs to another request, its answer is not kept, it is carried out at present, or the database fails.
    pub async fn begin(self, db: Store) -> Result<Found, Problem> {
        let id = Uuid::now_v7();
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            if self.insert(&db, id).await? {
                return Ok(Found::New(Attempt { db, keyed: self, id }));
            }
            // It may have gone meanwhile: the next pass begins it.
            if let Some((digest, status, headers, sealed)) = self.row(&db).await? {
                if digest != self.digest {
                    return Err(codes::IDEMPOTENCY_KEY_REUSED.problem(format!(
                        "The Idempotency-Key {} was sent with another request before; take a new key for each request",
                        self.key
                    )));
                }
                if let Some(status) = status {
                    return answer(status, headers, self.open(&db, sealed)).map(Found::Answered);
                }
            }
            if tokio::time::Instant::now() >= end {
                let problem = codes::IDEMPOTENCY_KEY_IN_USE.problem("The request with this Idempotency-Key is still being carried out");
                return Err(problem.header(header::RETRY_AFTER, HeaderValue::from_static("5")));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// The row that an answer is sealed for.
    fn row_id(&self) -> String {
        format!("{}\0{}", self.sender, self.key)
    }

    fn place(row: &str) -> Place<'_> {
        Place { table: "idempotency", column: "sealed", row }
    }

    /// A kept answer. One that was sealed with a key that has been retired since is lost.
    fn open(&self, db: &Store, sealed: Option<Sealed>) -> Option<Vec<u8>> {
        let opened = db.key().ok()?.open(Self::place(&self.row_id()), &sealed?);
        match opened {
            Ok(body) => Some(body.expose_secret().to_vec()),
            Err(error) => {
                tracing::warn!(%error, "the answer of a request with an Idempotency-Key cannot be opened");
                None
            }
        }
    }

    /// Whether the row is this attempt's now.
    async fn insert(&self, db: &Store, attempt: Uuid) -> StoreResult<bool> {
        let insert =
            "insert into idempotency (sender, key, digest, attempt, until) values ($1, $2, $3, $4, now() + make_interval(secs => $5))
            on conflict (sender, key) do update set digest = excluded.digest, attempt = excluded.attempt, until = excluded.until,
                status = null, headers = null, sealed = null
            where idempotency.until <= now()";
        let query = sqlx::query(insert).bind(&self.sender).bind(&self.key).bind(&self.digest).bind(attempt).bind(ATTEMPT.as_secs_f64());
        Ok(query.execute(&mut *db.acquire().await?).await?.rows_affected() > 0)
    }

    async fn row(&self, db: &Store) -> StoreResult<Option<Row>> {
        let query = sqlx::query_as("select digest, status, headers, sealed from idempotency where sender = $1 and key = $2");
        Ok(query.bind(&self.sender).bind(&self.key).fetch_optional(&mut *db.acquire().await?).await?)
    }
}

impl Attempt {
    /// Keeps the answer, which is returned as it was. Its request has been carried out, so a failure is only logged.
    pub async fn end(self, response: Response) -> Response {
        if !response.status().is_success() {
            self.log(self.forget().await);
            return response;
        }
        let (parts, body) = response.into_parts();
        let secret = parts.headers.get(header::CACHE_CONTROL).is_some_and(|value| value == "no-store");
        let body = match to_bytes(body, usize::MAX).await {
            Ok(body) => body,
            Err(error) => {
                self.log(self.keep(parts.status, &parts.headers, None).await);
                return Problem::internal(error).into_response();
            }
        };
        let kept = Some(&body).filter(|body| !secret && body.len() <= LARGEST);
        self.log(self.keep(parts.status, &parts.headers, kept).await);
        Response::from_parts(parts, Body::from(body))
    }

    async fn keep(&self, status: StatusCode, headers: &HeaderMap, body: Option<&Bytes>) -> StoreResult<()> {
        let headers: BTreeMap<&str, &str> = headers
            .iter()
            .filter(|(name, _)| KEPT.contains(name))
            .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
            .collect();
        // It also deletes some whose time is over, so that they need no statement of their own.
        let update = "with tidied as (
                delete from idempotency where (sender, key) in
                    (select sender, key from idempotency where until <= now() and (sender, key) <> ($1, $2)
                     order by until limit $8 for update skip locked)
            )
            update idempotency set status = $4, headers = $5, sealed = $6, until = now() + make_interval(secs => $7)
            where sender = $1 and key = $2 and attempt = $3";
        let query = sqlx::query(update).bind(&self.keyed.sender).bind(&self.keyed.key).bind(self.id).bind(status.as_u16().cast_signed());
        let row = self.keyed.row_id();
        let sealed = body.map(|body| Ok::<_, StoreError>(self.db.key()?.seal(Keyed::place(&row), body))).transpose()?;
        query.bind(Json(headers)).bind(sealed).bind(ANSWER.as_secs_f64()).bind(TIDIED).execute(&mut *self.db.acquire().await?).await?;
        Ok(())
    }

    async fn forget(&self) -> StoreResult<()> {
        let query = sqlx::query("delete from idempotency where sender = $1 and key = $2 and attempt = $3");
        query.bind(&self.keyed.sender).bind(&self.keyed.key).bind(self.id).execute(&mut *self.db.acquire().await?).await?;
        Ok(())
    }

    fn log(&self, kept: StoreResult<()>) {
        if let Err(error) = kept {
            tracing::error!(%error, "the answer of a request with an Idempotency-Key could not be kept; a repetition may be carried out again");
        }
    }
}

/// The answer as it was.
fn answer(status: i16, headers: Option<Json<BTreeMap<String, String>>>, body: Option<Vec<u8>>) -> Result<Response, Problem> {
    let body = body.ok_or_else(|| {
        codes::ANSWER_NOT_KEPT.problem(
            "The request with this Idempotency-Key was carried out. Its answer is not kept: it holds a secret, has more than 1 MiB, or was \
             sealed with a key that was retired since",
        )
    })?;
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(status.cast_unsigned()).map_err(Problem::internal)?;
    for (name, value) in headers.into_iter().flat_map(|Json(headers)| headers) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().insert(name, value);
        }
    }
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    Ok(response)
}

/// Of path, query and body; only POSTs have keys. The boundary of a multipart body, which clients draw anew each time, does not count.
fn digest(request: &Request, body: &[u8]) -> Vec<u8> {
    let mut digest = Sha256::new();
    digest.update(request.uri().path_and_query().map_or("", |path| path.as_str()));
    digest.update([0]);
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let boundary = kind.starts_with("multipart/").then(|| kind.split_once("boundary=")).flatten();
    let boundary = boundary.map_or("", |(_, rest)| rest.split(';').next().unwrap_or_default().trim_matches(['"', ' ']));
    for part in split(body, boundary.as_bytes()) {
        digest.update(part);
        digest.update([0]);
    }
    digest.finalize().to_vec()
}

/// The parts of a body between the boundaries; the whole body if there is no boundary.
fn split<'a>(mut body: &'a [u8], boundary: &[u8]) -> Vec<&'a [u8]> {
    let mut parts = Vec::new();
    while !boundary.is_empty()
        && let Some(at) = body.windows(boundary.len()).position(|window| window == boundary)
    {
        parts.push(&body[..at]);
        body = &body[at + boundary.len()..];
    }
    parts.push(body);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest_of(path: &str, kind: &str, body: &str) -> Vec<u8> {
        let request = http::Request::post(path).header(header::CONTENT_TYPE, kind).body(Body::empty()).unwrap();
        digest(&request, body.as_bytes())
    }

    #[test]
    fn digest_is_of_path_query_and_body_and_not_of_the_boundary() {
        let json = |path: &str, body: &str| digest_of(path, "application/json", body);
        assert_eq!(json("/v2/plans", "{}"), json("/v2/plans", "{}"));
        assert_ne!(json("/v2/plans", "{}"), json("/v2/plans?dryRun=All", "{}"));
        assert_ne!(json("/v2/plans", "{}"), json("/v2/plans", "{ }"));
        let form = |boundary: &str, value: &str| {
            digest_of(
                "/v2/a",
                &format!("multipart/form-data; boundary={boundary}"),
                &format!("--{boundary}\r\n\r\n{value}\r\n--{boundary}--"),
            )
        };
        assert_eq!(form("x1y", "a"), form("z2", "a"));
        assert_ne!(form("x1y", "a"), form("x1y", "b"));
    }
}
