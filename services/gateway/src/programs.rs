//! How many programs may run in containers at the same time (`drover exec`). Each is a WebSocket that stays open as long as its program runs,
//! up to a day, and the limits of the listener count only connections that are HTTP.

use clap::Args;
use drover_listener::{Full, Place, Places};
use drover_service::{Principal, Problem, codes};

/// Settings of the limit.
#[derive(Args, Clone, Copy, Debug)]
pub struct ProgramSettings {
    /// Programs that may run by `drover exec` at the same time; more are answered 429
    #[arg(long, env = "DROVER_MAX_PROGRAMS", default_value_t = 256, value_name = "COUNT")]
    pub max_programs: usize,
    /// Of these, as many as each token and each user may have. Does not concern the API token, which several may use
    #[arg(long, env = "DROVER_MAX_PROGRAMS_PER_USER", default_value_t = 16, value_name = "COUNT")]
    pub max_programs_per_user: usize,
}

impl Default for ProgramSettings {
    fn default() -> Self {
        Self { max_programs: 256, max_programs_per_user: 16 }
    }
}

/// The programs that run now; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    settings: ProgramSettings,
    open: Places<String>,
}

impl Programs {
    /// No program runs yet.
    pub fn new(settings: ProgramSettings) -> Self {
        Self { settings, open: Places::default() }
    }

    /// A place for one more of this sender, which has it as long as it is not dropped.
    ///
    /// # Errors
    /// `too_many_programs`: there is none.
    pub fn take(&self, principal: &Principal) -> Result<Place<String>, Problem> {
        let ProgramSettings { max_programs: total, max_programs_per_user: per_user } = self.settings;
        self.open.take(principal.identity.key(), per_user, total).map_err(|full| {
            codes::TOO_MANY_PROGRAMS.problem(match full {
                Full::Own => format!("{} runs {per_user} programs by `drover exec` at the moment; end one of them first", principal.name),
                Full::All => {
                    format!("{total} programs run by `drover exec` at the moment, which is the limit of this Drover; try again later")
                }
            })
        })
    }
}
