//! A request on its way: route by host name, endpoint, answer.
//!
//! A request goes to another endpoint only if the one before never read from it, or if its method allows repeating it and there was no
//! answer. What the data path answers itself is problem+json.

use std::net::SocketAddr;
use std::sync::Arc;

use drover_proxy::body::AnswerBody;
use drover_proxy::forward::{ForwardError, ForwardedRequest, answer};
use drover_proxy::own_answer;
use drover_proxy::serve::Handler;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, Version, header};
use hyper::body::Incoming;

use crate::route::Route;
use crate::state::{DataPath, NoEndpoint};

const PROTOCOL: HeaderName = HeaderName::from_static("x-forwarded-proto");
const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
/// How often an unanswered request of an idempotent method is given to another endpoint.
const REPEATS: usize = 2;

/// Serves the requests of one port.
#[derive(Debug)]
pub struct Gate {
    pub path: Arc<DataPath>,
    pub port: u16,
    /// They came over TLS.
    pub secure: bool,
}

impl Handler for Gate {
    async fn handle(self: Arc<Self>, request: Request<Incoming>, client: SocketAddr) -> Response<AnswerBody> {
        let asked = request.uri().authority().map(|authority| authority.as_str());
        let asked = asked.or_else(|| request.headers().get(header::HOST)?.to_str().ok()).unwrap_or_default().to_owned();
        let compiled = self.path.compiled();
        let Some(route) = compiled.ports.get(&self.port).and_then(|port| port.route(&asked)).cloned() else {
            let detail = format!("no route of port {} is for the host {asked:?}", self.port);
            return own_answer("no_route", StatusCode::NOT_FOUND, "There is no route for this host", &detail);
        };
        drop(compiled);
        let mut forwarded = ForwardedRequest::new(request, client);
        forwarded.header(PROTOCOL, HeaderValue::from_static(if self.secure { "https" } else { "http" }));
        if let Ok(asked) = HeaderValue::from_str(&asked) {
            forwarded.header(HOST, asked);
        }
        self.deliver(route, forwarded).await
    }
}

impl Gate {
    async fn deliver(&self, route: Arc<Route>, mut forwarded: ForwardedRequest) -> Response<AnswerBody> {
        let grpc = forwarded.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        let mut search = self.path.search(route.clone());
        loop {
            let under_way = match search.next().await {
                Ok(under_way) => under_way,
                Err(why) => return refused(&route, why),
            };
            // WebSocket begins as an upgrade of HTTP/1.1, whatever else the app speaks.
            let second = (grpc || under_way.h2c) && !forwarded.upgrades();
            forwarded.speak(if second { Version::HTTP_2 } else { Version::HTTP_11 });
            match self.path.forwarder.send(under_way.endpoint.address, &forwarded).await {
                Ok(response) => {
                    under_way.taken();
                    if response.status().is_server_error() {
                        under_way.counts.failed();
                    }
                    return answer(response, forwarded, under_way);
                }
                Err(ForwardError::NotSent(why)) => {
                    tracing::debug!(route = %route.name, endpoint = %under_way.endpoint.address, why, "an endpoint takes no requests");
                    search.failed(&under_way);
                }
                Err(ForwardError::BrokeOff(why)) if forwarded.may_be_repeated() && search.tries() < REPEATS => {
                    tracing::debug!(route = %route.name, endpoint = %under_way.endpoint.address, why, "unanswered; given to another endpoint");
                    under_way.taken();
                    under_way.counts.failed();
                    search.failed(&under_way);
                }
                Err(ForwardError::BrokeOff(why)) => {
                    under_way.taken();
                    under_way.counts.failed();
                    let title = "The app closed the connection without a complete answer";
                    return own_answer("app_broke_off", StatusCode::BAD_GATEWAY, title, &format!("the app did not answer: {why}"));
                }
            }
        }
    }
}

fn refused(route: &Route, why: NoEndpoint) -> Response<AnswerBody> {
    let title = "No pod of the app can be reached";
    let detail = match why {
        NoEndpoint::NoRoute => "the route was removed".to_owned(),
        NoEndpoint::InTime if route.is_empty() => format!("{} has no ready pod", route.name),
        NoEndpoint::InTime => format!("no pod of {} took a connection within {} s", route.name, route.hold_seconds),
        NoEndpoint::Crowded => "too many requests are waiting for a pod already".to_owned(),
    };
    own_answer("app_unreachable", StatusCode::SERVICE_UNAVAILABLE, title, &detail)
}
