//! What Kubernetes does with a pod for which there is no room: it kills pods of lower priority.

use std::cmp::Reverse;

use super::world::World;

/// The member on which the least valuable applications would have to be killed, and these, as kube-scheduler chooses a node: the lowest
/// highest priority of a victim, then the lowest sum of priorities, then the fewest victims. An application is killed as a whole.
pub fn victims(world: &World<'_>, app: usize) -> Option<(usize, Vec<usize>)> {
    let apps = &world.trace.apps;
    let label = &apps[app].label;
    let members = (0..world.market.keys.len()).filter(|member| world.market.has(*member, label));
    let choices = members.filter_map(|member| Some((member, on_member(world, app, member)?)));
    choices.min_by_key(|(member, victims)| {
        let priorities = || victims.iter().map(|one| u64::from(apps[*one].priority));
        (priorities().max(), priorities().sum::<u64>(), victims.len(), world.market.provider[*member], *member)
    })
}

/// As kube-scheduler: all of lower priority are victims at first; then as many as have room are spared, those of high priority first.
fn on_member(world: &World<'_>, app: usize, member: usize) -> Option<Vec<usize>> {
    let apps = &world.trace.apps;
    let mut lower: Vec<usize> = world.on(member).filter(|one| apps[*one].priority < apps[app].priority).collect();
    let (mut cpu, mut memory) = world.free(member);
    for one in &lower {
        (cpu, memory) = (cpu + apps[*one].millicores(), memory + apps[*one].mebibytes());
    }
    (cpu, memory) = (cpu - apps[app].millicores(), memory - apps[app].mebibytes());
    if cpu < 0 || memory < 0 {
        return None;
    }
    lower.sort_by_key(|one| (Reverse(apps[*one].priority), *one));
    lower.retain(|one| {
        let spared = apps[*one].millicores() <= cpu && apps[*one].mebibytes() <= memory;
        if spared {
            (cpu, memory) = (cpu - apps[*one].millicores(), memory - apps[*one].mebibytes());
        }
        !spared
    });
    Some(lower)
}
