//! A terminal at which a user sits: a pseudo-terminal of `script` (bsdutils), in which a line of shell runs. Its keys are pressed and its screen
//! is read by tests.

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use drover_testkit::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};

/// How long something may take to appear. It only guards against hanging.
const TIMEOUT: Duration = Duration::from_secs(180);

/// A terminal. What runs in it ends with the value.
pub struct Terminal {
    _script: Child,
    keys: ChildStdin,
    screen: Arc<Mutex<String>>,
    device: String,
}

impl Terminal {
    /// Runs a line of shell in a new terminal of 30 rows and 100 columns, with these variables.
    ///
    /// # Panics
    /// `script` does not start.
    pub async fn run(line: &str, variables: &[(&str, &str)]) -> Self {
        // Programs that a shell runs in the background ignore Ctrl-C, and so would all that they run: these tests may be such a program.
        let mut command = Command::new("env");
        command.args(["--default-signal=INT,QUIT", "script"]).args([
            "--quiet",
            "--flush",
            "--command",
            &format!("tty; stty rows 30 cols 100; {line}"),
            "/dev/null",
        ]);
        command.env("SHELL", "/bin/sh").envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
        let mut script = command.spawn().expect("script is installed (bsdutils)");
        let (keys, mut output) = (script.stdin.take().expect("a pipe"), script.stdout.take().expect("a pipe"));
        let screen = Arc::<Mutex<String>>::default();
        let shown = screen.clone();
        tokio::spawn(async move {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut bytes).await {
                shown.lock().expect("no poison").push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
        });
        let mut terminal = Self { _script: script, keys, screen, device: String::new() };
        terminal.shows("/dev/pts/").await;
        terminal.device = eventually(TIMEOUT, async || Some(terminal.screen().split_once("\r\n")?.0.to_owned())).await;
        terminal
    }

    /// All that was shown.
    pub fn screen(&self) -> String {
        self.screen.lock().expect("no poison").clone()
    }

    /// Waits until this is shown.
    ///
    /// # Panics
    /// It is not shown in time; the message has the screen.
    pub async fn shows(&self, text: &str) {
        // Twice the time, so that the message below comes before that of `eventually`.
        let shown = async { eventually(TIMEOUT * 2, async || self.screen().contains(text).then_some(())).await };
        assert!(tokio::time::timeout(TIMEOUT, shown).await.is_ok(), "{text:?} is not shown: {}", self.screen());
    }

    /// Presses keys.
    ///
    /// # Panics
    /// The terminal is gone.
    pub async fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).await.expect("a terminal");
        self.keys.flush().await.expect("a terminal");
    }

    /// Gives the terminal another size, as the edge of a window that is dragged does.
    ///
    /// # Panics
    /// `stty` does not run.
    pub async fn resize(&self, rows: u16, columns: u16) {
        let (rows, columns) = (rows.to_string(), columns.to_string());
        let changed = Command::new("stty").args(["-F", &self.device, "rows", &rows, "cols", &columns]).status().await;
        assert!(changed.expect("stty runs").success());
    }

    /// Whether each key goes to the program as it is pressed, also Ctrl-C.
    ///
    /// # Panics
    /// `stty` does not run.
    pub async fn is_raw(&self) -> bool {
        let asked = Command::new("stty").args(["-F", &self.device, "-a"]).output().await.expect("stty runs");
        let settings = String::from_utf8_lossy(&asked.stdout).into_owned();
        let is_set = |name: &str| settings.split_whitespace().any(|setting| setting == name);
        assert!(is_set("icanon") || is_set("-icanon"), "{settings}");
        let raw = ["-icanon", "-echo", "-isig"].map(is_set);
        assert!(raw.iter().all(|set| *set == raw[0]), "neither raw nor as before: {settings}");
        raw[0]
    }
}
