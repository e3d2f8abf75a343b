//! What runs costs: by the hour, beside the least that as much can cost.

use super::market::{Market, NODE, PROVIDERS};

/// Cost until now.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Millicores that run, by provider.
    load: [i64; PROVIDERS.len()],
    /// Millicores that there are, by provider.
    size: [i64; PROVIDERS.len()],
    /// The time up to which everything is accounted for, in seconds.
    now: f64,
    /// Cost of what ran.
    pub cost: f64,
    /// The least that as much can cost: at each moment it is poured into the cheapest members. No placement is cheaper, since this one
    /// forgets where applications may run, and that they cannot be divided.
    pub least: f64,
    /// Hours of a core that ran.
    pub core_hours: f64,
}

impl Account {
    /// An account of an empty market.
    pub fn new(market: &Market) -> Self {
        let mut account = Self::default();
        market.provider.iter().for_each(|provider| account.size[*provider] += NODE.0);
        account
    }

    /// Counts the time until `now`.
    pub fn advance(&mut self, now: f64) {
        let hours = (now - self.now) / 3_600.0 / 1_000.0;
        self.now = now;
        let mut left: i64 = self.load.iter().sum();
        self.core_hours += left as f64 * hours;
        for ((provider, load), size) in PROVIDERS.iter().zip(self.load).zip(self.size) {
            self.cost += load as f64 * hours * provider.price;
            self.least += left.min(size) as f64 * hours * provider.price;
            left -= left.min(size);
        }
    }

    /// So many millicores more (or fewer) run at a provider.
    pub fn change(&mut self, provider: usize, millicores: i64) {
        self.load[provider] += millicores;
    }
}
