//! `tns doctor`: a sound machine, and one where everything is broken.

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};

use serde_json::Value;
use tns_tests::provider::{ModelServer, text_body};
use tns_tests::secret_service::{Mood, SecretService};
use tns_tests::standin::{BAD_KEY, GOOD_KEY, OUTAGE_KEY, Standin};
use tokio::net::TcpListener;

use crate::binary::{Home, Ran};

/// Must show up nowhere.
const CANARY: &str = "sk-canary-3c55e0";

/// Runs it on a port that is free, as JSON.
async fn examine(home: &Home, options: &[&str]) -> Ran {
    home.run(&[&["doctor", "--json", "--port", &free_port().await], options].concat()).await
}

async fn free_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().port().to_string()
}

fn check(ran: &Ran, name: &str) -> Value {
    let all = ran.json()["checks"].as_array().unwrap().clone();
    let found = all.into_iter().find(|check| check["name"].as_str().unwrap().starts_with(name));
    found.unwrap_or_else(|| panic!("{name} in {ran:?}"))
}

fn statuses(ran: &Ran, names: &[&str]) -> Vec<String> {
    names.iter().map(|name| check(ran, name)["status"].as_str().unwrap().to_owned()).collect()
}

fn configure(home: &Home, text: &str, mode: u32) {
    let file = home.path().join(".config/tns/config.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn an_empty_home_is_sound_and_stays_empty() {
    let home = Home::new();
    let ran = examine(&home, &[]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert_eq!(ran.json()["ok"], true);
    assert_eq!(check(&ran, "engine")["detail"], "offline, model offline: named by TNS_PROVIDER");
    assert_eq!(statuses(&ran, &["config file", "data folder", "port", "terminal", "bash"]), ["ok"; 5]);
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0, "it only looks");
    let table = home.run(&["doctor", "--port", &free_port().await]).await;
    let lines = ran.json()["checks"].as_array().unwrap().len();
    assert_eq!(table.answer().lines().count(), lines);
    assert!(
        table.stdout.lines().all(|line| line.starts_with("ok  ") || line.starts_with("warn")),
        "{table:?}"
    );
}

#[tokio::test]
async fn everything_broken_is_a_list_of_findings_with_what_mends_them() {
    let home = Home::bare().set("TNS_PROVIDER", "nope").set("OPENAI_COMPATIBLE_API_KEY", CANARY);
    configure(&home, &format!("[providers.openai]\napi_key = {CANARY}\n"), 0o644);
    DirBuilder::new().recursive(true).mode(0o700).create(home.data()).unwrap();
    fs::write(home.data().join("tns.db"), "no database ".repeat(1_000)).unwrap();
    fs::set_permissions(home.data(), Permissions::from_mode(0o755)).unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let hang_up = async { while taken.accept().await.is_ok() {} };
    let args = ["-vvv", "doctor", "--json", "--port", &port];
    let ran = tokio::select! {
        ran = home.run(&args) => ran,
        () = hang_up => unreachable!(),
    };
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(ran.json()["ok"], false);
    assert_eq!(statuses(&ran, &["config file", "data folder", "store", "engine"]), ["fail"; 4]);
    assert_eq!(statuses(&ran, &["port", "key of openai-compatible"]), ["warn"; 2]);
    for check in ran.json()["checks"].as_array().unwrap().iter().filter(|check| check["status"] != "ok") {
        assert!(check["fix"].as_str().is_some_and(|fix| !fix.is_empty()), "{check}");
    }
    assert!(check(&ran, "config file")["detail"].as_str().unwrap().contains("config.toml:2: "), "{ran:?}");
    assert!(!ran.stdout.contains("canary") && !ran.stderr.contains("canary"), "{ran:?}");
    assert!(ran.complaints().is_empty(), "what is wrong was told already: {ran:?}");
}

#[tokio::test]
async fn a_home_that_can_not_be_used_and_a_wrong_variable_are_findings() {
    for (name, value, finding) in [
        ("HOME", "/dev/null/home", "data folder"),
        ("HOME", "relative", "data folder"),
        ("TNS_DATA_DIR", "/dev/null", "data folder"),
        ("TNS_CONFIG", "/dev/null/x", "config file"),
        ("TNS_DAILY_CAP", "much", "environment"),
    ] {
        let ran = examine(&Home::new().set(name, value), &[]).await;
        assert_eq!(ran.code, Some(1), "{name}={value}: {ran:?}");
        assert_eq!(check(&ran, finding)["status"], "fail", "{name}={value}: {ran:?}");
    }
}

#[tokio::test]
async fn a_server_is_found_with_its_address_and_its_port_is_its_own() {
    let home = Home::new();
    let server = home.serve(&[]).await;
    let port = server.address().rsplit_once(':').unwrap().1.to_owned();
    let ran = home.run(&["doctor", "--json", "--port", &port]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let found = check(&ran, "server")["detail"].as_str().unwrap().to_owned();
    assert_eq!(
        found,
        format!("process {} holds the data folder and answers at {}", server.pid(), server.url())
    );
    assert!(check(&ran, "port")["detail"].as_str().unwrap().contains("this data folder"), "{ran:?}");
    assert_eq!(statuses(&ran, &["store", "data folder", "port"]), ["ok"; 3]);
    // Another home's server is no stranger, and not this one's.
    let ran = Home::new().run(&["doctor", "--json", "--port", &port]).await;
    assert!(check(&ran, "port")["detail"].as_str().unwrap().contains("another data folder"), "{ran:?}");
}

#[tokio::test]
async fn keys_are_told_by_where_they_are_and_never_shown() {
    let service = SecretService::start(Mood::Open);
    service.put("gemini", CANARY);
    let model = ModelServer::start([text_body(&[])]).await;
    let home = Home::with_model(&model)
        .set("DBUS_SESSION_BUS_ADDRESS", &service.address())
        .set("ANTHROPIC_API_KEY", CANARY);
    configure(&home, &format!("[providers.openai]\napi_key = \"{CANARY}\"\n"), 0o600);
    let ran = examine(&home, &["-vvv"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for (name, place) in [
        ("key of anthropic", "ANTHROPIC_API_KEY"),
        ("key of openai", "providers.openai.api_key in ~/.config/tns/config.toml"),
        ("key of gemini", "in the system keyring"),
        ("keyring", "holds 1 of the keys"),
        ("engine", "ANTHROPIC_API_KEY is set"),
    ] {
        assert!(check(&ran, name)["detail"].as_str().unwrap().contains(place), "{name}: {ran:?}");
    }
    assert!(!ran.stdout.contains("canary") && !ran.stderr.contains("canary"), "{ran:?}");
    service.turn(Mood::Locked);
    let ran = examine(&home, &[]).await;
    assert_eq!(check(&ran, "keyring")["status"], "warn", "{ran:?}");
}

#[tokio::test]
async fn keys_are_tried_only_where_that_is_asked_for() {
    for (key, status) in [(GOOD_KEY, "ok"), (BAD_KEY, "fail"), (OUTAGE_KEY, "warn")] {
        let standin = Standin::start().await;
        let mut home = Home::bare().set("TNS_PROVIDER", "offline");
        for (name, value) in standin.variables("openai", &format!("{key}-{CANARY}")) {
            home = home.set(&name, &value);
        }
        let silent = examine(&home, &[]).await;
        assert_eq!(silent.code, Some(0), "{silent:?}");
        assert!(standin.requests().is_empty() && standin.lists().is_empty(), "nobody was asked");
        let ran = examine(&home, &["--online", "-vvv"]).await;
        assert_eq!(check(&ran, "openai online")["status"], status, "{ran:?}");
        assert_eq!(ran.code, Some(i32::from(status == "fail")), "{ran:?}");
        assert!(!ran.stdout.contains("canary") && !ran.stderr.contains("canary"), "{ran:?}");
    }
}
