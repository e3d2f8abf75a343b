//! The programs that are shipped contain no code of the laboratory or of the tests.

use std::process::Command;

use crate::{crates, root};

/// Runs cargo on this workspace, without the network; its output.
pub fn cargo(arguments: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // Settings of whoever runs this test would unify the features of all crates, those of the laboratory too.
    command.env_remove("CARGO_RESOLVER_FEATURE_UNIFICATION").env_remove("__CARGO_TEST_CHANNEL_OVERRIDE_DO_NOT_USE_THIS");
    let output = command.args(arguments).args(["--offline", "--locked"]).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "cargo {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Names of the crates that are compiled into the programs of a crate.
fn compiled_into(name: &str) -> Vec<String> {
    let tree = cargo(&["tree", "-p", name, "-e", "normal,build", "--prefix", "none", "--format", "{p}"]);
    tree.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// Crates that no shipped program may contain.
fn kept_out() -> Vec<String> {
    let laboratory = crates().into_iter().filter(|one| one.folder.parent().is_some_and(|room| room.ends_with("lab"))).map(|one| one.name);
    laboratory.chain(["drover-kubesim", "drover-testkit", "drover-e2e", "xtask"].map(str::to_owned)).collect()
}

#[test]
fn shipped_programs_contain_neither_laboratory_nor_tests() {
    let kept_out = kept_out();
    let shipped: Vec<String> = crates()
        .into_iter()
        .filter(|one| one.folder.join("src/main.rs").is_file() && !kept_out.contains(&one.name))
        .map(|one| one.name)
        .collect();
    assert!(shipped.iter().any(|name| name == "drover") && shipped.len() >= 8, "{shipped:?}");
    for name in &shipped {
        let compiled = compiled_into(name);
        let found: Vec<&String> = kept_out.iter().filter(|out| compiled.contains(out)).collect();
        assert!(found.is_empty(), "`cargo build -p {name}` compiles {found:?}, which are not part of the product");
    }
}

#[test]
fn laboratory_is_seen_where_it_is_compiled() {
    let compiled = compiled_into("drover-lab");
    let missing: Vec<String> = kept_out().into_iter().filter(|out| out.starts_with("drover-lab") && !compiled.contains(out)).collect();
    assert!(missing.is_empty(), "the check above would not see {missing:?}");
}

#[test]
fn image_and_make_dist_build_all_but_laboratory_and_tests() {
    for file in ["Makefile", "deploy/docker/Dockerfile"] {
        let text = std::fs::read_to_string(root().join(file)).unwrap();
        for part in ["--profile dist", "--workspace --exclude 'drover-lab*' --exclude drover-e2e --exclude xtask", "--bins"] {
            assert!(text.contains(part), "{file} does not build with {part}");
        }
    }
}
