//! What the feed `fleet` has published of claims.
//!
//! The claims of an app share its request, which is by far the largest part of each (60 KB of JSON in a logical cloud of a thousand
//! members). The request is published once, before the first claim that refers to it, and withdrawn after the last.

use std::collections::HashMap;
use std::sync::Arc;

use drover_api::ledger::{FleetClaim, FleetItem};
use drover_scheduling::{AppRequest, Claim};
use uuid::Uuid;

/// The published claims and requests.
#[derive(Default)]
pub struct PublishedClaims {
    claims: HashMap<Uuid, Arc<AppRequest>>,
    /// Feed key of a request and the number of claims that refer to it, by the address of the request. The address is unique as long as
    /// `claims` keeps the request alive.
    requests: HashMap<usize, (Uuid, usize)>,
}

fn address(request: &Arc<AppRequest>) -> usize {
    Arc::as_ptr(request).addr()
}

impl PublishedClaims {
    /// Records a claim (`None`: released); returns the items to publish, in this order.
    pub fn update(&mut self, id: Uuid, claim: Option<&Arc<Claim>>) -> Vec<(String, Option<FleetItem>)> {
        let mut news = Vec::new();
        let item = claim.map(|claim| {
            let (key, references) = self.requests.entry(address(&claim.request)).or_insert_with(|| {
                let key = Uuid::now_v7();
                news.push((format!("request/{key}"), Some(FleetItem::Request(Arc::clone(&claim.request)))));
                (key, 0)
            });
            *references += 1;
            FleetItem::Claim(FleetClaim::new(Arc::clone(claim), *key))
        });
        news.push((format!("claim/{id}"), item));
        let before = match claim {
            Some(claim) => self.claims.insert(id, Arc::clone(&claim.request)),
            None => self.claims.remove(&id),
        };
        if let Some(before) = before {
            news.extend(self.drop_reference(&before));
        }
        news
    }

    /// Counts one reference less; returns the item that withdraws the request if it was the last.
    fn drop_reference(&mut self, request: &Arc<AppRequest>) -> Option<(String, Option<FleetItem>)> {
        let (key, references) = self.requests.get_mut(&address(request))?;
        *references -= 1;
        let last = (*references == 0).then(|| (format!("request/{key}"), None))?;
        self.requests.remove(&address(request));
        Some(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(request: &Arc<AppRequest>) -> Arc<Claim> {
        let (id, request, pods) = (Uuid::new_v4(), Arc::clone(request), Vec::new());
        let (member, state) = (Default::default(), Default::default());
        let (dig, operation) = (Arc::default(), Uuid::nil());
        Arc::new(Claim { id, dig, request, member, state, pods, surging: false, fence: 1, operation })
    }
    fn keys(news: Vec<(String, Option<FleetItem>)>) -> Vec<String> {
        let word = |key: &str| key.split('/').next().unwrap_or_default().to_owned();
        news.into_iter().map(|(key, item)| format!("{}{}", if item.is_some() { '+' } else { '-' }, word(&key))).collect()
    }

    #[test]
    fn request_is_published_before_its_first_claim_and_withdrawn_after_its_last() {
        let (small, large) = (Arc::new(AppRequest::default()), Arc::new(AppRequest::default()));
        let (one, other) = (claim(&small), claim(&small));
        let mut published = PublishedClaims::default();
        assert_eq!(keys(published.update(one.id, Some(&one))), ["+request", "+claim"]);
        assert_eq!(keys(published.update(other.id, Some(&other))), ["+claim"]);
        assert_eq!(keys(published.update(one.id, Some(&one))), ["+claim"], "written again");
        let resized = Arc::new(Claim { request: Arc::clone(&large), ..Claim::clone(&one) });
        assert_eq!(keys(published.update(one.id, Some(&resized))), ["+request", "+claim"]);
        assert_eq!(keys(published.update(other.id, None)), ["-claim", "-request"]);
        assert_eq!(keys(published.update(other.id, None)), ["-claim"], "releasing a released claim is harmless");
        assert_eq!(keys(published.update(one.id, None)), ["-claim", "-request"]);
        assert!(published.claims.is_empty() && published.requests.is_empty());
    }
}
