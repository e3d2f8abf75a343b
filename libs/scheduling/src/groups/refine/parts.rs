//! What may leave a place in one exchange: nothing, a container, a container with the one that it calls most, and what the place has of a
//! group or of a copy of an application.

use super::super::layout::Layout;

/// Containers of a place that are considered at once; on a fuller place, others each time.
pub const CONTAINERS: usize = 32;
/// The most parts of a place: nothing, and for each container itself, its pair, and a share of a group and of a copy.
pub const PARTS: usize = 3 * CONTAINERS;

/// The parts of a place, in columns. The first part is nothing.
#[derive(Clone, Debug)]
pub struct Parts {
    /// What each part asks for.
    pub ask: [Vec<f32>; 2],
    /// What the calls of each part to the rest of the place cost if it leaves.
    pub cost: Vec<f32>,
    /// The containers of part p are `members[ends[p]..ends[p + 1]]`.
    ends: Vec<u32>,
    members: Vec<u32>,
    /// The parts from here on are single containers that ask for the same as one before and cost more: of no use where no calls are won.
    pub lean: usize,
}

impl Default for Parts {
    fn default() -> Self {
        Self { ask: Default::default(), cost: Vec::new(), ends: vec![0], members: Vec::new(), lean: 0 }
    }
}

impl Parts {
    /// The containers of a part.
    pub fn part(&self, n: usize) -> &[u32] {
        &self.members[self.ends[n] as usize..self.ends[n + 1] as usize]
    }

    /// The number of parts.
    pub fn len(&self) -> usize {
        self.cost.len()
    }

    /// Forgets all parts, and makes room for those of so many containers.
    fn clear(&mut self, containers: usize) {
        let most = 2 * containers + 8;
        for column in self.ask.iter_mut().chain([&mut self.cost]) {
            column.clear();
            column.reserve(most);
        }
        self.ends.truncate(1);
        self.ends.reserve(most);
        self.members.clear();
        self.members.reserve(most + containers);
    }

    fn add(&mut self, ask: [f32; 2], cost: f32, members: impl IntoIterator<Item = u32>) {
        self.members.extend(members);
        self.ends.push(self.members.len() as u32);
        (0..2).for_each(|r| self.ask[r].push(ask[r]));
        self.cost.push(cost);
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
#[derive(Debug)]
pub struct Collector {
    /// What a call between two places costs.
    per_call: f64,
    /// Counts the places looked at, to vary which containers of a very full one are considered.
    turn: usize,
    members: Vec<Member>,
    /// By container: the parts of its place that it is in, a bit for each.
    within: Vec<u128>,
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
        Self { per_call, turn: 0, members: Vec::with_capacity(CONTAINERS), within: vec![0; containers] }
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
        self.look_at(layout, place);
        parts.clear(self.members.len());
        parts.add([0.0; 2], 0.0, []);
        let singles = |parts: &mut Parts, dominated: bool| {
            for member in self.members.iter().filter(|member| member.dominated == dominated) {
                parts.add(member.ask, member.calls[0], [member.container]);
            }
        };
        singles(parts, false);
        for copy in self.members.chunk_by(|a, b| a.copy == b.copy) {
            pairs(copy, parts);
            wholes(copy, parts);
        }
        parts.lean = parts.len();
        singles(parts, true);
        layout.on(place).iter().for_each(|x| self.within[*x as usize] = 0);
        for n in 1..parts.len() {
            parts.part(n).iter().for_each(|x| self.within[*x as usize] |= 1 << n);
        }
    }

    /// Looks at the containers of a place, and brings those of one copy and of one group together.
    fn look_at(&mut self, layout: &Layout<'_>, place: usize) {
        self.turn += 1;
        self.members.clear();
        let on = layout.on(place);
        let skipped = if on.len() > CONTAINERS { self.turn * CONTAINERS % on.len() } else { 0 };
        for container in on.iter().cycle().skip(skipped).take(on.len().min(CONTAINERS)) {
            let mut member = self.member(layout, place, *container);
            let ask = member.ask;
            for other in self.members.iter_mut().filter(|other| other.ask == ask && !other.dominated) {
                let worse = if other.calls[0] > member.calls[0] { other } else { &mut member };
                worse.dominated = true;
            }
            self.members.push(member);
        }
        self.members.sort_unstable_by_key(|member| (member.copy, member.group, member.container));
    }

    fn member(&self, layout: &Layout<'_>, place: usize, container: u32) -> Member {
        let instance = layout.instance();
        let (group, copy) = (instance.group_of(container), instance.copy_of(container));
        let (mut calls, mut closest) = ([0.0; 3], (container, 0.0));
        for (other, rate) in instance.near(container) {
            if layout.at(*other) == Some(place) {
                calls[0] += rate;
                calls[1] += if instance.group_of(*other) == group { *rate } else { 0.0 };
                calls[2] += if instance.copy_of(*other) == copy { *rate } else { 0.0 };
                if *rate > closest.1 {
                    closest = (*other, *rate);
                }
            }
        }
        Member {
            container,
            copy: copy as u32,
            group: group as u32,
            ask: instance.containers()[container as usize].request.map(|q| q as f32),
            calls: calls.map(|calls| self.cost(calls)),
            closest: (closest.0, self.cost(closest.1)),
            dominated: false,
        }
    }
}

/// Adds each container of a copy together with the one that it has most calls with, each pair once.
fn pairs(copy: &[Member], parts: &mut Parts) {
    for (n, member) in copy.iter().enumerate() {
        let other = copy.iter().position(|other| other.container == member.closest.0);
        if let Some(m) = other.filter(|m| *m > n || (*m < n && copy[*m].closest.0 != member.container)) {
            let other = &copy[m];
            let cost = member.calls[0] + other.calls[0] - 2.0 * member.closest.1;
            parts.add(sum(member.ask, other.ask), cost, [member.container, other.container]);
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
