//! Pods that each take some time to start.

use drover_autoscaling::Seconds;

/// Pods in the order in which they were requested: (requested at, ready at).
#[derive(Clone, Debug)]
pub(super) struct Pods(Vec<(Seconds, Seconds)>);

impl Pods {
    pub fn new(count: i32, now: Seconds) -> Self {
        // Ready for so long that their start no longer matters.
        Self((0..count).map(|_| (now - 1e6, now - 1e6)).collect())
    }

    pub fn asked(&self) -> i32 {
        i32::try_from(self.0.len()).unwrap_or(i32::MAX)
    }

    pub fn ready(&self, now: Seconds) -> i32 {
        self.ready_until(now).0
    }

    /// Number of ready pods, and when it changes next.
    pub fn ready_until(&self, now: Seconds) -> (i32, Seconds) {
        let starting = self.0.iter().filter(|pod| pod.1 > now + 1e-9);
        let next = starting.clone().map(|pod| pod.1).fold(Seconds::INFINITY, Seconds::min);
        (self.asked() - i32::try_from(starting.count()).unwrap_or(0), next - 1e-9)
    }

    pub fn starts(&self) -> &[(Seconds, Seconds)] {
        &self.0
    }

    /// Sets the number of pods. The newest are removed first, so starting pods go before serving ones.
    pub fn scale(&mut self, count: i32, now: Seconds, delay: Seconds) {
        let count = usize::try_from(count).unwrap_or(0);
        self.0.resize(count, (now, now + delay));
    }
}
