//! `tns providers` as a person and a script see it, against stand-ins of the providers: states, checks with
//! their exit codes, models and voices, and that a key shows up nowhere.

use serde_json::json;
use tns_tests::http;
use tns_tests::standin::{BAD_KEY, BROKE_KEY, GOOD_KEY, OUTAGE_KEY, Standin};

use crate::binary::Home;

/// Must show up nowhere.
const CANARY: &str = "canary-90bd2e";

/// A home where these providers are set up, each with a key of this sort.
fn home(standin: &Standin, keys: &[(&str, &str)]) -> Home {
    let variables =
        keys.iter().flat_map(|(provider, key)| standin.variables(provider, &format!("{key}-{CANARY}")));
    variables.fold(Home::bare(), |home, (name, value)| home.set(&name, &value))
}

#[tokio::test]
async fn with_nothing_set_up_it_says_how_to_begin() {
    let home = Home::new();
    let list = home.run(&["providers", "list"]).await;
    let rows: Vec<&str> = list.answer().lines().collect();
    assert!(rows[0].starts_with("anthropic          not set up"), "{rows:?}");
    let offline = rows.iter().find(|row| row.starts_with("offline ")).unwrap();
    assert!(offline.contains("needs no set-up  text "), "{offline}");
    let shown = home.run(&["providers", "show", "openai"]).await;
    assert!(shown.answer().contains("keys      https://platform.openai.com/api-keys"), "{shown:?}");
    let check = home.run(&["providers", "check"]).await;
    assert_eq!(check.code, Some(2), "{check:?}");
    assert!(check.complaints()[0].starts_with("tns: no provider is set up"), "{check:?}");
    for command in ["models", "check"] {
        let unset = home.run(&["providers", command, "openai"]).await;
        assert_eq!(unset.code, Some(2), "{unset:?}");
        assert!(unset.complaints()[0].contains("set OPENAI_API_KEY"), "{unset:?}");
    }
    for command in ["show", "check", "models", "voices"] {
        let unknown = home.run(&["providers", command, "nobody"]).await;
        assert_eq!(unknown.code, Some(7), "{unknown:?}");
        assert!(unknown.complaints()[0].contains("there is no provider nobody; there are "), "{unknown:?}");
    }
}

#[tokio::test]
async fn a_check_tells_what_is_wrong_with_each_in_one_line_and_ends_with_4() {
    let standin = Standin::start().await;
    let keys =
        [("anthropic", GOOD_KEY), ("openai", BAD_KEY), ("gemini", BROKE_KEY), ("elevenlabs", OUTAGE_KEY)];
    let home = home(&standin, &keys);
    let check = home.run(&["providers", "check"]).await;
    assert_eq!(
        (check.code, check.stdout.as_str()),
        (Some(4), "anthropic: ok: text; has credit\n"),
        "{check:?}"
    );
    let complaints = check.complaints();
    assert_eq!(complaints.len(), 3, "{complaints:?}");
    for (complaint, begins) in complaints.iter().zip([
        "tns: openai: bad key: openai refused the key: check OPENAI_API_KEY",
        "tns: gemini: no credit: the gemini account has no credit: ",
        "tns: elevenlabs: outage: elevenlabs is down or overloaded (HTTP 500)",
    ]) {
        assert!(complaint.starts_with(begins), "{complaint}");
    }
    let one = home.run(&["providers", "check", "anthropic", "--json"]).await;
    let ok =
        json!({ "checks": [{ "provider": "anthropic", "ok": true, "kinds": ["text"], "credit": "ok" }] });
    assert_eq!((one.code, one.json()), (Some(0), ok));
    let bad = home.run(&["providers", "check", "openai", "--json"]).await;
    assert_eq!((bad.code, &bad.json()["checks"][0]["code"]), (Some(4), &json!("BAD_KEY")));
    for ran in [check, one, bad] {
        assert!(!format!("{ran:?}").contains(CANARY), "{ran:?}");
    }
}

#[tokio::test]
async fn a_provider_that_can_not_be_reached_is_an_outage_even_where_it_is_the_default() {
    let held = tns_tests::Nobody::new();
    let nobody = held.address();
    let home = Home::bare().set("PROVIDER_BASE_URL_OPENAI_COMPATIBLE", &format!("http://{nobody}/v1"));
    let check = home.run(&["providers", "check"]).await;
    assert_eq!(check.code, Some(4), "{check:?}");
    let begins = "tns: openai-compatible: outage: can't reach openai-compatible at 127.0.0.1:";
    assert!(check.complaints()[0].starts_with(begins), "{check:?}");
}

#[tokio::test]
async fn a_key_from_a_pipe_is_checked_and_kept_nowhere() {
    let standin = Standin::start().await;
    let [address, _] = standin.variables("anthropic", "");
    let home = Home::new().set(&address.0, &address.1);
    let check = ["providers", "check", "anthropic", "--key-stdin"];
    let good = home.run_with_input(&check, &format!("{GOOD_KEY}-{CANARY}\n")).await;
    assert_eq!(good.answer(), "anthropic: ok: text; has credit\n");
    let bad = home.run_with_input(&check, &format!("{BAD_KEY}-{CANARY}\n")).await;
    let words = "tns: anthropic: bad key: anthropic refused the key: check the given key";
    assert_eq!((bad.code, bad.complaints()), (Some(4), vec![words]));
    let none = home.run_with_input(&check, "\n").await;
    assert_eq!(none.code, Some(2), "{none:?}");
    let several = ["providers", "check", "anthropic", "openai", "--key-stdin"];
    let several = home.run_with_input(&several, CANARY).await;
    assert_eq!(several.code, Some(2), "{several:?}");
    for ran in [good, bad, none, several] {
        assert!(!format!("{ran:?}").contains(CANARY), "{ran:?}");
    }

    // The most that a server logs, with a key in a good body and in a wrong one.
    let serving = home.serve(&["-v", "-v"]).await;
    let path = "/api/providers/anthropic/validate";
    let key = json!({ "key": format!("{BAD_KEY}-{CANARY}") });
    assert_eq!(http::call(serving.address(), "POST", path, Some(&key)).await.status, 422);
    assert_eq!(http::call(serving.address(), "POST", path, Some(&json!([CANARY]))).await.status, 400);
    assert!(!serving.log().contains(CANARY), "{}", serving.log());
    serving.kill().await;
    let stored = std::fs::read(home.data().join("tns.db")).unwrap();
    assert!(!String::from_utf8_lossy(&stored).contains(CANARY));
}

#[tokio::test]
async fn models_and_voices_stand_in_columns() {
    let standin = Standin::start().await;
    let home = home(&standin, &[("anthropic", GOOD_KEY), ("elevenlabs", GOOD_KEY)]);
    let models = home.run(&["providers", "models", "anthropic"]).await;
    let rows: Vec<&str> = models.answer().lines().collect();
    assert_eq!(rows[0], "text  *  claude-opus-5-5            1000000  pictures");
    assert_eq!(rows[5], "text     claude-haiku-4-5-20251001  200000   -");
    let json = home.run(&["providers", "models", "anthropic", "--json"]).await.json();
    assert_eq!((&json["provider"], json["models"].as_array().unwrap().len()), (&json!("anthropic"), 6));
    let voices = home.run(&["providers", "voices", "elevenlabs"]).await;
    assert_eq!(voices.answer().lines().next(), Some("  voice0  tts  Rachel  Calm and clear"));
    let fixed = home.run(&["providers", "voices", "openai"]).await;
    assert!(fixed.answer().starts_with("*  marin    realtime,tts  marin\n"), "{fixed:?}");
    let none = home.run(&["providers", "voices", "anthropic"]).await;
    assert_eq!((none.answer(), none.stderr.contains("anthropic has no voices")), ("", true), "{none:?}");
    let list = home.run(&["providers", "list", "--json"]).await.json();
    assert_eq!(list["providers"][0]["configuredBy"], "PROVIDER_BASE_URL_ANTHROPIC");
}
