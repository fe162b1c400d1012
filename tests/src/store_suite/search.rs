//! Finding messages: by any words, in one's own sessions, with the place and the line.

use tns_protocol::{ClientMessageId, Timestamp, ToolCallId};
use tns_server_core::event::{DurableEvent, ToolFinished};
use tns_server_core::message::ToolResult;
use tns_server_core::store::{
    Append, Condition, ImportedEvent, LOCAL_PRINCIPAL, MAX_PAGE_HITS, NewEvent, SearchHit, SearchQuery,
    SearchSource, SessionState,
};

use super::import::new_import;
use super::{AnyStore, line, make, new_session, only_if, plain, replies, says, stored, user};

fn query(text: &str) -> SearchQuery {
    SearchQuery { principal: LOCAL_PRINCIPAL.into(), text: text.into(), limit: MAX_PAGE_HITS, after: None }
}

async fn hits(store: &impl AnyStore, text: &str) -> Vec<SearchHit> {
    let page = store.search(query(text)).await.unwrap();
    assert!(page.complete);
    for hit in &page.hits {
        assert!(hit.score.is_finite() && hit.score > 0.0, "{hit:?}");
        assert!(!hit.matches.is_empty(), "{hit:?}");
        assert!(hit.matches.iter().all(|place| hit.snippet.get(place.clone()).is_some()), "{hit:?}");
        assert!(!hit.snippet.contains(char::is_control), "{hit:?}");
    }
    page.hits
}

/// Where hits are: the session and the place, 0 for the title.
async fn places(store: &impl AnyStore, text: &str) -> Vec<(String, u64)> {
    let place = |hit: SearchHit| (hit.session.to_string(), hit.seq.unwrap_or(0));
    hits(store, text).await.into_iter().map(place).collect()
}

async fn sorted_places(store: &impl AnyStore, text: &str) -> Vec<(String, u64)> {
    let mut places = places(store, text).await;
    places.sort();
    places
}

fn at(session: &str, seq: u64) -> (String, u64) {
    (session.to_owned(), seq)
}

/// With who said it, when, and the line around it.
pub async fn messages_and_titles_are_found_with_their_places(store: &impl AnyStore) {
    let record = make(store, "s").await;
    let events =
        vec![line("x"), says("m-1", "where is\nthe   needle?"), replies("m-2", "The needle is here.")];
    let stored_at = stored(store, plain(record.key, events)).await[1].at;
    let mut found = hits(store, "needle").await;
    found.sort_by_key(|hit| hit.seq);
    let told: Vec<_> = found.iter().map(|hit| (hit.seq, hit.source, hit.snippet.as_str())).collect();
    let expected = [
        (Some(2), SearchSource::User, "where is the needle?"),
        (Some(3), SearchSource::Assistant, "The needle is here."),
    ];
    assert_eq!(told, expected);
    for hit in &found {
        assert_eq!((hit.key, &hit.session, &hit.title), (record.key, &record.id, &record.title));
        assert_eq!(hit.at, stored_at);
        assert_eq!(hit.matches.iter().map(|m| &hit.snippet[m.clone()]).collect::<Vec<_>>(), ["needle"]);
    }
    let found = hits(store, "about s").await;
    let told: Vec<_> = found.iter().map(|hit| (hit.seq, hit.source, hit.at, hit.snippet.as_str())).collect();
    assert_eq!(told, [(None, SearchSource::Title, record.created_at, "about s")]);
}

/// The kinds of text that searches are known to miss.
pub async fn words_are_found_in_any_case_script_and_width(store: &impl AnyStore) {
    let session = make(store, "s").await.key;
    let texts = [
        "小貓在屋頂上曬太陽",
        "新しいGPUを窓辺に置いた",
        "지식베이스를 검색한다",
        "แมวนอนบนหลังคา",
        "Größe der Straße",
        "the café's naïve parse_http_header()",
        "Mini-Jack plug for C++ kits",
    ];
    stored(store, plain(session, texts.map(|text| says("m-1", text)).to_vec())).await;
    for (question, expected) in [
        ("屋頂", vec![1]),
        ("曬太陽", vec![1]),
        ("陽", vec![1]),
        ("窓辺", vec![2]),
        ("gpu", vec![2]),
        ("ＧＰＵ", vec![2]),
        ("검색", vec![3]),
        ("หลังคา", vec![4]),
        ("GRÖSSE", vec![5]),
        ("strasse", vec![5]),
        ("cafe naive", vec![6]),
        ("http_header", vec![6]),
        ("http header", vec![6]),
        ("header_http", vec![]),
        ("pars", vec![6]),
        ("C++", vec![7]),
        ("mini-jack plug\"\"", vec![7]),
        ("天気", vec![]),
        ("頂屋", vec![]),
    ] {
        let expected: Vec<_> = expected.into_iter().map(|seq| at("s", seq)).collect();
        assert_eq!(places(store, question).await, expected, "{question}");
    }
}

/// It finds its words or nothing; it never fails, and never finds everything.
pub async fn no_question_is_syntax(store: &impl AnyStore) {
    let session = make(store, "s").await.key;
    let texts =
        ["Value {0} failed: {1}", "note:https://e.example/x", "black AND white OR NOT near", "terms: x"];
    stored(store, plain(session, texts.map(|text| says("m-1", text)).to_vec())).await;
    for question in ["", "  ", "<<<", "(", ")", "\"", "*", "''", "-", "^", "$ +", ":", "\u{E000}", "\0", "{}"]
    {
        assert_eq!(places(store, question).await, [], "{question:?}");
    }
    let long = "a ".repeat(100_000);
    for (question, expected) in [
        (texts[0], vec![1]),
        (texts[1], vec![2]),
        ("AND", vec![3]),
        ("white NOT black", vec![3]),
        ("NEAR(white, black)", vec![]),
        ("NEAR( white , black )", vec![3]),
        ("-foo", vec![]),
        ("title:*", vec![]),
        ("terms:value", vec![]),
        ("\"terms\" : x", vec![4]),
        ("x*", vec![2, 4]),
        ("$next", vec![]),
        ("value' OR '1'='1", vec![]),
        (long.as_str(), vec![]),
    ] {
        let expected: Vec<_> = expected.into_iter().map(|seq| at("s", seq)).collect();
        assert_eq!(sorted_places(store, question).await, expected, "{question}");
    }
}

/// Though the words are the same, and whatever the name.
pub async fn only_ones_own_sessions_are_searched(store: &impl AnyStore) {
    for principal in ["me", "you", "m", "\" OR \"", ""] {
        let (record, _) = store.create_session(new_session(principal, "s")).await.unwrap();
        stored(store, plain(record.key, vec![says("m-1", format!("needle of {principal}"))])).await;
    }
    for principal in ["me", "you", "m", "\" OR \"", ""] {
        for (text, source) in [("needle", SearchSource::User), ("about", SearchSource::Title)] {
            let page =
                store.search(SearchQuery { principal: principal.into(), ..query(text) }).await.unwrap();
            assert_eq!(page.hits.len(), 1, "{principal}");
            assert_eq!(page.hits[0].source, source);
        }
        let found =
            store.search(SearchQuery { principal: principal.into(), ..query("needle") }).await.unwrap();
        assert_eq!(found.hits[0].snippet, format!("needle of {principal}").trim_end());
    }
    let nobody = store.search(SearchQuery { principal: "them".into(), ..query("needle") }).await.unwrap();
    assert_eq!(nobody.hits, []);
}

/// In any order; only the last one may be a beginning.
pub async fn all_words_must_occur(store: &impl AnyStore) {
    let session = make(store, "s").await.key;
    let texts = ["red apples", "green apples and red pears", "green pears"];
    stored(store, plain(session, texts.map(|text| says("m-1", text)).to_vec())).await;
    for (question, expected) in [
        ("red", vec![1, 2]),
        ("pears green", vec![2, 3]),
        ("red pea", vec![2]),
        ("pea red", vec![]),
        ("red green pears apples", vec![2]),
        ("red blue", vec![]),
    ] {
        let expected: Vec<_> = expected.into_iter().map(|seq| at("s", seq)).collect();
        assert_eq!(sorted_places(store, question).await, expected, "{question}");
    }
}

/// Within one commit or over two.
pub async fn a_renamed_session_is_found_by_its_new_title_only(store: &impl AnyStore) {
    let session = make(store, "s").await.key;
    let rename = |title: Option<&str>| {
        let title = Some(title.map(str::to_owned));
        store.append(Append { title, ..plain(session, vec![line("renamed")]) })
    };
    assert_eq!(places(store, "about").await, [at("s", 0)]);
    let both = (rename(Some("second title")), rename(Some("third title")));
    both.0.await.unwrap();
    both.1.await.unwrap();
    assert_eq!(places(store, "about").await, []);
    assert_eq!(places(store, "second").await, []);
    assert_eq!(places(store, "third").await, [at("s", 0)]);
    rename(Some("third title")).await.unwrap();
    assert_eq!(places(store, "third").await, [at("s", 0)]);
    rename(None).await.unwrap();
    assert_eq!(places(store, "title").await, []);
}

/// Another one of the same words is.
pub async fn a_deleted_session_is_not_found(store: &impl AnyStore) {
    for id in ["gone", "kept"] {
        let session = make(store, id).await.key;
        stored(store, plain(session, vec![says("m-1", "needle needle"), replies("m-2", "needle")])).await;
        if id == "gone" {
            store.delete_session(session).await.unwrap();
        }
    }
    assert_eq!(sorted_places(store, "needle").await, [at("kept", 1), at("kept", 2)]);
    assert_eq!(places(store, "about").await, [at("kept", 0)]);
}

/// A fork up to its place; an import once it is finished.
pub async fn forks_and_imports_are_found(store: &impl AnyStore) {
    let session = make(store, "s").await.key;
    stored(store, plain(session, vec![says("m-1", "needle one"), says("m-2", "needle two")])).await;
    store.fork_session(session, 1, new_session(LOCAL_PRINCIPAL, "fork")).await.unwrap();
    let import = store.begin_import(new_import("import")).await.unwrap().unwrap();
    let event =
        ImportedEvent { at: Timestamp::from_micros(2), turn: None, event: says("m-1", "a needle").event };
    store.import_events(import, vec![event]).await.unwrap();
    assert_eq!(sorted_places(store, "needle").await, [at("fork", 1), at("s", 1), at("s", 2)]);
    store.finish_import(import, SessionState::default()).await.unwrap();
    let expected = [at("fork", 1), at("import", 1), at("s", 1), at("s", 2)];
    assert_eq!(sorted_places(store, "needle").await, expected);
    assert_eq!(sorted_places(store, "about").await, [at("fork", 0), at("import", 0), at("s", 0)]);
}

/// Each hit once, in one order, though more is stored meanwhile.
pub async fn pages_of_hits_are_one_ranking(store: &impl AnyStore) {
    let session = make(store, "s").await.key;
    let texts = (0..7).map(|number| says("m-1", format!("needle {}", "hay ".repeat(number * number))));
    stored(store, plain(session, texts.collect())).await;
    let whole = hits(store, "needle").await;
    assert_eq!(whole.iter().map(|hit| hit.seq.unwrap()).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
    for limit in 1..=8 {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = store.search(SearchQuery { limit, after, ..query("needle") }).await.unwrap();
            assert!(page.hits.len() <= limit);
            seen.extend(page.hits.iter().map(|hit| hit.seq.unwrap()));
            stored(store, plain(session, vec![says("m-2", "needle needle")])).await;
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        let fresh = seen.iter().filter(|seq| **seq > 7).count();
        let before = seen.len() - fresh;
        assert_eq!(before, 7, "in pages of {limit}: {seen:?}");
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 7 + fresh, "in pages of {limit}");
    }
    let most = store.search(SearchQuery { limit: usize::MAX, ..query("ne") }).await.unwrap();
    assert!(most.hits.len() <= MAX_PAGE_HITS);
}

/// They are many times the words of a conversation; the messages around them are found.
pub async fn outputs_of_tools_and_other_events_are_not_found(store: &impl AnyStore) {
    let session = make(store, "s").await.key;
    let result = ToolResult {
        call: ToolCallId::parse("t-1").unwrap(),
        provider_id: None,
        name: "needle".into(),
        output: "needle".into(),
        is_error: false,
        untrusted_source: None,
    };
    let finished = ToolFinished {
        agent: tns_protocol::AgentId::parse("helper-00000000").unwrap(),
        result,
        ran: true,
        duration_ms: 1,
        truncated: false,
    };
    let finished = NewEvent { turn: None, event: DurableEvent::ToolFinished(finished) };
    stored(store, plain(session, vec![finished, line("needle")])).await;
    assert_eq!(places(store, "needle").await, []);
}

/// Nor is one that failed.
pub async fn an_append_that_changed_nothing_is_not_found(store: &impl AnyStore) {
    let session = make(store, "s").await.key;
    stored(store, plain(session, vec![user("m-1", Some("c-1"))])).await;
    let condition = Condition::NewMessage(ClientMessageId::parse("c-1").unwrap());
    let repeat = only_if(session, vec![says("m-2", "needle")], condition);
    let nowhere = plain(tns_server_core::store::SessionKey(i64::MAX), vec![says("m-2", "needle")]);
    let answers =
        (store.append(repeat), store.append(nowhere), store.append(plain(session, vec![line("x")])));
    answers.0.await.unwrap();
    answers.1.await.unwrap_err();
    answers.2.await.unwrap();
    assert_eq!(places(store, "needle").await, []);
}
