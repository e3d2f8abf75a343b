//! Waiting until the pods of a released claim are no longer observed.

use std::time::Duration;

use tokio::sync::watch;

/// The longest wait; shorter than the request timeout of the services that release claims.
pub const LONGEST_WAIT: Duration = Duration::from_secs(8);

/// Waits until `observed` is false; it is evaluated at once and again after each message on `changed`. Returns false after
/// [`LONGEST_WAIT`]: the pods may never go away, and the claim is released all the same.
pub async fn wait_until_unobserved(mut changed: watch::Receiver<()>, observed: impl Fn() -> bool) -> bool {
    let gone = changed.wait_for(|()| !observed());
    tokio::time::timeout(LONGEST_WAIT, gone).await.is_ok()
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::time::{Instant, timeout};

    use super::*;

    const WHILE: Duration = Duration::from_secs(2);

    #[tokio::test(start_paused = true)]
    async fn wait_ends_with_the_first_update_without_the_pods() {
        let (changed, observed) = (watch::Sender::new(()), AtomicBool::new(true));
        let mut waiting = pin!(wait_until_unobserved(changed.subscribe(), || observed.load(Ordering::SeqCst)));
        assert!(timeout(WHILE, &mut waiting).await.is_err(), "the pods are observed");
        changed.send_replace(());
        assert!(timeout(WHILE, &mut waiting).await.is_err(), "an update in which the pods are still observed");
        let before = Instant::now();
        observed.store(false, Ordering::SeqCst);
        changed.send_replace(());
        assert_eq!((waiting.await, before.elapsed()), (true, Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_pods_that_stay_is_limited() {
        let (changed, started) = (watch::Sender::new(()), Instant::now());
        assert!(!wait_until_unobserved(changed.subscribe(), || true).await);
        assert!(started.elapsed() >= LONGEST_WAIT && started.elapsed() < LONGEST_WAIT + WHILE);
    }
}
