//! Queries of a Prometheus server; the caller reads the answer.

use std::time::Duration;

use reqwest::RequestBuilder;
use url::Url;

use crate::peer;

/// An instant query. The path of `base` is kept, with or without a slash at its end.
pub fn query(base: &Url, query: &str, timeout: Duration) -> RequestBuilder {
    let mut url = base.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(["api", "v1", "query"]);
    }
    peer::client().get(url).query(&[("query", query)]).timeout(timeout)
}
