//! `tns config`: where settings come from, what is refused, and that no key is ever shown.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use serde_json::{Value, json};
use tns_tests::provider::{ModelServer, text_body};
use tns_tests::secret_service::{Mood, SecretService};

use crate::binary::{Home, Ran, until};
use crate::terminal::{ENTER, SIZES, Terminal};

/// Must show up nowhere.
const CANARY: &str = "sk-canary-91aa04";
const BUS: &str = "DBUS_SESSION_BUS_ADDRESS";

/// Writes the user's config file.
fn configure(home: &Home, text: &str, mode: u32) -> PathBuf {
    let file = home.path().join(".config/tns/config.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
    file
}

fn mode(file: &PathBuf) -> u32 {
    fs::metadata(file).unwrap().permissions().mode() & 0o777
}

/// Returns a setting among those that `tns config show --json` printed.
fn setting(shown: &Ran, key: &str) -> Value {
    let all = shown.json()["values"].as_array().unwrap().clone();
    all.into_iter().find(|setting| setting["key"] == key).unwrap_or_else(|| panic!("{key} in {shown:?}"))
}

fn shows_no_key(ran: &Ran) {
    for text in [&ran.stdout, &ran.stderr] {
        assert!(!text.contains("canary") && !text.contains("91aa04"), "{ran:?}");
    }
}

#[tokio::test]
async fn what_is_set_is_shown_with_what_set_it_and_keys_are_not() {
    let home = Home::bare().set("TNS_MODEL", "m-2").set("GEMINI_API_KEY", CANARY);
    let text =
        format!("provider = \"openai\"\nmodel = \"m-1\"\n[providers.openai]\napi_key = \"{CANARY}\"\n");
    let file = configure(&home, &text, 0o600);
    let shown = home.run(&["config", "show", "--json"]).await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert_eq!((&shown.json()["path"], &shown.json()["exists"]), (&json!(file), &json!(true)));
    let own = json!({ "kind": "file", "name": "~/.config/tns/config.toml" });
    assert_eq!(
        setting(&shown, "provider"),
        json!({ "key": "provider", "value": "openai", "set": true, "origin": own })
    );
    assert_eq!(setting(&shown, "model")["origin"], json!({ "kind": "variable", "name": "TNS_MODEL" }));
    assert_eq!(
        setting(&shown, "providers.openai.api_key"),
        json!({ "key": "providers.openai.api_key", "set": true, "origin": own })
    );
    assert_eq!(setting(&shown, "providers.anthropic.api_key")["set"], false);
    assert_eq!(setting(&shown, "agents.provider_overrides")["origin"], json!({ "kind": "default" }));
    let table = home.run(&["config", "show"]).await;
    let line = table.answer().lines().find(|line| line.starts_with("providers.gemini.api_key")).unwrap();
    assert_eq!(line.split_whitespace().collect::<Vec<_>>()[1..], ["set", "GEMINI_API_KEY"]);
    for ran in [shown, table, home.run(&["config", "explain", "providers.openai.api_key"]).await] {
        shows_no_key(&ran);
    }
}

#[tokio::test]
async fn a_setting_is_explained_and_a_wrong_name_gets_the_nearest() {
    let home = Home::bare().set("TNS_DAILY_CAP", "2.5");
    let ran = home.run(&["config", "explain", "spend.daily"]).await;
    assert_eq!(
        ran.answer(),
        "spend.daily: most US dollars that models may cost a day\nvalue: 2.5 (TNS_DAILY_CAP)\n\
         set by, weakest first: spend.daily in the config file < TNS_DAILY_CAP\n"
    );
    let ran = home.run(&["config", "explain", "spend.dayly"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    assert_eq!(ran.complaints(), ["tns: there is no key spend.dayly; did you mean spend.daily?"]);
}

#[tokio::test]
async fn a_wrong_file_is_refused_with_its_line_by_every_command_that_would_use_it() {
    let home = Home::new();
    for (text, told) in [
        ("\nprovder = \"openai\"\n", ":2: there is no key provder; did you mean provider?"),
        ("[spend]\ndaily = \"x\"\n", ":2: spend.daily must be a number of US dollars, not text"),
        ("model = \n", ":1: "),
    ] {
        configure(&home, text, 0o600);
        for args in [&["run", "hello"][..], &["serve", "--port", "0"], &["config", "show"]] {
            let ran = home.run(args).await;
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
            let line = format!("tns: ~/.config/tns/config.toml{told}");
            assert!(ran.complaints().len() == 1 && ran.complaints()[0].starts_with(&line), "{ran:?}");
        }
    }
    // What neither starts a server nor tells of settings has no use for it.
    for args in [&["--version"][..], &["schema"], &["config", "path"]] {
        home.run(args).await.answer();
    }
}

#[tokio::test]
async fn a_key_that_others_can_read_is_refused_with_the_command_that_closes_it() {
    let home = Home::new();
    let text = format!("[providers.openai]\napi_key = \"{CANARY}\"\n");
    let file = configure(&home, &text, 0o644);
    let ran = home.run(&["run", "hello"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    assert!(
        ran.complaints()[0].ends_with(&format!("close it with `chmod 600 {}`", file.display())),
        "{ran:?}"
    );
    shows_no_key(&ran);
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    home.run(&["run", "hello"]).await.answer();
}

#[tokio::test]
async fn another_file_is_named_by_an_option_or_a_variable_and_one_of_the_folder_is_not_read() {
    let home = Home::bare().set("TNS_CONFIG", "mine.toml");
    home.write("mine.toml", "provider = \"offline\"\n");
    home.write("other.toml", "provider = \"gemini\"\n");
    home.write("tns.toml", "nope = 1\n");
    home.write(".tns.toml", "nope = 1\n");
    for name in ["mine.toml", "other.toml"] {
        fs::set_permissions(home.folder().join(name), Permissions::from_mode(0o600)).unwrap();
    }
    let shown = home.run(&["config", "show", "--json"]).await;
    assert_eq!(setting(&shown, "provider")["value"], "offline");
    let shown = home.run(&["config", "show", "--json", "--config", "other.toml"]).await;
    assert_eq!(setting(&shown, "provider")["origin"], json!({ "kind": "file", "name": "other.toml" }));
    let ran = home.run(&["--config", "gone.toml", "run", "hello"]).await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.complaints()[0].contains("there is no config file gone.toml"), "{ran:?}");
}

#[tokio::test]
async fn serve_and_its_info_name_the_source_of_the_choice() {
    let model = ModelServer::start([text_body(&["from the model"])]).await;
    let home = Home::bare();
    let text = format!(
        "model = \"m-1\"\n[providers.openai-compatible]\nbase_url = \"{}\"\napi_key = \"{CANARY}\"\n",
        model.base_url()
    );
    configure(&home, &text, 0o600);
    let server = home.serve(&["-vvv"]).await;
    assert!(server.first_line.ends_with(" · engine openai-compatible\n"), "{}", server.first_line);
    let reason = "providers.openai-compatible.base_url in ~/.config/tns/config.toml is set";
    until("it says why", || server.log().contains(&format!("model m-1: {reason}"))).await;
    let info = server.rest().info().await.unwrap();
    assert_eq!((info.default_model.as_str(), info.default_reason.as_str()), ("m-1", reason));
    assert_eq!(home.run(&["run", "hello"]).await.answer(), "from the model\n");
    assert_eq!(model.keys(), [format!("Bearer {CANARY}")]);
    assert!(!server.log().contains("canary"), "{}", server.log());
    server.kill().await;
    let server = home.serve(&["--provider", "offline", "--model", "offline"]).await;
    assert_eq!(server.rest().info().await.unwrap().default_reason, "named by --provider");
}

#[tokio::test]
async fn a_key_goes_into_the_keyring_and_is_used_from_there() {
    let service = SecretService::start(Mood::Open);
    let home = Home::bare().set(BUS, &service.address());
    let ran = home.run_with_input(&["config", "key", "set", "openai"], &format!("{CANARY}\n")).await;
    assert_eq!(ran.answer(), "");
    shows_no_key(&ran);
    assert_eq!(service.get("openai").as_deref(), Some(CANARY));
    let shown = home.run(&["-vvv", "config", "show", "--json"]).await;
    assert_eq!(
        setting(&shown, "providers.openai.api_key"),
        json!({ "key": "providers.openai.api_key", "set": true, "origin": { "kind": "keyring" } })
    );
    shows_no_key(&shown);
    let server = home.serve(&["-vvv"]).await;
    let info = server.rest().info().await.unwrap();
    assert_eq!(
        (info.default_provider.as_str(), info.default_reason.as_str()),
        ("openai", "the key of openai in the system keyring is set")
    );
    assert!(!server.log().contains("canary"), "{}", server.log());
    server.kill().await;
    home.run(&["config", "key", "rm", "openai"]).await.answer();
    assert_eq!(service.get("openai"), None);
    assert_eq!(home.run(&["config", "key", "rm", "openai"]).await.code, Some(7));
}

#[tokio::test]
async fn a_key_goes_into_the_file_where_that_is_asked_for() {
    let home = Home::bare();
    let ran = home.run_with_input(&["config", "key", "set", "openai"], CANARY).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
    assert!(ran.complaints()[0].contains("has no system keyring; set OPENAI_API_KEY"), "{ran:?}");
    assert!(ran.complaints()[0].contains("--file"), "{ran:?}");
    let file = configure(&home, "# mine\nmodel = \"m\"\n", 0o644);
    let ran = home.run_with_input(&["config", "key", "set", "openai", "--file"], CANARY).await;
    ran.answer();
    assert!(ran.stderr.contains("~/.config/tns/config.toml (mode 600)"), "{ran:?}");
    shows_no_key(&ran);
    assert_eq!(mode(&file), 0o600);
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(text, format!("# mine\nmodel = \"m\"\n\n[providers.openai]\napi_key = \"{CANARY}\"\n"));
    home.run(&["config", "key", "rm", "openai", "--file"]).await.answer();
    assert!(!fs::read_to_string(&file).unwrap().contains("api_key"));
    for (args, input) in
        [(["config", "key", "set", "nope"], "k"), (["config", "key", "set", "openai"], " \n")]
    {
        assert_eq!(home.run_with_input(&args, input).await.code, Some(2), "{args:?}");
    }
}

#[tokio::test]
async fn a_key_that_is_typed_is_not_shown() {
    let service = SecretService::start(Mood::Open);
    let home = Home::bare().set(BUS, &service.address());
    let mut terminal = Terminal::start(&home, &["config", "key", "set", "openai"], SIZES[0]);
    terminal.shows("key of openai (not shown):").await;
    terminal.press(&format!("{CANARY}{ENTER}"));
    assert_eq!(terminal.ended().await, 0);
    terminal.shows("the key of openai is in the system keyring").await;
    assert_eq!(service.get("openai").as_deref(), Some(CANARY));
    terminal.hides("canary").await;
    assert!(!String::from_utf8_lossy(&terminal.raw()).contains("canary"));
}

#[tokio::test]
async fn a_start_without_a_head_never_waits_for_a_keyring() {
    // A bus that is gone, one that takes nobody in, one that says nothing, one without a keyring on it, none.
    let silent = SecretService::start(Mood::Silent);
    let absent = SecretService::start(Mood::Absent);
    let dir = tempfile::tempdir().unwrap();
    let deaf = UnixListener::bind(dir.path().join("deaf")).unwrap();
    let socket = |name: &str| format!("unix:path={}", dir.path().join(name).display());
    for (address, says) in [
        (socket("gone"), "; the system keyring can't be asked: "),
        (socket("deaf"), "; the system keyring did not answer within 300 ms"),
        (silent.address(), "; the system keyring did not answer within 300 ms"),
        (absent.address(), "answers on this machine"),
        ("disabled:".to_owned(), "answers on this machine"),
    ] {
        // Nobody names an engine, so a key in the keyring would matter: it is asked, and left at its limit.
        let home = Home::bare().set(BUS, &address);
        let server = home.serve(&[]).await;
        if server.first_line.ends_with(" · engine offline\n") {
            until("it says why", || server.log().contains(says)).await;
        } else {
            eprintln!("SKIPPED in part: a model runs on this machine");
        }
        drop(server);
        let model = ModelServer::start([text_body(&["here"])]).await;
        let home = Home::with_model(&model).set(BUS, &address);
        assert_eq!(home.run(&["run", "hello"]).await.answer(), "here\n", "{address}");
    }
    drop(deaf);
}

#[tokio::test]
async fn what_wants_no_key_asks_no_keyring() {
    let service = SecretService::start(Mood::Open);
    let home = Home::new().set(BUS, &service.address());
    for args in [&["--version"][..], &["kb", "list"], &["schema"], &["run", "hello"], &["config", "path"]] {
        home.run(args).await.answer();
    }
    let home = Home::bare().set(BUS, &service.address()).set("ANTHROPIC_API_KEY", "k");
    let server = home.serve(&[]).await;
    assert!(server.first_line.ends_with(" · engine anthropic\n"), "{}", server.first_line);
    assert_eq!(service.calls(), Vec::<String>::new());
}

#[tokio::test]
async fn a_locked_keyring_is_said_to_be_and_nothing_waits_for_its_password() {
    let service = SecretService::start(Mood::Locked);
    service.put("openai", CANARY);
    let home = Home::bare().set(BUS, &service.address());
    let ran = home.run_with_input(&["config", "key", "set", "gemini"], CANARY).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.complaints()[0].contains("the system keyring is locked; unlock it, or set GEMINI_API_KEY"),
        "{ran:?}"
    );
    let shown = home.run(&["config", "show"]).await;
    assert!(shown.stderr.contains("locked and holds a key for openai"), "{shown:?}");
    service.turn(Mood::Open);
    let shown = home.run(&["config", "show", "--json"]).await;
    assert_eq!(setting(&shown, "providers.openai.api_key")["origin"]["kind"], "keyring");
}
