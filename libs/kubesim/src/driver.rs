//! What follows from changes and timers: which controller looks at what, when pods are scheduled, when garbage is collected.

use serde_json::Value;

use crate::key::Key;
use crate::state::{Change, ClusterState};
use crate::timers::Timer;
use crate::{controllers, kubelet, object, scheduler};

/// A timer of the cluster is due.
pub fn run(state: &mut ClusterState, timer: Timer) {
    match timer {
        Timer::Reconcile => reconcile(state),
        Timer::Revisit(key) => controllers::enqueue(state, key),
        Timer::Pod { key, uid, step } => kubelet::step(state, &key, &uid, step),
        Timer::Trim => state.trim(),
    }
}

/// Hands out all changes, and sets a timer if there is work for controllers or scheduler.
pub fn follow_up(state: &mut ClusterState) {
    hand_out(state);
    if !state.work.is_empty() && !state.work.armed {
        state.work.armed = true;
        state.after(state.settings.controller_delay, Timer::Reconcile);
    }
}

fn hand_out(state: &mut ClusterState) {
    loop {
        let changes = state.take_changes();
        if changes.is_empty() {
            return;
        }
        changes.iter().for_each(|change| tell(state, change));
    }
}

/// Tells everyone who is concerned by a change.
fn tell(state: &mut ClusterState, Change { key, old, new }: &Change) {
    let (old, new): (Option<&Value>, Option<&Value>) = (old.as_deref(), new.as_deref());
    controllers::definitions(state, key, new);
    if !state.settings.controllers {
        return;
    }
    if new.is_none()
        && let Some(uid) = old.map(object::uid)
    {
        if state.store.has_dependents(uid) {
            state.work.orphans.push(uid.into());
        }
        controllers::enqueue(state, Key::new(&"namespaces".into(), "", &key.namespace));
    }
    for object in [old, new].into_iter().flatten() {
        for owner in object::list(object, "/metadata/ownerReferences") {
            let uid = object::text(owner, "/uid");
            match state.store.key_of(uid).cloned() {
                Some(owner) => controllers::enqueue(state, owner),
                None if new.is_some() => state.work.orphans.push(uid.into()),
                None => {}
            }
        }
    }
    controllers::enqueue(state, key.clone());
    controllers::concerned(state, key);
    controllers::endpoints::of_pod(state, key, old, new);
    kubelet::observe(state, key, old, new);
    state.work.schedule |= scheduler::concerned(key, old, new);
}

/// Works off what there is to do. Bounded, so that two controllers that disagree cannot hold the cluster's lock forever; what is left
/// gets another timer.
fn reconcile(state: &mut ClusterState) {
    state.work.armed = false;
    for _ in 0..5_000 {
        hand_out(state);
        if let Some(uid) = state.work.orphans.pop() {
            controllers::gc::collect(state, &uid);
        } else if let Some(key) = state.work.queue.pop_last() {
            controllers::reconcile(state, &key);
        } else if std::mem::take(&mut state.work.schedule) {
            scheduler::run(state);
        } else {
            return;
        }
    }
}
