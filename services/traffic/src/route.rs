//! One route at work: its copies, their endpoints, and the choice of an endpoint for a request. No I/O, and no time.
//!
//! A copy gets new requests in proportion to its weight; within a copy the less busy of two random endpoints is taken ("power of two
//! choices"). Only endpoints that answered the probe are taken, as long as there are any. Invariant: a copy with weight 0 gets a request
//! only if no copy with a weight has an endpoint that is left to try.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use drover_api::scheduling::MemberKey;
use drover_api::traffic::{BackendReport, RouteProtocol};
use uuid::Uuid;

/// A route with everything that a request needs.
#[derive(Debug)]
pub struct Route {
    pub id: Uuid,
    pub name: String,
    pub protocol: RouteProtocol,
    pub host: Option<String>,
    pub port: u16,
    /// See [`drover_api::traffic::RouteTable::probe`].
    pub probe: Option<String>,
    pub hold_seconds: u16,
    pub backends: Vec<Backend>,
}

/// A copy of the app.
#[derive(Debug)]
pub struct Backend {
    pub binding: Uuid,
    pub member: MemberKey,
    pub weight: u16,
    /// The app speaks HTTP/2 without TLS.
    pub h2c: bool,
    pub endpoints: Vec<Arc<Endpoint>>,
    pub counts: Arc<Counts>,
}

/// An address of a pod.
#[derive(Debug)]
pub struct Endpoint {
    pub address: SocketAddr,
    /// It answered the probe, and has taken every connection since.
    pub answers: AtomicBool,
    under_way: AtomicU64,
}

impl Endpoint {
    /// An endpoint that has not been probed.
    pub fn new(address: SocketAddr) -> Arc<Self> {
        Arc::new(Self { address, answers: AtomicBool::new(false), under_way: AtomicU64::new(0) })
    }
}

/// The traffic of a copy.
#[derive(Debug, Default)]
pub struct Counts {
    under_way: AtomicU64,
    requests: AtomicU64,
    failures: AtomicU64,
}

impl Counts {
    /// Requests and connections that have not ended.
    pub fn under_way(&self) -> u64 {
        self.under_way.load(Ordering::Relaxed)
    }

    /// Counts a request or connection that failed.
    pub fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }
}

/// A request or connection that has been given to an endpoint. Dropped when it has ended.
#[derive(Debug)]
pub struct UnderWay {
    pub endpoint: Arc<Endpoint>,
    pub counts: Arc<Counts>,
    /// The app speaks HTTP/2 without TLS.
    pub h2c: bool,
}

impl UnderWay {
    fn begin(backend: &Backend, endpoint: &Arc<Endpoint>) -> Self {
        endpoint.under_way.fetch_add(1, Ordering::Relaxed);
        backend.counts.under_way.fetch_add(1, Ordering::Relaxed);
        Self { endpoint: endpoint.clone(), counts: backend.counts.clone(), h2c: backend.h2c }
    }

    /// The endpoint has taken it.
    pub fn taken(&self) {
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// The endpoint does not take connections: others are preferred until it answers the probe again. False if that was known.
    pub fn suspect(&self) -> bool {
        self.endpoint.answers.swap(false, Ordering::Relaxed)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.endpoint.under_way.fetch_sub(1, Ordering::Relaxed);
        self.counts.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A random number below its argument, which is not 0.
pub type Dice<'a> = &'a mut dyn FnMut(usize) -> usize;

impl Route {
    /// Chooses an endpoint that is not among `tried`.
    pub fn choose(&self, tried: &[SocketAddr], dice: Dice<'_>) -> Option<UnderWay> {
        let answering = |endpoint: &Endpoint| endpoint.answers.load(Ordering::Relaxed);
        let any = |_: &Endpoint| true;
        self.among(tried, true, &answering, dice)
            .or_else(|| self.among(tried, true, &any, dice))
            .or_else(|| self.among(tried, false, &answering, dice))
    }

    fn among(&self, tried: &[SocketAddr], weighted: bool, wanted: &dyn Fn(&Endpoint) -> bool, dice: Dice<'_>) -> Option<UnderWay> {
        let left = |endpoint: &Endpoint| !tried.contains(&endpoint.address) && wanted(endpoint);
        let share = |backend: &Backend| match (weighted, backend.endpoints.iter().any(|endpoint| left(endpoint))) {
            (_, false) => 0,
            (true, true) => usize::from(backend.weight),
            (false, true) => usize::from(backend.weight == 0),
        };
        let total: usize = self.backends.iter().map(share).sum();
        if total == 0 {
            return None;
        }
        let mut at = dice(total);
        let backend = self.backends.iter().find(|backend| {
            let mine = share(backend);
            let found = at < mine;
            at = at.saturating_sub(mine);
            found
        })?;
        let count = backend.endpoints.iter().filter(|endpoint| left(endpoint)).count();
        let nth = |n: usize| backend.endpoints.iter().filter(|endpoint| left(endpoint)).nth(n);
        let first = nth(dice(count.max(1)))?;
        let second = nth(dice(count.max(1))).unwrap_or(first);
        let busy = |endpoint: &Endpoint| endpoint.under_way.load(Ordering::Relaxed);
        Some(UnderWay::begin(backend, if busy(second) < busy(first) { second } else { first }))
    }

    /// Whether no copy has an endpoint.
    pub fn is_empty(&self) -> bool {
        self.backends.iter().all(|backend| backend.endpoints.is_empty())
    }
}

impl Backend {
    /// What is told of it.
    pub fn report(&self) -> BackendReport {
        BackendReport {
            binding: self.binding,
            weight: self.weight,
            endpoints: self.endpoints.len(),
            answering: self.endpoints.iter().filter(|endpoint| endpoint.answers.load(Ordering::Relaxed)).count(),
            under_way: self.counts.under_way(),
            requests: self.counts.requests.load(Ordering::Relaxed),
            failures: self.counts.failures.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(last: u8, answers: bool) -> Arc<Endpoint> {
        let endpoint = Endpoint::new(SocketAddr::from(([10, 0, 0, last], 80)));
        endpoint.answers.store(answers, Ordering::Relaxed);
        endpoint
    }

    fn backend(weight: u16, endpoints: Vec<Arc<Endpoint>>) -> Backend {
        let (binding, member) = (Uuid::new_v4(), MemberKey::new("p", "m"));
        Backend { binding, member, weight, h2c: false, endpoints, counts: Arc::default() }
    }

    fn route(backends: Vec<Backend>) -> Route {
        let (id, name) = (Uuid::new_v4(), "p/a/r".to_owned());
        Route { id, name, protocol: RouteProtocol::Http, host: None, port: 80, probe: None, hold_seconds: 0, backends }
    }

    /// How often each last byte was chosen in `count` choices.
    fn chosen(route: &Route, count: usize) -> [usize; 8] {
        let mut random = fastrand::Rng::with_seed(1);
        let mut each = [0; 8];
        for _ in 0..count {
            let taken = route.choose(&[], &mut |below| random.usize(..below)).expect("there is an endpoint");
            each[usize::from(match taken.endpoint.address.ip() {
                std::net::IpAddr::V4(ip) => ip.octets()[3],
                std::net::IpAddr::V6(_) => 0,
            })] += 1;
        }
        each
    }

    #[test]
    fn new_requests_are_shared_by_weight() {
        let route =
            route(vec![backend(90, vec![endpoint(1, true)]), backend(10, vec![endpoint(2, true)]), backend(0, vec![endpoint(3, true)])]);
        let each = chosen(&route, 10_000);
        assert!((8_800..9_200).contains(&each[1]), "{each:?}");
        assert_eq!((each[1] + each[2], each[3]), (10_000, 0), "{each:?}");
    }

    #[test]
    fn copy_without_endpoint_leaves_its_share_to_the_others() {
        let route = route(vec![backend(50, vec![]), backend(50, vec![endpoint(2, true)])]);
        assert_eq!(chosen(&route, 100)[2], 100);
    }

    #[test]
    fn endpoints_that_answer_are_preferred_then_others_then_copies_without_weight() {
        let route =
            route(vec![backend(100, vec![endpoint(1, false), endpoint(2, true)]), backend(0, vec![endpoint(3, true), endpoint(4, false)])]);
        let mut tried = Vec::new();
        for expected in [2, 1, 3] {
            let taken = route.choose(&tried, &mut |_| 0).expect("there is one left");
            assert_eq!(taken.endpoint.address.to_string(), format!("10.0.0.{expected}:80"));
            tried.push(taken.endpoint.address);
        }
        assert!(route.choose(&tried, &mut |_| 0).is_none(), "an endpoint of a copy without weight that does not answer is never taken");
    }

    #[test]
    fn less_busy_of_two_is_taken() {
        let route = route(vec![backend(1, vec![endpoint(1, true), endpoint(2, true)])]);
        let mut dice = [0, 0, 1].into_iter().cycle();
        let first = route.choose(&[], &mut |_| dice.next().unwrap_or_default()).expect("an endpoint");
        let second = route.choose(&[], &mut |_| dice.next().unwrap_or_default()).expect("an endpoint");
        assert_ne!(first.endpoint.address, second.endpoint.address);
        assert_eq!(route.backends[0].report().under_way, 2);
        drop((first, second));
        assert_eq!(route.backends[0].report().under_way, 0);
    }
}
