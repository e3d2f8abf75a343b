//! Follows the synchronizer's feed `bindings`: keeps its last word on each binding and wakes whoever is parked on it.
//!
//! A look of a workflow at its bindings costs several statements. So only what may end its wait, or begin the time after which it is
//! over, wakes it at once, and of that only the first few; the others, and what only says how far a binding is (most of what a
//! cluster tells), are gathered.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_api::bindings::{BindingStatus, Phase};
use drover_service::FeedReader;
use uuid::Uuid;

use crate::app::App;
use crate::environment::binding_key;

/// How long news that matter to a wait are gathered.
const GATHER: Duration = Duration::from_millis(200);
/// Of these so many are told at once within that time.
const AT_ONCE: usize = 3;
/// How long news of how far a binding is are gathered: they are for people.
const PROGRESS: Duration = Duration::from_secs(1);

/// Runs for ever; the reader repeats itself.
pub async fn run(app: App, mut reader: FeedReader<BindingStatus>) {
    let bell = Bell::default();
    loop {
        let batch = reader.next().await;
        // After a reset everything is told anew; who is no longer told of may have changed too.
        let forgotten = if batch.reset { app.environment.statuses.reset() } else { Vec::new() };
        take(&app, &bell, batch.items);
        for id in forgotten {
            app.engine.wake(&binding_key(id));
        }
    }
}

/// Takes in what the synchronizer says.
fn take(app: &App, bell: &Bell, items: Vec<(String, Option<BindingStatus>)>) {
    for (key, status) in items {
        let Ok(id) = key.parse::<Uuid>() else { continue };
        let phase = status.as_ref().map_or(Phase::Gone, |status| status.phase);
        let in_trouble = phase == Phase::Unreachable || status.as_ref().is_some_and(|status| status.unschedulable.is_some());
        app.environment.statuses.set(id, status);
        bell.ring(app, id, in_trouble || matches!(phase, Phase::Ready | Phase::Failed | Phase::Gone));
        if phase == Phase::Gone {
            app.retire.send();
        }
    }
}

/// Wakes now or a little later. What a crash makes it forget is no loss: the feed begins anew.
struct Bell {
    matters: Arc<Gather>,
    progress: Arc<Gather>,
}

/// News that are told together, this time after the first of them, but for so many that are told at once.
struct Gather {
    time: Duration,
    at_once: usize,
    news: Mutex<News>,
}

#[derive(Default)]
struct News {
    told: usize,
    waiting: HashSet<Uuid>,
}

impl News {
    /// News of a binding; true: wake now.
    fn add(&mut self, id: Uuid, at_once: usize) -> bool {
        let now = self.told < at_once;
        if now {
            self.told += 1;
            self.waiting.remove(&id);
        } else {
            self.waiting.insert(id);
        }
        now
    }
}

impl Gather {
    fn new(time: Duration, at_once: usize) -> Arc<Self> {
        Arc::new(Self { time, at_once, news: Mutex::default() })
    }

    fn ring(self: &Arc<Self>, app: &App, id: Uuid) {
        let mut news = self.news();
        let first = news.told == 0 && news.waiting.is_empty();
        if news.add(id, self.at_once) {
            app.engine.wake(&binding_key(id));
        }
        if first {
            let (gather, app) = (self.clone(), app.clone());
            tokio::spawn(async move {
                tokio::time::sleep(gather.time).await;
                let news = std::mem::take(&mut *gather.news());
                for id in news.waiting {
                    app.engine.wake(&binding_key(id));
                }
            });
        }
    }

    fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Bell {
    fn default() -> Self {
        Self { matters: Gather::new(GATHER, AT_ONCE), progress: Gather::new(PROGRESS, 0) }
    }
}

impl Bell {
    fn ring(&self, app: &App, id: Uuid, matters: bool) {
        if matters {
            self.progress.news().waiting.remove(&id);
            self.matters.ring(app, id);
        } else {
            self.progress.ring(app, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_are_told_at_once_and_the_others_together() {
        let mut news = News::default();
        let [a, b, c] = [1, 2, 3].map(Uuid::from_u128);
        assert!(news.add(a, 2) && news.add(b, 2) && news.waiting.is_empty(), "told now, they need not be told again");
        assert!(!news.add(c, 2) && !news.add(a, 2));
        assert_eq!(news.waiting, HashSet::from([a, c]));
        assert!(!News::default().add(a, 0));
    }
}
