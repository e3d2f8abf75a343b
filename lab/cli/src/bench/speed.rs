//! How fast the cores are while something is measured. Virtual cores share a processor with other machines, which can halve their speed from
//! one second to the next; CPU time then grows for the same work.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Pause between two runs of the task, which takes about a millisecond.
const PAUSE: Duration = Duration::from_millis(200);
/// How many numbers the task sorts.
const NUMBERS: u32 = 32_768;

/// Runs the same task again and again beside what is measured, until it is dropped.
pub struct Speed {
    watched: Arc<()>,
    thread: JoinHandle<Vec<f64>>,
}

impl Speed {
    /// Begins to run the task.
    pub fn watch() -> Self {
        let watched = Arc::new(());
        let still = Arc::downgrade(&watched);
        let thread = std::thread::spawn(move || {
            let mut took = vec![task_ms()];
            while still.upgrade().is_some() {
                std::thread::sleep(PAUSE);
                took.push(task_ms());
            }
            took
        });
        Self { watched, thread }
    }

    /// CPU time of the task in milliseconds: the median of all its runs.
    pub fn task_ms(self) -> f64 {
        drop(self.watched);
        drover_report::percentile(&self.thread.join().unwrap_or_default(), 0.5)
    }
}

/// CPU time that sorting the same numbers takes, in milliseconds.
fn task_ms() -> f64 {
    let mut numbers: Vec<u32> = (0..NUMBERS).map(|at| at.wrapping_mul(2_654_435_761)).collect();
    let began = cpu();
    numbers.sort_unstable();
    std::hint::black_box(&numbers);
    cpu().saturating_sub(began).as_secs_f64() * 1e3
}

/// CPU time of this thread.
fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_is_measured_even_if_nothing_else_takes_time() {
        let ms = Speed::watch().task_ms();
        assert!(ms > 0.0 && ms < 10_000.0, "{ms}");
    }
}
