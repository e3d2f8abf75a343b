//! Bundles that came a moment ago. The workers of all members to which an app goes ask for its bundle at once; it is decrypted and parsed for
//! none of them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use drover_api::bindings::Bundle;
use serde_json::Value;

/// How long a bundle is used from here. Workers that are busy for longer read it from the database.
const KEPT: Duration = Duration::from_secs(10);
/// How many are kept.
const MOST: usize = 32;
/// The size of the largest that is kept, in bytes. Most have some KiB.
const LARGEST: usize = 64 << 10;

/// The last bundles that were stored. The content of a digest never changes.
#[derive(Default)]
pub struct RecentBundles(Mutex<VecDeque<Recent>>);

struct Recent {
    digest: Arc<str>,
    objects: Arc<Vec<Value>>,
    since: Instant,
}

impl RecentBundles {
    /// Keeps a bundle of so many bytes that is stored.
    pub fn keep(&self, Bundle { digest, objects }: Bundle, bytes: usize) {
        if bytes > LARGEST {
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|one| one.since.elapsed() < KEPT && one.digest != digest);
        kept.truncate(MOST - 1);
        kept.push_front(Recent { digest, objects: Arc::new(objects), since: Instant::now() });
    }

    /// The objects of a bundle, if it is kept.
    pub fn get(&self, digest: &str) -> Option<Arc<Vec<Value>>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|one| one.since.elapsed() < KEPT);
        kept.iter().find(|one| &*one.digest == digest).map(|one| Arc::clone(&one.objects))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_bundles_are_kept() {
        let recent = RecentBundles::default();
        let bundle = |digest: String, objects| Bundle { digest: digest.into(), objects };
        (0..MOST + 8).for_each(|number| recent.keep(bundle(number.to_string(), vec![number.into()]), LARGEST));
        recent.keep(bundle("20".into(), vec![20.into()]), 2);
        recent.keep(bundle("large".into(), Vec::new()), LARGEST + 1);
        let kept: Vec<usize> = (0..MOST + 8).filter(|number| recent.get(&number.to_string()).is_some()).collect();
        assert_eq!(kept, (8..MOST + 8).collect::<Vec<_>>());
        assert_eq!((&*recent.get("20").unwrap(), recent.get("large")), (&vec![20.into()], None));
    }
}
