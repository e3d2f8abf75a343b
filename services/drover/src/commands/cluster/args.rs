//! The subcommands of `drover cluster`.

use std::path::PathBuf;

use clap::Subcommand;

use super::{account, link, lost, role};

/// `drover cluster …`.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Register a cluster; its provider is created if there is none of that name. The cluster is asked first, and refused if it does not
    /// answer, refuses the credential, or is registered already.
    #[command(after_help = "Example:\n  drover cluster add private-a --provider onprem --kubeconfig a.kubeconfig --label zone=kr-1")]
    Add {
        /// Name.
        name: String,
        /// Provider.
        #[arg(long)]
        provider: String,
        /// Kubeconfig with certificates and tokens inline, as `kubectl config view --raw --flatten --minify` prints it.
        #[arg(long, value_name = "FILE")]
        kubeconfig: PathBuf,
        /// Label; may be repeated.
        #[arg(long = "label", value_name = "LABEL")]
        labels: Vec<String>,
        /// Priority of the provider, 1 (filled first) to 10 [default: as it is; 10 for a new provider].
        #[arg(long, value_parser = clap::value_parser!(u8).range(1..=10))]
        priority: Option<u8>,
        /// Register it although it does not answer or refuses the credential; it is used as soon as it answers.
        #[arg(long)]
        force: bool,
    },
    /// Replace the kubeconfig of a cluster, for example because its token was rotated. What runs there is not affected.
    #[command(after_help = "Example:\n  drover cluster update private-a --kubeconfig new.kubeconfig")]
    Update {
        /// Name, or provider/name.
        name: String,
        /// Kubeconfig with certificates and tokens inline.
        #[arg(long, value_name = "FILE")]
        kubeconfig: PathBuf,
        /// Replace it although the cluster does not answer, refuses the credential, or is another Kubernetes cluster than before. A cluster that
        /// is reached through its agent is not checked.
        #[arg(long)]
        force: bool,
    },
    /// Make a service account in a cluster with the rights that Drover needs, and print a kubeconfig for it.
    Kubeconfig(account::AccountArgs),
    /// Print the least rights in a cluster that the apps of a logical cloud need, as objects for kubectl.
    Role(role::RoleArgs),
    /// Close a cluster: nothing new goes there until it is opened again. What runs there stays, and is updated in place.
    #[command(after_help = "Example:\n  drover cluster cordon private-a --reason 'new racks on Friday'")]
    Cordon {
        /// Name, or provider/name.
        name: String,
        /// Reason, which `drover get clusters -o wide` and `drover explain` show.
        #[arg(long, default_value = "closed by hand", value_name = "TEXT")]
        reason: String,
    },
    /// Open a cluster that was closed by `cordon`, or by applying a drain plan.
    #[command(after_help = "Example:\n  drover cluster uncordon private-a")]
    Uncordon {
        /// Name, or provider/name.
        name: String,
    },
    /// Remove a cluster on which no app runs, or, with `--force`, one that will never answer again.
    #[command(alias = "rm", after_help = lost::HELP)]
    Remove {
        /// Name, or provider/name.
        name: String,
        /// Give up a cluster that does not answer: what ran there is placed anew where it may run and fits, and dropped elsewhere.
        #[arg(long)]
        force: bool,
        /// With `--force`, list what ran there, and change nothing.
        #[arg(long, requires = "force")]
        dry_run: bool,
    },
    /// Register a cluster that Drover cannot reach, and print an invitation for its agent, `drover-link`, which connects to Drover.
    Invite(link::InviteArgs),
    /// Accept the agent that asks to be a cluster; without `--fingerprint`, show who asks and whether the agent is connected.
    #[command(after_help = "Examples:\n  drover cluster accept edge\n  drover cluster accept edge --fingerprint SHA256:...")]
    Accept {
        /// Name, or provider/name.
        name: String,
        /// Fingerprint of the agent's key, as drover-link prints it.
        #[arg(long, value_name = "SHA256:...")]
        fingerprint: Option<String>,
    },
    /// Take back the access of a cluster's agent. Its connections break at once; what runs in the cluster goes on running.
    #[command(after_help = "Example:\n  drover cluster revoke edge")]
    Revoke {
        /// Name, or provider/name.
        name: String,
    },
    /// List clusters, most preferred first.
    List,
}
