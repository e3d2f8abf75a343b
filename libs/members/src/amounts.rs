//! Converts Kubernetes quantities to Drover's amounts: CPU in thousandths of a core, everything else in whole units, rounded up.
//!
//! Pure. The sums are made by libs/quantity, which the simulator uses too.

use std::collections::BTreeMap;

use drover_quantity::{NotAQuantity, PodSpec, Quantity, Requests};
use drover_scheduling::Amounts;

/// The amounts of a resource list (`allocatable`, `usage`).
///
/// # Errors
/// When a value is not a quantity.
pub fn of_list(list: &BTreeMap<String, Quantity>) -> Result<Amounts, NotAQuantity> {
    Ok(of(&Requests::read(list)?))
}

/// The effective requests of a pod, see [`PodSpec::requests`]; `pods` is 1.
///
/// # Errors
/// When a value is not a quantity.
pub fn of_pod(spec: &PodSpec) -> Result<Amounts, NotAQuantity> {
    Ok(Amounts { pods: 1, ..of(&spec.requests()?) })
}

fn of(requests: &Requests) -> Amounts {
    let named = |resource: &&str| !matches!(*resource, "cpu" | "memory" | "pods");
    Amounts {
        cpu: requests.milli("cpu"),
        memory: requests.units("memory"),
        pods: requests.units("pods"),
        extra: requests.resources().filter(named).map(|resource| (resource.to_owned(), requests.units(resource))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn amounts_have_the_unit_of_their_resource() {
        let list = from_value(json!({"cpu": "1500u", "memory": "1.5Gi", "pods": "110", "nvidia.com/gpu": 2})).unwrap();
        let extra = [("nvidia.com/gpu".to_owned(), 2)].into_iter().collect();
        assert_eq!(of_list(&list), Ok(Amounts { cpu: 2, memory: 3 << 29, pods: 110, extra }));
        let pod = from_value(json!({"containers": [{"resources": {"requests": {"memory": "1500m"}}}]})).unwrap();
        assert_eq!(of_pod(&pod), Ok(Amounts::pod(0, 2)));
        let odd = from_value(json!({"cpu": "lots"})).unwrap();
        assert_eq!(of_list(&odd), Err(NotAQuantity("lots".to_owned())));
    }
}
