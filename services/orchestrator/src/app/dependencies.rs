//! Start dependencies between the apps of a composite app.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::PgConnection;

use super::{Error, Group};
use crate::resources::app::AppSpec;
use crate::resources::dependency::DependencySpec;
use crate::resources::{APP, DEPENDENCY};
use crate::workflows::After;

/// Dependencies by app.
///
/// # Errors
/// An app depends on itself and could never start, or a query failed.
pub async fn of(tx: &mut PgConnection, group: &Group) -> Result<BTreeMap<String, Vec<After>>, Error> {
    let mut after = BTreeMap::new();
    let below = group.below(tx).await?;
    for app in below.children::<AppSpec>(&APP, group.composite_app.id)? {
        let dependencies = below.children::<DependencySpec>(&DEPENDENCY, app.id)?;
        let list: Vec<_> = dependencies
            .into_iter()
            .map(|dependency| After { ready: dependency.spec.wants_ready(), wait_s: dependency.spec.wait, app: dependency.spec.app })
            .collect();
        if !list.is_empty() {
            after.insert(app.name, list);
        }
    }
    match app_in_cycle(&after) {
        Some(app) => Err(Error::Inconsistent(vec![format!("the app {app} depends on itself through its dependencies")])),
        None => Ok(after),
    }
}

/// An app that depends on itself.
fn app_in_cycle(after: &BTreeMap<String, Vec<After>>) -> Option<&str> {
    after.keys().map(String::as_str).find(|start| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![*start]);
        while let Some(app) = next.pop() {
            for dependency in after.get(app).map_or(&[][..], Vec::as_slice) {
                if dependency.app == *start {
                    return true;
                }
                if seen.insert(dependency.app.as_str()) {
                    next.push(&dependency.app);
                }
            }
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_are_found_and_diamonds_are_not_cycles() {
        let after = |list: &[(&str, &[&str])]| -> BTreeMap<String, Vec<After>> {
            list.iter()
                .map(|(app, on)| ((*app).to_owned(), on.iter().map(|on| After { app: (*on).to_owned(), ready: true, wait_s: 0 }).collect()))
                .collect()
        };
        assert_eq!(app_in_cycle(&after(&[("a", &["b", "c"]), ("b", &["d"]), ("c", &["d"])])), None);
        assert_eq!(app_in_cycle(&after(&[("a", &["b"]), ("b", &["c"]), ("c", &["a"])])), Some("a"));
        assert_eq!(app_in_cycle(&after(&[("x", &["a"]), ("a", &["a"])])), Some("a"));
    }
}
