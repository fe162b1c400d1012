//! A keyring that is open, locked, silent or absent; the stand-in's reading of D-Bus is not ours.

use std::os::unix::net::UnixListener;

use secrecy::ExposeSecret;
use tns_tests::secret_service::{Mood, SecretService};

use super::*;

const IDS: &[&str] = &["anthropic", "openai", "openai-compatible"];

fn keyring(address: &str) -> Keyring {
    let address = OsString::from(address);
    Keyring::announced(move |name| (name == "DBUS_SESSION_BUS_ADDRESS").then(|| address.clone()))
}

/// Runs what waits for the stand-in on a thread that may wait.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

async fn look(keyring: &Keyring) -> (Vec<(&'static str, String)>, Option<Trouble>) {
    let keyring = keyring.clone();
    let Looked { keys, trouble } = blocking(move || keyring.look(IDS)).await;
    (keys.into_iter().map(|(id, key)| (id, key.expose_secret().to_owned())).collect(), trouble)
}

#[tokio::test]
async fn keys_are_kept_found_replaced_and_removed() {
    let service = SecretService::start(Mood::Open);
    let keyring = keyring(&service.address());
    assert_eq!(look(&keyring).await, (vec![], None));
    for key in ["first-key", "second \"key\""] {
        let own = keyring.clone();
        assert_eq!(blocking(move || own.keep("openai-compatible", key.into())).await, Ok(()));
        assert_eq!(service.get("openai-compatible").as_deref(), Some(key));
    }
    service.put("anthropic", "other\n");
    let found = vec![("anthropic", "other".to_owned()), ("openai-compatible", "second \"key\"".to_owned())];
    assert_eq!(look(&keyring).await, (found, None));
    let own = keyring.clone();
    let removed = blocking(move || [own.remove("anthropic"), own.remove("anthropic")]).await;
    assert_eq!(removed, [Ok(true), Ok(false)]);
}

#[tokio::test]
async fn a_locked_keyring_is_said_to_be_and_asks_nobody() {
    let service = SecretService::start(Mood::Locked);
    let keyring = keyring(&service.address());
    assert_eq!(look(&keyring).await, (vec![], None), "nothing of ours is in it");
    service.put("openai", "k");
    assert_eq!(look(&keyring).await, (vec![], Some(Trouble::Locked(vec!["openai"]))));
    let own = keyring.clone();
    assert_eq!(blocking(move || own.keep("openai", "k".into())).await, Err(Trouble::Locked(vec![])));
    let own = keyring.clone();
    assert_eq!(blocking(move || own.remove("openai")).await, Err(Trouble::Locked(vec!["openai"])));
    let calls = service.calls();
    assert!(calls.contains(&"Dismiss".to_owned()), "the question is taken back: {calls:?}");
    assert!(!calls.iter().any(|call| call == "Unlock" || call == "Prompt"), "{calls:?}");
}

#[tokio::test]
async fn a_bus_without_a_keyring_and_no_bus_at_all_are_no_trouble_to_the_server() {
    let service = SecretService::start(Mood::Absent);
    assert_eq!(look(&keyring(&service.address())).await, (vec![], Some(Trouble::Absent)));
    let none = Keyring::announced(|_| None);
    assert!(!none.is_announced() && none.store().is_none());
    assert_eq!(look(&none).await, (vec![], Some(Trouble::Absent)));
}

#[tokio::test]
async fn a_dead_address_fails_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let dead = keyring(&format!("unix:path={}/gone", dir.path().display()));
    assert!(matches!(look(&dead).await, (keys, Some(Trouble::Failed(_))) if keys.is_empty()));
}

#[tokio::test]
async fn a_silent_bus_is_left_after_the_limit() {
    let service = SecretService::start(Mood::Silent);
    let silent = keyring(&service.address());
    assert_eq!(look(&silent).await, (vec![], Some(Trouble::Late(LOOK_LIMIT))));
    assert!(LOOK_LIMIT <= Duration::from_millis(300));
}

#[test]
fn a_bus_that_takes_nobody_in_is_left_after_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("bus");
    let _listener = UnixListener::bind(&socket).unwrap();
    let full = keyring(&format!("unix:path={}", socket.display()));
    let looked = full.look(IDS);
    assert_eq!(looked.trouble, Some(Trouble::Late(LOOK_LIMIT)));
}

#[test]
fn trouble_is_told_with_what_to_do() {
    let locked = Trouble::Locked(vec!["openai"]);
    assert_eq!(locked.describe(), "the system keyring is locked and holds a key for openai");
    assert!(locked.fix("openai").starts_with("unlock it, or set OPENAI_API_KEY"));
    assert_eq!(Trouble::Late(LOOK_LIMIT).describe(), "the system keyring did not answer within 300 ms");
    assert!(format!("{:?}", Looked::default()).contains("trouble"));
}
