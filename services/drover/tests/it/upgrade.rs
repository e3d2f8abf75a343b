//! docs/operations/upgrade.md, tried: a database of an earlier version, with an application that runs and a move under way, is taken over
//! by this version, and a database of a later version is refused.
//!
//! The earlier version is the one that ended with the migrations of [`EARLIER`]. No program of it is built: this version's database gets
//! that version's schema again, and what is stored as JSON the names that fields had. So what is tried are the migrations on data, and that
//! the operation goes on; not all else that the earlier program would have written differently.

use std::path::Path;

use drover_store::private_postgres::{Durability, PrivatePostgres};
use drover_store::{Place, SealKey, Sealed};
use secrecy::ExposeSecret;
use sqlx::{AssertSqlSafe, Connection, PgConnection, raw_sql};

use crate::page::clusters;
use crate::program::{DROVER, HOME, json, ok, start, wait};
use crate::readme::{workload, write};

/// The last migration of each folder below migrations/ that the earlier version had.
const EARLIER: [(&str, i64); 8] = [
    ("cluster-manager", 2),
    ("gateway", 0),
    ("migration", 2),
    ("orchestrator", 8),
    ("placement", 2),
    ("resource-synchronizer", 3),
    ("resources", 1),
    ("workflow", 1),
];

/// How each later migration is taken back.
const BACK: [(&str, i64, &str); 30] = [
    ("cluster-manager", 3, "drop table member_user"),
    ("cluster-manager", 4, "drop table link; drop table link_authority"),
    ("cluster-manager", 5, "drop table link_authority_earlier /* the rest is gone with 4 */"),
    ("gateway", 1, "drop table audit_outcome; drop table audit; drop table token; drop table role_binding; drop function refuse_change"),
    ("gateway", 2, "drop table idempotency"),
    ("gateway", 3, "select 1 /* the table is gone with 2 */"),
    ("migration", 3, "alter table plan drop column reason"),
    (
        "orchestrator",
        9,
        "alter table planning_queue drop column priority;
         alter table planning_queue drop constraint planning_queue_state;
         update planning_queue set state = 'blocked' where state = 'awaiting';
         alter table planning_queue add constraint planning_queue_state check (state in ('waiting', 'planning', 'blocked'))",
    ),
    ("orchestrator", 10, "alter table deployment_revision drop column movable_projects; drop index deployment_revision_operation"),
    (
        "orchestrator",
        11,
        "drop table bundle_variant;
         alter table deployment drop column controllers;
         alter table deployment_revision drop column controllers",
    ),
    ("orchestrator", 12, "drop table cloud_copy"),
    ("orchestrator", 19, "drop table traffic_weight"),
    ("orchestrator", 20, "drop table agent_copy; drop table agent_rollout"),
    ("orchestrator", 21, "drop table force_fence"),
    ("orchestrator", 22, "alter table bundle drop column sealed, drop column hosts, alter column objects set not null"),
    ("orchestrator", 23, "drop table bounds_share"),
    ("orchestrator", 25, "drop table refusal"),
    ("orchestrator", 26, "select 1 /* the table is gone with 11 */"),
    ("orchestrator", 27, "drop index deployment_revision_app_spreads"),
    ("resource-synchronizer", 4, "alter table binding drop column kept"),
    ("resource-synchronizer", 5, "alter table binding drop column hooks"),
    ("resource-synchronizer", 6, "alter table binding drop column served"),
    ("resource-synchronizer", 7, "alter table binding drop column share"),
    ("resource-synchronizer", 8, "alter table binding drop column test, drop column rollback, drop column delete_volumes"),
    ("resource-synchronizer", 9, "drop index binding_project; alter table binding drop column names, drop column stand_in"),
    ("resource-synchronizer", 10, "alter table bundle drop column sealed, alter column objects set not null"),
    ("resource-synchronizer", 11, "alter table binding drop column act_as"),
    ("resource-synchronizer", 12, "alter table binding drop column bounds"),
    ("resource-synchronizer", 13, "drop index inventory_exports; alter table bundle drop column exports"),
    ("resources", 2, "alter table file drop column sealed, alter column bytes set not null"),
];

/// Names of fields in what services store as JSON. They were snake_case.
const FIELDS: &str = "compositeApp logicalCloud whenFull allowDependants atMostOnce perNode nodeSelector nodeAffinity keepTogether microCalls \
    ageMs whyNot cutShort costS newcomerOrder betweenGroups waitingUs chosenBy beforeSearch madeOn createdAt";

/// SQL that gives fields their earlier names wherever JSON is stored, except in users' documents.
fn earlier_names() -> String {
    let pairs = FIELDS.split_whitespace().map(|name| {
        let letter = |c: char| if c.is_uppercase() { format!("_{}", c.to_ascii_lowercase()) } else { c.to_string() };
        format!("('{name}', '{}')", name.chars().map(letter).collect::<String>())
    });
    format!(
        "do $$ declare col record; field record; changed bigint := 0; n bigint; begin
           for col in select c.table_schema, c.table_name, c.column_name from information_schema.columns c
             join information_schema.tables t using (table_schema, table_name)
             where c.data_type = 'jsonb' and c.table_schema like 'drover_%' and t.table_type = 'BASE TABLE'
               and c.table_name not in ('resource', 'bundle') loop
             for field in select * from (values {}) names (now, before) loop
               execute format('update %I.%I set %I = replace(%I::text, %L, %L)::jsonb where %I::text like %L', col.table_schema, col.table_name,
                 col.column_name, col.column_name, '\"' || field.now || '\":', '\"' || field.before || '\":', col.column_name,
                 '%\"' || field.now || '\":%');
               get diagnostics n = row_count;
               changed := changed + n;
             end loop;
           end loop;
           if changed < 10 then raise exception 'only % rows have fields of these names', changed; end if; end $$;",
        pairs.collect::<Vec<_>>().join(", ")
    )
}

/// Runs SQL on the database of a Drover that is not running.
fn sql(data: &Path, statements: &str) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let postgres = PrivatePostgres::start(&data.join("postgres"), Durability::Durable).await.unwrap();
        let mut connection = PgConnection::connect(postgres.url("postgres").expose_secret()).await.unwrap();
        raw_sql(AssertSqlSafe(statements.to_owned())).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        postgres.stop().await;
    });
}

/// SQL for the schemas that have a migration set: the one of the same name, and of documents that of each service with documents.
fn in_schema(set: &str, statements: &str) -> String {
    let name = set.replace('-', "_");
    let schemas = if set == "resources" { vec!["orchestrator", "cluster_manager", "migration"] } else { vec![name.as_str()] };
    let statements = statements.replace("MIGRATIONS", &format!("_migrations_{name}"));
    schemas.into_iter().map(|schema| format!("set search_path to drover_{schema}; {statements};")).collect()
}

/// What is sealed: schema, table, the row's id as text, and how the column in clear text is set from bytes.
const SEALED: [(&str, &str, &str, &str); 4] = [
    ("drover_orchestrator", "bundle", "digest", "objects = convert_from($2, 'UTF8')::jsonb"),
    ("drover_resource_synchronizer", "bundle", "digest", "objects = convert_from($2, 'UTF8')::jsonb"),
    ("drover_orchestrator", "file", "encode(digest, 'hex')", "bytes = $2"),
    ("drover_cluster_manager", "file", "encode(digest, 'hex')", "bytes = $2"),
];

/// Brings into clear text what the earlier version did not seal.
fn unseal(data: &Path) {
    let key = SealKey::from_file_or_create(&data.join("seal.key")).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let unsealed = runtime.block_on(async {
        let postgres = PrivatePostgres::start(&data.join("postgres"), Durability::Durable).await.unwrap();
        let mut db = PgConnection::connect(postgres.url("postgres").expose_secret()).await.unwrap();
        let mut unsealed = 0;
        for (schema, table, row, set) in SEALED {
            let read = AssertSqlSafe(format!("select {row}, sealed from {schema}.{table} where sealed is not null"));
            let rows: Vec<(String, Sealed)> = sqlx::query_as(read).fetch_all(&mut db).await.unwrap();
            for (id, sealed) in rows {
                let plain = key.open(Place { table, column: "sealed", row: &id }, &sealed).unwrap();
                let write = AssertSqlSafe(format!("update {schema}.{table} set {set}, sealed = null where {row} = $1"));
                sqlx::query(write).bind(&id).bind(plain.expose_secret()).execute(&mut db).await.unwrap();
                unsealed += 1;
            }
        }
        db.close().await.unwrap();
        postgres.stop().await;
        unsealed
    });
    assert!(unsealed >= 5, "two apps have a file, and a bundle in two services: {unsealed}");
}

#[test]
fn later_migrations_can_be_taken_back() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../migrations");
    let mut later = Vec::new();
    for (set, last) in EARLIER {
        for file in std::fs::read_dir(folder.join(set)).unwrap() {
            let name = file.unwrap().file_name().into_string().unwrap();
            let version: i64 = name.split('_').next().unwrap().parse().unwrap();
            later.extend((version > last).then_some((set, version)));
        }
    }
    later.sort_unstable();
    let sets = std::fs::read_dir(&folder).unwrap().count();
    assert_eq!(sets, EARLIER.len(), "a new folder below migrations/ has to be added here");
    assert_eq!(later, BACK.map(|(set, version, _)| (set, version)), "the upgrade is tried only with migrations that are taken back here");
}

#[test]
#[ignore = "long: starts Drover three times, and a move of 15 s"]
fn earlier_version_with_a_move_under_way_is_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let members = clusters(2, &folder.path().join("sim"));
    let (up, url) = start(folder.path());
    for (name, provider, priority, file) in
        [("private-a", "onprem", "1", "sim/sim-1.kubeconfig"), ("public-b", "aws", "5", "sim/sim-2.kubeconfig")]
    {
        ok(&url, &["cluster", "add", name, "--provider", provider, "--priority", priority, "--kubeconfig", &at(file)]);
    }
    wait(|| json(&url, &["get", "clusters", "-o", "json"]).as_array().unwrap().iter().all(|cluster| cluster["ageMs"].is_u64()));
    // `still` stays where it is, `slow` takes 15 s to start anywhere.
    let mut slow = workload("slow", "500m", "");
    slow[0]["spec"]["template"]["metadata"]["annotations"] = serde_json::json!({"kit/start-delay": "15s", "kit/start-delay-max": "15s"});
    write(&folder.path().join("slow.yaml"), &slow);
    write(&folder.path().join("still.yaml"), &workload("still", "500m", ""));
    ok(&url, &["deploy", "still", "-f", &at("still.yaml"), "--only", "public-b", "--wait"]);
    ok(&url, &["deploy", "slow", "-f", &at("slow.yaml"), "--movable", "--wait"]);
    let plan = json(&url, &["plan", "drain", "private-a", "-o", "json"]);
    ok(&url, &["plan", "apply", plan["id"].as_str().unwrap()]);
    let moves = |url: &str| json(url, &["get", "moves", "-o", "json"]);
    let on = |url: &str, app: &str| {
        let apps = json(url, &["get", "apps", app, "-o", "json"]);
        let copies = apps[0]["bindings"].as_array().unwrap().iter();
        copies.map(|copy| format!("{} {}", copy["member"].as_str().unwrap(), copy["phase"].as_str().unwrap())).collect::<Vec<_>>()
    };
    wait(|| on(&url, "slow").len() == 2);
    ok(&url, &["backup", "--data", &at("data"), "--out", &at("before-upgrade.backup")]);
    assert_ne!(moves(&url)[0]["stage"], "done", "the move has to be under way when Drover ends");
    drop(up);

    let data = folder.path().join("data");
    unseal(&data);
    let back =
        BACK.map(|(set, version, statements)| in_schema(set, &format!("{statements}; delete from MIGRATIONS where version = {version}")));
    sql(&data, &(back.concat() + &earlier_names()));
    let (up, url) = start(folder.path());
    wait(|| moves(&url)[0]["stage"] == "done" && on(&url, "slow") == ["aws+public-b Ready"]);
    assert_eq!(on(&url, "still"), ["aws+public-b Ready"]);
    wait(|| json(&url, &["get", "operations", "-o", "json"]).as_array().unwrap().iter().all(|operation| operation["state"] == "succeeded"));
    let states = || json(&url, &["get", "clusters", "-o", "json"]).as_array().unwrap().iter().all(|cluster| cluster["state"] == "Ready");
    wait(states);
    // What ran before is updated and removed as if this version had deployed it.
    write(&folder.path().join("still.yaml"), &workload("still", "600m", ""));
    ok(&url, &["deploy", "still", "-f", &at("still.yaml"), "--wait"]);
    ok(&url, &["rollback", "still", "--dry-run"]);
    ok(&url, &["delete", "slow"]);
    ok(&url, &["delete", "still"]);
    drop(up);

    sql(
        &data,
        "do $$ begin if exists (select from drover_orchestrator.bundle where sealed is null)
           or exists (select from drover_orchestrator.file where sealed is null)
           or exists (select from drover_resource_synchronizer.bundle where sealed is null)
         then raise exception 'something that the earlier version stored is still in clear text'; end if; end $$",
    );
    // The way back: a database that a later version has migrated is refused.
    sql(&data, &in_schema("orchestrator", "insert into MIGRATIONS select 9999, 'later', now(), true, checksum, 0 from MIGRATIONS limit 1"));
    let mut old = std::process::Command::new(DROVER);
    old.args(["up", "--local-clusters", "--data", &at("data"), "--config", &at("drover.toml")])
        .env("HOME", HOME)
        .env_remove("DATABASE_URL");
    let refused = old.output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("9999"), "{said}");
    // And the backup is of the time before.
    ok(&url, &["restore", &at("before-upgrade.backup"), "--data", &at("restored")]);
    drop(members);
}
