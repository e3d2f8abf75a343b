//! The file of a call graph: what `drover groups place` saves of an application, and what a model can be trained on.

use drover_scheduling::groups::{CallGraph, GraphError, Load, Service};
use serde::{Deserialize, Serialize};

/// A call graph as JSON, with calls by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GraphFile {
    services: Vec<FileService>,
    calls: Vec<FileCall>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct FileService {
    name: String,
    /// Request of one replica: millicores and MiB.
    request: Load,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct FileCall {
    from: String,
    to: String,
    calls: f64,
}

/// Why a text is no call graph.
#[derive(Debug, thiserror::Error)]
pub enum GraphFileError {
    /// It is not JSON of the expected form.
    #[error("this is not a call graph: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// The calls do not fit the services, or a number is invalid.
    #[error(transparent)]
    Invalid(#[from] GraphError),
    /// Without calls there is nothing to learn.
    #[error("this call graph has no calls")]
    NoCalls,
}

impl GraphFile {
    /// The file of a graph. The number of replicas is left out: training draws it.
    pub fn of(graph: &CallGraph) -> Self {
        let services = graph.services();
        let call = |call: &drover_scheduling::groups::Call| FileCall {
            from: services[call.from].name.clone(),
            to: services[call.to].name.clone(),
            calls: call.calls,
        };
        Self {
            services: services.iter().map(|s| FileService { name: s.name.clone(), request: s.request }).collect(),
            calls: graph.calls().iter().map(call).collect(),
        }
    }

    /// Its text.
    ///
    /// # Errors
    /// A number cannot be written.
    pub fn text(&self) -> Result<String, GraphFileError> {
        Ok(serde_json::to_string_pretty(self)?)
    }

    /// The graph in a text, with one replica of each service.
    ///
    /// # Errors
    /// The text is not such a file, a call names an unknown service, a number is invalid, or there are no calls.
    pub fn read(text: &str) -> Result<CallGraph, GraphFileError> {
        let file: Self = serde_json::from_str(text)?;
        let services = file.services.into_iter().map(|s| Service { name: s.name, request: s.request, replicas: 1 }).collect();
        let calls: Vec<(&str, &str, f64)> = file.calls.iter().map(|c| (c.from.as_str(), c.to.as_str(), c.calls)).collect();
        let graph = CallGraph::named(services, calls)?;
        if graph.calls().is_empty() { Err(GraphFileError::NoCalls) } else { Ok(graph) }
    }
}
