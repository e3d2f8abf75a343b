//! A private server: created, found again, locked, and ended with its process.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use drover_store::Store;
use drover_store::private_postgres::{Durability, PrivatePostgres, PrivatePostgresError};
use drover_testkit::eventually;
use secrecy::ExposeSecret;
use sqlx::{Connection, PgConnection};

use crate::store::config;

/// The number that a query selects. A statement that returns no row is carried out, too, but is an error here.
async fn run(server: &PrivatePostgres, sql: &'static str) -> Result<i64, sqlx::Error> {
    let mut connection = PgConnection::connect(server.url("postgres").expose_secret()).await?;
    sqlx::query_scalar(sql).fetch_one(&mut connection).await
}

fn postmaster(directory: &Path) -> Option<i32> {
    std::fs::read_to_string(directory.join("data/postmaster.pid")).ok()?.lines().next()?.parse().ok()
}

#[tokio::test]
async fn data_survives_stops_kills_and_stale_pid_files() {
    let above = tempfile::tempdir().unwrap();
    let directory = above.path().join("postgres");
    let server = PrivatePostgres::start(&directory, Durability::Durable).await.unwrap();
    assert_eq!(run(&server, "with made as (select 1) select count(*) from made").await.unwrap(), 1);
    run(&server, "create table kept as select 42::bigint as n").await.ok();

    // A second start on the same directory is refused; the first server goes on.
    assert!(matches!(PrivatePostgres::start(&directory, Durability::Durable).await, Err(PrivatePostgresError::InUse(_))));
    let password = directory.join("password");
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(password).unwrap().permissions()) & 0o777, 0o600);
    // A login without the password is refused.
    let open = format!("postgres://drover@127.0.0.1:{}/postgres", server.port());
    assert!(PgConnection::connect(&open).await.is_err());
    server.stop().await;
    assert_eq!(postmaster(&directory), None, "a clean stop leaves no pid file");

    // The server itself is killed: its pid file stays and names no process.
    let mut server = PrivatePostgres::start(&directory, Durability::Durable).await.unwrap();
    let pid = postmaster(&directory).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    eventually(Duration::from_secs(10), async || server.has_ended().then_some(())).await;
    drop(server);
    // The pid has been reused by another process, here this one.
    let pid_file = directory.join("data/postmaster.pid");
    let text = std::fs::read_to_string(&pid_file).unwrap();
    std::fs::write(&pid_file, text.replacen(&pid.to_string(), &std::process::id().to_string(), 1)).unwrap();
    let server = eventually(Duration::from_secs(30), async || PrivatePostgres::start(&directory, Durability::Durable).await.ok()).await;
    assert_eq!(run(&server, "select n from kept").await.unwrap(), 42);

    // Dropped without a stop, as when the process dies: the pipe closes, the server ends, and the next start waits for that.
    drop(server);
    let server = PrivatePostgres::start(&directory, Durability::Durable).await.unwrap();
    assert_eq!(run(&server, "select n from kept").await.unwrap(), 42);
    server.stop().await;

    std::fs::write(directory.join("data/PG_VERSION"), "9\n").unwrap();
    assert!(matches!(PrivatePostgres::start(&directory, Durability::Durable).await, Err(PrivatePostgresError::OtherVersion { .. })));
}

#[tokio::test]
async fn log_of_a_server_that_runs_for_long_is_rotated() {
    let above = tempfile::tempdir().unwrap();
    let directory = above.path().join("postgres");
    let server = PrivatePostgres::start(&directory, Durability::Killable).await.unwrap();
    let (log, before) = (directory.join("log"), directory.join("log.1"));
    let filled = std::fs::File::options().append(true).open(&log).unwrap();
    std::io::Write::write_all(&mut &filled, &vec![b'x'; 17 << 20]).unwrap();
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |found| found.len());
    eventually(Duration::from_secs(60), async || (size(&log) < 1 << 20 && size(&before) >= 17 << 20).then_some(())).await;
    run(&server, "select 1::bigint from nowhere").await.unwrap_err();
    let said = async || std::fs::read_to_string(&log).unwrap().contains("\"nowhere\" does not exist").then_some(());
    eventually(Duration::from_secs(60), said).await;
    assert!(size(&log) < 1 << 20, "the server goes on at the beginning of the file");
    server.stop().await;
}

#[tokio::test]
async fn throw_away_server_removes_its_directory() {
    // With the permissions of /tmp, whatever the umask.
    let above = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
    std::fs::set_permissions(above.path(), open).unwrap();
    let directory = above.path().join("postgres");
    // What a start leaves that was killed in the middle of initdb.
    std::fs::create_dir_all(directory.join("data.new/base")).unwrap();
    let server = PrivatePostgres::start(&directory, Durability::ThrowAway).await.unwrap();
    assert_eq!(run(&server, "select 1::bigint").await.unwrap(), 1);
    drop(server);
    eventually(Duration::from_secs(20), async || (!directory.exists()).then_some(())).await;
}

#[tokio::test]
async fn root_keeps_files_where_the_servers_user_can_reach_them() {
    if !nix::unistd::Uid::effective().is_root() {
        return;
    }
    // As below /root: others may not enter a directory above Drover's own, and its permissions must not be changed.
    let closed = tempfile::tempdir().unwrap();
    std::fs::set_permissions(closed.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let directory = closed.path().join("share/drover/postgres");
    let server = PrivatePostgres::start(&directory, Durability::Durable).await.unwrap();
    run(&server, "create table kept as select 42::bigint as n").await.ok();
    server.stop().await;
    assert!(!directory.join("data").exists());
    let place = std::fs::read_to_string(directory.join("MOVED")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(closed.path()).unwrap().permissions());
    assert_eq!(mode & 0o077, 0, "the closed directory stays closed");

    let again = PrivatePostgres::start(&directory, Durability::Durable).await.unwrap();
    assert_eq!(run(&again, "select n from kept").await.unwrap(), 42);
    again.stop().await;
    std::fs::remove_dir_all(place.trim()).unwrap();
}

/// Who deletes the data directory deletes the seal key: the database must not survive it.
#[tokio::test]
async fn database_of_a_deleted_directory_is_set_aside() {
    use std::os::unix::fs::PermissionsExt;
    if !nix::unistd::Uid::effective().is_root() {
        return;
    }
    let closed = tempfile::tempdir().unwrap();
    std::fs::set_permissions(closed.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let directory = closed.path().join("a/b/postgres");
    let made = async || {
        let server = PrivatePostgres::start(&directory, Durability::Killable).await.unwrap();
        let known = run(&server, "select count(*) from pg_tables where tablename = 'mine'").await.unwrap();
        let _ = run(&server, "create table mine ()").await;
        server.stop().await;
        known
    };
    assert_eq!((made().await, made().await), (0, 1));
    let place = std::fs::read_to_string(directory.join("MOVED")).unwrap();
    std::fs::remove_dir_all(closed.path().join("a")).unwrap();
    assert_eq!(made().await, 0, "the old database is not used again");
    let place = std::path::Path::new(place.trim());
    let name = place.file_name().unwrap().to_str().unwrap().to_owned();
    for entry in std::fs::read_dir(place.parent().unwrap()).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&name) {
            std::fs::remove_dir_all(entry.path()).unwrap();
        }
    }
}

#[tokio::test]
async fn login_does_not_wait_for_the_tasks_of_a_busy_runtime() {
    const TASKS: usize = 64;
    let above = tempfile::tempdir().unwrap();
    let server = PrivatePostgres::start(&above.path().join("postgres"), Durability::Durable).await.unwrap();
    let store = Store::connect(&config("placement", &server.url("postgres")), &[]).await.unwrap();
    let turns = Arc::new(AtomicUsize::new(0));
    let busy = (0..TASKS).map(|_| {
        let turns = Arc::clone(&turns);
        async move {
            loop {
                let began = Instant::now();
                while began.elapsed() < Duration::from_micros(100) {}
                turns.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        }
    });
    let busy: tokio::task::JoinSet<()> = busy.collect();
    let kept = store.acquire().await.unwrap();
    // The first connection is in use, so this one is opened.
    turns.store(0, Ordering::Relaxed);
    drop(store.acquire().await.unwrap());
    let turns = turns.load(Ordering::Relaxed);
    drop((kept, busy));
    // If the login took turns with them, each task would have 800.
    assert!(turns < 100 * TASKS, "{turns} turns of other tasks");
    store.close().await;
    server.stop().await;
}
