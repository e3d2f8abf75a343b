//! Bounds that count for all members of an app: which copy gets which share of them (libs/autoscaling decides that), and who was told what.
//!
//! A share is written here before it is sent, so that after a crash it is still known what a member may have been told. It counts until
//! the member has confirmed a later one. A member that does not answer therefore keeps its share, and nobody else gets that room.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use drover_api::apps::PolicyBounds;
use drover_api::bindings::{BindingStatus, BoundsOrder, Phase, PolicyShare};
use drover_api::words::SILENT;
use drover_autoscaling::shares::{self, Patience, Place};
use drover_members::bounds::{self as declared, PolicyName, TotalBounds};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{App, Error};
use crate::store::binding::{self, Binding, Role};
use crate::store::bounds::{self, PolicyRow, Told};
use crate::store::{bundle, next_fence};

/// Name of the agent whose reports say how many pods a load needs.
const AUTOSCALER: &str = "autoscaler";
/// Times the patience for which shares rest after a change.
const REST: f64 = 4.0;
/// How many bundles are read by one query.
const BUNDLES: usize = 100;

/// What is remembered between passes. In memory only: after a restart bundles are read again, and patience begins anew.
#[derive(Default)]
pub struct Dividing(Mutex<Memory>);

struct Memory {
    begun: Instant,
    /// The bounds over all members in each bundle; most bundles have none.
    declared: HashMap<String, Arc<[TotalBounds]>>,
    patience: BTreeMap<(Uuid, String, PolicyName), Patience>,
}

impl Default for Memory {
    fn default() -> Self {
        Self { begun: Instant::now(), declared: HashMap::new(), patience: BTreeMap::new() }
    }
}

impl Dividing {
    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A copy of an app, with what it was told.
struct AppCopy {
    binding: Binding,
    status: Option<Arc<BindingStatus>>,
    before: Option<Told>,
    after: Vec<PolicyRow>,
}

impl AppCopy {
    /// What an autoscaler of the copy was told last.
    fn told(&self, policy: &PolicyName) -> Option<&PolicyRow> {
        self.before.as_ref()?.policies.iter().find(|row| is(row, &self.named(policy)))
    }

    /// The autoscaler as it is called in the member.
    fn named(&self, policy: &PolicyName) -> PolicyName {
        let namespace = if policy.namespace.is_empty() { &self.binding.namespace } else { &policy.namespace };
        PolicyName { namespace: namespace.clone(), ..policy.clone() }
    }

    /// Pods of a workload that run there, as far as that is known.
    fn running(&self, workload: &str) -> u32 {
        let scaled = self.status.iter().flat_map(|status| &status.scaled).find(|one| one.workload() == workload);
        let demanded = || self.binding.request.demand.groups.iter().find(|group| group.workload == workload);
        scaled.map(|scaled| u32::try_from(scaled.replicas).unwrap_or(0)).or_else(|| demanded().map(|group| group.replicas)).unwrap_or(1)
    }

    fn is_gone(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.phase == Phase::Gone)
    }
}

impl App {
    /// Divides the bounds of every app that has such, and tells the members what has changed.
    ///
    /// # Errors
    /// The database cannot be used. What a member was not told is told by the next call.
    pub async fn divide_bounds(&self) -> Result<(), Error> {
        let mut tx = self.store.begin().await?;
        if !bounds::turn(&mut tx).await? {
            return Ok(());
        }
        let declared = self.declared(&mut tx).await?;
        let mut told = bounds::all(&mut tx).await?;
        if declared.is_empty() && told.is_empty() {
            return Ok(());
        }
        let digests: Vec<String> = declared.keys().cloned().collect();
        let mut apps: BTreeMap<(Uuid, String), Vec<AppCopy>> = BTreeMap::new();
        for binding in binding::of_apps_with_bundles(&mut tx, &digests).await? {
            let status = self.environment.statuses.get(binding.id);
            let before = told.remove(&binding.id).map(|told| confirmed(told, status.as_deref()));
            let of = (binding.dig.id, binding.app.clone());
            apps.entry(of).or_default().push(AppCopy { binding, status, before, after: Vec::new() });
        }
        let without: Vec<Uuid> = told.into_keys().collect();
        bounds::delete(&mut tx, &without).await?;

        let replaced = bounds::replaced(&mut tx).await?;
        let mut known = BTreeSet::new();
        let mut orders = Vec::new();
        for ((dig, app), mut copies) in apps {
            for total in totals(&declared, &copies) {
                let key = (dig, app.clone(), total.policy.clone());
                self.divide_one(&key, &total, &mut copies, &replaced);
                known.insert(key);
            }
            for copy in copies {
                orders.extend(written(&mut tx, copy).await?);
            }
        }
        tx.commit().await?;
        self.dividing.lock().patience.retain(|key, _| known.contains(key));
        for (binding, order) in orders {
            // Not stored there yet, or the service does not answer: the next pass sends it again.
            if let Err(error) = self.services.synchronizer.put_bounds(binding, &order).await {
                tracing::debug!(binding.id = %binding, %error, "a share of bounds could not be sent, will retry");
            }
        }
        Ok(())
    }

    /// The bundles that run and have bounds over all members.
    async fn declared(&self, tx: &mut PgConnection) -> Result<HashMap<String, Arc<[TotalBounds]>>, Error> {
        let digests = bounds::digests(tx).await?;
        let unknown: Vec<String> = {
            let memory = self.dividing.lock();
            digests.iter().filter(|digest| !memory.declared.contains_key(*digest)).cloned().collect()
        };
        for some in unknown.chunks(BUNDLES) {
            let objects = bundle::objects_of_all(&mut *tx, self.store.key()?, some).await?;
            // A bundle has no bounds if it is not stored here (that of an agent is not), or if an earlier version let it through without looking.
            let bounds = |digest: &String| objects.get(digest).and_then(|objects| declared::of(objects).ok()).unwrap_or_default().into();
            self.dividing.lock().declared.extend(some.iter().map(|digest| (digest.clone(), bounds(digest))));
        }
        let mut memory = self.dividing.lock();
        let digests: HashSet<String> = digests.into_iter().collect();
        memory.declared.retain(|digest, _| digests.contains(digest));
        let some = memory.declared.iter().filter(|(_, found)| !found.is_empty());
        Ok(some.map(|(digest, found)| (digest.clone(), Arc::clone(found))).collect())
    }

    /// Divides the bounds of one autoscaler among the copies of its app.
    fn divide_one(&self, key: &(Uuid, String, PolicyName), total: &TotalBounds, copies: &mut [AppCopy], replaced: &HashMap<Uuid, Uuid>) {
        // A copy that replaces another one has its place, and both have its share meanwhile. In the order of the members, so that an equal
        // part that does not come out even goes to the same one each time.
        let mut places: Vec<(Uuid, Vec<usize>)> = Vec::new();
        let mut add = |place: Uuid, index| match places.iter_mut().find(|(id, _)| *id == place) {
            Some((_, of)) => of.push(index),
            None => places.push((place, vec![index])),
        };
        let mut leaving = 0_u32;
        let old: HashSet<Uuid> = copies.iter().filter_map(|copy| replaced.get(&copy.binding.id)).copied().collect();
        for (index, copy) in copies.iter().enumerate() {
            let id = copy.binding.id;
            match copy.binding.role {
                Role::Target | Role::Current => add(*replaced.get(&id).unwrap_or(&id), index),
                Role::Retiring if old.contains(&id) => add(id, index),
                Role::Retiring if !copy.is_gone() => {
                    let held = copy.told(&total.policy).map_or(0, |row| row.held);
                    leaving = leaving.saturating_add(held.max(copy.running(&total.workload)));
                }
                Role::Retiring | Role::Gone => {}
            }
        }
        let pod = copies.iter().flat_map(|copy| &copy.binding.request.demand.groups).find(|group| group.workload == total.workload);
        let max = pod.map_or(total.max, |group| total.most(&group.requests));
        let bounds = shares::TotalBounds { min: total.min.min(max), max };
        let seen: Vec<Place> = places.iter().map(|(_, of)| self.place(total, of.iter().map(|index| &copies[*index]))).collect();
        let granted = {
            let mut memory = self.dividing.lock();
            let (now, patience) = (memory.begun.elapsed().as_secs_f64(), self.bounds_patience);
            let remembered = memory.patience.entry(key.clone()).or_default();
            let follow = remembered.is_over(now, &seen, patience, REST * patience);
            let granted = shares::divide(bounds, &seen, leaving, follow);
            if granted.iter().zip(&seen).any(|(new, place)| place.aim.is_some_and(|aim| aim != new.aim)) {
                remembered.changed(now);
            }
            granted
        };
        for (granted, of) in granted.into_iter().zip(places.iter().map(|(_, of)| of)) {
            for index in of {
                let copy = &mut copies[*index];
                let held = copy.told(&total.policy).map_or(0, |row| row.held).max(granted.share.map_or(0, |share| share.max));
                let PolicyName { kind, namespace, name } = copy.named(&total.policy);
                copy.after.push(PolicyRow { kind, namespace, name, share: granted.share, aim: granted.aim, held });
            }
        }
    }

    /// What is known of the place that these copies have: one, or two while it moves.
    fn place<'a>(&self, total: &TotalBounds, copies: impl Iterator<Item = &'a AppCopy>) -> Place {
        let mut place = Place::default();
        for copy in copies {
            let told = copy.told(&total.policy);
            place.aim = place.aim.or(told.map(|row| row.aim));
            place.share = place.share.or(told.and_then(|row| row.share));
            place.held = place.held.max(told.map_or(0, |row| row.held));
            place.running = place.running.max(copy.running(&total.workload));
            place.unmet = place.unmet.max(self.unmet(copy, &total.policy));
        }
        place
    }

    /// Pods that the load of a copy needs beyond its share, as the agent there reports. None: no agent says anything of it.
    fn unmet(&self, copy: &AppCopy, policy: &PolicyName) -> Option<u32> {
        let report = self.agent_reports.of(AUTOSCALER, &copy.binding.member).filter(|_| policy.kind == "ScalingPolicy")?;
        if report.age_seconds > SILENT {
            return None;
        }
        let name = copy.named(policy);
        let named = format!("{}/{}", name.namespace, name.name);
        let found = report.unmet.iter().find(|unmet| unmet.policy == named).map(|unmet| u32::try_from(unmet.pods).unwrap_or(u32::MAX));
        // Only those with the most are named.
        let all_named = report.unmet.iter().map(|unmet| unmet.pods).sum::<u64>() >= report.unmet_pods;
        found.or_else(|| all_named.then_some(0))
    }
}

/// The bounds of the autoscalers of an app. While an update is under way, those of its newest bundle.
fn totals(declared: &HashMap<String, Arc<[TotalBounds]>>, copies: &[AppCopy]) -> Vec<TotalBounds> {
    let mut totals = BTreeMap::new();
    for copy in copies.iter().filter(|copy| copy.binding.role != Role::Retiring) {
        for total in declared.get(&copy.binding.digest).into_iter().flat_map(|found| found.iter()) {
            totals.insert(total.policy.clone(), total.clone());
        }
    }
    totals.into_values().collect()
}

/// What a copy was told, and whether its member has it by now.
fn confirmed(mut told: Told, status: Option<&BindingStatus>) -> Told {
    if !told.confirmed && status.is_some_and(|status| status.bounds == Some(told.version)) {
        told.confirmed = true;
        for row in &mut told.policies {
            row.held = row.share.map_or(row.held, |share| share.max);
        }
    }
    told
}

/// Records what a copy is to be told. Returns the order, unless its member has it.
async fn written(tx: &mut PgConnection, copy: AppCopy) -> Result<Option<(Uuid, BoundsOrder)>, Error> {
    let AppCopy { binding, before, after, .. } = copy;
    if after.is_empty() || binding.role == Role::Retiring && before.is_none() {
        return Ok(None);
    }
    let shares = |rows: &[PolicyRow]| -> Vec<PolicyShare> {
        let share = |row: &PolicyRow| {
            let (kind, namespace, name) = (row.kind.clone(), row.namespace.clone(), row.name.clone());
            row.share.map(|share| PolicyShare { kind, namespace, name, min: share.min, max: share.max })
        };
        rows.iter().filter_map(share).collect()
    };
    let order = shares(&after);
    let same = before.as_ref().filter(|before| shares(&before.policies) == order);
    let told = match same {
        // Nobody is told again; what is aimed at, and what was confirmed, may have changed.
        Some(before) => Told { policies: after, ..before.clone() },
        None if order.is_empty() && before.is_none() => Told { version: 0, policies: after, confirmed: true },
        None => Told { version: next_fence(&mut *tx).await?, policies: after, confirmed: false },
    };
    bounds::put(&mut *tx, binding.id, &told).await?;
    Ok((!told.confirmed).then_some((binding.id, BoundsOrder { version: told.version, shares: order })))
}

fn is(row: &PolicyRow, policy: &PolicyName) -> bool {
    (&row.kind, &row.namespace, &row.name) == (&policy.kind, &policy.namespace, &policy.name)
}

/// What a copy was told, as the list of apps shows it.
pub(super) fn shown(told: &Told) -> Vec<PolicyBounds> {
    let show = |row: &PolicyRow| PolicyBounds {
        kind: row.kind.clone(),
        policy: format!("{}/{}", row.namespace, row.name),
        min: row.share.map(|share| share.min),
        max: row.share.map(|share| share.max),
        confirmed: told.confirmed,
    };
    told.policies.iter().map(show).collect()
}
