//! Patience with an API server that refuses a watch: kube's default back-off, made to work.
//!
//! A watch that begins anew says so ([`Event::Init`](kube::runtime::watcher::Event)) before its list is answered. Taken for a success, as
//! kube does, a list that is refused would be asked for every second for ever.

use std::time::Duration;

use kube::runtime::utils::Backoff;
use kube::runtime::watcher::DefaultBackoff;

/// The longest wait: whoever follows the cluster knows again soon after it answers again.
const LONGEST: Duration = Duration::from_secs(10);

/// Waits longer after each failure, until something but a beginning was heard.
#[derive(Default)]
pub struct Patience {
    waits: DefaultBackoff,
    begun: bool,
}

impl Iterator for Patience {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.begun = false;
        self.waits.next().map(|wait| wait.min(LONGEST))
    }
}

impl Backoff for Patience {
    fn reset(&mut self) {
        if std::mem::replace(&mut self.begun, true) {
            self.waits.reset();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::{StreamExt, stream};
    use kube::runtime::WatchStreamExt;
    use tokio::time::Instant;

    use super::{LONGEST, Patience};

    /// The time between the failures of a watch that goes like this; it passes by itself.
    async fn waits(course: impl IntoIterator<Item = Result<&str, &str>>) -> Vec<Duration> {
        let mut watch = Box::pin(stream::iter(course).backoff(Patience::default()));
        let (mut failed, mut waits) = (None, Vec::new());
        while let Some(event) = watch.next().await {
            if event.is_err() {
                let now = Instant::now();
                waits.extend(failed.replace(now).map(|before| now - before));
            }
        }
        waits
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_is_refused_again_and_again_is_asked_for_ever_more_rarely() {
        let refused = [Ok("a list begins"), Err("refused")];
        let waits = waits(refused.into_iter().cycle().take(20)).await;
        assert!(waits[0] < Duration::from_secs(2), "{waits:?}");
        assert!(waits.ends_with(&[LONGEST; 3]), "{waits:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_was_answered_ends_the_waiting() {
        let mut course: Vec<_> = [Ok("a list begins"), Err("refused")].into_iter().cycle().take(20).collect();
        course.extend([Ok("a list begins"), Ok("listed"), Err("broken"), Ok("a list begins"), Err("refused")]);
        let waits = waits(course).await;
        assert!(waits[waits.len() - 1] < Duration::from_secs(2), "{waits:?}");
    }
}
