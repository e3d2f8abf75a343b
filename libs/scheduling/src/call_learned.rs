//! The policy `learned` for apps on members: in several passes a trained network places whole applications, groups and single apps, and
//! the best pass counts.
//!
//! The network scores only members that all rules allow, at the best provider priority with room, so it decides where among equals an app
//! runs and whether a group is split. [`crate::groups::learned`] says what it sees.

use crate::call_draft::Draft;
use crate::call_placement::CallPlacement;
use crate::groups::learned::{LearnedModel, Outlook, Pass, Unit, UnitCalls, UnitKind, request};
use crate::groups::{Load, RESOURCES};

/// Passes of the network over the apps of a request; each is searched. The first is its own choice, the others deviate from it.
pub(crate) const LEARNED_PASSES: usize = 12;

/// Apps that wait to be placed together.
#[derive(Clone)]
struct Waiting {
    slots: Vec<usize>,
    kind: UnitKind,
    /// Demand relative to the capacity of all members; the largest is placed first, while there is room for it.
    size: f64,
}

/// What became of a unit.
enum Step {
    Placed,
    InParts,
    NoRoom,
}

/// A pass of the network.
struct Learner<'m> {
    model: &'m LearnedModel,
    pass: Pass,
    random: u64,
    outlook: Outlook,
    calls: UnitCalls,
}

impl<'t, 'a, 's> Draft<'t, 'a, 's> {
    /// The placement of `learned`, or `None` if some slot gets no room in every pass.
    pub fn learned(of: &'t CallPlacement<'a, 's>, model: &LearnedModel) -> Option<Self> {
        let start = Self::new(of);
        let mut best: Option<Self> = None;
        for pass in (0..LEARNED_PASSES).map(Pass::nth) {
            let outlook = Outlook::of(&of.instance, of.weights);
            let mut learner = Learner { model, random: pass.seed, pass, outlook, calls: UnitCalls::default() };
            let mut draft = start.clone();
            if draft.learn(&mut learner) {
                let draft = draft.searched();
                if best.as_ref().is_none_or(|best| draft.is_better_than(best)) {
                    best = Some(draft);
                }
            }
        }
        best
    }

    /// Places all slots. Returns false if one has no room.
    fn learn(&mut self, learner: &mut Learner<'_>) -> bool {
        let mut waiting = self.waiting();
        while let Some(next) = largest(&waiting) {
            let unit = waiting.swap_remove(next);
            match self.step(&unit, learner) {
                Step::Placed => {}
                Step::InParts => waiting.extend(self.parts(&unit)),
                Step::NoRoom => return false,
            }
        }
        true
    }

    /// The slots of apps with several slots one by one, which come first, and whole applications: apps connected by calls.
    fn waiting(&self) -> Vec<Waiting> {
        let of = self.of;
        let mut waiting: Vec<Waiting> = Vec::new();
        let mut copies: Vec<(usize, usize)> = Vec::new();
        for slot in 0..of.slots.len() {
            if !of.alone(slot) {
                waiting.push(Waiting { slots: vec![slot], kind: UnitKind::Container, size: f64::INFINITY });
                continue;
            }
            let copy = of.instance.copy_of(of.containers(&[slot])[0]);
            match copies.iter().find(|(known, _)| *known == copy) {
                Some((_, at)) => waiting[*at].slots.push(slot),
                None => {
                    copies.push((copy, waiting.len()));
                    waiting.push(Waiting { slots: vec![slot], kind: UnitKind::Copy, size: 0.0 });
                }
            }
        }
        for (_, at) in copies {
            waiting[at].size = self.size(&waiting[at].slots);
        }
        waiting
    }

    /// The groups of a whole application, or the apps of a group.
    fn parts(&self, unit: &Waiting) -> Vec<Waiting> {
        let of = self.of;
        let group = |slot: &usize| of.instance.group_of(of.containers(&[*slot])[0]);
        let mut groups: Vec<(usize, Vec<usize>)> = Vec::new();
        if unit.kind == UnitKind::Copy {
            for slot in &unit.slots {
                match groups.iter_mut().find(|(known, _)| *known == group(slot)) {
                    Some((_, slots)) => slots.push(*slot),
                    None => groups.push((group(slot), vec![*slot])),
                }
            }
        }
        // An application that is a single group is divided into its apps, unless the group stays together.
        if groups.len() < 2 && !(unit.kind == UnitKind::Copy && of.callers.terms.keep_together) {
            groups = unit.slots.iter().map(|slot| (0, vec![*slot])).collect();
        }
        let part = |slots: Vec<usize>| {
            let kind = if slots.len() > 1 { UnitKind::Group } else { UnitKind::Container };
            Waiting { size: self.size(&slots), kind, slots }
        };
        groups.into_iter().map(|(_, slots)| part(slots)).collect()
    }

    /// Takes the best option of a unit at the best provider priority with room.
    fn step(&mut self, unit: &Waiting, learner: &mut Learner<'_>) -> Step {
        if let [only] = unit.slots[..]
            && self.is_satisfied(only)
        {
            return Step::Placed;
        }
        let of = self.of;
        let divisible = unit.slots.len() > 1 && (unit.kind == UnitKind::Copy || !of.callers.terms.keep_together);
        let (common, containers) = (of.common(&unit.slots), of.containers(&unit.slots));
        for level in self.levels(&unit.slots) {
            let here = common.iter().copied().filter(|at| of.rooms[*at].priority() == level && self.layout.fits(&containers, *at));
            let mut options: Vec<Option<usize>> = here.map(Some).collect();
            if !options.is_empty() {
                options.extend(divisible.then_some(None));
                let ranked = self.scored(unit, options, learner);
                for nth in 0..ranked.len() {
                    if self.take(&unit.slots, &ranked, nth) {
                        return if ranked[nth].1.is_some() { Step::Placed } else { Step::InParts };
                    }
                }
            }
            if divisible && unit.slots.iter().any(|slot| self.fits_at(*slot, level)) {
                return Step::InParts;
            }
        }
        if unit.slots.len() > 1 { Step::InParts } else { Step::NoRoom }
    }

    /// The options of a unit with their scores, the best first.
    fn scored(&self, unit: &Waiting, options: Vec<Option<usize>>, learner: &mut Learner<'_>) -> Vec<(f64, Option<usize>)> {
        let of = self.of;
        let containers = of.containers(&unit.slots);
        let copy = of.instance.copy_of(containers[0]);
        let (mut rest, mut left) = ([0.0; RESOURCES], [0.0; RESOURCES]);
        for slot in (0..of.slots.len()).filter(|slot| self.at[*slot].is_none()) {
            let container = of.containers(&[slot])[0];
            let ask = request(&of.instance, &[container]);
            add(&mut left, ask);
            if of.instance.copy_of(container) == copy && !unit.slots.contains(&slot) {
                add(&mut rest, ask);
            }
        }
        learner.calls.collect(&self.layout, &containers);
        let described = Unit { containers: &containers, kind: unit.kind, rest, left };
        let (mut rows, mut scores) = (Vec::new(), Vec::new());
        learner.outlook.describe(&self.layout, &described, &learner.calls, &options, &mut rows);
        learner.model.net().score(&rows, &mut scores);
        learner.pass.deviate(unit.kind, &options, &mut scores, &mut learner.random);
        let mut ranked: Vec<(f64, Option<usize>)> = scores.into_iter().map(f64::from).zip(options).collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        ranked
    }

    fn size(&self, slots: &[usize]) -> f64 {
        let instance = &self.of.instance;
        let ask = request(instance, &self.of.containers(slots));
        let all = instance.places().iter().fold([0.0; RESOURCES], |mut all, place| {
            add(&mut all, place.capacity);
            all
        });
        (0..RESOURCES).map(|r| ask[r] / all[r]).sum()
    }
}

fn add(sum: &mut Load, load: Load) {
    (0..RESOURCES).for_each(|r| sum[r] += load[r]);
}

/// The unit with the largest demand; among equals the one with the first slot.
fn largest(waiting: &[Waiting]) -> Option<usize> {
    let order = |a: &Waiting, b: &Waiting| a.size.total_cmp(&b.size).then_with(|| b.slots.cmp(&a.slots));
    (0..waiting.len()).max_by(|a, b| order(&waiting[*a], &waiting[*b]))
}
