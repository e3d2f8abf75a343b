//! The role that each public route needs. Pure.
//!
//! The table is complete: a test compares it with `openapi/drover.json`, and a route that is not in it is served to nobody but admins.
//! `docs/roles.md` is generated from both.

use std::borrow::Cow;

use drover_api::access::Role;
use http::Method;
use percent_encoding::percent_decode_str;

/// What a route needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    pub role: Role,
    pub at: At,
}

/// Where the role must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// In the project that the path names.
    Project,
    /// For all projects.
    Everywhere,
    /// In any project. The answer has only what the sender may see.
    Shown(Shown),
    /// In the project that the request, or the document that it names, is about.
    Owner(Owner),
}

/// Answers of which parts belong to projects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The same for everybody.
    Same,
    Projects,
    /// A list whose items name their project.
    Apps,
    Clusters,
    Plans,
    Plan,
    Operations,
    Operation,
    Decision,
    Explanation,
}

/// What tells the project of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The newcomer in the body; a drain needs an operator.
    PlanWish,
    /// The plan of the path.
    Plan,
    /// The plan of the path; moving apps of other projects needs a mover.
    PlanToApply,
    /// The operation of the path.
    Operation,
    /// The copy of an app in the path.
    Copy,
}

struct Rule {
    methods: Methods,
    path: &'static str,
    need: Need,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Methods {
    Read,
    Write,
}
use Methods::{Read, Write};

const fn rule(methods: Methods, path: &'static str, role: Role, at: At) -> Rule {
    Rule { methods, path, need: Need { role, at } }
}

/// The first rule whose path fits decides. `*` is one segment, `**` any number of segments, also none.
const RULES: &[Rule] = &[
    // What belongs to a project.
    rule(Read, "projects", Role::Viewer, At::Shown(Shown::Projects)),
    rule(Write, "projects", Role::Operator, At::Everywhere),
    rule(Read, "projects/*", Role::Viewer, At::Project),
    rule(Write, "projects/*", Role::Operator, At::Project),
    rule(Read, "projects/*/composite-apps/**", Role::Viewer, At::Project),
    rule(Write, "projects/*/composite-apps/**", Role::Deployer, At::Project),
    rule(Read, "projects/*/logical-clouds/*/kv-pairs/**", Role::Deployer, At::Project),
    // It has the rights of the user of the cloud.
    rule(Read, "projects/*/logical-clouds/*/cluster-references/*/kubeconfig", Role::Operator, At::Project),
    rule(Read, "projects/*/logical-clouds/**", Role::Viewer, At::Project),
    rule(Write, "projects/*/logical-clouds/**", Role::Operator, At::Project),
    rule(Read, "projects/*/migration-policies/**", Role::Viewer, At::Project),
    rule(Write, "projects/*/migration-policies/**", Role::Operator, At::Project),
    rule(Read, "projects/*/ca-certs/**", Role::Viewer, At::Project),
    rule(Write, "projects/*/ca-certs/**", Role::Operator, At::Project),
    // What is about several projects.
    rule(Read, "apps", Role::Viewer, At::Shown(Shown::Apps)),
    rule(Read, "routes", Role::Viewer, At::Shown(Shown::Apps)),
    rule(Read, "clusters", Role::Viewer, At::Shown(Shown::Clusters)),
    rule(Read, "explain", Role::Viewer, At::Shown(Shown::Explanation)),
    rule(Read, "decisions/*", Role::Viewer, At::Shown(Shown::Decision)),
    rule(Read, "operations", Role::Viewer, At::Shown(Shown::Operations)),
    rule(Read, "operations/*", Role::Viewer, At::Shown(Shown::Operation)),
    rule(Read, "operations/*/events", Role::Viewer, At::Owner(Owner::Operation)),
    rule(Write, "operations/*/cancel", Role::Deployer, At::Owner(Owner::Operation)),
    rule(Write, "operations/*/force-fence", Role::Operator, At::Everywhere),
    rule(Read, "plans", Role::Viewer, At::Shown(Shown::Plans)),
    rule(Read, "plans/*", Role::Viewer, At::Shown(Shown::Plan)),
    rule(Write, "plans", Role::Deployer, At::Owner(Owner::PlanWish)),
    rule(Write, "plans/*", Role::Deployer, At::Owner(Owner::Plan)),
    rule(Write, "plans/*/apply", Role::Deployer, At::Owner(Owner::PlanToApply)),
    // Clusters.
    rule(Read, "cluster-providers/*/clusters/*/copies/*/*", Role::Viewer, At::Owner(Owner::Copy)),
    // Who may deploy an app can run any program in its pods anyway.
    rule(Write, "cluster-providers/*/clusters/*/copies/*/exec", Role::Deployer, At::Owner(Owner::Copy)),
    rule(Read, "cluster-providers/*/clusters/*/kv-pairs/**", Role::Operator, At::Everywhere),
    rule(Read, "cluster-providers/**", Role::Viewer, At::Shown(Shown::Same)),
    rule(Write, "cluster-providers/**", Role::Operator, At::Everywhere),
    rule(Write, "cluster-checks", Role::Operator, At::Everywhere),
    // Agents; what they report names policies of all projects, and their settings may hold secrets.
    rule(Read, "agents/**", Role::Operator, At::Everywhere),
    rule(Write, "agents/**", Role::Operator, At::Everywhere),
    rule(Read, "agent-copies", Role::Viewer, At::Everywhere),
    // Policies and controllers.
    rule(Read, "migration-algorithms/**", Role::Viewer, At::Shown(Shown::Same)),
    rule(Write, "migration-algorithms/**", Role::Operator, At::Everywhere),
    rule(Read, "migration-parameters/**", Role::Viewer, At::Shown(Shown::Same)),
    rule(Write, "migration-parameters/**", Role::Operator, At::Everywhere),
    rule(Write, "policy-tests", Role::Operator, At::Everywhere),
    rule(Read, "controllers/**", Role::Viewer, At::Shown(Shown::Same)),
    rule(Write, "controllers/**", Role::Operator, At::Everywhere),
    rule(Read, "clm-controllers/**", Role::Viewer, At::Shown(Shown::Same)),
    rule(Write, "clm-controllers/**", Role::Operator, At::Everywhere),
    rule(Read, "dtc-controllers/**", Role::Viewer, At::Shown(Shown::Same)),
    rule(Write, "dtc-controllers/**", Role::Operator, At::Everywhere),
    // Access.
    rule(Read, "whoami", Role::Viewer, At::Shown(Shown::Same)),
    rule(Write, "login-links", Role::Viewer, At::Shown(Shown::Same)),
    rule(Read, "tokens", Role::Admin, At::Everywhere),
    rule(Write, "tokens/**", Role::Admin, At::Everywhere),
    rule(Read, "role-bindings", Role::Admin, At::Everywhere),
    rule(Write, "role-bindings/*", Role::Admin, At::Everywhere),
    rule(Read, "audit", Role::Admin, At::Everywhere),
];

/// What a request to a path below `/v2/` needs; none if no rule is about it.
pub fn need(method: &Method, path: &str) -> Option<Need> {
    let methods = if method.is_safe() { Read } else { Write };
    let segments: Vec<&str> = path.strip_prefix("/v2/")?.split('/').collect();
    // No server of ours resolves these; none is to be tried.
    if segments.iter().any(|segment| segment.is_empty() || matches!(&*decoded(segment), "." | "..")) {
        return None;
    }
    RULES.iter().find(|rule| rule.methods == methods && fits(rule.path, &segments)).map(|rule| rule.need)
}

fn fits(pattern: &str, segments: &[&str]) -> bool {
    let mut left = segments.iter();
    for wanted in pattern.split('/') {
        if wanted == "**" {
            return true;
        }
        match left.next() {
            Some(segment) if wanted == "*" || wanted == *segment => {}
            _ => return false,
        }
    }
    left.next().is_none()
}

/// The project that a path names.
pub fn project(path: &str) -> Option<Cow<'_, str>> {
    let mut segments = path.strip_prefix("/v2/projects/")?.split('/');
    segments.next().filter(|name| !name.is_empty()).map(decoded)
}

/// A segment of a path as the services read it.
pub fn decoded(segment: &str) -> Cow<'_, str> {
    percent_decode_str(segment).decode_utf8_lossy()
}

/// Whether the answer is a document's file and not the document: it may hold Secrets, so reading it needs a deployer.
pub fn is_file<'a>(path: &str, accepts: impl IntoIterator<Item = &'a str>) -> bool {
    path.starts_with("/v2/projects/") && accepts.into_iter().any(|kinds| kinds.contains("octet-stream") || kinds.contains("multipart"))
}

/// The table of all routes and their roles, `docs/roles.md`, from the document of all public operations.
///
/// # Errors
/// A route has no rule, or a rule has no route; the text names them.
pub fn page(document: &serde_json::Value) -> Result<String, String> {
    let mut rows = String::new();
    let mut used = vec![false; RULES.len()];
    let mut faults = Vec::new();
    for (path, item) in document["paths"].as_object().into_iter().flatten() {
        for (method, operation) in item.as_object().into_iter().flatten() {
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap_or_default();
            let Some(need) = need(&method, path) else {
                faults.push(format!("no rule for {method} {path}"));
                continue;
            };
            let methods = if method.is_safe() { Read } else { Write };
            let segments: Vec<&str> = path.split('/').skip(2).collect();
            if let Some(at) = RULES.iter().position(|rule| rule.methods == methods && fits(rule.path, &segments)) {
                used[at] = true;
            }
            let id = operation["operationId"].as_str().unwrap_or_default();
            rows += &format!("| {method} | `{path}` | {} | {} | {id} |\n", need.role, need.at.words());
        }
    }
    faults.extend(RULES.iter().zip(used).filter(|(_, used)| !used).map(|(rule, _)| format!("no route for the rule {}", rule.path)));
    if faults.is_empty() { Ok(format!("{HEAD}{rows}")) } else { Err(faults.join("; ")) }
}

impl At {
    fn words(self) -> &'static str {
        match self {
            Self::Project => "the project of the path",
            Self::Everywhere => "all projects",
            Self::Shown(Shown::Same) => "any project",
            Self::Shown(_) => "any project; shows what belongs to yours",
            Self::Owner(Owner::PlanWish) => "the newcomer's project; a drain: operator of all",
            Self::Owner(Owner::PlanToApply) => "the plan's project; moves of other projects: mover; a drain: operator of all",
            Self::Owner(Owner::Plan) => "the plan's project; a drain: operator of all",
            Self::Owner(Owner::Operation) => "the operation's project",
            Self::Owner(Owner::Copy) => "the app's project",
        }
    }
}

const HEAD: &str = "# Routes and roles

Which role each public route needs, and where the role must hold. A role may do what those before it may: viewer, deployer, mover, operator,
admin. What the roles are for is in [Security](security.md). Generated from the OpenAPI document by `cargo run -p xtask -- roles`; a test
fails when a route has no rule. The file of an app, a profile or a resource needs a deployer, because it may hold Secrets.

| method | path | role | in | operation |
|---|---|---|---|---|
";

#[cfg(test)]
mod tests {
    use super::*;

    fn role(method: &str, path: &str) -> Option<(Role, At)> {
        need(&Method::from_bytes(method.as_bytes()).unwrap(), path).map(|need| (need.role, need.at))
    }

    #[test]
    fn no_route_is_without_a_rule_and_no_rule_without_a_route() {
        page(&serde_json::from_str(crate::proxy::PUBLIC).unwrap()).unwrap();
    }

    #[test]
    fn writes_of_apps_need_a_deployer_and_of_clusters_an_operator() {
        let group = "/v2/projects/shop/composite-apps/shop/v1/deployment-intent-groups/shop";
        assert_eq!(role("POST", &format!("{group}/instantiate")), Some((Role::Deployer, At::Project)));
        assert_eq!(role("GET", &format!("{group}/status")), Some((Role::Viewer, At::Project)));
        assert_eq!(role("PUT", "/v2/projects/shop/logical-clouds/default"), Some((Role::Operator, At::Project)));
        assert_eq!(role("PUT", "/v2/cluster-providers/aws/clusters/a/cordon"), Some((Role::Operator, At::Everywhere)));
        assert_eq!(role("GET", "/v2/audit"), Some((Role::Admin, At::Everywhere)));
        assert_eq!(role("HEAD", "/v2/projects"), Some((Role::Viewer, At::Shown(Shown::Projects))));
    }

    #[test]
    fn path_that_is_not_plain_has_no_rule() {
        for path in [
            "/v2/projects/../tokens",
            "/v2/projects/%2e%2e/tokens",
            "/v2//projects",
            "/v2/projects/",
            "/v2/nothing",
            "/v3/projects",
            "/v2/%70rojects",
        ] {
            assert_eq!(role("GET", path), None, "{path}");
        }
    }

    #[test]
    fn project_of_a_path_is_what_the_services_read() {
        assert_eq!(project("/v2/projects/sh%6Fp/composite-apps").as_deref(), Some("shop"));
        assert_eq!(project("/v2/projects").as_deref(), None);
        assert_eq!(project("/v2/cluster-providers/projects/x").as_deref(), None);
    }

    #[test]
    fn file_is_told_from_its_document() {
        let app = "/v2/projects/p/composite-apps/c/v1/apps/web";
        assert!(is_file(app, ["application/octet-stream"]) && is_file(app, ["*/*", "multipart/form-data"]));
        assert!(!is_file(app, ["application/json"]) && !is_file(app, []) && !is_file("/v2/apps", ["application/octet-stream"]));
    }
}
