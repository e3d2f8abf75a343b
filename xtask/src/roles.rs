//! `docs/roles.md`: the table of all public routes and the role that each needs.

use anyhow::anyhow;

use crate::{File, root};

/// The page.
///
/// # Errors
/// A route has no rule, a rule has no route, or the document of all public operations cannot be read.
pub fn files() -> anyhow::Result<Vec<File>> {
    let document = serde_json::from_str(&std::fs::read_to_string(root().join("openapi/drover.json"))?)?;
    let text = drover_gateway::roles_page(&document).map_err(|faults| anyhow!("{faults}"))?;
    Ok(vec![File { path: root().join("docs/roles.md"), text }])
}

#[cfg(test)]
mod tests {
    #[test]
    fn table_of_roles_is_up_to_date() {
        crate::settle(&super::files().unwrap(), true).expect("run `cargo run -p xtask -- roles`");
    }
}
