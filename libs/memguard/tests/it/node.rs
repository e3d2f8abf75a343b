//! Random nodes: containers in every activity, with and without memory readings, eligible or not.

use drover_memguard::{
    Activity, Container, Denial, Guard, Lever, Levers, MemoryHighLease, Moment, NodeMemory, Observation, Permission, Policy, ProbeBudget,
    Reading, Sacrifices, Safety,
};
use proptest::prelude::*;

pub const GIB: u64 = 1 << 30;

pub fn node(used: u64, capacity: u64, at: u64) -> Reading<NodeMemory> {
    Reading::seen(NodeMemory { used, capacity }, Moment(at))
}

pub fn container(id: &str, memory: u64, limit: Option<u64>, at: u64) -> Container {
    Container {
        id: id.into(),
        name: format!("default/{id}/main").into(),
        started: Moment(0),
        memory: Reading::seen(memory, Moment(at)),
        limit,
        activity: Activity::Running { lease: None },
        permission: Permission::free(),
        priority: 0,
        budgets: Vec::new(),
    }
}

/// Every policy, with and without `memory.high` leases, with every setting of [`Sacrifices`]; limits on governed ones are lifted.
pub fn guards() -> impl Strategy<Value = Guard> {
    let policy = prop::sample::select(vec!["none", "paper", "bank", "gate-bank"]).prop_map(|name| Policy::by_name(name).unwrap());
    let sacrifices = prop_oneof![
        Just(Sacrifices::Never),
        Just(Sacrifices::Governed { every: std::time::Duration::ZERO, per_hour: 10 }),
        Just(Sacrifices::Unrestrained),
    ];
    (policy, sacrifices, any::<bool>())
        .prop_map(|(policy, sacrifices, high_first)| Guard { policy, safety: Safety { sacrifices, high_first, ..Safety::default() } })
}

fn activities(at: u64) -> impl Strategy<Value = Activity> {
    let since = at.saturating_sub(5_000);
    prop_oneof![
        3 => Just(Activity::Running { lease: None }),
        1 => (0..4 * GIB).prop_map(move |high| Activity::Running { lease: Some(MemoryHighLease { high, since: Moment(since) }) }),
        2 => Just(Activity::Paused { since: Moment(since), lever: Lever::Freeze }),
        1 => Just(Activity::Paused { since: Moment(since), lever: Lever::Quota }),
        1 => Just(Activity::AtGate { since: Moment(since) }),
    ]
}

fn permissions() -> impl Strategy<Value = Permission> {
    let levers = (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(freeze, quota, high)| Levers { freeze, quota, high });
    prop_oneof![
        3 => Just(Permission::free()),
        2 => (levers, prop::option::of((10_000_u64..60_000, 1_000_u64..60_000).prop_map(|(longest_millis, answered_millis)| ProbeBudget { longest_millis, answered_millis })))
            .prop_map(|(levers, probe_budget)| Permission::Granted { levers, probe_budget }),
        1 => Just(Permission::Denied { because: Denial::NotOptedIn }),
    ]
}

/// Any observation of a node at that moment. The containers are the same in every observation; what they do is not.
pub fn observations(at: u64) -> impl Strategy<Value = Observation> {
    let one = (0..4 * GIB, prop::option::of(GIB..4 * GIB), activities(at), permissions(), 0..3_i32, 0..20_000_u64);
    (prop::collection::vec(one, 0..12), 0..=8 * GIB).prop_map(move |(containers, used)| {
        let containers =
            containers.into_iter().enumerate().map(|(number, (memory, limit, activity, permission, priority, age))| Container {
                started: Moment(at.saturating_sub(age + 6_000)),
                activity,
                permission,
                priority,
                ..container(&format!("c{number}"), memory, limit, at)
            });
        Observation { node: node(used, 8 * GIB, at), containers: containers.collect(), ..Observation::default() }
    })
}
