//! Who may send a request here: its host name, the site of the page that sends it, its token, and the headers that bind browsers.
//!
//! Three checks, in this order. The *host* must be a name of this service: a page of another site whose name was made to point to this
//! machine (DNS rebinding) would otherwise be of the same origin. The *origin* of a write must be a page of this service: a browser sends
//! cookies, passwords and, on loopback, its mere presence along with whatever another site makes it do (CSRF). Then the *token* or the
//! session decides. All three hold with and without a token.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use axum_extra::headers::HeaderMapExt;
use axum_extra::headers::authorization::{Authorization, Basic};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use secrecy::{ExposeSecret, SecretString};

use crate::sessions::Sessions;
use crate::tls::{PeerName, may_call};
use crate::{Common, Identities, Identity, Principal, Problem, codes};

/// What [`guard`] checks.
#[derive(Clone)]
pub(crate) struct Access(Arc<Rules>);

struct Rules {
    peer: SecretString,
    api: Option<SecretString>,
    /// Names under which clients reach this service, in lower case.
    names: Vec<String>,
    /// Names under which the other services reach this one.
    peer_names: Vec<String>,
    sessions: Sessions,
    /// Tokens and users, where there are any.
    identities: Option<Arc<dyn Identities>>,
}

impl Access {
    pub(crate) fn new(common: &Common) -> Self {
        Self(Arc::new(Rules {
            peer: common.peer_token.clone(),
            api: common.api_token.clone(),
            names: common.allowed_hosts.iter().map(|name| name.trim().to_ascii_lowercase()).collect(),
            peer_names: common.peers.all().iter().filter_map(|url| url.host_str()).map(str::to_ascii_lowercase).collect(),
            sessions: common.sessions.clone(),
            identities: common.identities.clone(),
        }))
    }
}

/// `/internal` and `/debug` need the peer token; the rest needs a session or a token where one is set (or the peer token: the gateway).
/// `/healthz` and `/readyz` are open, also under other names. Puts the [`Principal`] into the request's extensions.
pub(crate) async fn guard(State(Access(rules)): State<Access>, request: Request, next: Next) -> Result<Response, Problem> {
    let path = request.uri().path();
    if matches!(path, "/healthz" | "/readyz") {
        return Ok(next.run(request).await);
    }
    let (mut parts, body) = request.into_parts();
    let host = rules.host(parts.uri.authority(), &parts.headers)?;
    let principal = rules.principal(&host, &parts).await?;
    if principal.is_some() || is_sign_in(parts.uri.path()) {
        if let Some(principal) = principal {
            parts.extensions.insert(principal);
        }
        return Ok(next.run(Request::from_parts(parts, body)).await);
    }
    let browser = parts.headers.get(header::ACCEPT).is_some_and(|kinds| kinds.to_str().is_ok_and(|kinds| kinds.contains("text/html")));
    let how = if browser { r#"Basic realm="Drover: the token is the password", charset="UTF-8""# } else { "Bearer" };
    Err(codes::UNAUTHORIZED
        .problem("Send the token as `Authorization: Bearer <token>`; for a browser, `drover page` prints a link that signs it in")
        .header(header::WWW_AUTHENTICATE, HeaderValue::from_static(how)))
}

/// Pages for those who are not known yet.
fn is_sign_in(path: &str) -> bool {
    path == "/login" || path.starts_with("/login/")
}

/// The page that sent a request, as the browser names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// No browser says anything: a script or a program.
    Unnamed,
    Own,
    Foreign,
}

impl Rules {
    /// Who sends the request; none if that is nobody who may.
    async fn principal(&self, host: &Authority, request: &Parts) -> Result<Option<Principal>, Problem> {
        let (path, headers) = (request.uri.path(), &request.headers);
        let given = bearer(headers);
        if given.is_some_and(|given| is(given, &self.peer)) {
            return Ok(Some(Principal::all(Identity::Peer)));
        }
        // A certificate that names no service is none.
        if let Some(Some(PeerName(caller))) = request.extensions.get::<Option<PeerName>>() {
            if !may_call(caller, &request.method, path) {
                return Err(codes::FORBIDDEN.problem(format!("The service {caller} may not send this request to this service")));
            }
            return Ok(Some(Principal::all(Identity::Peer)));
        }
        if matches!(path.split('/').nth(1), Some("internal" | "debug")) {
            return Ok(None);
        }
        let writes = !request.method.is_safe();
        let from_page = self.origin(host, headers);
        if writes && from_page == Origin::Foreign {
            return Err(codes::ORIGIN_REFUSED.problem(
                "A page of another site may not change anything here; if this is your own page behind another name, add the name to --allowed-hosts",
            ));
        }
        // A browser sends a password along with later requests, so it is taken for reading only.
        let password = if writes { None } else { password(headers) };
        if let Some(secret) = given.map(str::to_owned).or(password) {
            let known = self.of_secret(&secret).await?;
            // Whoever sends a token that was revoked must not become somebody else, also where everybody may do everything.
            if known.is_some() || self.identities.as_ref().is_some_and(|identities| identities.is_token(&secret)) {
                return Ok(known);
            }
        }
        // A link from another site opens a page without its session; what it reads, that site cannot see.
        if let Some(identity) = self.sessions.signed_in(headers).filter(|_| !writes || from_page == Origin::Own) {
            return match (&identity, &self.identities) {
                (Identity::Token(_) | Identity::User(_), Some(identities)) => identities.of_identity(&identity).await,
                (Identity::Token(_) | Identity::User(_), None) => Ok(None),
                _ => Ok(Some(Principal::all(identity))),
            };
        }
        Ok(self.api.is_none().then(|| Principal::all(Identity::Anyone)))
    }

    async fn of_secret(&self, secret: &str) -> Result<Option<Principal>, Problem> {
        if self.api.as_ref().is_some_and(|api| is(secret, api)) {
            return Ok(Some(Principal::all(Identity::ApiToken)));
        }
        match &self.identities {
            Some(identities) => identities.of_secret(secret).await,
            None => Ok(None),
        }
    }

    /// The host that the request names, if it is one of ours.
    fn host(&self, target: Option<&Authority>, headers: &HeaderMap) -> Result<Authority, Problem> {
        let unknown = |name: &str| {
            codes::HOST_NOT_ALLOWED.problem(format!(
                "The request is for the host {name:?}; use an IP address or localhost, or start Drover with --allowed-hosts (DROVER_ALLOWED_HOSTS)"
            ))
        };
        let mut named = Vec::new();
        for value in headers.get_all(header::HOST) {
            named.push(value.to_str().ok().and_then(|text| text.parse::<Authority>().ok()).ok_or_else(|| unknown("?"))?);
        }
        named.extend(target.cloned());
        if let Some(other) = named.iter().find(|host| !self.is_ours(host.host())) {
            return Err(unknown(other.host()));
        }
        named.into_iter().next().ok_or_else(|| unknown(""))
    }

    /// An IP address is a name of ours too: a browser that was led here by a name says that name.
    fn is_ours(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let host = host.trim_end_matches('.');
        host == "localhost" || address(host).is_some() || self.names.iter().chain(&self.peer_names).any(|name| name == host)
    }

    fn origin(&self, host: &Authority, headers: &HeaderMap) -> Origin {
        const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
        if let Some(origin) = headers.get(header::ORIGIN) {
            let own = origin.to_str().is_ok_and(|origin| self.is_own_page(origin, host));
            return if own { Origin::Own } else { Origin::Foreign };
        }
        match headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes) {
            None => Origin::Unnamed,
            // `none`: the user typed the address.
            Some(b"same-origin" | b"none") => Origin::Own,
            Some(_) => Origin::Foreign,
        }
    }

    fn is_own_page(&self, origin: &str, host: &Authority) -> bool {
        let Ok(origin) = url::Url::parse(origin) else { return false };
        let Some(name) = origin.host_str().map(str::to_ascii_lowercase) else { return false };
        // Behind a proxy that ends TLS the page's scheme differs from ours, and so does the port that is left out.
        let port = match host.port_u16() {
            Some(port) => origin.port_or_known_default() == Some(port),
            None => origin.port().is_none(),
        };
        (port && name == host.host().to_ascii_lowercase()) || self.names.contains(&name)
    }
}

fn address(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

fn password(headers: &HeaderMap) -> Option<String> {
    let basic: Option<Authorization<Basic>> = headers.typed_get();
    basic.map(|basic| basic.password().to_owned())
}

fn is(secret: &str, token: &SecretString) -> bool {
    same(secret.as_bytes(), token.expose_secret().as_bytes())
}

/// Equality in a time that does not depend on where the two differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |different, (a, b)| different | (a ^ b)) == 0
}

/// Adds to an answer what keeps browsers from doing more with it than we mean: nothing is loaded from elsewhere, no site shows our pages
/// in a frame, and no type is guessed.
pub(crate) async fn protect(mut response: Response) -> Response {
    const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src data:; connect-src 'self'; \
                          base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}
