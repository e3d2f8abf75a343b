//! Prometheus metrics of one service, served at `/metrics` in the OpenMetrics text format.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Method, StatusCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use drover_tasks::Tasks;

/// The metrics of a service; cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    requests: Family<RequestLabels, Counter>,
    seconds: Family<RouteLabels, Histogram, fn() -> Histogram>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: String,
    method: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
    method: String,
}

fn seconds_histogram() -> Histogram {
    Histogram::new([0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0])
}

impl Metrics {
    /// The metrics that every service has.
    pub(crate) fn new(tasks: &Tasks) -> Self {
        let mut registry = Registry::with_prefix("drover");
        let requests = Family::<RequestLabels, Counter>::default();
        let seconds = Family::<RouteLabels, Histogram, fn() -> Histogram>::new_with_constructor(seconds_histogram);
        registry.register("http_requests", "Requests answered", requests.clone());
        registry.register("http_request_seconds", "Seconds from the request's head to the answer's", seconds.clone());
        registry.register("task_failures", "Panics and errors of background tasks", tasks.failures());
        Self { registry: Arc::new(Mutex::new(registry)), requests, seconds }
    }

    /// Registers further metrics: `metrics.register(|registry| registry.register("claims", "…", gauge.clone()))`.
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn request(&self, route: &str, method: &Method, status: StatusCode, took: Duration) {
        let (route, method) = (route.to_owned(), method.to_string());
        self.requests.get_or_create(&RequestLabels { route: route.clone(), method: method.clone(), status: status.as_u16() }).inc();
        self.seconds.get_or_create(&RouteLabels { route, method }).observe(took.as_secs_f64());
    }

    /// The text of `/metrics`.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        encode(&mut text, &registry).expect("writing into a string does not fail");
        text
    }
}
