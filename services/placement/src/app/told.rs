//! What the feed `fleet` has been told of claims.
//!
//! An app's claims share what it asks for, which is by far the largest part of each (in a logical cloud of a thousand members 60 KB
//! of JSON): it is told once, before the first claim that names it, and taken back after the last.

use std::collections::HashMap;
use std::sync::Arc;

use drover_api::ledger::{FleetClaim, FleetItem};
use drover_scheduling::{AppRequest, Claim};
use uuid::Uuid;

/// See the module.
#[derive(Default)]
pub struct Told {
    claims: HashMap<Uuid, Arc<AppRequest>>,
    /// By address, which is one's own for as long as a claim has it: its key, and how many claims name it.
    requests: HashMap<usize, (Uuid, usize)>,
}

fn address(request: &Arc<AppRequest>) -> usize {
    Arc::as_ptr(request).addr()
}

impl Told {
    /// A claim is this now; what to tell of it, in this order.
    pub fn claim(&mut self, id: Uuid, claim: Option<&Arc<Claim>>) -> Vec<(String, Option<FleetItem>)> {
        let mut news = Vec::new();
        let item = claim.map(|claim| {
            let (key, named) = self.requests.entry(address(&claim.request)).or_insert_with(|| {
                let key = Uuid::now_v7();
                news.push((format!("request/{key}"), Some(FleetItem::Request(Arc::clone(&claim.request)))));
                (key, 0)
            });
            *named += 1;
            FleetItem::Claim(FleetClaim::new(Arc::clone(claim), *key))
        });
        news.push((format!("claim/{id}"), item));
        let before = match claim {
            Some(claim) => self.claims.insert(id, Arc::clone(&claim.request)),
            None => self.claims.remove(&id),
        };
        if let Some(before) = before {
            news.extend(self.unnamed(&before));
        }
        news
    }

    /// A claim names this request no more; what to tell if that was the last.
    fn unnamed(&mut self, request: &Arc<AppRequest>) -> Option<(String, Option<FleetItem>)> {
        let (key, named) = self.requests.get_mut(&address(request))?;
        *named -= 1;
        let last = (*named == 0).then(|| (format!("request/{key}"), None))?;
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
    fn a_request_is_told_before_its_first_claim_and_until_after_its_last() {
        let (small, large) = (Arc::new(AppRequest::default()), Arc::new(AppRequest::default()));
        let (one, other) = (claim(&small), claim(&small));
        let mut told = Told::default();
        assert_eq!(keys(told.claim(one.id, Some(&one))), ["+request", "+claim"]);
        assert_eq!(keys(told.claim(other.id, Some(&other))), ["+claim"]);
        assert_eq!(keys(told.claim(one.id, Some(&one))), ["+claim"], "written again");
        let resized = Arc::new(Claim { request: Arc::clone(&large), ..Claim::clone(&one) });
        assert_eq!(keys(told.claim(one.id, Some(&resized))), ["+request", "+claim"]);
        assert_eq!(keys(told.claim(other.id, None)), ["-claim", "-request"]);
        assert_eq!(keys(told.claim(other.id, None)), ["-claim"], "what is gone may go again");
        assert_eq!(keys(told.claim(one.id, None)), ["-claim", "-request"]);
        assert!(told.claims.is_empty() && told.requests.is_empty());
    }
}
