//! What is taken out and what stays: two tables, and properties that hold for any text.

use proptest::prelude::*;

use super::*;

/// A text whose secret stands between `«` and `»`.
const SECRETS: &[&str] = &[
    // Forms.
    "use «sk-ant-api03-Zx81kQpV0mB4tY7uWc2R» please",
    "«sk-proj-a8sd7f6a8s7d6f_8a7sd6f87a6sd»",
    "old style «sk-3f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c»",
    "«sk-or-v1-0a1b2c3d4e5f60718293a4b5c6d7e8f9»",
    "(«AIzaSyA1bC2dE3fG4hI5jK6lM7nO8pQ9rS0tU1v»)",
    "«gsk_9XkQ2mVb7TzL4pWc8RnY», «xai-9XkQ2mVb7TzL4pWc8RnY»",
    "«hf_AbCdEfGhIjKlMnOpQrSt»",
    "sk «sk_9f8e7d6c5b4a39281706f5e4d3c2b1a0» eleven",
    "«ghp_16C7e42F292c6912E7710c838347Ae178B4a»",
    "remote «github_pat_11ABCDEFG0aBcDeFgHiJkL»",
    "«glpat-xYz12345AbCdEfGh6789»",
    "aws «AKIAIOSFODNN7EXAMPLE» id",
    "«xoxb-123456789012-abcdefABCDEF»",
    "«npm_abcdefghijklmnopqrstuvwxyz0123456789»",
    "jwt «eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N»",
    r"in JSON: one\n«sk-ant-api03-Zx81kQpV0mB4tY7uWc2R»\ntwo",
    "-----BEGIN RSA PRIVATE KEY-----«\nMIIEpAIBAAKCAQEA\nabc\n»-----END RSA PRIVATE KEY-----",
    "-----BEGIN OPENSSH PRIVATE KEY-----«\\nb3BlbnNzaC1rZXk\\n»-----END OPENSSH PRIVATE KEY-----",
    "cut: -----BEGIN PRIVATE KEY-----«\nMIIEvQ»",
    "postgres://app:«hunter2»@db.example:5432/shop",
    "git clone https://me:«p%40ss»@git.example/x.git now",
    "redis://:«only»@cache:6379",
    "amqp://u:«a:b@c»@host/",
    // Headers.
    "Authorization: Bearer «abcdef»",
    "authorization: Basic «dXNlcjpwYXNz»",
    r#"curl -H "Authorization: Bearer «tok-1»" https://api.example"#,
    r#"{"authorization":"«Bearer tok-1»"}"#,
    r#"{\"Authorization\": \"«Token t0ken»\"}"#,
    "Authorization: Digest «username=\"Mufasa\", response=\"6629fae4\"»",
    "a Bearer «a1b2c3d4e5» in prose",
    "Authorization: «Zx81kQpV0mB4»",
    "Proxy-Authorization: Basic «dXNlcjpwYXNz»",
    "x-api-key: «Zx81kQpV0mB4tY7u»",
    "Cookie: «sid=8f7a6b5c4d3e»",
    // Names.
    "PASSWORD=«hunter2»",
    "export DB_PASSWORD='«correct horse»'",
    "DB_PASS=«x9z»",
    r#"{"password": "«hunter2»"}"#,
    r#"{\"password\":\"«hunter2»\"}"#,
    "password: «hunter2»",
    "mysql --password=«secret1» -u root",
    "tool --token «abc123def456» run",
    "API_KEY=«ab12cd34»",
    "OPENAI_API_KEY=\"«not-a-known-form-81kQpV0mB4t»\"",
    "AWS_SECRET_ACCESS_KEY=«wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY1»",
    "https://api.example/v1?api_key=«Zx81kQpV0mB4tY7u»&page=2",
    "https://api.example/v1?page=2&access_token=«Zx81kQpV0mB4tY7u»",
    "clientSecret: '«8Q~aB3dE5fG7hI9jK1lM3nO5»'",
    "apikey := \"«Zx81kQpV0mB4tY7u»\"",
    "'token' => '«0f1e2d3c4b5a69788796a5b4»',",
    "  auth_token: «0f1e2d3c4b5a69788796a5b4»",
    "Server=x;Uid=me;Pwd=«hunter2»;",
    "passphrase = \"«open sesame»\"",
    "SIGNING_KEY=«550e8400-e29b-41d4-a716-446655440000»",
    "two PASSWORD=«hunter2» and TOKEN=«ab12cd34ef»",
    "職 PASSWORD=«日本語の鍵» 員",
];

/// Text without a secret, which stays as it is.
const HARMLESS: &[&str] = &[
    "",
    "the harbour is quiet",
    "a risk-assessment-of-the-new-harbour-2024 was made",
    "sk-learn-tutorial-for-beginners-2024",
    "see sk-… or AIza… in the docs",
    "task-3f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c",
    "hf_hub_download is a function",
    "AKIA is a prefix; AKIAshort too; AKIAIOSFODNN7EXAMPLEANDMORE is longer",
    "commit 3f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c4d3e2f1a",
    "550e8400-e29b-41d4-a716-446655440000",
    "call-0193a7b2c3d4e5f60718293a4b5c6d7e",
    "session 0193a7b2-c3d4-7e5f-8071-8293a4b5c6d7, agent assistant-1a2b3c4d",
    "doc-9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "eyJ is how a token begins; eyJhbGci.x.y is none",
    "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIE\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0B\n-----END PUBLIC KEY-----",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGx me@host",
    "https://example.com/a:b@c",
    "https://me@git.example/x.git",
    "mailto:me@example.com and http://localhost:7777/api",
    "https://user:$PASSWORD@host and https://user:<password>@host",
    "Authorization: see the manual",
    "Authorization is by peer",
    "the bearer of good news; bearer instruments",
    "Bearer <token>",
    "PASSWORD=$PASSWORD",
    "PASSWORD=${DB_PASSWORD:-}",
    "password: required",
    "password: please enter your password",
    "\"password\": \"\"",
    "password = getpass.getpass()",
    "password = None",
    "PASSWORD=********",
    "PASSWORD_FILE=/run/secrets/db",
    "PASSWORD=/run/secrets/db",
    "token = os.environ['TOKEN']",
    "const token = process.env.TOKEN1234567890;",
    "let token = next_token(input1234)?;",
    "max_tokens: 4096, token_count=1234567890123",
    "tokens: 9f8e7d6c5b4a39281706",
    "PWD=/home/me/project1",
    "OLDPWD=/home/me/project1",
    "pass: 12 of 12 tests1",
    "key: user-profile-settings-2024",
    "primary_key=9f8e7d6c5b4a39281706",
    "public_key: 9f8e7d6c5b4a39281706",
    "cache-key=v3-linux-9f8e7d6c5b4a39281706",
    "key == value1234567890ab",
    "Key::from(abc1234567890def)",
    "the key is under the mat",
    "KEYBOARD=qwerty1234567890x",
    "sort_key=2024-11-30T19:36:15Z",
    "fn token(&self) -> u64 { 42 }",
    "authors: Zx81kQpV0mB4tY7u",
    "api_key: YOUR_API_KEY",
    "api_key: <your key>",
    "secret: xxxxxxxxxxxxxxxx",
    "x-api-key: [redacted]",
    "日本語: パスワード=ひみつ",
];

/// Returns a marked text as it is found and as it is left.
fn expected(marked: &str) -> (String, String) {
    let (mut before, mut after) = (String::new(), String::new());
    let mut rest = marked;
    while let Some((plain, tail)) = rest.split_once('«') {
        let (secret, tail) = tail.split_once('»').unwrap();
        before.push_str(&format!("{plain}{secret}"));
        after.push_str(&format!("{plain}{MARK}"));
        rest = tail;
    }
    before.push_str(rest);
    after.push_str(rest);
    (before, after)
}

#[test]
fn every_secret_of_the_table_is_taken_out_and_nothing_beside_it() {
    let wrong: Vec<String> = SECRETS
        .iter()
        .map(|marked| expected(marked))
        .filter(|(before, after)| text(before) != after.as_str())
        .map(|(before, after)| format!("{before:?}\n  gave {:?}\n  not  {after:?}", text(&before)))
        .collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), SECRETS.len(), wrong.join("\n"));
}

#[test]
fn no_harmless_text_of_the_table_is_changed() {
    let changed: Vec<String> = HARMLESS
        .iter()
        .filter(|harmless| text(harmless) != **harmless)
        .map(|harmless| format!("{harmless:?} gave {:?}", text(harmless)))
        .collect();
    assert!(changed.is_empty(), "{} of {}:\n{}", changed.len(), HARMLESS.len(), changed.join("\n"));
}

#[test]
fn a_member_of_an_object_is_judged_by_its_name() {
    for (name, value, secret) in [
        ("password", "x", true),
        ("Authorization", "whatever it is", true),
        ("apiKey", "Zx81kQpV0mB4tY7u", true),
        ("apiKey", "short", false),
        ("password", "$PASSWORD", false),
        ("path", "Zx81kQpV0mB4tY7u", false),
        ("id", "0193a7b2-c3d4-7e5f-8071-8293a4b5c6d7", false),
        ("sessionId", "0193a7b2-c3d4-7e5f-8071-8293a4b5c6d7", false),
    ] {
        assert_eq!(named::is_secret(name, value), secret, "{name}: {value}");
    }
}

proptest! {
    #[test]
    fn any_text_is_taken_and_a_second_time_changes_nothing(
        head in any::<String>(), tail in any::<String>(), at in 0..SECRETS.len(),
    ) {
        let (secret, _) = expected(SECRETS[at]);
        let once = text(&format!("{head}\n{secret}\n{tail}")).into_owned();
        prop_assert_eq!(text(&once), once.as_str());
        let alone = text(&head).into_owned();
        prop_assert_eq!(text(&alone), alone.as_str());
    }
}
