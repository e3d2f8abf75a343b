//! Logs (text or JSON), OTLP traces, and the W3C trace context of requests.
//!
//! [`init`] may be called any number of times (by every service of `drover up`, by every test): the first call decides. Traces are
//! exported only when an endpoint is set; without one, spans cost next to nothing.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::sync::OnceLock;

use clap::{Args, ValueEnum};
use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::{TraceContextExt, TracerProvider};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

/// Settings of logs and traces.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    /// Which logs to write, as in RUST_LOG
    #[arg(long, env = "DROVER_LOG", default_value = "info")]
    pub log: String,
    /// Format of the logs
    #[arg(long, env = "DROVER_LOG_FORMAT", default_value = "text")]
    pub log_format: Format,
    /// Where to send traces (OTLP over HTTP), for example http://127.0.0.1:4318
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    pub otlp_endpoint: Option<String>,
}

/// How logs are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One line per event, for people.
    #[default]
    Text,
    /// One JSON object per line, for machines.
    Json,
}

/// Handle of the telemetry that [`init`] started; cheap to clone.
#[derive(Clone, Default)]
pub struct Telemetry(Option<SdkTracerProvider>);

static STARTED: OnceLock<Telemetry> = OnceLock::new();

/// The telemetry that has been started, or a handle that does nothing.
pub fn current() -> Telemetry {
    STARTED.get().cloned().unwrap_or_default()
}

/// Starts logs and traces of this process; later calls return the handle of the first.
///
/// # Errors
/// The log filter is malformed, or the exporter of traces cannot be made.
pub fn init(name: &'static str, options: &Options) -> anyhow::Result<Telemetry> {
    if let Some(started) = STARTED.get() {
        return Ok(started.clone());
    }
    let provider =
        options.otlp_endpoint.as_deref().filter(|endpoint| !endpoint.is_empty()).map(|endpoint| provider(name, endpoint)).transpose()?;
    let telemetry = STARTED.get_or_init(|| Telemetry(provider)).clone();

    let level = if options.log.is_empty() { "info" } else { &options.log };
    // The Kubernetes client logs failed requests without naming the member; its callers log them with the member.
    let level = format!("kube_client::client::builder=off,{level}");
    let filter = EnvFilter::try_new(&level).map_err(|error| anyhow::anyhow!("--log {:?}: {error}", options.log))?;
    let logs = fmt::layer().with_writer(std::io::stderr).with_target(false).with_ansi(std::io::stderr().is_terminal());
    let logs = match options.log_format {
        Format::Text => logs.boxed(),
        Format::Json => fmt::layer().with_writer(std::io::stderr).json().flatten_event(true).with_span_list(false).boxed(),
    };
    let traces = telemetry.0.as_ref().map(|provider| {
        tracing_opentelemetry::layer()
            .with_tracer(provider.tracer("drover"))
            .with_filter(EnvFilter::new("info,h2=off,hyper=off,reqwest=off"))
    });
    // A test may have set a subscriber already; then that one stays.
    let _ = tracing_subscriber::registry().with(traces).with(logs.with_filter(filter)).try_init();
    Ok(telemetry)
}

fn provider(name: &'static str, endpoint: &str) -> anyhow::Result<SdkTracerProvider> {
    let exporter = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
        .build()?;
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(Resource::builder().with_service_name(name).build())
        .build())
}

impl Telemetry {
    /// Sends the spans that are still queued. To be called before the process ends.
    pub async fn flush(&self) {
        let Some(provider) = self.0.clone() else { return };
        // The exporter blocks; it must not block the runtime that may serve its collector.
        if let Ok(Err(error)) = tokio::task::spawn_blocking(move || provider.force_flush()).await {
            tracing::warn!(%error, "the last traces could not be sent");
        }
    }
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }
    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

struct HeadersMut<'a>(&'a mut HeaderMap);

impl Injector for HeadersMut<'_> {
    fn set(&mut self, key: &str, value: String) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(key), HeaderValue::try_from(value)) {
            self.0.insert(name, value);
        }
    }
}

/// Makes the span a child of the caller named in the headers.
pub fn set_parent_from(span: &Span, headers: &HeaderMap) {
    let parent = TraceContextPropagator::new().extract(&Headers(headers));
    if parent.span().span_context().is_valid() {
        // Fails only without a tracing layer, where there is nothing to set.
        let _ = span.set_parent(parent);
    }
}

/// Adds the current span to a request's headers.
pub fn inject(headers: &mut HeaderMap) {
    TraceContextPropagator::new().inject_context(&Span::current().context(), &mut HeadersMut(headers));
}

/// The current trace as W3C `traceparent`, to be kept with work that goes on later (a workflow's row).
pub fn traceparent() -> Option<String> {
    let mut carrier = HashMap::new();
    TraceContextPropagator::new().inject_context(&Span::current().context(), &mut carrier);
    carrier.remove("traceparent")
}

/// Makes the span a child of a kept `traceparent`.
pub fn set_parent(span: &Span, traceparent: &str) {
    let carrier = HashMap::from([("traceparent".to_owned(), traceparent.to_owned())]);
    let parent = TraceContextPropagator::new().extract(&carrier);
    if parent.span().span_context().is_valid() {
        let _ = span.set_parent(parent);
    }
}
