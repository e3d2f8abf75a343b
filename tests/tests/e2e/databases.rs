//! A real PostgreSQL moves on real kubelets while a client writes: no row that was acknowledged is lost.
//!
//! The image is made here of the machine's own PostgreSQL. The client goes through a route, and connects again when it is cut off.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use drover_e2e::apps::App;
use drover_e2e::emco::{Group, free_port};
use drover_e2e::volumes::{CLASS, class, volume};
use drover_e2e::{Backend, System, succeeded};
use drover_testkit::{Image, eventually};
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::kubelets::move_to_and_fro;

const PATIENCE: Duration = Duration::from_secs(120);
const IMAGE: &str = "drover.local/postgres:1";
/// The user `nobody` of the image; PostgreSQL refuses to run as root.
const NOBODY: u32 = 65534;
const ON: [&str; 2] = ["onprem/private-a", "aws/public-c"];

/// The directory of the newest PostgreSQL of this machine.
fn installed() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").unwrap().map(|version| version.unwrap().path());
    versions.max_by_key(|path| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok())).unwrap()
}

/// The server, what it loads and what it reads.
fn image(folder: &Path) -> PathBuf {
    let home = installed();
    let mut image = Image::new(IMAGE, "/bin/sh").shell().directory(&Path::new("/usr/share/postgresql").join(home.file_name().unwrap()));
    for zone in ["UTC", "GMT"] {
        image = image.file(&Path::new("/usr/share/zoneinfo").join(zone));
    }
    for part in ["bin/postgres", "bin/initdb", "lib/dict_snowball.so", "lib/plpgsql.so", "lib/libpqwalreceiver.so"] {
        image = image.program(&home.join(part));
    }
    image.write(folder)
}

/// Makes the database if there is none yet, and serves it. The file with the process id of a server that was killed is of no use: nobody
/// else may write now.
fn program() -> String {
    let programs = installed().join("bin");
    let programs = programs.display();
    format!(
        "set -e; if [ ! -e /data/made ]; then \
           rm -rf /data/pg; {programs}/initdb -D /data/pg -U drover -A trust --locale=C --encoding=UTF8; \
           echo 'host all all all trust' >> /data/pg/pg_hba.conf; : > /data/made; \
         fi; \
         rm -f /data/pg/postmaster.pid; \
         exec {programs}/postgres -D /data/pg -k /tmp -c listen_addresses=* -c shared_buffers=16MB -c jit=off"
    )
}

/// What a client that writes all the time has seen.
#[derive(Default)]
struct Written {
    acknowledged: Vec<i64>,
    /// The longest time between two rows that were acknowledged.
    gap: Duration,
    connections: usize,
}

async fn connect(options: &PgConnectOptions) -> Option<PgConnection> {
    timeout(Duration::from_secs(10), options.connect()).await.ok()?.ok()
}

/// How many of these rows are there.
async fn there(connection: &mut PgConnection, rows: &[i64]) -> sqlx::Result<usize> {
    let counted: i64 = sqlx::query_scalar("SELECT count(*) FROM written WHERE id = ANY($1)").bind(rows).fetch_one(connection).await?;
    Ok(counted.try_into().unwrap())
}

/// Writes a row every few milliseconds until it is told to stop, and looks at every new connection whether all earlier rows are there.
async fn write(options: PgConnectOptions, stop: CancellationToken) -> Written {
    let (mut written, mut next, mut last) = (Written::default(), 0, Instant::now());
    while !stop.is_cancelled() {
        let Some(mut connection) = connect(&options).await else {
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Ok(found) = there(&mut connection, &written.acknowledged).await else { continue };
        assert_eq!(found, written.acknowledged.len(), "rows are lost");
        written.connections += 1;
        while !stop.is_cancelled() {
            next += 1;
            let insert = sqlx::query("INSERT INTO written VALUES ($1)").bind(next).execute(&mut connection);
            let Ok(Ok(_)) = timeout(Duration::from_secs(10), insert).await else { break };
            written.acknowledged.push(next);
            written.gap = written.gap.max(last.elapsed());
            last = Instant::now();
            sleep(Duration::from_millis(5)).await;
        }
    }
    written
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "takes minutes; part of make test-long"]
async fn postgresql_loses_no_acknowledged_row_through_ten_moves() {
    if !Backend::kubelets_run_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let system = System::on_kubelets_with(vec![image(folder.path())], &[]).await;
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::os::unix::fs::chown(&data, Some(NOBODY), Some(NOBODY)).unwrap();
    for member in system.members() {
        class(member, true).await;
    }
    volume(system.member("private-a"), "db", 0, data.to_str().unwrap()).await;

    let app = App::new("db", 200).memory(128).stateful(CLASS).running(IMAGE, &program()).as_user(NOBODY).serving(5432);
    let group = Group::new("db", app).on(&ON).movable(5).among(&ON);
    let port = free_port();
    let route = json!({"protocol": "tcp", "port": port, "holdSeconds": 60});
    succeeded(&group.deploy_with_route(&system.client, route).await.unwrap());

    let options = PgConnectOptions::new().host("127.0.0.1").port(port).username("drover").database("postgres").ssl_mode(PgSslMode::Disable);
    eventually(PATIENCE, async || {
        let mut connection = connect(&options).await?;
        sqlx::query("CREATE TABLE IF NOT EXISTS written (id bigint PRIMARY KEY)").execute(&mut connection).await.ok()
    })
    .await;
    let stop = CancellationToken::new();
    let writing = tokio::spawn(write(options.clone(), stop.clone()));
    for made in 0..10 {
        move_to_and_fro(&system, made).await;
    }
    // The last home serves again before the client is told to stop.
    let before = eventually(PATIENCE, async || there(&mut connect(&options).await?, &[1]).await.ok()).await;
    stop.cancel();
    let written = writing.await.unwrap();
    assert_eq!(before, 1);
    let mut connection = connect(&options).await.unwrap();
    assert_eq!(there(&mut connection, &written.acknowledged).await.unwrap(), written.acknowledged.len());
    connection.close().await.unwrap();
    assert!(written.connections > 10, "each move cuts the client off: {}", written.connections);
    println!("{} rows were acknowledged, at most {:.2} s without a writer", written.acknowledged.len(), written.gap.as_secs_f64());
    system.end().await;
}
