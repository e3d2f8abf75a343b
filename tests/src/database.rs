//! Databases of systems, which have the tables of all services already: applying all migrations takes longer than copying a database.
//! A migration that is not known here yet is applied by its service.

use drover_store::{MigrationSet, Store, StoreConfig};
use drover_testkit::{TestDb, prepared_db};
use secrecy::SecretString;

/// A new database with the empty tables of all services.
pub(crate) async fn migrated() -> TestDb {
    prepared_db("system", migrate).await
}

async fn migrate(url: SecretString) {
    let resources = drover_resources::migrations;
    let services: [(&'static str, Vec<MigrationSet>); 6] = [
        ("cluster-manager", vec![resources(), MigrationSet::new("cluster-manager", sqlx::migrate!("../migrations/cluster-manager"))]),
        ("gateway", vec![MigrationSet::new("gateway", sqlx::migrate!("../migrations/gateway"))]),
        ("migration", vec![resources(), MigrationSet::new("migration", sqlx::migrate!("../migrations/migration"))]),
        ("orchestrator", drover_orchestrator::migrations().into()),
        ("placement", vec![MigrationSet::new("placement", sqlx::migrate!("../migrations/placement"))]),
        ("resource-synchronizer", vec![MigrationSet::new("resource-synchronizer", sqlx::migrate!("../migrations/resource-synchronizer"))]),
    ];
    for (service, sets) in services {
        let store = Store::connect(&StoreConfig::new(service, url.clone()), &sets).await.expect("an empty database can be migrated");
        store.close().await;
    }
}
