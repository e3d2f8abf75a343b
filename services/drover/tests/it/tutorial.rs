//! docs/tutorial.md, run from its text: all its commands succeed, and what it shows of their output is there.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use drover_kubesim::ClusterSpec;

use crate::cli::{DROVER, HOME, start, wait};

/// A part of the page that the test does something with.
#[derive(Debug)]
enum Part {
    /// Commands of the terminal in which the reader works.
    Commands(String),
    /// A command that keeps running in a terminal of its own.
    Terminal,
    /// Lines of the output of the commands before, in their order.
    Output(Vec<String>),
    /// The reader stops the third terminal.
    Stop,
}

fn parts(page: &str) -> Vec<Part> {
    let (mut parts, mut lines) = (Vec::new(), page.lines());
    while let Some(line) = lines.next() {
        if line == "<!-- test: stop terminal-3 -->" {
            parts.push(Part::Stop);
        }
        let Some(kind) = line.strip_prefix("```") else { continue };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        parts.push(match kind {
            "sh" => Part::Commands(block.join("\n")),
            "text" => Part::Output(block.into_iter().map(str::to_owned).collect()),
            "sh terminal-1" | "sh terminal-2" | "sh terminal-3" => Part::Terminal,
            other => panic!("the tutorial has a block of the unknown kind {other:?}"),
        });
    }
    parts
}

/// Simulated clusters until the runtime is dropped.
fn clusters(count: usize, folder: &Path) -> tokio::runtime::Runtime {
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
fn shell(commands: &str, url: &str, folder: &Path) -> String {
    let here = url.trim_end_matches('/');
    let commands = commands.replace("http://127.0.0.1:7070", here).replace("~/.local/share/drover", "data");
    let path = format!("{}:{}", Path::new(DROVER).parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut bash = Command::new("bash");
    bash.args(["-euo", "pipefail", "-c", &format!("exec 2>&1\n{commands}")]).current_dir(folder).env_clear();
    bash.env("HOME", HOME).env("PATH", path).env("DROVER_URL", url);
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

#[test]
fn tutorial_does_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let near = clusters(3, &folder.path().join("near"));
    let mut far = Some(clusters(1, &folder.path().join("far")));
    let (up, url) = start(folder.path());
    let mut said = String::new();
    for part in parts(include_str!("../../../../docs/tutorial.md")) {
        match part {
            Part::Terminal => {}
            Part::Commands(commands) => {
                said = shell(&commands, &url, folder.path());
                if commands.contains("drover provider set") {
                    wait(|| !shell("drover get clusters -o json", &url, folder.path()).contains("\"Unknown\""));
                    said = shell("drover get clusters", &url, folder.path());
                }
            }
            Part::Output(lines) => {
                if let Err(missing) = shows(&said, &lines) {
                    panic!("the tutorial shows {missing:?}; the commands print\n{said}");
                }
            }
            Part::Stop => {
                far.take().unwrap().shutdown_background();
                wait(|| shell("drover get clusters", &url, folder.path()).contains("Unreachable"));
            }
        }
    }
    assert!(far.is_none(), "the tutorial no longer stops its third terminal");
    drop((up, near));
}

#[test]
fn output_is_compared_line_by_line_in_order() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(shows("a  b\nc d e\n", &lines("a b\nd e")), Ok(()));
    assert_eq!(shows("c d\na b\n", &lines("a b\nc d")), Err("c d".to_owned()));
}
