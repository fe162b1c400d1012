//! Parsing, and the help of every command as the user reads it.

use clap::CommandFactory;

use super::*;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn durations_have_units() {
    for (text, millis) in
        [("0", 0), ("90", 90_000), ("250ms", 250), ("5s", 5_000), ("30m", 1_800_000), ("2h", 7_200_000)]
    {
        assert_eq!(parse_duration(text).unwrap(), Duration::from_millis(millis), "{text}");
    }
    for text in ["", "m", "-5s", "1d", "1.5s", "5 s", "99999999999999999999"] {
        assert!(parse_duration(text).is_err(), "{text}");
    }
    assert!(parse_duration("8760h").is_ok());
    assert!(parse_duration("8761h").is_err());
    assert!(parse_positive_duration("0s").is_err());
}

#[test]
fn global_options_stand_before_and_after_the_command() {
    for line in [["tns", "--json", "sessions", "list"], ["tns", "sessions", "list", "--json"]] {
        assert!(Cli::try_parse_from(line).unwrap().globals.json);
    }
}

#[test]
fn a_session_id_outside_its_charset_is_a_usage_error() {
    let error = Cli::try_parse_from(["tns", "--session", "a b", "sessions", "list"]).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("1 to 128 of"), "{error}");
}

#[test]
fn unknown_options_commands_and_values_are_usage_errors() {
    for line in [
        &["tns", "--nope"][..],
        &["tns", "nope"],
        &["tns", "run", "--on-ask", "nope", "x"],
        &["tns", "run", "--autonomy", "nope", "x"],
        &["tns", "run", "--timeout", "0", "x"],
        &["tns", "serve", "--port", "65536"],
        &["tns", "--color", "nope", "schema"],
        &["tns"],
    ] {
        assert_eq!(Cli::try_parse_from(line).unwrap_err().exit_code(), 2, "{line:?}");
    }
}

/// Every command with its help, depth first. The global options are the same everywhere and shown once.
fn helps(command: &mut clap::Command, path: &str, found: &mut Vec<(String, String)>) {
    // It shows the commands once more, and below them their help.
    if command.get_name() == "help" {
        return;
    }
    let name = format!("{path}{}", command.get_name());
    let help = command.render_long_help().to_string();
    let shown = match (path, help.split_once("Global options:")) {
        ("", _) | (_, None) => help,
        (_, Some((own, _))) => own.to_owned(),
    };
    found.push((name.clone(), shown));
    for sub in command.get_subcommands_mut() {
        helps(sub, &format!("{name} "), found);
    }
}

#[test]
fn help_is_a_command_too() {
    for line in [&["tns", "help"][..], &["tns", "help", "run"], &["tns", "help", "kb", "add"]] {
        let shown = Cli::try_parse_from(line).unwrap_err();
        assert_eq!((shown.kind(), shown.exit_code()), (clap::error::ErrorKind::DisplayHelp, 0), "{line:?}");
    }
    assert_eq!(Cli::try_parse_from(["tns", "help", "nope"]).unwrap_err().exit_code(), 2);
}

#[test]
fn the_help_of_every_command() {
    let mut command = Cli::command().term_width(100).color(clap::ColorChoice::Never);
    command.build();
    let mut found = Vec::new();
    helps(&mut command, "", &mut found);
    let pages: Vec<String> = found.into_iter().map(|(name, help)| format!("##### {name}\n{help}")).collect();
    insta::assert_snapshot!("help", pages.join("\n"));
}
