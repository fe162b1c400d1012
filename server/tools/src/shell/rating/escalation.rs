//! Words that change privilege or drive this server itself, in text that is not understood.
//!
//! The text is made plainer in several ways that bash could also read it in, and each way is looked at: a
//! word that any of them shows counts. A wrong guess here may only reject.

use std::path::Path;

use tns_server_core::visible::is_hidden;

use super::Controls;

/// Programs that change privilege: they count wherever they stand.
const ANYWHERE: &[&str] = &[
    "sudo", "sudo-rs", "sudoedit", "su", "su-rs", "doas", "pkexec", "runuser", "run0", "gosu", "su-exec",
    "visudo", "vipw", "nsenter", "setcap",
];

/// Programs that change privilege, or this server's own: they count where a command may stand.
const AS_COMMAND: &[&str] = &[
    "chroot",
    "unshare",
    "usermod",
    "useradd",
    "userdel",
    "adduser",
    "groupmod",
    "gpasswd",
    "passwd",
    "chpasswd",
    "newgrp",
    "sg",
    "setpriv",
    "capsh",
    "machinectl",
    "tns",
];

/// Tells whether a word of a program's call changes privilege.
type Judge = fn(&str) -> bool;

/// Programs that change privilege with certain words only.
const WITH_WORDS: &[(&str, Judge)] = &[
    ("chmod", sets_id),
    ("install", sets_id),
    ("chown", gives_root),
    ("chgrp", gives_root),
    ("systemd-run", |word| word.starts_with("--uid") || word.starts_with("--gid") || word == "--system"),
    ("docker", mounts_host),
    ("podman", mounts_host),
    ("nerdctl", mounts_host),
];

/// Words that run the command after them.
const WRAPPERS: &[&str] = &[
    "env", "exec", "nohup", "time", "timeout", "nice", "ionice", "xargs", "command", "builtin", "eval",
    "then", "do", "else", "if", "while", "until", "elif", "coproc", "setsid", "stdbuf", "watch", "parallel",
    "flock", "chrt", "taskset", "script", "strace", "busybox", "bash", "sh", "dash", "zsh", "ssh", "-exec",
    "-execdir", "-ok", "-c",
];

/// The port that the server listens on unless told otherwise.
const USUAL_PORT: u16 = 7777;

/// The file of the server's own folder that tells where it listens.
pub(in crate::shell) const ADDRESS_FILE: &str = "server.json";

/// What the server's own folder is called unless told otherwise.
const USUAL_FOLDER: &str = "tns";

/// The end of its path where nobody chose another.
const USUAL_PLACE: &str = "share/tns";

/// Ways to write this machine's own address.
const THIS_MACHINE: &[&str] = &["localhost", "127.", "::1", "0.0.0.0", "0x7f", "2130706433", "[::", "ip6-"];

/// What parts of a word stand between, where each part may be a program's name.
const PARTS: [char; 7] = ['/', '=', ':', '+', '@', '%', ','];

/// Says which word makes a text an escalation, if one does.
pub(super) fn find(command: &str, controls: &Controls<'_>) -> Option<String> {
    let plain: String = command
        .replace("\\\r\n", "")
        .replace("\\\n", "")
        .chars()
        .filter(|c| !is_hidden(*c))
        .flat_map(char::to_lowercase)
        .collect();
    // `$'…'` and `$"…"` are quotes too.
    let plain = plain.replace("$'", "'").replace("$\"", "\"");
    let joined: String = plain.chars().filter(|c| !matches!(c, '\'' | '"' | '\\')).collect();
    let parted: String =
        plain.chars().filter(|c| *c != '\\').map(|c| if matches!(c, '\'' | '"') { ';' } else { c }).collect();
    let decoded: String = decode(&plain).chars().filter(|c| !matches!(c, '\'' | '"')).collect();
    let mut ways = vec![
        expansions_as(&joined, " "),
        expansions_as(&joined, ""),
        expansions_as(&parted, " "),
        joined,
        decoded,
    ];
    // Most texts read the same in every way.
    ways.sort_unstable();
    ways.dedup();
    ways.iter()
        .find_map(|text| scan(text))
        .or_else(|| own_port(&plain, controls.port))
        .or_else(|| ways.iter().find_map(|text| own_address(text, controls.folder)))
}

/// Replaces each `$name`, `${…}` and `$@` by other text; a substitution `$(…)` stays.
fn expansions_as(text: &str, other: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    // Where no closing brace is left none is sought, or the work would grow with the square.
    let after_braces = text.rfind('}').map_or(text.len(), |at| text.len() - at - 1);
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let tail = &rest[at + 1..];
        let length = match tail.chars().next() {
            Some('{') if tail.len() > after_braces => tail.find('}').map_or(1, |end| end + 1),
            Some('{') => 1,
            Some(c) if c.is_alphabetic() || c == '_' => {
                tail.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(tail.len())
            }
            Some(c) if c.is_ascii_digit() || "@*#?!-".contains(c) => 1,
            _ => 0,
        };
        out.push_str(if length == 0 { " " } else { other });
        rest = &tail[length..];
    }
    out.push_str(rest);
    out
}

/// Replaces `\xHH`, `\uHHHH` and `\NNN` by their characters, as ANSI-C quotes and `printf` do.
fn decode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let tail = &rest[at + 1..];
        let (marker, radix, most) = match tail.chars().next() {
            Some('x') => (1, 16, 2),
            Some('u') => (1, 16, 8),
            _ => (0, 8, 4),
        };
        let digits = &tail[marker..];
        let count = digits.chars().take(most).take_while(|c| c.is_digit(radix)).count();
        let decoded = u32::from_str_radix(&digits[..count], radix).ok().and_then(char::from_u32);
        match decoded {
            Some(c) => {
                out.extend(c.to_lowercase());
                rest = &digits[count..];
            }
            None => rest = tail,
        }
    }
    out.push_str(rest);
    out
}

/// Walks the words of a text and remembers whether a command may stand where it is.
fn scan(text: &str) -> Option<String> {
    let mut command_here = true;
    let mut judged: Option<Judge> = None;
    for (word, separator) in split(text) {
        if let Some(judge) = judged
            && judge(word)
        {
            return Some(format!("`{word}` there would change privileges"));
        }
        let base = word.rsplit('/').next().unwrap_or(word);
        if let Some(name) = word.split(PARTS).find_map(|part| ANYWHERE.iter().find(|name| **name == part)) {
            return Some(format!("it mentions `{name}`, which changes privileges"));
        }
        if command_here && AS_COMMAND.contains(&base) && is_program_path(word) {
            return Some(match base {
                "tns" => "it drives this server's own client".to_owned(),
                _ => format!("it runs `{base}`, which changes privileges"),
            });
        }
        if command_here && let Some((_, judge)) = WITH_WORDS.iter().find(|(name, _)| *name == base) {
            judged = Some(*judge);
        }
        let goes_on = word.is_empty()
            || WRAPPERS.contains(&base)
            || word.starts_with('-')
            || word.contains('=')
            || word.starts_with(|c: char| c.is_ascii_digit());
        command_here = separator || (command_here && goes_on) || WRAPPERS.contains(&base);
        if separator {
            judged = None;
        }
    }
    None
}

/// Whether a word may name a program: bare, or in a folder of programs.
fn is_program_path(word: &str) -> bool {
    word.rsplit_once('/').is_none_or(|(folder, _)| folder == "." || folder.ends_with("bin"))
}

/// Splits a text into words, each with whether a command may start after it.
fn split(text: &str) -> impl Iterator<Item = (&str, bool)> {
    text.split_inclusive(|c: char| !is_word(c)).map(|piece| {
        let word = piece.trim_end_matches(|c: char| !is_word(c));
        let separator = piece[word.len()..].chars().any(|c| !matches!(c, ' ' | '\t'));
        (word, separator)
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || "-_./:=+@%".contains(c)
}

/// A mode with the set-user-id, set-group-id or sticky bit.
fn sets_id(word: &str) -> bool {
    let word = word.trim_start_matches("-m").trim_start_matches("--mode=");
    let octal = word.len() >= 4 && word.bytes().all(|b| (b'0'..=b'7').contains(&b));
    if octal {
        return word[..word.len() - 3].bytes().any(|b| b != b'0');
    }
    word.split_once(['+', '=']).is_some_and(|(_, bits)| bits.contains('s'))
}

fn gives_root(word: &str) -> bool {
    word.split(':').any(|name| name == "root" || name == "0") || word.contains("=root")
}

/// Options that give a container the host.
fn mounts_host(word: &str) -> bool {
    let value = word.trim_start_matches("-v").trim_start_matches("--volume=");
    value.starts_with("/:")
        || word.contains("docker.sock")
        || word.starts_with("--privileged")
        || word.starts_with("--cap-add")
        || word.contains("source=/")
        || word.contains("src=/")
        || ["--pid=host", "--userns=host", "--ipc=host"].contains(&word)
}

fn own_port(plain: &str, port: Option<u16>) -> Option<String> {
    let names = |port: u16| {
        let port = port.to_string();
        plain.match_indices(&port).any(|(at, _)| {
            let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
            !digit(plain[..at].chars().next_back()) && !digit(plain[at + port.len()..].chars().next())
        })
    };
    let named = names(USUAL_PORT) || port.is_some_and(names);
    (named && THIS_MACHINE.iter().any(|name| plain.contains(name)))
        .then(|| "it talks to this server's own port".to_owned())
}

/// Whether a text names the file with the server's address: in a folder called like the server's own, or
/// bare in a text that names the own folder as well.
fn own_address(text: &str, folder: Option<&Path>) -> Option<String> {
    let lower = |text: &std::ffi::OsStr| text.to_string_lossy().to_lowercase();
    let own_name = folder.and_then(Path::file_name).map(lower);
    let own_path = folder.map(|folder| lower(folder.as_os_str()));
    let is_own = |name: &str| name == USUAL_FOLDER || own_name.as_deref() == Some(name);
    let names_folder = text.contains(USUAL_PLACE) || own_path.is_some_and(|path| text.contains(&path));
    split(text)
        .flat_map(|(word, _)| word.split(['=', ':', '@', '%', '+']))
        .any(|path| match path.rsplit_once('/') {
            Some((folder, ADDRESS_FILE)) => {
                is_own(folder.rsplit('/').next().unwrap_or(folder)) || (folder == "." && names_folder)
            }
            Some(_) => false,
            None => path == ADDRESS_FILE && names_folder,
        })
        .then(|| "it looks for this server's own address".to_owned())
}
