//! Limits on the work of a search. This crate has no clock: the search asks a meter before each step, and a caller that limits the time
//! implements [`WorkMeter`] with one.

use std::collections::VecDeque;

/// Decides how long a search may go on.
pub trait WorkMeter {
    /// Begins a search. `more`: further searches of the same plan may follow, and need a part of the budget.
    fn begin(&mut self, more: bool);
    /// Whether the current search may make one more step.
    fn step(&mut self) -> bool;
}

/// A limit on the number of steps. The same input gives the same plan.
#[derive(Clone, Debug)]
pub struct StepMeter {
    left: u64,
    /// Steps left for the current search.
    current: u64,
}

impl StepMeter {
    /// A meter for so many steps in all.
    pub fn new(steps: u64) -> Self {
        Self { left: steps, current: steps }
    }
}

impl Default for StepMeter {
    fn default() -> Self {
        Self::new(10_000)
    }
}

impl WorkMeter for StepMeter {
    fn begin(&mut self, more: bool) {
        self.current = if more { self.left.div_ceil(2) } else { self.left };
    }

    fn step(&mut self) -> bool {
        if self.current == 0 {
            return false;
        }
        self.current -= 1;
        self.left -= 1;
        true
    }
}

/// Records the steps that another meter grants, so that a plan made under a time limit can be reproduced by a [`ReplayMeter`].
#[derive(Debug)]
pub struct RecordingMeter<M> {
    meter: M,
    searches: Vec<u64>,
}

impl<M> RecordingMeter<M> {
    /// Records `meter`.
    pub fn new(meter: M) -> Self {
        Self { meter, searches: Vec::new() }
    }

    /// The steps of each search.
    pub fn into_searches(self) -> Vec<u64> {
        self.searches
    }
}

impl<M: WorkMeter> WorkMeter for RecordingMeter<M> {
    fn begin(&mut self, more: bool) {
        self.searches.push(0);
        self.meter.begin(more);
    }

    fn step(&mut self) -> bool {
        let granted = self.meter.step();
        if let Some(steps) = self.searches.last_mut() {
            *steps += u64::from(granted);
        }
        granted
    }
}

/// Grants each search the steps that a [`RecordingMeter`] has recorded.
#[derive(Clone, Debug)]
pub struct ReplayMeter {
    searches: VecDeque<u64>,
    current: u64,
}

impl ReplayMeter {
    /// Repeats the searches with these numbers of steps.
    pub fn new(searches: &[u64]) -> Self {
        Self { searches: searches.iter().copied().collect(), current: 0 }
    }
}

impl WorkMeter for ReplayMeter {
    fn begin(&mut self, _: bool) {
        self.current = self.searches.pop_front().unwrap_or_default();
    }

    fn step(&mut self) -> bool {
        let granted = self.current > 0;
        self.current = self.current.saturating_sub(1);
        granted
    }
}

/// The work of one plan.
pub(crate) struct Effort<'m> {
    meter: &'m mut dyn WorkMeter,
    /// Sets of victims and destinations that were examined.
    pub examined: u64,
    /// Some search was cut by the meter.
    pub cut_short: bool,
    /// The current search was cut.
    stopped: bool,
}

impl<'m> Effort<'m> {
    pub fn new(meter: &'m mut dyn WorkMeter) -> Self {
        Self { meter, examined: 0, cut_short: false, stopped: false }
    }

    /// Begins a search; `more` as in [`WorkMeter::begin`].
    pub fn begin(&mut self, more: bool) {
        self.meter.begin(more);
        self.stopped = false;
    }

    /// Whether the current search may make one more step.
    pub fn step(&mut self) -> bool {
        if self.stopped || !self.meter.step() {
            self.stopped = true;
            self.cut_short = true;
            return false;
        }
        self.examined += 1;
        true
    }

    /// Whether the current search was cut.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(meter: &mut dyn WorkMeter, wanted: &[(bool, u64)]) -> Vec<u64> {
        let search = |(more, wanted): &(bool, u64)| {
            meter.begin(*more);
            (0..*wanted).take_while(|_| meter.step()).count() as u64
        };
        wanted.iter().map(search).collect()
    }

    #[test]
    fn step_meter_keeps_half_for_further_searches() {
        assert_eq!(run(&mut StepMeter::new(100), &[(true, 80), (true, 10), (false, 80)]), [50, 10, 40]);
    }

    #[test]
    fn replay_meter_repeats_recorded_searches() {
        let wanted = [(true, 80), (true, 10), (false, 80)];
        let mut recording = RecordingMeter::new(StepMeter::new(100));
        let granted = run(&mut recording, &wanted);
        let recorded = recording.into_searches();
        assert_eq!(recorded, granted);
        assert_eq!(run(&mut ReplayMeter::new(&recorded), &wanted), granted);
    }
}
