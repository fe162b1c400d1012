//! Build, test and check runners that are understood. They run the project's own code by design, which is
//! what `BUILD_TEST` says; an option that would point them at other code makes the line `UNKNOWN`.

use tns_protocol::approval::RiskClass;

use super::programs::leaves;
use super::{Finding, Reads};

/// One way to call a runner.
struct Runner {
    /// The words that it starts with, which are also what an `always` covers.
    words: &'static [&'static str],
    /// Options without a value, written in full.
    flags: &'static [&'static str],
    /// Options with a value, in the next word or after `=`.
    valued: &'static [&'static str],
    /// One of these must be there, if there are any.
    needs: &'static [&'static str],
    /// What may follow the options.
    operands: Follows,
}

/// What may follow a runner's options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Follows {
    /// Nothing.
    Nothing,
    /// Names or relative paths beneath the workspace.
    Inside,
    /// The same, and after `--` options of Rust's test harness that only choose and show.
    InsideThenHarness,
    /// After `--` lint levels or formatter checks.
    CompilerAfterDashes,
}

use Follows::{CompilerAfterDashes, Inside, InsideThenHarness, Nothing};

const CARGO_FLAGS: &[&str] = &[
    "-q",
    "-v",
    "-vv",
    "-r",
    "--quiet",
    "--verbose",
    "--release",
    "--workspace",
    "--all",
    "--all-targets",
    "--all-features",
    "--no-default-features",
    "--lib",
    "--bins",
    "--tests",
    "--examples",
    "--benches",
    "--no-run",
    "--no-fail-fast",
    "--locked",
    "--offline",
    "--frozen",
    "--keep-going",
    "--no-deps",
    "--doc",
    "--document-private-items",
];
const CARGO_VALUED: &[&str] = &[
    "-p",
    "-F",
    "-j",
    "--package",
    "--bin",
    "--test",
    "--example",
    "--bench",
    "--features",
    "--jobs",
    "--profile",
    "--message-format",
    "--color",
    "--exclude",
];
const HARNESS_FLAGS: &[&str] = &[
    "--nocapture",
    "--no-capture",
    "--exact",
    "--ignored",
    "--include-ignored",
    "--list",
    "--show-output",
    "-q",
];
const HARNESS_VALUED: &[&str] = &["--test-threads", "--skip", "--color"];
const LINT_LEVELS: &[&str] = &["-D", "-W", "-A", "-F", "--deny", "--warn", "--allow", "--forbid"];
const PYTEST_FLAGS: &[&str] = &[
    "-q",
    "-qq",
    "-v",
    "-vv",
    "-x",
    "-s",
    "-l",
    "--lf",
    "--ff",
    "--sw",
    "--co",
    "--collect-only",
    "-ra",
    "-rA",
];
const PYTEST_VALUED: &[&str] = &["-k", "-m", "--maxfail", "--tb", "--durations"];
const GO_FLAGS: &[&str] = &["-v", "-race", "-short", "-x", "-n", "-failfast", "-json"];
const GO_VALUED: &[&str] = &["-run", "-count", "-timeout", "-p", "-parallel"];
const MVN_FLAGS: &[&str] = &["-o", "-q", "-B", "-e", "--offline", "--quiet", "--batch-mode"];
const GRADLE_FLAGS: &[&str] =
    &["-q", "--offline", "--quiet", "--info", "--stacktrace", "--continue", "--no-daemon"];

const fn cargo(words: &'static [&'static str], operands: Follows) -> Runner {
    Runner { words, flags: CARGO_FLAGS, valued: CARGO_VALUED, needs: &[], operands }
}

const fn script(words: &'static [&'static str]) -> Runner {
    Runner { words, flags: &["-s", "--silent"], valued: &[], needs: &[], operands: Nothing }
}

const fn runner(
    words: &'static [&'static str],
    flags: &'static [&'static str],
    valued: &'static [&'static str],
    operands: Follows,
) -> Runner {
    Runner { words, flags, valued, needs: &[], operands }
}

const RUNNERS: &[Runner] = &[
    cargo(&["cargo", "build"], Nothing),
    cargo(&["cargo", "check"], Nothing),
    cargo(&["cargo", "doc"], Nothing),
    cargo(&["cargo", "test"], InsideThenHarness),
    cargo(&["cargo", "clippy"], CompilerAfterDashes),
    Runner {
        words: &["cargo", "fmt"],
        flags: &["--check", "--all", "-q", "-v"],
        valued: &["-p", "--package"],
        needs: &["--check"],
        operands: CompilerAfterDashes,
    },
    script(&["npm", "test"]),
    script(&["npm", "run", "build"]),
    script(&["npm", "run", "test"]),
    script(&["npm", "run", "lint"]),
    script(&["npm", "run", "check"]),
    script(&["npm", "run", "typecheck"]),
    script(&["pnpm", "test"]),
    script(&["pnpm", "build"]),
    script(&["pnpm", "lint"]),
    script(&["pnpm", "run", "build"]),
    script(&["pnpm", "run", "test"]),
    script(&["pnpm", "run", "lint"]),
    script(&["yarn", "test"]),
    script(&["yarn", "build"]),
    script(&["yarn", "lint"]),
    script(&["yarn", "run", "build"]),
    script(&["yarn", "run", "test"]),
    script(&["yarn", "run", "lint"]),
    runner(&["go", "build"], GO_FLAGS, GO_VALUED, Inside),
    runner(&["go", "test"], GO_FLAGS, GO_VALUED, Inside),
    runner(&["go", "vet"], GO_FLAGS, &[], Inside),
    runner(&["pytest"], PYTEST_FLAGS, PYTEST_VALUED, Inside),
    runner(&["python", "-m", "pytest"], PYTEST_FLAGS, PYTEST_VALUED, Inside),
    runner(&["python3", "-m", "pytest"], PYTEST_FLAGS, PYTEST_VALUED, Inside),
    Runner {
        words: &["tsc"],
        flags: &["--noEmit", "--pretty", "--strict", "--skipLibCheck"],
        valued: &[],
        needs: &["--noEmit"],
        operands: Nothing,
    },
    runner(&["gradle", "build"], GRADLE_FLAGS, &[], Nothing),
    runner(&["gradle", "test"], GRADLE_FLAGS, &[], Nothing),
    runner(&["gradle", "check"], GRADLE_FLAGS, &[], Nothing),
    runner(&["mvn", "test"], MVN_FLAGS, &[], Nothing),
    runner(&["mvn", "compile"], MVN_FLAGS, &[], Nothing),
    runner(&["mvn", "verify"], MVN_FLAGS, &[], Nothing),
    runner(&["make"], &["-s", "-k", "-B", "-j", "--silent", "--keep-going"], &[], Nothing),
    runner(&["make", "all"], &["-s", "-k", "-B", "-j"], &[], Nothing),
    runner(&["make", "build"], &["-s", "-k", "-B", "-j"], &[], Nothing),
    runner(&["make", "test"], &["-s", "-k", "-B", "-j"], &[], Nothing),
    runner(&["make", "check"], &["-s", "-k", "-B", "-j"], &[], Nothing),
    runner(&["make", "lint"], &["-s", "-k", "-B", "-j"], &[], Nothing),
];

/// Programs of [`RUNNERS`], so that a wrong use of one gets a better reason than an unknown program.
fn is_runner(name: &str) -> bool {
    RUNNERS.iter().any(|runner| runner.words.first() == Some(&name))
}

/// Rates a call of a runner; `None` where the program is none.
pub(super) fn rate(name: &str, rest: &[String]) -> Option<Result<Finding, String>> {
    if !is_runner(name) {
        return None;
    }
    let fitting =
        RUNNERS.iter().filter(|runner| runner.words[0] == name).find_map(|runner| runner.matches(rest));
    Some(fitting.ok_or_else(|| format!("{name} may do more than build or test when called like this")))
}

impl Runner {
    /// Returns the finding if the words after the program are those of this runner. Its own words come first
    /// in their order; flags may stand between and after them.
    fn matches(&self, rest: &[String]) -> Option<Finding> {
        let mut own = self.words[1..].iter();
        let mut next_own = own.next();
        let mut needed = self.needs.to_vec();
        let mut paths = Vec::new();
        let mut words = rest.iter().map(String::as_str);
        while let Some(word) = words.next() {
            if Some(&word) == next_own {
                next_own = own.next();
            } else if word == "--" && next_own.is_none() {
                self.after_dashes(words.by_ref(), &mut needed)?;
            } else if self.flags.contains(&word) || (self.is_make() && is_job_count(word)) {
                needed.retain(|need| *need != word);
            } else if self.valued.contains(&word) {
                words.next()?;
            } else if self.valued.iter().any(|option| has_attached_value(word, option)) {
                continue;
            } else if next_own.is_none() && self.takes_operand(word) {
                // Cargo's operand is a filter of names, not a path.
                if self.operands == Inside {
                    paths.push(word.to_owned());
                }
            } else {
                return None;
            }
        }
        if next_own.is_some() || !needed.is_empty() {
            return None;
        }
        let key = self.words.join(" ");
        let reason = format!("{key} builds, tests or checks, which runs the project's own code");
        let reads = Reads { paths, beneath: None };
        Some(Finding { class: RiskClass::BuildTest, reason, key: Some(key), reads })
    }

    fn is_make(&self) -> bool {
        self.words[0] == "make"
    }

    fn takes_operand(&self, word: &str) -> bool {
        let plain =
            !word.is_empty() && !word.starts_with(['-', '@', '+']) && !word.contains('=') && !leaves(word);
        plain && matches!(self.operands, Inside | InsideThenHarness)
    }

    /// Takes all words after `--`; `None` where one is not known.
    fn after_dashes<'w>(
        &self,
        mut words: impl Iterator<Item = &'w str>,
        needed: &mut Vec<&str>,
    ) -> Option<()> {
        while let Some(word) = words.next() {
            match self.operands {
                InsideThenHarness if HARNESS_FLAGS.contains(&word) => {}
                InsideThenHarness if HARNESS_VALUED.contains(&word) => {
                    words.next()?;
                }
                InsideThenHarness if HARNESS_VALUED.iter().any(|option| has_attached_value(word, option)) => {
                }
                InsideThenHarness if !word.starts_with('-') => {}
                CompilerAfterDashes if word == "--check" => needed.retain(|need| *need != word),
                CompilerAfterDashes if LINT_LEVELS.contains(&word) && needed.is_empty() => {
                    words.next()?;
                }
                _ => return None,
            }
        }
        Some(())
    }
}

fn has_attached_value(word: &str, option: &str) -> bool {
    word.strip_prefix(option).is_some_and(|value| value.starts_with('='))
}

/// Whether a word is make's `-jN`.
fn is_job_count(word: &str) -> bool {
    word.strip_prefix("-j")
        .is_some_and(|count| !count.is_empty() && count.bytes().all(|b| b.is_ascii_digit()))
}
