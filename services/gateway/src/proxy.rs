//! Passes requests on to the services. Bodies and event streams are streamed; a service that cannot be reached is answered for with the
//! problem `peer_unavailable`.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum_reverse_proxy::{ProxyPolicy, ReverseProxy};
use drover_service::peer::{CONNECT_TIMEOUT, IDLE_TIMEOUT};
use drover_service::tunnel::Handshake;
use drover_service::{Common, Peer, Principal, Tls, codes};
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::{ClientConfig, RootCertStore};
use secrecy::{ExposeSecret, SecretString};
use url::Url;
use utoipa_axum::router::OpenApiRouter;

use crate::programs::Programs;
use crate::routes::{Upstream, upstream};

/// Time limit of a request to a service; longer than any long poll.
const UPSTREAM_TIMEOUT: Duration = Duration::from_secs(85);

type HttpClient = Client<HttpsConnector<HttpConnector>, Body>;
type Proxy = ReverseProxy<HttpsConnector<HttpConnector>>;

/// The services behind the gateway; cheap to clone.
#[derive(Clone)]
pub struct Services(Arc<Upstreams>);

struct Upstreams {
    token: SecretString,
    each: Vec<Entry>,
    programs: Programs,
}

/// A service and the ways to ask it.
struct Entry {
    upstream: Upstream,
    proxy: Proxy,
    peer: Peer,
    /// For connections that do not stay HTTP.
    client: HttpClient,
    base: Url,
}

impl Services {
    /// The services at the addresses of `common`.
    ///
    /// # Errors
    /// There is no TLS.
    pub fn new(common: &Common, programs: Programs) -> anyhow::Result<Self> {
        let peers = &common.peers;
        let each = Upstream::ALL.into_iter().map(|upstream| {
            let base = match upstream {
                Upstream::ClusterManager => &peers.cluster_manager,
                Upstream::Orchestrator => &peers.orchestrator,
                Upstream::Placement => &peers.placement,
                Upstream::Migration => &peers.migration,
                Upstream::ResourceSynchronizer => &peers.resource_synchronizer,
            };
            let policy = ProxyPolicy::new().with_upstream_timeout(UPSTREAM_TIMEOUT);
            let client = client(common.tls.as_ref(), upstream.name())?;
            let proxy = ReverseProxy::new_with_client("", base.as_str(), client.clone()).with_policy(policy);
            Ok(Entry { upstream, proxy, peer: common.peer(upstream.name(), base), client, base: base.clone() })
        });
        Ok(Self(Arc::new(Upstreams { token: common.peer_token.clone(), each: each.collect::<anyhow::Result<_>>()?, programs })))
    }

    /// One service, to call it directly.
    pub fn peer(&self, wanted: Upstream) -> Peer {
        self.entry(wanted).peer.clone()
    }

    fn entry(&self, wanted: Upstream) -> &Entry {
        self.0.each.iter().find(|entry| entry.upstream == wanted).expect("made from Upstream::ALL")
    }

    /// Adds a readiness check of each service.
    pub fn watch_readiness(&self, common: &Common) {
        for Entry { upstream, peer, .. } in &self.0.each {
            let peer = peer.clone().attempts(1).timeout(Duration::from_secs(1));
            common.readiness.check(upstream.name(), move || {
                let peer = peer.clone();
                async move { peer.get::<serde_json::Value>("/readyz").await.map(drop).map_err(|error| error.to_string()) }
            });
        }
    }

    /// Passes on a request that is to become a WebSocket.
    async fn tunnel(&self, to: Upstream, handshake: Handshake, mut request: Request) -> Response {
        // Every request here has a sender: see drover_service::guard.
        let principal =
            request.extensions().get::<Principal>().ok_or_else(|| codes::UNAUTHORIZED.problem("nobody is known to have sent this"));
        let place = match principal.and_then(|principal| self.0.programs.take(principal)) {
            Ok(place) => place,
            Err(problem) => return problem.into_response(),
        };
        let Entry { client, base, .. } = self.entry(to);
        self.prepare(&mut request);
        request.headers_mut().extend(handshake.headers().clone());
        let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
        let Ok(uri) = format!("{}{target}", base.as_str().trim_end_matches('/')).parse() else { return unavailable(to) };
        *request.uri_mut() = uri;
        request.headers_mut().remove(header::HOST);
        match tokio::time::timeout(UPSTREAM_TIMEOUT, client.request(request)).await {
            Ok(Ok(answer)) => handshake.join(answer, place).unwrap_or_else(|answer| answer.map(Body::new)),
            Ok(Err(_)) | Err(_) => unavailable(to),
        }
    }

    /// The headers with which a service is asked.
    fn prepare(&self, request: &mut Request) {
        let bearer = format!("Bearer {}", self.0.token.expose_secret());
        if let Ok(mut value) = HeaderValue::from_str(&bearer) {
            value.set_sensitive(true);
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        // These were checked here; the service behind has another host name.
        for name in [header::COOKIE, header::ORIGIN, HeaderName::from_static("sec-fetch-site")] {
            request.headers_mut().remove(name);
        }
        drover_service::telemetry::inject(request.headers_mut());
    }

    async fn forward(&self, to: Upstream, mut request: Request) -> Response {
        self.prepare(&mut request);
        let Ok(response) = self.entry(to).proxy.proxy_request(request).await;
        // Failures of the proxy itself have no problem document; those of a service do.
        let bare = matches!(response.status(), StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT)
            && response.headers().get(header::CONTENT_TYPE).is_none_or(|kind| kind != "application/problem+json");
        if bare {
            return unavailable(to);
        }
        response
    }
}

fn unavailable(service: Upstream) -> Response {
    codes::PEER_UNAVAILABLE.problem(format!("{} does not answer at the moment; try again", service.name())).into_response()
}

/// Connections to a service: with TLS if its address says so.
fn client(tls: Option<&Tls>, service: &'static str) -> anyhow::Result<HttpClient> {
    let mut tcp = HttpConnector::new();
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let mut config = match tls.filter(|tls| tls.is_mutual()) {
        Some(tls) => tls.connector(service)?,
        // Nobody is believed: services with TLS need --tls-ca-file.
        None => ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth(),
    };
    // The builder sets the protocols itself.
    config.alpn_protocols.clear();
    let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1().wrap_connector(tcp);
    let mut client = Client::builder(TokioExecutor::new());
    Ok(client.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE_TIMEOUT).build(connector))
}

/// The OpenAPI document of all public operations; see xtask/src/public.rs.
pub const PUBLIC: &str = include_str!("../../../openapi/drover.json");

/// The same in OpenAPI 3.0.
const PUBLIC_3_0: &str = include_str!("../../../openapi/drover-3.0.json");

/// Routes of everything below `/v2`.
pub fn routes() -> OpenApiRouter<Services> {
    OpenApiRouter::new()
        .route("/v2/{*path}", axum::routing::any(pass))
        .route("/openapi-3.0.json", axum::routing::get(|| async { ([(header::CONTENT_TYPE, "application/json")], PUBLIC_3_0) }))
}

async fn pass(State(services): State<Services>, mut request: Request) -> Response {
    let to = upstream(request.method(), request.uri().path());
    if request.method() == Method::POST
        && let Some(handshake) = Handshake::of(&mut request)
    {
        return services.tunnel(to, handshake, request).await;
    }
    services.forward(to, request).await
}
