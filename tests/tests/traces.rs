//! One trace per operation, across the services, over OTLP. It is a test program of its own because telemetry is started once per process.
#![allow(clippy::unwrap_used, reason = "a scenario is a test, though not a function with the attribute")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use drover_e2e::apps::App;
use drover_e2e::emco::{Group, ended};
use drover_e2e::{Backend, System, succeeded};
use drover_service::telemetry;
use drover_testkit::{HttpServer, eventually};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;

/// By trace id: the service and the name of each span.
type Traces = Arc<Mutex<BTreeMap<Vec<u8>, BTreeSet<(String, String)>>>>;

async fn collect(State(traces): State<Traces>, body: Bytes) {
    let request = ExportTraceServiceRequest::decode(body).expect("OTLP protobuf");
    let spans = request.resource_spans.into_iter().flat_map(|r| r.scope_spans).flat_map(|s| s.spans);
    let mut traces = traces.lock().expect("no poison");
    for span in spans {
        let attribute = |name: &str| {
            let found = span.attributes.iter().find(|a| a.key == name).and_then(|a| a.value.clone()?.value);
            match found {
                Some(opentelemetry_proto::tonic::common::v1::any_value::Value::StringValue(text)) => text,
                _ => String::new(),
            }
        };
        traces.entry(span.trace_id.clone()).or_default().insert((attribute("service"), span.name.clone()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_trace_per_operation_across_the_services() {
    let traces: Traces = Arc::default();
    let collector = HttpServer::start(Router::new().route("/v1/traces", post(collect)).with_state(traces.clone())).await;
    let endpoint = collector.url("/").trim_end_matches('/').to_owned();
    let options = telemetry::Options { log: "warn".into(), otlp_endpoint: Some(endpoint), ..Default::default() };
    let handle = telemetry::init("drover", &options).unwrap();

    let system = System::new(Backend::Simulated).await;
    let group = Group::new("traced", App::new("traced", 500));
    group.approve(&system.client).await.unwrap();
    let id = group.verb(&system.client, "instantiate").await.unwrap();
    succeeded(&ended(&system.client, &id).await.unwrap());

    // Its spans are exported service by service, the last ones after the operation has ended.
    eventually(Duration::from_secs(180), async || {
        handle.flush().await;
        let traces = traces.lock().expect("no poison");
        let mut of_instantiate = traces.values().filter(|spans| spans.iter().any(|(_, name)| name.ends_with("/instantiate")));
        let is_part = |spans: &BTreeSet<(String, String)>, wanted: &str| spans.iter().any(|(service, _)| service == wanted);
        let services = ["gateway", "orchestrator", "placement", "resource-synchronizer"];
        of_instantiate.any(|spans| services.iter().all(|service| is_part(spans, service))).then_some(())
    })
    .await;
    system.end().await;
}
