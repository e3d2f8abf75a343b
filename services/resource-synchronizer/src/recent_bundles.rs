//! Bundles that came a moment ago. The workers of all members to which an app goes ask for its bundle at once; it is decrypted and parsed for
//! none of them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use drover_api::bindings::Bundle;
use serde_json::Value;

/// How long a bundle is used from here. Where hundreds of apps come at once, workers need several seconds until they ask for the last ones;
/// those that are busy for longer read it from the database.
const KEPT: Duration = Duration::from_secs(30);
/// How many bytes are kept. Most bundles have some KiB.
const MOST: usize = 2 << 20;
/// The size of the largest that is kept, in bytes.
const LARGEST: usize = 64 << 10;

/// The last bundles that were stored, the newest first. The content of a digest never changes.
#[derive(Default)]
pub struct RecentBundles(Mutex<VecDeque<Recent>>);

struct Recent {
    digest: Arc<str>,
    objects: Arc<Vec<Value>>,
    bytes: usize,
    since: Instant,
}

impl RecentBundles {
    /// Keeps a bundle of so many bytes that is stored.
    pub fn keep(&self, Bundle { digest, objects }: Bundle, bytes: usize) {
        if bytes > LARGEST {
            return;
        }
        let mut kept = self.current();
        kept.retain(|one| one.digest != digest);
        kept.push_front(Recent { digest, objects: Arc::new(objects), bytes, since: Instant::now() });
        let mut all: usize = kept.iter().map(|one| one.bytes).sum();
        while all > MOST {
            all -= kept.pop_back().map_or(all, |oldest| oldest.bytes);
        }
    }

    /// The objects of a bundle, if it is kept.
    pub fn get(&self, digest: &str) -> Option<Arc<Vec<Value>>> {
        self.current().iter().find(|one| &*one.digest == digest).map(|one| Arc::clone(&one.objects))
    }

    /// Those whose time is not over.
    fn current(&self) -> MutexGuard<'_, VecDeque<Recent>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while kept.pop_back_if(|oldest| oldest.since.elapsed() >= KEPT).is_some() {}
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_bundles_are_kept() {
        const FIT: usize = MOST / LARGEST;
        let recent = RecentBundles::default();
        let bundle = |digest: String, objects| Bundle { digest: digest.into(), objects };
        (0..FIT + 8).for_each(|number| recent.keep(bundle(number.to_string(), vec![number.into()]), LARGEST));
        recent.keep(bundle("20".into(), vec![20.into()]), LARGEST);
        recent.keep(bundle("large".into(), Vec::new()), LARGEST + 1);
        let kept: Vec<usize> = (0..FIT + 8).filter(|number| recent.get(&number.to_string()).is_some()).collect();
        assert_eq!(kept, (8..FIT + 8).collect::<Vec<_>>());
        assert_eq!((&*recent.get("20").unwrap(), recent.get("large")), (&vec![20.into()], None));
        (0..1_000).for_each(|number| recent.keep(bundle(format!("small-{number}"), Vec::new()), MOST / 1_000));
        assert!((0..1_000).all(|number| recent.get(&format!("small-{number}")).is_some()), "many small ones are kept");
        assert_eq!(recent.get("20"), None);
    }
}
