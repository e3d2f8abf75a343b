//! The time for which everything of an app must have been ready before the app counts as ready (`drover.io/serving-after`), and the requests
//! that it must answer then ([`super::expectations`]).
//!
//! Pure, but for the clock. Invariant: the time runs only while all objects are ready, and once it is over that is recorded, so that a
//! restart of the service does not ask for it again.

use std::time::{Duration, Instant};

use super::binding_state::BindingState;
use super::expectations::AGAIN;
use super::view::MemberView;

impl BindingState {
    /// Whether the app asks for a time that has not been over yet. It counts once for each version of a copy: what has served may stop
    /// being ready and be ready again at once.
    pub fn warms_up(&self) -> bool {
        (!self.serving_after.is_zero() || !self.expectations.is_empty()) && self.row.served.as_ref() != Some(&self.row.desired.digest)
    }
    /// Whether that time is over and all requests are answered, but that is not recorded.
    pub fn is_warm(&self, view: &MemberView) -> bool {
        self.warms_up()
            && self.objects_are_ready(view)
            && self.ready_since.is_some_and(|since| since.elapsed() >= self.serving_after)
            && self.answers()
    }
    /// Notes since when all objects are ready. Returns when to look again, while the app is not known to serve.
    pub fn warm_up(&mut self, view: &MemberView) -> Option<Duration> {
        if !self.present() || !self.warms_up() || !self.objects_are_ready(view) {
            (self.ready_since, self.asked) = (None, None);
            return None;
        }
        let since = *self.ready_since.get_or_insert_with(Instant::now);
        let left = self.serving_after.saturating_sub(since.elapsed());
        // The answer wakes the worker; without one it asks again.
        Some(if left.is_zero() && self.asked.is_some() { AGAIN } else { left })
    }
}
