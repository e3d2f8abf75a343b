//! A back-off for an API server that refuses a watch, on top of kube's default back-off.
//!
//! A watch that begins again reports [`Event::Init`](kube::runtime::watcher::Event) before its list is answered. kube resets its back-off on
//! that event, so that a list that is refused would be requested every second for ever. This back-off is reset by the next event only.

use std::time::Duration;

use kube::runtime::utils::Backoff;
use kube::runtime::watcher::DefaultBackoff;

/// The longest wait, so that a watch resumes soon after the API server answers again.
const LONGEST: Duration = Duration::from_secs(10);

/// Waits longer after each failure, until an event other than the first of a watch arrives.
#[derive(Default)]
pub struct WatchBackoff {
    waits: DefaultBackoff,
    begun: bool,
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.begun = false;
        self.waits.next().map(|wait| wait.min(LONGEST))
    }
}

impl Backoff for WatchBackoff {
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

    use super::{LONGEST, WatchBackoff};

    /// The times between the failures of a watch with these events; the test's clock advances by itself.
    async fn waits(course: impl IntoIterator<Item = Result<&str, &str>>) -> Vec<Duration> {
        let mut watch = Box::pin(stream::iter(course).backoff(WatchBackoff::default()));
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
    async fn backoff_grows_while_lists_are_refused() {
        let refused = [Ok("a list begins"), Err("refused")];
        let waits = waits(refused.into_iter().cycle().take(20)).await;
        assert!(waits[0] < Duration::from_secs(2), "{waits:?}");
        assert!(waits.ends_with(&[LONGEST; 3]), "{waits:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn backoff_resets_after_a_list_is_answered() {
        let mut course: Vec<_> = [Ok("a list begins"), Err("refused")].into_iter().cycle().take(20).collect();
        course.extend([Ok("a list begins"), Ok("listed"), Err("broken"), Ok("a list begins"), Err("refused")]);
        let waits = waits(course).await;
        assert!(waits[waits.len() - 1] < Duration::from_secs(2), "{waits:?}");
    }
}
