//! Days on a fleet with prices: applications come and go, under several policies.
//!
//! ```text
//! trace.rs      the applications, from a file or drawn      preemption.rs  Kubernetes' way: kill what has lower priority
//! market.rs     the members and their prices               hindsight.rs   two that know the future
//! world.rs      the product's ledger and planner, who runs where           account.rs     cost, and the least possible
//! ```
//! Moves and starts take no time. The clock is the caller's, and only measures the planner.

mod account;
mod hindsight;
mod market;
mod preemption;
mod trace;
mod world;

pub use market::{Market, NODE, PROVIDERS, Provider};
pub use trace::{App, DAY, HEADER, Trace};

use drover_scheduling::{Policy, WhenFull};

use world::World;

/// What is done with an application for which there is no room.
#[derive(Clone, Debug)]
pub enum DaysPolicy {
    /// It is rejected.
    Never,
    /// Drover: the product's plan.
    Drover { policy: Policy, when_full: WhenFull },
    /// Kubernetes kills others of lower priority, which wait on their member until there is room.
    Preemption,
    /// Every application is placed by best fit, all arrivals and departures known.
    Hindsight,
    /// The same, and all members with a label are one: an estimate of what is possible.
    Pooled,
}

/// What became of the applications of a trace.
#[derive(Clone, Debug, Default)]
pub struct Days {
    pub arrived: usize,
    /// Not placed when they arrived.
    pub rejected: usize,
    /// Moves of applications to other members.
    pub moves: usize,
    /// Times that a running application was stopped for another.
    pub killed: usize,
    /// Core hours for which killed applications waited.
    pub lost: f64,
    pub cost: f64,
    /// The least that as much load as ran can cost.
    pub least: f64,
    /// Core hours that ran.
    pub core_hours: f64,
    /// Time of each plan, in the unit of the clock.
    pub plans: Vec<f64>,
    /// Plans that the limit on steps cut short.
    pub cut_short: usize,
}

/// An application arrives or departs. Departures come first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Departs,
    Arrives,
}

/// Lets the applications of a trace come and go. `done` is called after each arrival.
pub fn days(trace: &Trace, market: &Market, policy: &DaysPolicy, clock: &dyn Fn() -> f64, done: &dyn Fn()) -> Days {
    let mut events: Vec<(f64, Event, usize)> = Vec::new();
    for (number, app) in trace.apps.iter().enumerate() {
        events.extend([(app.arrives, Event::Arrives, number), (app.departs, Event::Departs, number)]);
    }
    events.retain(|(at, ..)| *at <= trace.ends);
    events.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| (a.1, a.2).cmp(&(b.1, b.2))));
    let mut run = Run {
        world: World::new(trace, market),
        result: Days::default(),
        policy,
        foreseen: if matches!(policy, DaysPolicy::Hindsight) { hindsight::hindsight(trace, market) } else { Vec::new() },
        pooled: if matches!(policy, DaysPolicy::Pooled) { hindsight::pooled(trace, market) } else { Vec::new() },
        waiting: vec![Vec::new(); market.keys.len()],
        lost_since: vec![None; trace.apps.len()],
        clock,
    };
    for (at, event, app) in events {
        run.world.account.advance(at);
        match event {
            Event::Departs => run.departs(app, at),
            Event::Arrives => {
                run.arrives(app, at);
                done();
            }
        }
    }
    run.end(trace.ends)
}

struct Run<'t> {
    world: World<'t>,
    result: Days,
    policy: &'t DaysPolicy,
    /// With hindsight: the member of each application.
    foreseen: Vec<Option<usize>>,
    /// With pools: whether each application runs.
    pooled: Vec<bool>,
    /// Killed applications, by the member on which they wait.
    waiting: Vec<Vec<usize>>,
    /// Since when an application waits.
    lost_since: Vec<Option<f64>>,
    clock: &'t dyn Fn() -> f64,
}

impl Run<'_> {
    fn arrives(&mut self, app: usize, now: f64) {
        self.result.arrived += 1;
        let runs = match self.policy {
            DaysPolicy::Hindsight => self.foreseen[app].is_some_and(|member| self.world.start(app, member)),
            DaysPolicy::Pooled => {
                self.count(app, 1);
                self.pooled[app]
            }
            DaysPolicy::Never => self.world.decide(app, WhenFull::Overflow, false),
            DaysPolicy::Preemption => self.world.decide(app, WhenFull::Overflow, false) || self.preempt(app, now),
            DaysPolicy::Drover { policy, when_full } => self.drover(app, policy, *when_full),
        };
        self.result.rejected += usize::from(!runs);
    }

    /// With pools: where it runs does not matter, since the least possible is what it costs.
    fn count(&mut self, app: usize, sign: i64) {
        if self.pooled.get(app) == Some(&true) {
            self.world.account.change(0, sign * self.world.trace.apps[app].millicores());
        }
    }

    fn drover(&mut self, app: usize, policy: &Policy, when_full: WhenFull) -> bool {
        if self.world.decide(app, when_full, false) {
            return true;
        }
        let planned = self.world.make_room(app, policy, when_full, self.clock);
        self.result.plans.push(planned.took);
        self.result.moves += planned.moves;
        self.result.cut_short += usize::from(planned.cut_short);
        planned.feasible || (when_full == WhenFull::Preferred && self.world.decide(app, when_full, true))
    }

    fn preempt(&mut self, app: usize, now: f64) -> bool {
        let Some((member, victims)) = preemption::victims(&self.world, app) else { return false };
        for victim in victims {
            self.world.stop(victim);
            self.result.killed += 1;
            self.lost_since[victim] = Some(now);
            self.waiting[member].push(victim);
        }
        let runs = self.world.start(app, member);
        self.restart(member, now);
        runs
    }

    /// Starts applications that wait on a member as far as there is room, those of high priority first.
    fn restart(&mut self, member: usize, now: f64) {
        let mut waiting = std::mem::take(&mut self.waiting[member]);
        waiting.sort_by_key(|app| std::cmp::Reverse(self.world.trace.apps[*app].priority));
        waiting.retain(|app| {
            let starts = self.world.start(*app, member);
            if starts {
                self.found(*app, now);
            }
            !starts
        });
        self.waiting[member] = waiting;
    }

    /// An application waits no longer.
    fn found(&mut self, app: usize, now: f64) {
        if let Some(since) = self.lost_since[app].take() {
            self.result.lost += self.world.trace.apps[app].millicores() as f64 * (now - since) / 3_600_000.0;
        }
    }

    fn departs(&mut self, app: usize, now: f64) {
        self.count(app, -1);
        if let Some(member) = self.world.stop(app) {
            self.restart(member, now);
        } else if self.lost_since[app].is_some() {
            self.waiting.iter_mut().for_each(|waiting| waiting.retain(|one| *one != app));
            self.found(app, now);
        }
    }

    fn end(mut self, now: f64) -> Days {
        self.world.account.advance(now);
        for app in 0..self.lost_since.len() {
            self.found(app, now);
        }
        let account = &self.world.account;
        let cost = if matches!(self.policy, DaysPolicy::Pooled) { account.least } else { account.cost };
        Days { cost, least: account.least, core_hours: account.core_hours, ..self.result }
    }
}
