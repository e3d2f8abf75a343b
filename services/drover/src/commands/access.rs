//! `drover token`, `drover role` and `drover whoami`: who may do what.

use anyhow::{Result, bail, ensure};
use clap::{Args, Subcommand};
use drover_api::access::{NewToken, Role, RoleBinding, RoleBindingList, RoleGrant, TokenList, TokenOrder, WhoAmI};

use crate::globals::Format;
use crate::hub::segment;
use crate::output;
use crate::session::Session;

/// `drover token …`.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token and print it; it cannot be read again.
    #[command(after_help = "Examples:\n  drover token create ci --role deployer --project shop --expires 30d > ci.token\n  \
        drover token create auditor --role viewer --all-projects\n  \
        drover token create team --role mover --project shop,blog\n\n\
        Use it by --token-file, DROVER_TOKEN or `Authorization: Bearer <token>`.")]
    Create {
        /// Name by which the audit log knows who used it.
        name: String,
        /// What it may do: viewer, deployer, mover, operator or admin.
        #[arg(long)]
        role: Role,
        #[command(flatten)]
        scope: Scope,
        /// When it ends, such as 12h, 30d or 52w [default: never].
        #[arg(long, value_name = "TIME", value_parser = seconds)]
        expires: Option<u32>,
    },
    /// List the tokens that are valid, without their secrets.
    List,
    /// Revoke a token: its next request is refused.
    #[command(after_help = "Example:\n  drover token revoke ci")]
    Revoke {
        /// Name of the token.
        name: String,
    },
}

/// `drover role …`.
#[derive(Debug, Subcommand)]
pub enum RoleCommand {
    /// Give a role to users of the identity provider (OIDC), or change it.
    #[command(after_help = "Examples:\n  drover role grant shop-team --group shop-developers --role deployer --project shop\n  \
        drover role grant ops --user ops@example.com --role operator --all-projects")]
    Grant {
        /// Name of the role binding.
        name: String,
        /// Who gets it: everyone in this group.
        #[arg(long, required_unless_present = "user", conflicts_with = "user")]
        group: Option<String>,
        /// Who gets it: the user with this e-mail address or subject.
        #[arg(long)]
        user: Option<String>,
        /// What they may do: viewer, deployer, mover, operator or admin.
        #[arg(long)]
        role: Role,
        #[command(flatten)]
        scope: Scope,
    },
    /// List the role bindings.
    List,
    /// Remove a role binding: its users lose the role at once.
    #[command(after_help = "Example:\n  drover role revoke shop-team")]
    Revoke {
        /// Name of the role binding.
        name: String,
    },
}

/// Where a role holds.
#[derive(Args, Debug)]
pub struct Scope {
    /// The role holds in all projects, not only in those of --project (comma separated).
    #[arg(long)]
    all_projects: bool,
}

impl Scope {
    fn projects(&self, session: &Session, role: Role) -> Result<Option<Vec<String>>> {
        if self.all_projects {
            return Ok(None);
        }
        if role == Role::Admin {
            bail!("the role admin holds in all projects: add --all-projects");
        }
        let names: Vec<String> = session.project.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
        ensure!(!names.is_empty(), "--project names no project; name some, or use --all-projects");
        Ok(Some(names))
    }
}

/// `12h` in seconds.
fn seconds(text: &str) -> Result<u32, String> {
    let wrong = || format!("{text:?} is no time; use a number with s, m, h, d or w, such as 30d");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let each = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 24 * 3600,
        'w' => 7 * 24 * 3600,
        _ => return Err(wrong()),
    };
    let count: u32 = text[..text.len() - unit.len_utf8()].parse().map_err(|_| wrong())?;
    count.checked_mul(each).filter(|seconds| *seconds > 0).ok_or_else(wrong)
}

/// Runs `drover token …`.
///
/// # Errors
/// A request fails.
pub async fn token(session: &Session, command: TokenCommand) -> Result<()> {
    let client = &session.client;
    match command {
        TokenCommand::Create { name, role, scope, expires } => {
            let projects = scope.projects(session, role)?;
            let order = TokenOrder { name, role, projects, expires_in_seconds: expires };
            let answer = client.post("/v2/tokens", Some(&serde_json::to_value(&order)?)).await?;
            let made: NewToken = serde_json::from_value(answer.body)?;
            match session.format {
                Format::Json | Format::Yaml => output::print(session.format, &made, |_| (Vec::new(), Vec::new())),
                Format::Table | Format::Wide => {
                    let about = &made.about;
                    let end = about.expires_at.as_deref().map_or_else(|| "never ends".to_owned(), |at| format!("ends at {at}"));
                    let grant = RoleGrant { role: about.role, projects: about.projects.clone() };
                    eprintln!(
                        "{} is {} {} and {end}. This is the only time that the token is shown:",
                        about.name,
                        about.role,
                        place(&grant)
                    );
                    output::write_stdout(&made.token)
                }
            }
        }
        TokenCommand::List => {
            let list: TokenList = client.get("/v2/tokens").await?;
            output::print(session.format, &list.items, |_| {
                let row = |token: &drover_api::access::Token| {
                    let grant = RoleGrant { role: token.role, projects: token.projects.clone() };
                    let ends = token.expires_at.clone().unwrap_or_else(|| "never".to_owned());
                    vec![
                        token.name.clone(),
                        token.role.to_string(),
                        projects(&grant),
                        ends,
                        token.created_by.clone(),
                        token.created_at.clone(),
                    ]
                };
                (vec!["NAME", "ROLE", "PROJECTS", "EXPIRES", "MADE BY", "MADE AT"], list.items.iter().map(row).collect())
            })
        }
        TokenCommand::Revoke { name } => {
            client.call(reqwest::Method::DELETE, &format!("/v2/tokens/{}", segment(&name)), None).await?;
            eprintln!("{name} is revoked");
            Ok(())
        }
    }
}

/// Runs `drover role …`.
///
/// # Errors
/// A request fails.
pub async fn role(session: &Session, command: RoleCommand) -> Result<()> {
    let client = &session.client;
    match command {
        RoleCommand::Grant { name, group, user, role, scope } => {
            let projects = scope.projects(session, role)?;
            let subject = group.map_or_else(|| format!("user:{}", user.unwrap_or_default()), |group| format!("group:{group}"));
            let binding = RoleBinding { name, subject, role, projects };
            client.put(&format!("/v2/role-bindings/{}", segment(&binding.name)), &serde_json::to_value(&binding)?).await?;
            let grant = RoleGrant { role, projects: binding.projects.clone() };
            eprintln!("{} is {role} {}", binding.subject, place(&grant));
            Ok(())
        }
        RoleCommand::List => {
            let list: RoleBindingList = client.get("/v2/role-bindings").await?;
            output::print(session.format, &list.items, |_| {
                let row = |binding: &RoleBinding| {
                    let grant = RoleGrant { role: binding.role, projects: binding.projects.clone() };
                    vec![binding.name.clone(), binding.subject.clone(), binding.role.to_string(), projects(&grant)]
                };
                (vec!["NAME", "SUBJECT", "ROLE", "PROJECTS"], list.items.iter().map(row).collect())
            })
        }
        RoleCommand::Revoke { name } => {
            client.call(reqwest::Method::DELETE, &format!("/v2/role-bindings/{}", segment(&name)), None).await?;
            eprintln!("{name} is removed");
            Ok(())
        }
    }
}

/// Runs `drover whoami`.
///
/// # Errors
/// The request fails.
pub async fn whoami(session: &Session) -> Result<()> {
    let me: WhoAmI = session.client.get("/v2/whoami").await?;
    output::print(session.format, &me, |_| {
        let rows = me.roles.iter().map(|grant| vec![me.name.clone(), grant.role.to_string(), projects(grant)]).collect();
        (vec!["NAME", "ROLE", "PROJECTS"], rows)
    })
}

fn projects(grant: &RoleGrant) -> String {
    grant.projects.as_ref().map_or_else(|| "all".to_owned(), |projects| projects.join(","))
}

fn place(grant: &RoleGrant) -> String {
    grant.projects.as_ref().map_or_else(|| "in all projects".to_owned(), |projects| format!("in {}", projects.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_numbers_with_a_unit() {
        assert_eq!((seconds("30d"), seconds("12h"), seconds("1w")), (Ok(2_592_000), Ok(43_200), Ok(604_800)));
        for wrong in ["", "d", "30", "30y", "-1d", "0s", "1.5h", "99999999w", "1ß"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
