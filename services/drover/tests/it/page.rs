//! Runs the commands of a page from its text.
//!
//! | in the page | what is done |
//! |---|---|
//! | a block `sh` | its commands run in one shell, which ends at the first error. The word `ID` stands for the plan that was made last |
//! | a block `sh terminal-N` | nothing: these commands keep running, and the test has started their like |
//! | a block `text` after commands | its lines must be in their output, in their order |
//! | a block `yaml NAME` | written to that file |
//! | `<!-- test: run`, lines, `-->` | commands that the reader has no need of run |
//! | `<!-- test: stop NAME -->` | the clusters of that name are stopped |
//! | `<!-- test: not run, REASON -->` | the next block `sh` is not run, and counted |

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use drover_kubesim::ClusterSpec;

use crate::program::{DROVER, HOME, wait};

/// A part of a page that the test does something with.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    Commands(String),
    Output(Vec<String>),
    File(String, String),
    Stop(String),
    NotRun,
}

/// The parts of a page.
///
/// # Panics
/// A block or a marker is of no known kind, or commands are indented instead of in a block.
fn parts(page: &str) -> Vec<Part> {
    let (mut parts, mut lines, mut run) = (Vec::new(), page.lines(), true);
    while let Some(line) = lines.next() {
        if let Some(marker) = line.trim().strip_prefix("<!-- test: ") {
            match marker.trim_end_matches("-->").trim().split_once(' ') {
                None => {
                    assert_eq!(marker, "run", "{line}");
                    let hidden: Vec<&str> = lines.by_ref().take_while(|line| *line != "-->").collect();
                    parts.push(Part::Commands(hidden.join("\n")));
                }
                Some(("stop", name)) => parts.push(Part::Stop(name.to_owned())),
                Some(("not", reason)) if reason.starts_with("run, ") => run = false,
                _ => panic!("an unknown marker: {line}"),
            }
        }
        assert!(!line.starts_with("    "), "commands and files belong into blocks of a kind: {line}");
        let Some(kind) = line.trim_start().strip_prefix("```") else { continue };
        let block: Vec<&str> = lines.by_ref().take_while(|line| line.trim() != "```").collect();
        match kind.split_once(' ') {
            None if kind == "sh" && !std::mem::replace(&mut run, true) => parts.push(Part::NotRun),
            None if kind == "sh" => parts.push(Part::Commands(block.join("\n"))),
            None if kind == "text" && matches!(parts.last(), Some(Part::Commands(_))) => {
                parts.push(Part::Output(block.into_iter().map(str::to_owned).collect()));
            }
            None if ["text", "yaml"].contains(&kind) => {}
            Some(("yaml", name)) => parts.push(Part::File(name.to_owned(), block.join("\n"))),
            Some(("sh", terminal)) if terminal.starts_with("terminal-") => {}
            _ => panic!("a block of an unknown kind: {line}"),
        }
    }
    parts
}

/// Simulated clusters of two nodes, `sim-1.kubeconfig` and so on in this folder, until the runtime is dropped.
pub(crate) fn clusters(count: usize, folder: &Path) -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (send, told) = std::sync::mpsc::channel();
    let folder = folder.to_owned();
    runtime.spawn(async move {
        let ready = |_: &str, _: &[std::path::PathBuf]| send.send(()).unwrap();
        let spec = ClusterSpec::with_nodes(2, "2", "4Gi");
        drover_kubesim::dev::run(count, &spec, &folder, ready, std::future::pending()).await.unwrap();
    });
    told.recv_timeout(Duration::from_secs(60)).unwrap();
    runtime
}

/// Runs commands in a shell that ends at the first error; returns what they print.
pub(crate) fn shell(commands: &str, url: &str, folder: &Path) -> String {
    let here = url.trim_end_matches('/');
    let commands = commands.replace("http://127.0.0.1:7070", here).replace("~/.local/share/drover", "data");
    let programs = [Path::new(DROVER).parent().unwrap().display().to_string(), std::env::var("DROVER_KUBE_BIN").unwrap_or_default()];
    let path = format!("{}:{}", programs.join(":"), std::env::var("PATH").unwrap());
    let mut bash = Command::new("bash");
    bash.args(["-euo", "pipefail", "-c", &format!("exec 2>&1\n{commands}")]).current_dir(folder).env_clear();
    bash.env("HOME", HOME).env("PATH", path).env("DROVER_URL", url).env("KUBECONFIG", folder.join("kubeconfig"));
    let output = bash.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{commands}\n{said}");
    said
}

/// Whether each of these lines is a part of a line of the output, in this order. Spaces count as one.
fn shows(said: &str, wanted: &[String]) -> Result<(), String> {
    let plain = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut lines = said.lines().map(plain);
    for line in wanted.iter().map(|line| plain(line)) {
        if !lines.any(|said| said.contains(&line)) {
            return Err(line);
        }
    }
    Ok(())
}

/// Waits as a reader does: until the clusters have been looked at and nothing is under way.
fn settle(url: &str, folder: &Path) {
    wait(|| {
        let clusters = shell("drover get clusters -o json", url, folder);
        let operations = shell("drover get operations -o json", url, folder);
        !clusters.contains("\"Unknown\"") && !operations.contains("\"running\"") && !operations.contains("\"undoing\"")
    });
}

/// Runs a page (its path in docs/) beside the Drover at `url`; `stop` stops clusters. Returns the number of blocks that were not run.
pub(crate) fn run(page: &str, url: &str, folder: &Path, mut stop: impl FnMut(&str)) -> usize {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page)).unwrap();
    let (mut said, mut plan, mut not_run) = (String::new(), String::new(), 0);
    for part in parts(&text) {
        match part {
            Part::Commands(commands) => {
                settle(url, folder);
                said.clear();
                // A plan that a line makes is used by the next one.
                let steps: Vec<&str> = if commands.contains(" ID") { commands.lines().collect() } else { vec![&*commands] };
                for step in steps {
                    said += &shell(&step.replace(" ID", &format!(" {plan}")), url, folder);
                    if let Some(id) = said.lines().rev().find_map(|line| line.trim().strip_prefix("drover plan apply ")) {
                        plan = id.to_owned();
                    }
                }
                if commands.contains("drover provider set") {
                    settle(url, folder);
                    said = shell("drover get clusters", url, folder);
                }
            }
            Part::Output(lines) => {
                if let Err(missing) = shows(&said, &lines) {
                    panic!("{page} shows {missing:?}; the commands print\n{said}");
                }
            }
            Part::File(name, text) => std::fs::write(folder.join(name), text).unwrap(),
            Part::Stop(name) => {
                stop(&name);
                wait(|| shell("drover get clusters", url, folder).contains("Unreachable"));
            }
            Part::NotRun => not_run += 1,
        }
    }
    not_run
}

#[test]
fn output_is_compared_line_by_line_in_order() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(shows("a  b\nc d e\n", &lines("a b\nd e")), Ok(()));
    assert_eq!(shows("c d\na b\n", &lines("a b\nc d")), Err("c d".to_owned()));
}

#[test]
fn parts_of_a_page_are_found_in_order() {
    let page = "text\n```sh\na\nb\n```\n```text\nc\n```\n<!-- test: run\nd\n-->\n<!-- test: stop e -->\n```yaml f\ng\n```\n```sh terminal-1\nh\n```\n\
        <!-- test: not run, needs i -->\n```sh\ni\n```\n```sh\nj\n```\n";
    let commands = |text: &str| Part::Commands(text.to_owned());
    let wanted = [
        commands("a\nb"),
        Part::Output(vec!["c".to_owned()]),
        commands("d"),
        Part::Stop("e".to_owned()),
        Part::File("f".to_owned(), "g".to_owned()),
        Part::NotRun,
        commands("j"),
    ];
    assert_eq!(parts(page), wanted);
    for wrong in ["```shell\n```\n", "    drover get apps\n", "<!-- test: skip -->\n", "<!-- test: not run -->\n"] {
        assert!(std::panic::catch_unwind(|| parts(wrong)).is_err(), "{wrong}");
    }
}
