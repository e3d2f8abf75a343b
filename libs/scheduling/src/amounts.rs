//! Amounts of resources: what a pod requests and what a node offers.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Amounts of resources. CPU in millicores, memory in bytes, `pods` in pods, every other resource (`extra`, e.g.
/// `nvidia.com/gpu`, `ephemeral-storage`) in its own unit.
///
/// Values are signed because differences are amounts too: pods that Drover did not place can over-commit a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Amounts {
    /// CPU in millicores.
    #[serde(default)]
    pub cpu: i64,
    /// Memory in bytes.
    #[serde(default)]
    pub memory: i64,
    #[serde(default)]
    pub pods: i64,
    /// Extended resources by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, i64>))]
    pub extra: Extra,
}

/// Amounts of extended resources by name. Shared until they are changed: each node has some (`ephemeral-storage`, huge pages), few pods ask
/// for them, and decisions copy the free amounts of all nodes of a member.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Extra(Option<Arc<BTreeMap<String, i64>>>);

impl Extra {
    fn add(&mut self, name: &str, amount: i64) {
        match self.get_mut(name) {
            Some(there) => *there += amount,
            None => drop(self.insert(name.to_owned(), amount)),
        }
    }
}

impl PartialEq for Extra {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Extra {}

impl Deref for Extra {
    type Target = BTreeMap<String, i64>;
    fn deref(&self) -> &Self::Target {
        static NONE: BTreeMap<String, i64> = BTreeMap::new();
        self.0.as_deref().unwrap_or(&NONE)
    }
}

impl DerefMut for Extra {
    fn deref_mut(&mut self) -> &mut Self::Target {
        Arc::make_mut(self.0.get_or_insert_default())
    }
}

impl FromIterator<(String, i64)> for Extra {
    fn from_iter<I: IntoIterator<Item = (String, i64)>>(amounts: I) -> Self {
        let amounts = BTreeMap::from_iter(amounts);
        Self((!amounts.is_empty()).then(|| Arc::new(amounts)))
    }
}

impl Amounts {
    /// The amounts of one pod: CPU in millicores and memory in bytes.
    pub fn pod(cpu: i64, memory: i64) -> Self {
        Self { cpu, memory, pods: 1, extra: Extra::default() }
    }

    /// Adds `n` times `other`.
    pub fn add(&mut self, other: &Self, n: i64) {
        self.cpu += other.cpu * n;
        self.memory += other.memory * n;
        self.pods += other.pods * n;
        for (name, amount) in other.extra.iter() {
            self.extra.add(name, amount * n);
        }
    }

    /// `self` minus `other`.
    pub fn minus(&self, other: &Self) -> Self {
        let mut left = self.clone();
        left.add(other, -1);
        left
    }

    /// Whether `need` fits into `self`. A resource that is not requested does not matter even if it is over-committed,
    /// as in Kubernetes' own check.
    pub fn fits(&self, need: &Self) -> bool {
        (need.cpu <= 0 || need.cpu <= self.cpu)
            && (need.memory <= 0 || need.memory <= self.memory)
            && (need.pods <= 0 || need.pods <= self.pods)
            && need.extra.iter().all(|(name, n)| *n <= 0 || *n <= self.extra.get(name).copied().unwrap_or(0))
    }

    /// `n` times these amounts.
    pub fn times(&self, n: i64) -> Self {
        let mut product = Self::default();
        product.add(self, n);
        product
    }

    /// The smaller value of each resource.
    pub fn min(&self, other: &Self) -> Self {
        self.zip(other, i64::min)
    }

    /// The larger value of each resource.
    pub fn max(&self, other: &Self) -> Self {
        self.zip(other, i64::max)
    }

    /// `pick` returns one of its two arguments, so equal extended resources stay as they are.
    fn zip(&self, other: &Self, pick: impl Fn(i64, i64) -> i64) -> Self {
        let extra = if self.extra == other.extra {
            self.extra.clone()
        } else {
            let names = self.extra.keys().chain(other.extra.keys());
            names.map(|name| (name.clone(), pick(self.get(name), other.get(name)))).collect()
        };
        Self { cpu: pick(self.cpu, other.cpu), memory: pick(self.memory, other.memory), pods: pick(self.pods, other.pods), extra }
    }

    /// The amount of one resource: `cpu`, `memory`, `pods` or the name of an extended resource.
    pub fn get(&self, resource: &str) -> i64 {
        match resource {
            "cpu" => self.cpu,
            "memory" => self.memory,
            "pods" => self.pods,
            extra => self.extra.get(extra).copied().unwrap_or(0),
        }
    }

    /// Mutable access to the amount of one resource.
    pub(crate) fn get_mut(&mut self, resource: &str) -> &mut i64 {
        match resource {
            "cpu" => &mut self.cpu,
            "memory" => &mut self.memory,
            "pods" => &mut self.pods,
            extra => self.extra.entry(extra.to_owned()).or_default(),
        }
    }

    /// Names of the resources with a positive amount, CPU and memory first.
    pub fn asked(&self) -> impl Iterator<Item = &str> {
        ["cpu", "memory", "pods"].into_iter().chain(self.extra.keys().map(String::as_str)).filter(|r| self.get(r) > 0)
    }

    /// Whether every amount is 0.
    pub fn is_zero(&self) -> bool {
        self.cpu == 0 && self.memory == 0 && self.pods == 0 && self.extra.values().all(|n| *n == 0)
    }
}

/// Formats an amount of a resource as people write it: `1500m`, `2Gi`, `3`.
pub fn quantity(resource: &str, amount: i64) -> String {
    const UNITS: [(&str, i64); 3] = [("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
    match resource {
        "cpu" => format!("{amount}m"),
        "memory" | "ephemeral-storage" => {
            // Exact if possible, else rounded down to whole Mi, so that a shortage never looks like enough.
            let exact = UNITS.iter().find(|(_, unit)| amount != 0 && amount % unit == 0);
            match exact {
                Some((name, unit)) => format!("{}{name}", amount / unit),
                None if amount.abs() >= 1 << 20 => format!("{}Mi", amount.div_euclid(1 << 20)),
                None => amount.to_string(),
            }
        }
        _ => amount.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extra(amounts: &[(&str, i64)]) -> Amounts {
        Amounts { extra: amounts.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect(), ..Amounts::default() }
    }

    #[test]
    fn change_of_a_copy_leaves_the_original() {
        let node = extra(&[("disk", 10)]);
        let mut left = node.clone();
        left.add(&extra(&[("disk", 2), ("gpu", 1)]), -1);
        assert_eq!((node, left), (extra(&[("disk", 10)]), extra(&[("disk", 8), ("gpu", -1)])));
    }

    #[test]
    fn smaller_and_larger_amounts_count_missing_ones_as_zero() {
        let (one, other) = (extra(&[("disk", 10), ("gpu", 1)]), extra(&[("disk", 4), ("port", -2)]));
        assert_eq!(one.min(&other), extra(&[("disk", 4), ("gpu", 0), ("port", -2)]));
        assert_eq!(one.max(&other), extra(&[("disk", 10), ("gpu", 1), ("port", 0)]));
        assert_eq!((one.min(&one), one.max(&one)), (one.clone(), one));
    }

    #[test]
    fn amounts_that_nobody_changed_are_shared() {
        let node = extra(&[("disk", 10)]);
        let mut free = node.clone();
        free.add(&Amounts::pod(500, 1 << 30), -1);
        let shares = |with: &Amounts| with.extra.0.as_ref().zip(node.extra.0.as_ref()).is_some_and(|(a, b)| Arc::ptr_eq(a, b));
        assert!(shares(&free) && shares(&node.min(&free)) && shares(&node.max(&free)));
    }
}
