//! A small judged set: which document answers a question. It fails when words, chunks or ranking break.

use super::tests::{FakeStore, ask, session};
use super::*;

/// Documents of a made-up workshop.
const DOCUMENTS: &[&str] = &[
    "The espresso machine is descaled every second Friday. Use citric acid, never vinegar, and flush it twice.",
    "Visitors get a badge at the front desk. Badges are returned in the evening and expire after one day.",
    "The laser cutter may cut plywood, acrylic and felt. PVC is forbidden since it sets chlorine free.",
    "Bicycles are parked behind the building. The pump hangs next to the door; bring your own lock.",
    "`retry_backoff` doubles the waiting time after each failed request, up to `maxRetryDelay`, thirty seconds.",
    "Backups run at two in the morning. They are kept for thirty days and restored with `vault restore DATE`.",
    "The parser is written in C++ and reads one token ahead. Errors carry the line and the column.",
    "Invoices are paid within fourteen days. Send them as a PDF to the accountant, with the number of the order.",
    "Plants are watered on Mondays. The cactus in the hall needs water only once a month.",
    "Fire drill: leave by the nearest stairs, do not use the lift, meet at the oak on the other side of the street.",
    "The database listens on port 6543. Connections over the limit wait in a queue for at most five seconds.",
    "The 3D printer takes PLA and PETG. Nozzles of 0.4 mm are in the drawer; clean the bed with alcohol first.",
    "Holidays are entered in the calendar two weeks before. Two people of one team are not away at the same time.",
    "停電のときは地下室の発電機を手で起動する。燃料は毎月確認する。",
    "Der Schlüssel zum Lager hängt im Büro. Die Größe der Kisten steht auf dem Etikett.",
    "Tests run on each push. A flaky test is removed the same day, and a red main branch stops all merging.",
];

/// Questions and the place of the document that answers each.
const QUESTIONS: &[(&str, usize)] = &[
    ("how often do we descale the coffee or espresso machine", 0),
    ("Where do visitors return their badges?", 1),
    ("can I cut PVC with the laser", 2),
    ("where can I park my bicycle", 3),
    ("maximum delay between retries of a request", 4),
    ("max_retry_delay", 4),
    ("restoring a backup from last week", 5),
    ("C++ parsing errors", 6),
    ("when is an invoice paid", 7),
    ("watering the plants", 8),
    ("what to do when there is a fire", 9),
    ("database connection limit", 10),
    ("ＰＥＴＧ nozzle size", 11),
    ("who enters holidays into the calendar", 12),
    ("発電機の燃料", 13),
    ("GRÖSSE der Kiste", 14),
    ("flaky tests on the main branch", 15),
];

#[tokio::test]
async fn each_question_finds_its_document_first() {
    let store = Arc::new(FakeStore::default());
    let ids: Vec<_> = DOCUMENTS.iter().map(|document| store.add(&session(1), document)).collect();
    let engine = KnowledgeEngine::open(None, store);
    let mut wrong = Vec::new();
    for (question, document) in QUESTIONS {
        let hits = engine.search(ask(question)).await.unwrap();
        if hits.first().map(|hit| &hit.document) != Some(&ids[*document]) {
            wrong.push((question, hits.into_iter().map(|hit| (hit.score, hit.content)).collect::<Vec<_>>()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn a_threshold_of_three_tenths_keeps_the_answers_and_drops_chance_words() {
    let store = Arc::new(FakeStore::default());
    for document in DOCUMENTS {
        store.add(&session(1), document);
    }
    let engine = KnowledgeEngine::open(None, store);
    for (question, _) in QUESTIONS {
        let answers = engine.search(KnowledgeQuery { threshold: 0.3, ..ask(question) }).await.unwrap();
        assert!((1..=3).contains(&answers.len()), "{question}: {answers:#?}");
    }
}
