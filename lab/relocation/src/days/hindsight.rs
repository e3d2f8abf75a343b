//! What one can do who knows all arrivals and departures beforehand.

use std::collections::{BTreeMap, BTreeSet};

use super::market::{Market, NODE, PROVIDERS};
use super::trace::{App, Trace};

/// The label of all members.
const ALL: &str = "all";

/// The applications in the order of the core hours that they need.
fn smallest_first(trace: &Trace) -> Vec<usize> {
    let area = |app: &App| app.millicores() as f64 * (app.departs.min(trace.ends) - app.arrives);
    let mut order: Vec<usize> = (0..trace.apps.len()).collect();
    order.sort_by(|a, b| area(&trace.apps[*a]).total_cmp(&area(&trace.apps[*b])).then_with(|| a.cmp(b)));
    order
}

/// Whether each application runs if all members with its label are one: what runs may be divided and moved at every moment. Those that need
/// least first. An estimate of what no policy exceeds, without a proof: the order is a heuristic, the pools are more than there is.
pub fn pooled(trace: &Trace, market: &Market) -> Vec<bool> {
    let labels: BTreeSet<&str> = trace.apps.iter().map(|app| app.label.as_str()).chain([ALL]).collect();
    let size = |label: &str| (0..market.keys.len()).filter(|member| market.has(*member, label)).count() as i64;
    // By label: what is left at each arrival. The load rises only then, so that other moments need not be looked at.
    let mut left: BTreeMap<&str, Vec<(i64, i64)>> =
        labels.into_iter().map(|label| (label, vec![(NODE.0 * size(label), NODE.1 * size(label)); trace.apps.len()])).collect();
    let mut runs = vec![false; trace.apps.len()];
    for number in smallest_first(trace) {
        let app = &trace.apps[number];
        let needs = (app.millicores(), app.mebibytes());
        let until = trace.apps.partition_point(|other| other.arrives < app.departs);
        let meanwhile = trace.apps.partition_point(|other| other.arrives < app.arrives)..until;
        let pools: BTreeSet<&str> = [ALL, app.label.as_str()].into();
        let fits = |pool: &&str| left[*pool][meanwhile.clone()].iter().all(|free| free.0 >= needs.0 && free.1 >= needs.1);
        if pools.iter().all(fits) {
            runs[number] = true;
            for pool in left.iter_mut().filter(|(label, _)| pools.contains(*label)).map(|(_, pool)| pool) {
                pool[meanwhile.clone()].iter_mut().for_each(|free| *free = (free.0 - needs.0, free.1 - needs.1));
            }
        }
    }
    runs
}

/// The member of each application, or `None` if it is rejected: those that need least (core hours) first, each on the cheapest member that
/// has room for as long as it runs, and of equally cheap ones where least is left. A heuristic: more might be possible.
pub fn hindsight(trace: &Trace, market: &Market) -> Vec<Option<usize>> {
    let mut taken: Vec<Vec<&App>> = vec![Vec::new(); market.keys.len()];
    let mut places = vec![None; trace.apps.len()];
    for number in smallest_first(trace) {
        let app = &trace.apps[number];
        let best = (0..PROVIDERS.len()).find_map(|provider| {
            let members = (0..taken.len()).filter(|member| market.provider[*member] == provider && market.has(*member, &app.label));
            members.filter_map(|member| Some((left(&taken[member], app)?, member))).min()
        });
        if let Some((_, member)) = best {
            taken[member].push(app);
            places[number] = Some(member);
        }
    }
    places
}

/// Millicores that are left on a member while `app` runs there too, at the fullest moment; `None` if it does not fit.
fn left(taken: &[&App], app: &App) -> Option<i64> {
    let meanwhile: Vec<&&App> = taken.iter().filter(|one| one.arrives < app.departs && app.arrives < one.departs).collect();
    // The load rises only when an application arrives, so that other moments need not be looked at.
    let moments = meanwhile.iter().map(|one| one.arrives.max(app.arrives)).chain([app.arrives]);
    let mut least = i64::MAX;
    for moment in moments {
        let (mut cpu, mut memory) = (NODE.0 - app.millicores(), NODE.1 - app.mebibytes());
        for one in meanwhile.iter().filter(|one| one.arrives <= moment && moment < one.departs) {
            (cpu, memory) = (cpu - one.millicores(), memory - one.mebibytes());
        }
        if cpu < 0 || memory < 0 {
            return None;
        }
        least = least.min(cpu);
    }
    Some(least)
}
