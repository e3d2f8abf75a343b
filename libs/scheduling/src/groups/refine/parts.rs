//! What may leave a place in one exchange: nothing, a container, a container with the one that it calls most, and what the place has of a
//! group or of a copy of an application.

use super::super::layout::Layout;

/// Containers of a place that are considered at once; on a fuller place, others each time.
pub const CONTAINERS: usize = 32;
/// The most parts of a place: nothing, and for each container itself, its pair, and a share of a group and of a copy.
pub const PARTS: usize = 3 * CONTAINERS;

/// A part of a place.
#[derive(Clone, Copy, Debug, Default)]
pub struct Part {
    /// What it asks for.
    pub ask: [f32; 2],
    /// What its calls to the rest of the place cost if it leaves.
    pub cost: f32,
    /// Where its containers end among those of all parts; they begin where those of the part before end.
    end: u32,
}

/// The parts of a place. The first one is nothing.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    all: Vec<Part>,
    members: Vec<u32>,
    /// The calls that leave the place: a container of it, one elsewhere, and their rate.
    outside: Vec<(u32, u32, f64)>,
    /// The parts from here on are single containers that ask for the same as one before and cost more: of no use where no calls are won.
    lean: usize,
}

impl Parts {
    /// All parts.
    pub fn all(&self) -> &[Part] {
        &self.all
    }

    /// Those that are of use where no calls are won.
    pub fn lean(&self) -> &[Part] {
        &self.all[..self.lean]
    }

    /// The calls that leave the place: a container of it, one that is not on it, and their rate.
    pub fn outside(&self) -> &[(u32, u32, f64)] {
        &self.outside
    }

    /// The containers of a part.
    pub fn part(&self, n: usize) -> &[u32] {
        let start = n.checked_sub(1).map_or(0, |before| self.all[before].end);
        &self.members[start as usize..self.all[n].end as usize]
    }

    /// Forgets all parts, and makes room for those of so many containers.
    fn clear(&mut self, containers: usize) {
        let most = 2 * containers + 8;
        self.all.clear();
        self.all.reserve(most);
        self.members.clear();
        self.members.reserve(most + containers);
    }

    fn add(&mut self, ask: [f32; 2], cost: f32, members: impl IntoIterator<Item = u32>) {
        self.members.extend(members);
        self.all.push(Part { ask, cost, end: self.members.len() as u32 });
    }

    /// Forgets the part that was added last, or keeps it.
    fn keep(&mut self, kept: bool) {
        self.all.truncate(self.all.len() - usize::from(!kept));
        self.members.truncate(self.all.last().map_or(0, |last| last.end as usize));
    }
}

/// A container of a place, while its parts are collected.
#[derive(Clone, Copy, Debug)]
struct Member {
    container: u32,
    copy: u32,
    group: u32,
    ask: [f32; 2],
    /// What its calls cost to others on the place: to all, to those of its group, and to those of its copy.
    calls: [f32; 3],
    /// The container on the place with most calls with it, and what these cost.
    closest: (u32, f32),
    /// Whether another one asks for the same and costs less.
    dominated: bool,
}

/// Collects the parts of places.
///
/// It is written with few branches: which containers call each other on a place cannot be foreseen, and a wrong guess of the processor
/// takes longer than what is computed for nothing.
#[derive(Debug)]
pub struct Collector {
    /// What a call between two places costs.
    per_call: f64,
    /// Counts the places looked at, to vary which containers of a very full one are considered.
    turn: usize,
    members: Vec<Member>,
    /// The members as they were found, and what orders them.
    found: Vec<Member>,
    order: Vec<u32>,
    /// What each of them asks for, in one number; [`WORSE`] if another one asks for the same and costs less.
    asks: Vec<u64>,
    picked: Vec<u32>,
    /// By container: which of the members it is, since its place was collected.
    nth: Vec<u32>,
    /// By container: the parts of its place that it is in, a bit for each.
    within: Vec<u128>,
}

/// Not what anything asks for.
const WORSE: u64 = u64::MAX;

/// The rate if it counts, else 0, without a branch.
#[inline]
fn counted(rate: f64, counts: bool) -> f64 {
    f64::from_bits(rate.to_bits() & u64::from(counts).wrapping_neg())
}

/// The numbers of the bits that are set.
pub fn bits(mut mask: u128) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (bit < u128::BITS).then_some(bit as usize)
    })
}

impl Collector {
    /// A collector for an objective in which a call between two places costs so much.
    pub fn new(per_call: f64, containers: usize) -> Self {
        Self {
            per_call,
            turn: 0,
            members: Vec::with_capacity(CONTAINERS),
            found: Vec::with_capacity(CONTAINERS),
            order: Vec::with_capacity(CONTAINERS),
            asks: Vec::with_capacity(CONTAINERS),
            picked: Vec::with_capacity(CONTAINERS),
            nth: vec![0; containers],
            within: vec![0; containers],
        }
    }

    /// What calls between two places cost.
    pub fn cost(&self, calls: f64) -> f32 {
        (self.per_call * calls) as f32
    }

    /// The parts that a container is in, a bit for each, since its place was collected.
    pub fn parts_with(&self, container: u32) -> u128 {
        self.within[container as usize]
    }

    /// Replaces the parts by those of a place.
    pub fn collect(&mut self, layout: &Layout<'_>, place: usize, parts: &mut Parts) {
        self.look_at(layout, place, &mut parts.outside);
        parts.clear(self.members.len());
        parts.add([0.0; 2], 0.0, []);
        let on = layout.on(place);
        if on.len() > CONTAINERS {
            on.iter().for_each(|x| self.within[*x as usize] = 0);
            parts.outside.clear();
            for x in on {
                let away = layout.instance().near(*x).iter().filter(|(y, _)| !layout.is_at(*y, place));
                parts.outside.extend(away.map(|(y, rate)| (*x, *y, *rate)));
            }
        }
        self.singles(parts, false);
        let alone = parts.all.len();
        let mut start = 0;
        for copy in self.members.chunk_by(|a, b| a.copy == b.copy) {
            self.pairs(copy, start, parts);
            wholes(copy, parts);
            start += copy.len();
        }
        parts.lean = parts.all.len();
        self.singles(parts, true);
        for n in alone..parts.lean {
            parts.part(n).iter().for_each(|x| self.within[*x as usize] |= 1 << n);
        }
    }

    /// Adds the containers of which another one asks for the same and costs less, or the others.
    fn singles(&mut self, parts: &mut Parts, dominated: bool) {
        self.picked.clear();
        for (n, member) in (0..).zip(&self.members) {
            self.picked.push(n);
            self.picked.truncate(self.picked.len() - usize::from(member.dominated != dominated));
        }
        for n in &self.picked {
            let member = &self.members[*n as usize];
            self.within[member.container as usize] = 1 << parts.all.len();
            parts.add(member.ask, member.calls[0], [member.container]);
        }
    }

    /// Looks at the containers of a place and the calls that leave it, and brings those of one copy and of one group together.
    fn look_at(&mut self, layout: &Layout<'_>, place: usize, outside: &mut Vec<(u32, u32, f64)>) {
        self.turn += 1;
        for list in [&mut self.members, &mut self.found] {
            list.clear();
        }
        self.order.clear();
        self.asks.clear();
        outside.clear();
        let on = layout.on(place);
        let skipped = if on.len() > CONTAINERS { self.turn * CONTAINERS % on.len() } else { 0 };
        let (last, first) = on.split_at(skipped);
        for (n, container) in (0..).zip(first.iter().chain(last).take(CONTAINERS)) {
            let mut member = self.member(layout, place, *container, outside);
            // Adding 0 makes two zeros of different signs the same.
            let [a, b] = member.ask.map(|ask| u64::from((ask + 0.0).to_bits()));
            let ask = a << 32 | b;
            let same = self.asks.iter().zip(0..).fold(0_u32, |same, (other, n)| same | u32::from(*other == ask) << n);
            self.asks.push(ask);
            if same != 0 {
                let other = same.trailing_zeros() as usize;
                let worse = self.found[other].calls[0] > member.calls[0];
                (self.found[other].dominated, member.dominated) = (worse, !worse);
                self.asks[if worse { other } else { n }] = WORSE;
            }
            self.order.push(layout.instance().facts(*container).rank);
            self.found.push(member);
        }
        self.members.extend_from_slice(&self.found);
        for (member, rank) in self.found.iter().zip(&self.order) {
            // Counted, and not sorted: there are few.
            let before = self.order.iter().map(|other| u32::from(other < rank)).sum::<u32>();
            self.members[before as usize] = *member;
            self.nth[member.container as usize] = before;
        }
    }

    fn member(&self, layout: &Layout<'_>, place: usize, container: u32, outside: &mut Vec<(u32, u32, f64)>) -> Member {
        let instance = layout.instance();
        let own = instance.facts(container);
        let (mut calls, mut closest) = ([0.0; 3], (container, 0.0));
        for (other, rate) in instance.near(container) {
            let theirs = instance.facts(*other);
            let here = layout.is_at(*other, place);
            outside.push((container, *other, *rate));
            outside.truncate(outside.len() - usize::from(here));
            let inside = counted(*rate, here);
            calls[0] += inside;
            calls[1] += counted(inside, theirs.group == own.group);
            calls[2] += counted(inside, theirs.copy == own.copy);
            closest.0 = if inside > closest.1 { *other } else { closest.0 };
            closest.1 = if inside > closest.1 { inside } else { closest.1 };
        }
        Member {
            container,
            copy: own.copy,
            group: own.group,
            ask: own.request.map(|q| q as f32),
            calls: calls.map(|calls| self.cost(calls)),
            closest: (closest.0, self.cost(closest.1)),
            dominated: false,
        }
    }

    /// Adds each container of a copy together with the one that it has most calls with, each pair once. `start`: the first of the copy.
    fn pairs(&self, copy: &[Member], start: usize, parts: &mut Parts) {
        for (n, member) in copy.iter().enumerate() {
            let m = (self.nth[member.closest.0 as usize] as usize).wrapping_sub(start);
            // It may be of another copy, or not looked at.
            let (m, other) = copy.get(m).filter(|other| other.container == member.closest.0).map_or((n, member), |other| (m, other));
            let cost = member.calls[0] + other.calls[0] - 2.0 * member.closest.1;
            parts.add(sum(member.ask, other.ask), cost, [member.container, other.container]);
            parts.keep((m > n) | ((m < n) & (other.closest.0 != member.container)));
        }
    }
}

/// Adds what there is of each group of a copy, and of the copy, where that is more than a pair.
fn wholes(copy: &[Member], parts: &mut Parts) {
    let mut whole = |some: &[Member], level: usize| {
        let ask = some.iter().fold([0.0; 2], |ask, member| sum(ask, member.ask));
        let cost = some.iter().map(|member| member.calls[0] - member.calls[level]).sum();
        parts.add(ask, cost, some.iter().map(|member| member.container));
    };
    let mut groups = 0;
    for group in copy.chunk_by(|a, b| a.group == b.group) {
        groups += 1;
        if group.len() > 2 {
            whole(group, 1);
        }
    }
    if groups > 1 && copy.len() > 2 {
        whole(copy, 2);
    }
}

fn sum(a: [f32; 2], b: [f32; 2]) -> [f32; 2] {
    [a[0] + b[0], a[1] + b[1]]
}
