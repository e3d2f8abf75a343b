//! Follows the synchronizer's feed `bindings`: keeps its last word on each binding and wakes whoever is parked on it.
//!
//! A look of a workflow at its bindings costs several statements. So only what may end its wait wakes it at once, and of that
//! only the first few; the others, and what only says how far a binding is (most of what a cluster tells), are gathered.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_api::bindings::{BindingStatus, Phase};
use drover_service::FeedReader;
use uuid::Uuid;

use crate::app::App;
use crate::world::binding_key;

/// How long news are gathered.
const GATHER: Duration = Duration::from_millis(200);
/// Of what may end a wait, so much is told at once within that time.
const AT_ONCE: usize = 3;

/// Runs for ever; the reader repeats itself.
pub async fn run(app: App, mut reader: FeedReader<BindingStatus>) {
    let bell = Bell::default();
    loop {
        let batch = reader.next().await;
        // After a reset everything is told anew; who is no longer told of may have changed too.
        let forgotten = if batch.reset { app.world.statuses.reset() } else { Vec::new() };
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
        app.world.statuses.set(id, status);
        bell.ring(app, id, matches!(phase, Phase::Ready | Phase::Failed | Phase::Gone));
        if phase == Phase::Gone {
            app.retire.ring();
        }
    }
}

/// Wakes now or a little later. What a crash makes it forget is no loss: the feed begins anew.
#[derive(Clone, Default)]
struct Bell(Arc<Mutex<Gathered>>);

#[derive(Default)]
struct Gathered {
    at_once: usize,
    waiting: HashSet<Uuid>,
}

impl Gathered {
    /// News of a binding, which may end a wait or not; true: wake now.
    fn add(&mut self, id: Uuid, ends: bool) -> bool {
        let now = ends && self.at_once < AT_ONCE;
        if now {
            self.at_once += 1;
            self.waiting.remove(&id);
        } else {
            self.waiting.insert(id);
        }
        now
    }
}

impl Bell {
    fn ring(&self, app: &App, id: Uuid, ends: bool) {
        let mut gathered = self.gathered();
        let first = gathered.at_once == 0 && gathered.waiting.is_empty();
        if gathered.add(id, ends) {
            app.engine.wake(&binding_key(id));
        }
        if first {
            let (bell, app) = (self.clone(), app.clone());
            tokio::spawn(async move {
                tokio::time::sleep(GATHER).await;
                let gathered = std::mem::take(&mut *bell.gathered());
                for id in gathered.waiting {
                    app.engine.wake(&binding_key(id));
                }
            });
        }
    }

    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_end_a_wait_are_told_at_once_and_the_others_together() {
        let mut gathered = Gathered::default();
        let [a, b, c, d, e] = [1, 2, 3, 4, 5].map(Uuid::from_u128);
        assert!(!gathered.add(a, false), "it only says how far it is");
        assert!(gathered.add(a, true) && gathered.waiting.is_empty(), "told now, it need not be told again");
        assert!(gathered.add(b, true) && gathered.add(c, true));
        assert!(!gathered.add(d, true) && !gathered.add(e, false));
        assert_eq!(gathered.waiting, HashSet::from([d, e]));
    }
}
