//! The programs that are understood, with every option that is. An option that is not listed makes the line
//! `UNKNOWN`, so a listed one must neither write, nor run anything, nor name a file.
//!
//! Names are compared as typed: `LS` is not `ls`. GNU's abbreviated long options are not taken.

use tns_protocol::approval::RiskClass;

use super::builds;
use super::{Beneath, Finding, Reads, Which};
use crate::guard::is_secret;

/// What a program's operands are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operands {
    /// Text without effect.
    Text,
    /// Paths that are read.
    Paths,
    /// A pattern, unless an option gave it, then paths that are read.
    PatternThenPaths,
    /// At most one path that is read: a second one would be written.
    OnePath,
    /// Only `+FORMAT`.
    Format,
    /// None at all.
    None,
}

/// Whether a program reads the files beneath a folder that it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Descends {
    /// It does not, or only names them.
    Never,
    /// With `-r` or `--recursive`, and then all of them.
    WhenAsked,
    /// Always; hidden and ignored ones are left out unless an option chooses files.
    Always,
}

/// A program that only reads.
struct Reader {
    name: &'static str,
    /// Letters of short options without a value.
    flags: &'static str,
    /// Letters of short options with a value.
    valued: &'static str,
    /// Long options without a value, or with an optional one after `=` that is text.
    long: &'static [&'static str],
    /// Long options with a value.
    long_valued: &'static [&'static str],
    operands: Operands,
    descends: Descends,
}

const fn reader(name: &'static str, flags: &'static str, valued: &'static str, operands: Operands) -> Reader {
    Reader { name, flags, valued, long: &[], long_valued: &[], operands, descends: Descends::Never }
}

use Operands::{Format, None as NoOperands, OnePath, Paths, PatternThenPaths, Text};

const READERS: &[Reader] = &[
    Reader {
        long: &[
            "all",
            "almost-all",
            "color",
            "human-readable",
            "recursive",
            "reverse",
            "size",
            "directory",
            "inode",
        ],
        long_valued: &["sort", "time"],
        ..reader("ls", "aAlhrtRSs1dFipngoGmxCXkcuvB", "", Paths)
    },
    Reader { long: &["number", "show-all"], ..reader("cat", "nbsAETvetu", "", Paths) },
    Reader { long_valued: &["lines", "bytes"], ..reader("head", "qv0123456789", "nc", Paths) },
    Reader { long_valued: &["lines", "bytes"], ..reader("tail", "qv0123456789", "nc", Paths) },
    Reader { long: &["lines", "words", "bytes", "chars"], ..reader("wc", "lwcmL", "", Paths) },
    reader("pwd", "LP", "", NoOperands),
    reader("echo", "neE", "", Text),
    reader("true", "", "", Text),
    reader("false", "", "", Text),
    reader("whoami", "", "", NoOperands),
    reader("nproc", "", "", NoOperands),
    reader("id", "ugnGr", "", Text),
    Reader {
        long: &["utc", "iso-8601", "rfc-email"],
        long_valued: &["date"],
        ..reader("date", "uRI", "d", Format)
    },
    reader("uname", "asnrvmpio", "", NoOperands),
    reader("which", "a", "", Text),
    Reader { long: &["brief", "mime", "mime-type"], ..reader("file", "bi", "", Paths) },
    Reader { long_valued: &["format"], ..reader("stat", "ft", "c", Paths) },
    Reader {
        long: &["human-readable", "summarize", "all", "apparent-size", "total"],
        long_valued: &["max-depth"],
        ..reader("du", "ashckmbx", "d", Paths)
    },
    Reader { long: &["human-readable"], ..reader("df", "hTkmiPa", "", Paths) },
    Reader { long: &["dirsfirst", "noreport"], ..reader("tree", "adfhpsiDF", "LIP", Paths) },
    Reader {
        long: &[
            "line-number",
            "ignore-case",
            "recursive",
            "count",
            "files-with-matches",
            "files-without-match",
            "fixed-strings",
            "extended-regexp",
            "perl-regexp",
            "word-regexp",
            "line-regexp",
            "invert-match",
            "only-matching",
            "quiet",
            "no-filename",
            "with-filename",
            "text",
            "color",
            "colour",
        ],
        long_valued: &[
            "include",
            "exclude",
            "exclude-dir",
            "regexp",
            "max-count",
            "context",
            "after-context",
            "before-context",
        ],
        descends: Descends::WhenAsked,
        ..reader("grep", "nircLlwFEGPvHhosxqIab0123456789", "eABCm", PatternThenPaths)
    },
    Reader {
        long: &[
            "line-number",
            "ignore-case",
            "smart-case",
            "count",
            "files-with-matches",
            "fixed-strings",
            "word-regexp",
            "invert-match",
            "only-matching",
            "no-heading",
            "type-list",
            "no-ignore-vcs",
        ],
        long_valued: &[
            "glob",
            "iglob",
            "type",
            "type-not",
            "regexp",
            "max-count",
            "context",
            "after-context",
            "before-context",
            "max-depth",
            "color",
            "sort",
        ],
        descends: Descends::Always,
        ..reader("rg", "nilcwFvSsNHIox", "egtTABCm", PatternThenPaths)
    },
    Reader {
        long: &["numeric-sort", "reverse", "unique", "ignore-case", "version-sort", "human-numeric-sort"],
        long_valued: &["key", "field-separator"],
        ..reader("sort", "nrufbdghMVscCi", "kt", Paths)
    },
    Reader {
        long: &["count", "repeated", "unique", "ignore-case"],
        ..reader("uniq", "cdui", "fsw", OnePath)
    },
    Reader { long_valued: &["delimiter", "fields", "characters"], ..reader("cut", "s", "dfcb", Paths) },
    reader("tr", "cCds", "", Text),
    reader("nl", "p", "bvwsni", Paths),
    reader("basename", "az", "s", Text),
    reader("dirname", "z", "", Text),
    reader("realpath", "emsz", "", Paths),
    reader("readlink", "femnz", "", Paths),
];

/// Rates words that are one command.
///
/// # Errors
/// Why it is not understood, in one sentence.
pub(super) fn rate(words: &[String]) -> Result<Finding, String> {
    let [name, rest @ ..] = words else { return Err("it is empty".to_owned()) };
    if let Some(reader) = READERS.iter().find(|reader| reader.name == name) {
        return reader.rate(rest);
    }
    if name == "git" && is_plain_commit(rest) {
        // The message is data, whatever it mentions; what hooks do is not known.
        return Ok(Finding::new(RiskClass::Unknown, "git commit runs the repository's hooks"));
    }
    builds::rate(name, rest)
        .unwrap_or_else(|| Err("its program is not one of those that are known".to_owned()))
}

/// Whether these are the words of a commit with a message and nothing that names a program.
fn is_plain_commit(words: &[String]) -> bool {
    let [command, rest @ ..] = words else { return false };
    let mut rest = rest.iter().map(String::as_str);
    while let Some(word) = rest.next() {
        let known = match word {
            "-m" | "-am" | "--message" => rest.next().is_some(),
            "-a" | "-q" | "--all" | "--amend" | "--no-edit" | "--quiet" | "--allow-empty" => true,
            _ => word.starts_with("--message="),
        };
        if !known {
            return false;
        }
    }
    command == "commit"
}

/// The words of a call, sorted.
#[derive(Default)]
struct Call<'w> {
    operands: Vec<&'w str>,
    pattern_given: bool,
    recursive: bool,
    /// Patterns of names that are read.
    globs: Vec<&'w str>,
    /// An option chooses files in another way.
    chooses: bool,
}

impl<'w> Call<'w> {
    /// Notes an option by its name, with its value if it has one.
    fn option(&mut self, name: &str, value: Option<&'w str>) {
        match name {
            "e" | "regexp" => self.pattern_given = true,
            "r" | "recursive" => self.recursive = true,
            "g" | "glob" | "iglob" | "include" => self.globs.extend(value),
            "t" | "T" | "type" | "type-not" | "no-ignore-vcs" | "exclude" | "exclude-dir" => {
                self.chooses = true;
            }
            _ => {}
        }
    }
}

impl Reader {
    fn rate(&self, words: &[String]) -> Result<Finding, String> {
        let mut call = Call::default();
        let mut rest = words.iter().map(String::as_str);
        while let Some(word) = rest.next() {
            if word == "--" {
                call.operands.extend(rest.by_ref());
            } else if let Some(long) = word.strip_prefix("--") {
                self.take_long(long, &mut rest, &mut call)?;
            } else if word.len() > 1 && word.starts_with('-') {
                self.take_short(&word[1..], &mut rest, &mut call)?;
            } else {
                call.operands.push(word);
            }
        }
        self.judge(&call)
    }

    fn take_long<'w>(
        &self,
        long: &'w str,
        rest: &mut impl Iterator<Item = &'w str>,
        call: &mut Call<'w>,
    ) -> Result<(), String> {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (long, None),
        };
        if self.long_valued.contains(&name) {
            let value = value.or_else(|| rest.next());
            if value.is_none() {
                return Err(format!("the option --{name} of {} lacks its value", self.name));
            }
            call.option(name, value);
        } else if self.long.contains(&name) {
            call.option(name, None);
        } else {
            return Err(self.unknown_option(&format!("--{name}")));
        }
        Ok(())
    }

    /// Takes a cluster of short options.
    fn take_short<'w>(
        &self,
        cluster: &'w str,
        rest: &mut impl Iterator<Item = &'w str>,
        call: &mut Call<'w>,
    ) -> Result<(), String> {
        for (at, letter) in cluster.char_indices() {
            let (name, after) = (&cluster[at..at + letter.len_utf8()], &cluster[at + letter.len_utf8()..]);
            if self.valued.contains(letter) {
                let value = if after.is_empty() { rest.next() } else { Some(after) };
                if value.is_none() {
                    return Err(format!("the option -{letter} of {} lacks its value", self.name));
                }
                call.option(name, value);
                return Ok(());
            }
            if !self.flags.contains(letter) {
                return Err(self.unknown_option(&format!("-{letter}")));
            }
            call.option(name, None);
        }
        Ok(())
    }

    fn unknown_option(&self, option: &str) -> String {
        format!("{} may do more with the option {option}", self.name)
    }

    fn judge(&self, call: &Call<'_>) -> Result<Finding, String> {
        let operands = call.operands.as_slice();
        let paths = match self.operands {
            Operands::Text => &[],
            Operands::Paths => operands,
            Operands::PatternThenPaths if call.pattern_given => operands,
            Operands::PatternThenPaths => operands.get(1..).unwrap_or_default(),
            Operands::OnePath if operands.len() <= 1 => operands,
            Operands::OnePath => return Err(format!("{} writes to its second operand", self.name)),
            Operands::Format if operands.iter().all(|operand| operand.starts_with('+')) => &[],
            Operands::Format => return Err(format!("{} may change the system with an operand", self.name)),
            Operands::None if operands.is_empty() => &[],
            Operands::None => return Err(format!("{} takes no operands", self.name)),
        };
        let beneath = self.reads_beneath(call);
        let chosen = if beneath.is_some() { call.globs.as_slice() } else { &[] };
        let why = paths.iter().find_map(|path| why_sensitive(path));
        let why = why.or_else(|| chosen.iter().find_map(|glob| why_glob_is_sensitive(glob)));
        let mut finding = match why {
            Some(reason) => Finding::new(RiskClass::Sensitive, reason),
            None => Finding::new(RiskClass::ReadOnly, format!("{} only reads", self.name)),
        };
        let mut paths: Vec<String> =
            paths.iter().filter(|path| **path != "-").map(|path| (*path).to_owned()).collect();
        if paths.is_empty() && beneath.is_some() {
            paths.push(".".to_owned());
        }
        finding.reads = Reads { paths, beneath };
        Ok(finding)
    }

    /// Says which files beneath a folder are read, if any are.
    fn reads_beneath(&self, call: &Call<'_>) -> Option<Beneath> {
        let chooses = call.chooses || !call.globs.is_empty();
        let which = match self.descends {
            Descends::Always if !chooses => Which::Shown,
            Descends::Always => Which::All,
            Descends::WhenAsked if call.recursive => Which::All,
            Descends::Never | Descends::WhenAsked => return None,
        };
        // With other options beside them, these are not the only files that are read.
        let endings: Option<Vec<String>> = call.globs.iter().map(|glob| ending(glob)).collect();
        let only = endings.filter(|endings| !endings.is_empty() && !call.chooses);
        Some(Beneath { which, only })
    }
}

/// Returns the ending that a pattern of the form `*.rs` asks for, in small letters.
fn ending(glob: &str) -> Option<String> {
    let ending = glob.strip_prefix('*')?;
    let letters = ending.strip_prefix('.')?;
    let plain = !letters.is_empty() && letters.bytes().all(|byte| byte.is_ascii_alphanumeric());
    plain.then(|| ending.to_ascii_lowercase())
}

/// Says why choosing files by a pattern asks, if it does; `!` leaves files out.
fn why_glob_is_sensitive(glob: &str) -> Option<String> {
    let chooses = !glob.starts_with('!') && is_secret(std::path::Path::new(glob));
    chooses.then(|| format!("{glob} looks like a secret"))
}

/// Says why reading a path asks, if it does.
fn why_sensitive(path: &str) -> Option<String> {
    if leaves(path) {
        Some(format!("{path} is outside the workspace"))
    } else if is_secret(std::path::Path::new(path)) {
        Some(format!("{path} looks like a secret"))
    } else {
        None
    }
}

/// Whether a path may leave the folder it is relative to.
pub(super) fn leaves(path: &str) -> bool {
    path.starts_with('/') || path.starts_with('~') || path.split('/').any(|part| part == "..")
}
