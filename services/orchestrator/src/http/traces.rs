//! Receives OpenTelemetry spans of a composite app: OTLP over HTTP, protobuf or JSON. Set `OTEL_EXPORTER_OTLP_ENDPOINT` of the
//! apps to the call graph's address; exporters append `/v1/traces`.

use axum::body::Bytes;
use axum::extract::{RawPathParams, State};
use axum::response::{IntoResponse, Response};
use drover_api::scheduling::groups::observe::{self, Span, SpanSide};
use drover_resources::PathParams;
use drover_service::{Json, Problem, Raw, codes};
use drover_store::hex;
use http::{HeaderMap, header};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value as Any};
use opentelemetry_proto::tonic::trace::v1::{Span as Wire, span::SpanKind};
use prost::Message;
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use crate::app::{App, measured};
use crate::resources::CALL_GRAPH;
use crate::store::call_edge::CallEdge;

const PROTOBUF: &str = "application/x-protobuf";
/// Largest accepted request. Exporters send some hundred spans at a time, about a tenth of this.
pub const MAX_BYTES: usize = 4 << 20;

/// Measured calls of one app to another.
#[derive(Debug, Serialize, ToSchema)]
pub struct MeasuredCall {
    /// The calling app.
    pub from: String,
    /// The called app.
    pub to: String,
    /// `traces` or `prometheus`.
    pub source: String,
    /// Calls per second.
    pub rate: f64,
    /// Seconds since the last call was measured.
    pub age: f64,
    /// Current confidence, 0 to 1: 1 - 1/sqrt(1 + n) for about n recent calls.
    pub confidence: f64,
}

/// Measured calls of a composite app.
#[derive(Debug, Serialize, ToSchema)]
pub struct MeasuredCalls {
    /// Ordered by calling app, then called app.
    pub items: Vec<MeasuredCall>,
}

impl From<measured::MeasuredCall> for MeasuredCall {
    fn from(known: measured::MeasuredCall) -> Self {
        let measured::MeasuredCall { edge: CallEdge { caller, called, source, rate, .. }, age, confidence } = known;
        Self { from: caller, to: called, source, rate, age, confidence }
    }
}

/// Accepts spans (OTLP over HTTP). `service.name` is the app's name.
#[utoipa::path(post, operation_id = "call-graph_traces", tag = "call-graphs",
    path = "/v2/projects/{project}/composite-apps/{compositeApp}/{compositeAppVersion}/call-graphs/{callGraph}/v1/traces",
    params(("project" = String, Path), ("compositeApp" = String, Path), ("compositeAppVersion" = String, Path), ("callGraph" = String, Path)),
    request_body(content((Value = "application/json"), (Vec<u8> = "application/x-protobuf"))),
    responses((status = 200, description = "All spans were taken", content((Value = "application/json"), (Vec<u8> = "application/x-protobuf")))))]
pub async fn take(State(app): State<App>, raw: RawPathParams, headers: HeaderMap, Raw(body): Raw) -> Result<Response, Problem> {
    let path = PathParams::from(&raw).fill(&CALL_GRAPH.item_path())?;
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if headers.contains_key(header::CONTENT_ENCODING) {
        return Err(codes::UNSUPPORTED_MEDIA_TYPE.problem("Compressed spans are not accepted; unset OTEL_EXPORTER_OTLP_COMPRESSION"));
    }
    app.measure(&path, &spans_of(kind, body)?).await?;
    if kind.starts_with(PROTOBUF) {
        // An empty ExportTraceServiceResponse: nothing was rejected.
        return Ok(([(header::CONTENT_TYPE, PROTOBUF)], Vec::new()).into_response());
    }
    Ok(Json(json!({})).into_response())
}

/// The spans in an OTLP request of this content type.
///
/// # Errors
/// The body cannot be read, or is of another type.
pub fn spans_of(content_type: &str, body: Bytes) -> Result<Vec<Span>, Problem> {
    if content_type.starts_with(PROTOBUF) {
        let request = ExportTraceServiceRequest::decode(body)
            .map_err(|error| codes::MALFORMED_UPLOAD.problem(format!("The body is not an OTLP trace request: {error}")))?;
        return Ok(spans(request));
    }
    if content_type.starts_with("application/json") {
        let text = std::str::from_utf8(&body).map_err(|_| codes::MALFORMED_JSON.problem("The body is not UTF-8"))?;
        return observe::spans(text).map_err(|error| codes::MALFORMED_JSON.problem(error.to_string()));
    }
    Err(codes::UNSUPPORTED_MEDIA_TYPE.problem(format!("Spans come as {PROTOBUF} or application/json (OTLP over HTTP)")))
}

/// The measured calls of a composite app.
#[utoipa::path(get, operation_id = "call-graph_measured", tag = "call-graphs",
    path = "/v2/projects/{project}/composite-apps/{compositeApp}/{compositeAppVersion}/call-graphs/{callGraph}/measured",
    params(("project" = String, Path), ("compositeApp" = String, Path), ("compositeAppVersion" = String, Path), ("callGraph" = String, Path)),
    responses((status = 200, description = "Each pair with its age and confidence", body = MeasuredCalls)))]
pub async fn measured(State(app): State<App>, raw: RawPathParams) -> Result<Json<MeasuredCalls>, Problem> {
    let path = PathParams::from(&raw).fill(&CALL_GRAPH.item_path())?;
    let known = app.measured_of(&path).await?;
    Ok(Json(MeasuredCalls { items: known.into_iter().map(MeasuredCall::from).collect() }))
}

/// Converts spans for the collector. Those without a service, an id or a time are left out.
fn spans(request: ExportTraceServiceRequest) -> Vec<Span> {
    let mut found = Vec::new();
    for resource in request.resource_spans {
        let attributes = resource.resource.map(|resource| resource.attributes).unwrap_or_default();
        let Some(service) = attribute(&attributes, "service.name") else { continue };
        found.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans).filter_map(|span| read(&span, &service)));
    }
    found
}

fn read(span: &Wire, service: &str) -> Option<Span> {
    let id = |bytes: &[u8]| (!bytes.is_empty()).then(|| hex(bytes));
    let client = matches!(span.kind(), SpanKind::Client | SpanKind::Producer);
    (span.start_time_unix_nano > 0).then_some(())?;
    Some(Span {
        trace: id(&span.trace_id)?,
        id: id(&span.span_id)?,
        parent: id(&span.parent_span_id),
        service: service.to_owned(),
        kind: if client { SpanSide::Client } else { SpanSide::Other },
        peer: attribute(&span.attributes, "peer.service").or_else(|| attribute(&span.attributes, "service.peer.name")),
        at: span.start_time_unix_nano as f64 * 1e-9,
    })
}

fn attribute(of: &[KeyValue], key: &str) -> Option<String> {
    match of.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.value.as_ref()? {
        Any::StringValue(text) if !text.is_empty() => Some(text.clone()),
        _ => None,
    }
}
