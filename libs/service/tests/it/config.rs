//! Precedence of flags, environment and file, and the explanation of each value.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, FromArgMatches};
use drover_service::config::{FileError, Settings, Source, command, explain, with_file};

#[derive(Args, Debug)]
struct Own {
    /// How many
    #[arg(long, env = "DROVER_TEST_COUNT", default_value_t = 1)]
    count: u32,
}

fn file(text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("drover-config-{}.toml", uuid::Uuid::new_v4()));
    std::fs::write(&path, text).unwrap();
    path
}

fn args(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

#[test]
fn settings_take_flags_before_the_file_and_explain_their_source() {
    let path = file(
        "count = 7\nallowed_hosts = \"a,b\"\napi_token = \"s3cret\"\n[peers]\nplacement = \"http://10.0.0.1:1\"\nmigration = \"http://10.0.0.2:1\"\n",
    );
    let args = args(&["x", "--config", path.to_str().unwrap(), "--peers-placement", "http://10.9.9.9:1"]);
    let (command, keys) = with_file(command::<Own>("x"), &args).unwrap();
    let matches = command.clone().get_matches_from(args);
    let (own, settings) = (Own::from_arg_matches(&matches).unwrap(), Settings::from_arg_matches(&matches).unwrap());
    assert_eq!((own.count, settings.allowed_hosts.clone()), (7, vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!((settings.peers.placement.as_str(), settings.peers.migration.as_str()), ("http://10.9.9.9:1/", "http://10.0.0.2:1/"));

    let explained = explain(&command, &matches, &keys);
    let of = |name: &str| explained.iter().find(|line| line.name == name).unwrap();
    assert_eq!((of("count").source, of("count").value.as_deref(), of("count").help.as_str()), (Source::File, Some("7"), "How many"));
    assert_eq!(of("peers-placement").source, Source::Flag);
    assert_eq!(
        (of("peers-orchestrator").source, of("peers-orchestrator").env.as_deref()),
        (Source::Default, Some("DROVER_PEERS_ORCHESTRATOR"))
    );
    assert_eq!(of("api-token").value.as_deref(), Some("(set)"), "secrets are not shown");
    assert!(explained.iter().all(|line| !line.help.is_empty()), "every setting says what it means: {explained:?}");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn with_file_refuses_unknown_keys() {
    let path = file("cuont = 7\n");
    let refused = with_file(command::<Own>("x"), &args(&["x", &format!("--config={}", path.display())])).unwrap_err();
    assert!(matches!(&refused, FileError::Unknown(_, key) if key == "cuont"), "{refused}");
    std::fs::remove_file(path).unwrap();
}
