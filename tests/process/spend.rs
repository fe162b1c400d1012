//! Money as a script sees it: what was used, a budget that is spent, and a limit that the next process keeps.

use tns_tests::provider::{ModelServer, Reply};
use tns_tests::standin::{GOOD_KEY, Standin};

use crate::binary::{Home, until};

async fn home(standin: &Standin) -> Home {
    standin
        .variables("openai", GOOD_KEY)
        .iter()
        .fold(Home::bare().set("TNS_PROVIDER", "openai"), |home, (name, value)| home.set(name, value))
}

#[tokio::test]
async fn a_run_is_counted_and_the_next_process_keeps_the_limit() {
    let standin = Standin::start().await;
    let home = home(&standin).await;
    assert_eq!(home.run(&["run", "hi [[text:fine]]"]).await.answer(), "fine\n");
    let stats = home.run(&["stats", "--json"]).await;
    stats.answer();
    let report = stats.json();
    assert_eq!((&report["total"]["steps"], &report["total"]["inputTokens"]), (&1.into(), &7.into()));
    let cost = report["total"]["cost"].as_f64().unwrap();
    assert!(cost > 0.0, "{report}");
    let shown = home.run(&["stats"]).await;
    assert!(shown.answer().starts_with("openai gpt-6.2-sol\t1 steps\t7 in"), "{shown:?}");

    let home = home.set("TNS_DAILY_CAP", &format!("{cost}"));
    let ran = home.run(&["run", "hi"]).await;
    assert_eq!((ran.code, ran.complaints().len()), (Some(6), 1), "{ran:?}");
    assert!(ran.stderr.contains("spending limit of the day") && ran.stderr.contains("SPEND_CAP"), "{ran:?}");
    assert_eq!(standin.requests().len(), 1);
    let shown = home.run(&["stats"]).await;
    assert!(shown.answer().contains("$0.0000 left"), "{shown:?}");
}

#[tokio::test]
async fn a_budget_that_is_spent_is_exit_code_six() {
    let standin = Standin::start().await;
    let home = home(&standin).await;
    let ran = home.run(&["run", "hi", "--budget", "0"]).await;
    assert_eq!((ran.code, ran.complaints().len()), (Some(6), 1), "{ran:?}");
    // A turn that has said something keeps it.
    let tools = "[[text:looking]] [[tool:list_dir {\"path\":\".\"}]]";
    let ran = home.run(&["run", tools, "--budget", "0.000001"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(6), "looking\n"), "{ran:?}");
    assert_eq!((ran.complaints().len(), standin.requests().len()), (1, 1), "{ran:?}");
    // One that is enough changes nothing.
    assert_eq!(home.run(&["run", "hi [[text:fine]]", "--budget", "1"]).await.answer(), "fine\n");
}

#[tokio::test]
async fn a_server_says_once_that_its_model_has_no_price() {
    let model = ModelServer::start(Vec::<Reply>::new()).await;
    let home = Home::with_model(&model).set("TNS_MODEL", "m");
    let server = home.serve(&[]).await;
    until("the note is written", || server.log().contains("data folder")).await;
    assert_eq!(server.log().matches("no price is known for openai-compatible m:").count(), 1);
    let priced = Home::new();
    let server = priced.serve(&[]).await;
    until("the note is written", || server.log().contains("data folder")).await;
    assert!(!server.log().contains("no price"), "{}", server.log());
}

#[tokio::test]
async fn a_wrong_amount_or_day_is_exit_code_two() {
    let home = Home::new();
    for args in [
        &["run", "hi", "--budget", "-1"][..],
        &["stats", "--day", "today"],
        &["serve", "--daily-cap", "much"],
    ] {
        let ran = home.run(args).await;
        assert_eq!(ran.code, Some(2), "{ran:?}");
    }
    let ran = home.run(&["run", "hi", "--budget", "1", "--session", "s"]).await;
    assert_eq!((ran.code, ran.complaints().len()), (Some(2), 1), "{ran:?}");
    let home = home.set("TNS_DAILY_CAP", "5 dollars");
    for args in [&["run", "hi"][..], &["serve", "--port", "0"]] {
        let ran = home.run(args).await;
        assert_eq!((ran.code, ran.complaints().len()), (Some(2), 1), "{ran:?}");
        assert!(ran.stderr.contains("TNS_DAILY_CAP must be an amount of dollars"), "{ran:?}");
    }
}
