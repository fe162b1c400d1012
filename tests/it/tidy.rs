//! The rules of this repository that a program can check: directions, sizes, shapes and the map.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Longest source file, in lines.
const MAX_LINES: usize = 600;
/// The only source file that prints.
const PRINTER: &str = "cli/src/output.rs";

/// For each crate, by its folder, the crates of this repository that it may use.
const DIRECTIONS: &[(&str, &[&str])] = &[
    ("protocol", &[]),
    ("protocol/client", &["tns-protocol"]),
    ("tui", &["tns-client", "tns-protocol"]),
    ("server/core", &["tns-protocol"]),
    ("server/engines", &["tns-protocol", "tns-server-core"]),
    ("server/tools", &["tns-protocol", "tns-server-core"]),
    ("server/store", &["tns-protocol", "tns-server-core"]),
    ("server/knowledge", &["tns-protocol", "tns-server-core"]),
    (
        "server",
        &[
            "tns-protocol",
            "tns-server-core",
            "tns-server-engines",
            "tns-server-knowledge",
            "tns-server-store",
            "tns-server-tools",
        ],
    ),
    ("cli", &["tns-client", "tns-protocol", "tns-server", "tns-tui"]),
];

/// Crates that hold tests and measurements; nothing but another of them, or a test, may use one.
const FOR_TESTS: &[&str] = &["tests", "tests/bench", "tests/fuzz"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn manifest(folder: &str) -> toml::Table {
    fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap().parse().unwrap()
}

/// Returns the folders of the crates, as the workspace lists them.
fn members() -> Vec<String> {
    let members = manifest("")["workspace"]["members"].as_array().unwrap().clone();
    members.iter().map(|member| member.as_str().unwrap().to_owned()).collect()
}

/// Returns the crates of this repository among the dependencies in one section of a manifest.
fn own_dependencies(manifest: &toml::Table, section: &str) -> BTreeSet<String> {
    let Some(table) = manifest.get(section).and_then(toml::Value::as_table) else { return BTreeSet::new() };
    table.keys().filter(|name| *name == "tns" || name.starts_with("tns-")).cloned().collect()
}

/// Returns every source file with its path from the root, and its text.
fn sources() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if name.ends_with(".rs") {
                let relative = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
                found.insert(relative, fs::read_to_string(path).unwrap());
            }
        }
    }
    found
}

/// Whether a file is compiled for tests only.
fn is_test(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("tests.rs")
}

/// Returns the code of a file without its line comments.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(at, line)| (at + 1, line))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
}

fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn dependencies_point_one_way() {
    let mut faults = Vec::new();
    for (folder, allowed) in DIRECTIONS {
        for name in own_dependencies(&manifest(folder), "dependencies") {
            if !allowed.contains(&name.as_str()) {
                faults.push(format!("{folder} must not depend on {name}"));
            }
        }
    }
    assert_none(&faults);
}

#[test]
fn every_crate_has_its_direction_and_is_named_after_its_folder() {
    let mut known: Vec<&str> =
        DIRECTIONS.iter().map(|(folder, _)| *folder).chain(FOR_TESTS.iter().copied()).collect();
    known.sort_unstable();
    let mut members = members();
    members.sort_unstable();
    assert_eq!(members, known);
    for folder in &members {
        let name = match folder.as_str() {
            "cli" => "tns".to_owned(),
            "protocol/client" => "tns-client".to_owned(),
            "tests/bench" => "tns-bench".to_owned(),
            "tests/fuzz" => "tns-fuzz".to_owned(),
            other => format!("tns-{}", other.replace('/', "-")),
        };
        assert_eq!(manifest(folder)["package"]["name"].as_str(), Some(name.as_str()));
    }
}

#[test]
fn only_tests_depend_on_the_test_crate() {
    let mut faults = Vec::new();
    for folder in members().iter().filter(|folder| !FOR_TESTS.contains(&folder.as_str())) {
        let own = own_dependencies(&manifest(folder), "dependencies");
        if own.contains("tns-tests") || own.contains("tns-bench") {
            faults.push(format!("{folder} depends on test code"));
        }
    }
    assert_none(&faults);
}

#[test]
fn versions_and_features_stand_in_the_root_manifest() {
    let mut faults = Vec::new();
    for folder in members() {
        let manifest = manifest(&folder);
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let Some(table) = manifest.get(section).and_then(toml::Value::as_table) else { continue };
            for (name, wanted) in table {
                let shared = wanted.get("workspace").and_then(toml::Value::as_bool) == Some(true);
                // Tests alone may want more, such as a clock that can be paused.
                let more = section != "dev-dependencies" && wanted.get("features").is_some();
                if !shared || more {
                    faults.push(format!("{folder}: {name} must be `{name}.workspace = true`"));
                }
            }
        }
        if manifest["lints"]["workspace"].as_bool() != Some(true) {
            faults.push(format!("{folder} must take the lints of the workspace"));
        }
    }
    assert_none(&faults);
}

#[test]
fn the_core_knows_no_wire_messages_and_no_sockets() {
    let foreign = ["ClientMessage", "ServerMessage", "axum", "hyper", "reqwest", "rusqlite", "TcpStream"];
    let mut faults = Vec::new();
    for (path, text) in sources().iter().filter(|(path, _)| path.starts_with("server/core/")) {
        for (line, words) in code(text) {
            let words = words.split(|c: char| !c.is_alphanumeric() && c != '_');
            faults.extend(
                words.filter(|word| foreign.contains(word)).map(|word| format!("{path}:{line}: {word}")),
            );
        }
    }
    assert_none(&faults);
}

#[test]
fn files_are_short_and_say_what_they_are_for() {
    let mut faults = Vec::new();
    for (path, text) in sources() {
        let lines = text.lines().count();
        if lines > MAX_LINES {
            faults.push(format!("{path} has {lines} lines; {MAX_LINES} is the end"));
        }
        if !text.starts_with("//! ") {
            faults.push(format!("{path} must begin with `//!`: what it is for"));
        }
        if path.ends_with("/mod.rs") {
            faults.push(format!("{path}: use the folder's name with .rs beside the folder"));
        }
    }
    assert_none(&faults);
}

#[test]
fn channels_are_bounded() {
    let word = concat!("un", "bounded");
    let mut faults = Vec::new();
    for (path, text) in sources() {
        for (line, words) in code(&text).filter(|(_, words)| words.contains(word)) {
            faults.push(format!("{path}:{line}: {}", words.trim()));
        }
    }
    assert_none(&faults);
}

#[test]
fn one_file_prints() {
    let macros = ["println!", "eprintln!", "print!", "eprint!", "dbg!"];
    let mut faults = Vec::new();
    for (path, text) in sources().iter().filter(|(path, _)| !is_test(path) && path.as_str() != PRINTER) {
        for (line, words) in code(text) {
            let prints = words
                .split(|c: char| !c.is_alphanumeric() && !"_!".contains(c))
                .any(|word| macros.contains(&word));
            if prints {
                faults.push(format!("{path}:{line}: {}", words.trim()));
            }
        }
    }
    assert_none(&faults);
}

#[test]
fn every_test_module_is_listed() {
    let mut faults = Vec::new();
    for folder in ["tests/it", "tests/process"] {
        let main = fs::read_to_string(root().join(folder).join("main.rs")).unwrap();
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            let is_module = path.extension().is_some_and(|end| end == "rs") && name != "main";
            if is_module && !main.lines().any(|line| line == format!("mod {name};")) {
                faults.push(format!("{folder}/main.rs must list `mod {name};`"));
            }
        }
    }
    assert_none(&faults);
}

#[test]
fn the_map_in_the_readme_lists_every_crate() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let map = readme.split("\n## Map\n").nth(1).expect("README.md has a section `## Map`");
    let map = map.split("\n## ").next().unwrap();
    let listed: BTreeSet<String> = map
        .lines()
        .filter_map(|line| line.strip_prefix("- `")?.split_once('`'))
        .map(|(folder, _)| folder.trim_end_matches('/').to_owned())
        .collect();
    let members: BTreeSet<String> = members().into_iter().collect();
    assert_eq!(listed, members);
}

#[test]
fn the_top_folders_are_those_of_the_crates() {
    let tops: BTreeSet<String> =
        members().iter().map(|member| member.split('/').next().unwrap().to_owned()).collect();
    let mut folders = BTreeSet::new();
    for entry in fs::read_dir(root()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            folders.insert(name);
        }
    }
    assert_eq!(folders, tops);
}
