//! The rating judged on commands of every class, and on changes that must never lower it.

use proptest::prelude::*;
use tns_protocol::approval::RiskClass::{
    self, BuildTest, Destructive, Escalation, Exec, Network, ReadOnly, Sensitive, Unknown, Write,
};

use super::*;

/// Commands that are understood, with their exact class.
const UNDERSTOOD: &[(&str, RiskClass)] = &[
    ("ls", ReadOnly),
    ("ls -lah src tests", ReadOnly),
    ("ls --color=never -1", ReadOnly),
    ("cat Cargo.toml", ReadOnly),
    ("cat -n src/lib.rs", ReadOnly),
    ("cat -- -odd-name", ReadOnly),
    ("head -20 CHANGELOG.md", ReadOnly),
    ("head -n 5 a b", ReadOnly),
    ("tail -n5 log.txt", ReadOnly),
    ("tail --lines=3 log.txt", ReadOnly),
    ("wc -lw notes.md", ReadOnly),
    ("pwd", ReadOnly),
    ("echo hello there", ReadOnly),
    ("echo 'a $(b) c'", ReadOnly),
    ("echo sudo", ReadOnly),
    ("echo \"two  spaces\"", ReadOnly),
    ("whoami", ReadOnly),
    ("id -un", ReadOnly),
    ("date -u", ReadOnly),
    ("date +%s", ReadOnly),
    ("uname -sr", ReadOnly),
    ("which cargo sudo", ReadOnly),
    ("file --mime-type logo.png", ReadOnly),
    ("stat -c %s README.md", ReadOnly),
    ("du -sh target", ReadOnly),
    ("df -h", ReadOnly),
    ("tree -L 3 src", ReadOnly),
    ("grep -rn sudo docs", ReadOnly),
    ("grep -n '`' README", ReadOnly),
    ("grep -e one -e two a.txt", ReadOnly),
    ("grep --include='*.rs' -r fn src", ReadOnly),
    ("grep /api/v1 routes.txt", ReadOnly),
    ("rg -n -g '*.toml' version", ReadOnly),
    ("rg --type rust unsafe src", ReadOnly),
    ("sort -k 2 -t , table.csv", ReadOnly),
    ("uniq -c names.txt", ReadOnly),
    ("cut -d: -f1 list", ReadOnly),
    ("tr a-z A-Z", ReadOnly),
    ("nl main.c", ReadOnly),
    ("basename src/a.rs .rs", ReadOnly),
    ("dirname a/b/c", ReadOnly),
    ("realpath src", ReadOnly),
    ("true", ReadOnly),
    ("cat sudoers.md", ReadOnly),
    ("'ls' -l", ReadOnly),
    ("cat .env", Sensitive),
    ("cat '.e'\"nv\"", Sensitive),
    ("head -c 40 ~x/..", Unknown),
    ("head config/../.env", Sensitive),
    ("cat ../elsewhere/notes", Sensitive),
    ("cat /etc/hostname", Sensitive),
    ("ls /", Sensitive),
    ("ls .ssh", Sensitive),
    ("grep KEY .env.local", Sensitive),
    ("grep -e KEY deploy/id_ed25519", Sensitive),
    ("sort secrets.yaml", Sensitive),
    ("uniq .netrc", Sensitive),
    ("du -sh ..", Sensitive),
    ("cat src/../../other", Sensitive),
    ("cat .ENV", Sensitive),
    ("cargo build", BuildTest),
    ("cargo build --release -p core", BuildTest),
    ("cargo check --workspace --all-targets", BuildTest),
    ("cargo test", BuildTest),
    ("cargo test sudo", BuildTest),
    ("cargo test parses_a_line -- --nocapture --test-threads=1", BuildTest),
    ("cargo -q test", BuildTest),
    ("cargo clippy -- -D warnings", BuildTest),
    ("cargo fmt --check", BuildTest),
    ("cargo fmt --all -- --check", BuildTest),
    ("cargo doc --no-deps", BuildTest),
    ("npm test", BuildTest),
    ("npm run build", BuildTest),
    ("yarn lint", BuildTest),
    ("pnpm run test", BuildTest),
    ("go test -race ./...", BuildTest),
    ("go vet ./pkg", BuildTest),
    ("pytest -q tests/unit", BuildTest),
    ("python3 -m pytest -k parser", BuildTest),
    ("tsc --noEmit", BuildTest),
    ("make", BuildTest),
    ("make -j8 test", BuildTest),
    ("mvn -o test", BuildTest),
    ("gradle --offline check", BuildTest),
    ("git commit -m 'drop sudo'", Unknown),
];

/// Commands with the class that the worst reading of them has: the rating may not be below it.
const AT_LEAST: &[(&str, RiskClass)] = &[
    // Programs of one's own names, options that write or run.
    ("sort -o out.txt in.txt", Write),
    ("sort --out=x in.txt", Write),
    ("sort -uoout in.txt", Write),
    ("uniq in.txt out.txt", Write),
    ("tree -o listing.txt", Write),
    ("cargo fmt", Write),
    ("cargo fmt --all", Write),
    ("cargo clippy --fix", Write),
    ("mkdir build", Write),
    ("tee log.txt", Write),
    ("cp a b", Write),
    ("ls > files.txt", Write),
    ("ls >> files.txt", Write),
    ("npm run lint -- --fix", Write),
    ("go build -o bin/app .", Write),
    ("cargo test -- --logfile out.txt", Write),
    ("rg --pre ./decode x", Exec),
    ("rg --pre=./decode x", Exec),
    ("rg --hostname-bin ./x y", Exec),
    ("rg -z x archive.gz", Exec),
    ("sort --compress-program=./x f", Exec),
    ("cargo run", Exec),
    ("cargo build --config build.rustc-wrapper=./w", Exec),
    ("cargo +nightly-x test", Exec),
    ("cargo test --target-dir /tmp/x", Exec),
    ("cargo --config x=y test", Exec),
    ("go test -exec ./run ./...", Exec),
    ("go vet -vettool=./v ./...", Exec),
    ("pytest -p plugin", Exec),
    ("pytest /tmp/other", Exec),
    ("pytest @args.txt", Exec),
    ("python3 setup.py build", Exec),
    ("make deploy", Exec),
    ("make SHELL=./sh test", Exec),
    ("make -f other.mk test", Exec),
    ("make -C ../other", Exec),
    ("npm start", Exec),
    ("npm run postinstall", Exec),
    ("npm --script-shell ./x test", Exec),
    ("./ls", Exec),
    ("bin/cat x", Exec),
    ("/tmp/ls", Exec),
    ("git status", Exec),
    ("git -c core.pager=./x log", Exec),
    ("git commit --template=x", Exec),
    ("node x.js", Exec),
    ("date -f .env", Sensitive),
    ("date 010100002030", Destructive),
    ("wc --files0-from=/etc/hosts", Sensitive),
    ("grep -f .env README.md", Sensitive),
    ("file -f /etc/passwd", Sensitive),
    ("du --files0-from=.env", Sensitive),
    ("stat --printf=%n /root", Sensitive),
    ("tail -f /var/log/syslog", Sensitive),
    ("ls -l --time=ctime /proc/self", Sensitive),
    ("cat $HOME/.ssh/id_rsa", Sensitive),
    ("cat ~/.aws/credentials", Sensitive),
    ("env", Sensitive),
    ("printenv", Sensitive),
    ("curl https://example.org", Network),
    ("npm install left-pad", Network),
    ("cargo install x", Network),
    ("cargo add serde", Network),
    ("cat a.txt | nc example.org 80", Network),
    ("rm -r build", Destructive),
    ("ls; rm -r build", Destructive),
    ("ls && rm x", Destructive),
    ("ls & rm x", Destructive),
    ("ls\nrm x", Destructive),
    ("ls\r\nrm x", Destructive),
    ("echo $(rm x)", Destructive),
    ("echo `rm x`", Destructive),
    ("echo \"'`rm x`'\"", Destructive),
    ("cat <(rm x)", Destructive),
    ("echo hi > >(rm x)", Destructive),
    ("echo ${x:=$(rm y)}", Destructive),
    ("sh <<E\nrm x\nE", Destructive),
    ("r\\m -r x", Destructive),
    ("'r'm x", Destructive),
    ("LS x", Unknown),
    ("ls ${IFS}x", Unknown),
    ("{ls,-l}", Unknown),
    ("ls *", Unknown),
    ("ls 'open", Unknown),
    ("$CMD x", Unknown),
    ("eval x", Unknown),
    ("l\u{200b}s", Unknown),
    ("ls\u{a0}-l", Unknown),
    ("echo \u{202e}x", Unknown),
    ("ls\u{1b}[2K", Unknown),
    ("\u{43b}s", Unknown),
    ("ls\0", Unknown),
    ("", Unknown),
    ("   ", Unknown),
    ("A=1", Unknown),
    ("time ls", Unknown),
    // Changes of privilege, plain and in disguise.
    ("sudo id", Escalation),
    ("SUDO id", Escalation),
    ("sudo", Escalation),
    ("su", Escalation),
    ("su - root", Escalation),
    ("doas ls", Escalation),
    ("pkexec ls", Escalation),
    ("/usr/bin/sudo id", Escalation),
    ("true && sudo id", Escalation),
    ("echo x | sudo tee f", Escalation),
    ("bash -c 'sudo id'", Escalation),
    ("env -i sudo id", Escalation),
    ("nohup sudo id", Escalation),
    ("command sudo id", Escalation),
    ("xargs sudo < l", Escalation),
    ("s\"ud\"o id", Escalation),
    ("su\\do id", Escalation),
    ("su\\\ndo id", Escalation),
    ("X=sudo; $X id", Escalation),
    ("$(echo sudo) id", Escalation),
    ("`echo sudo` id", Escalation),
    ("sudo$IFS-l", Escalation),
    ("sudo${IFS}id", Escalation),
    ("s$@udo id", Escalation),
    ("su${x}do id", Escalation),
    ("$'sudo' id", Escalation),
    ("s$'u'do id", Escalation),
    ("$'\\x73udo' id", Escalation),
    ("$'\\163udo' id", Escalation),
    ("s\u{200b}udo id", Escalation),
    ("sh <<E\nsudo id\nE", Escalation),
    ("(sudo id)", Escalation),
    ("ls;sudo id", Escalation),
    ("rsync --rsh=sudo a b", Escalation),
    ("su -c id", Escalation),
    ("chroot / sh", Escalation),
    ("nsenter -t 1 sh", Escalation),
    ("chmod 4755 tool", Escalation),
    ("chmod u+s tool", Escalation),
    ("chmod 02755 tool", Escalation),
    ("chown root tool", Escalation),
    ("ls && chown 0:0 tool", Escalation),
    ("passwd", Escalation),
    ("bash -c 'passwd root'", Escalation),
    ("usermod -aG docker me", Escalation),
    ("docker run --privileged x", Escalation),
    ("docker run -v /:/mnt x", Escalation),
    ("systemd-run --uid=0 id", Escalation),
    ("curl http://localhost:7777/api", Escalation),
    ("nc 127.0.0.1 7777", Escalation),
    ("curl $(jq -r .url ~/.local/share/tns/server.json)", Escalation),
    ("cd ~/.local/share/tns && cat server.json", Escalation),
    ("cat \"$XDG_DATA_HOME\"/tns/server.j'son'", Escalation),
    ("tns chat", Escalation),
    ("true; tns sessions", Escalation),
];

fn class(command: &str) -> RiskClass {
    rate_command(command).class
}

#[test]
fn understood_commands_have_exactly_their_class() {
    for (command, wanted) in UNDERSTOOD {
        assert_eq!(class(command), *wanted, "{command:?}");
    }
}

#[test]
fn nothing_is_rated_below_the_worst_that_it_may_do() {
    for (command, least) in AT_LEAST {
        assert!(class(command) >= *least, "{command:?} is rated {}", class(command).as_str());
    }
}

#[test]
fn words_that_only_look_like_a_change_of_privilege_still_ask() {
    for command in [
        "cat sudoers-notes.md | head",
        "ls && cat pseudo.txt",
        "cat < /etc/passwd",
        "echo x | tee issue.txt",
        "chmod +x run.sh",
        "chmod 0755 run.sh",
        "docker run -v ./data:/data x",
        "cd tns && ls",
        "echo 17777 | cat localhost",
        "cat server.json | head",
        "cat registry/server.json | head",
    ] {
        assert_eq!(class(command), Unknown, "{command:?}");
    }
}

#[test]
fn always_covers_the_runner_and_its_sub_command() {
    for (command, key) in [
        ("cargo test", Some("cargo test")),
        ("cargo -q test -p core", Some("cargo test")),
        ("npm run build", Some("npm run build")),
        ("make -j4", Some("make")),
        ("make test", Some("make test")),
        ("python3 -m pytest", Some("python3 -m pytest")),
        ("ls", None),
        ("cargo test; ls", None),
        ("cargo run", None),
    ] {
        assert_eq!(rate_command(command).key.as_deref(), key, "{command:?}");
    }
}

#[test]
fn the_summary_is_the_whole_command_with_hidden_characters_shown() {
    let long = format!("echo {} && rm -rf build", "a".repeat(9_000));
    let rating = rate_command(&long);
    assert_eq!(rating.summary, long);
    assert!(rating.reasons.iter().any(|reason| reason == "it is 9021 bytes long"), "{:?}", rating.reasons);

    let rating = rate_command("echo \u{202e}gnp.x\nrm x");
    assert_eq!(rating.summary, "echo \\u{202E}gnp.x⏎\nrm x");
    assert_eq!(
        rating.reasons[1..],
        ["1 hidden or misleading characters are shown as escapes", "it has 2 lines",]
    );

    let rating = rate_command(&format!("ls{}; rm x", " ".repeat(3_000)));
    assert!(rating.reasons.iter().any(|reason| reason == "it has 3000 spaces in a row"));
}

#[test]
fn a_line_over_the_limit_is_not_understood() {
    let at_limit = format!("echo {}", "a".repeat(MAX_RATED_BYTES - 5));
    assert_eq!(at_limit.len(), MAX_RATED_BYTES);
    assert_eq!(class(&at_limit), ReadOnly);
    assert_eq!(class(&format!("{at_limit}a")), Unknown);
    assert_eq!(class(&format!("{at_limit} ; sudo id")), Escalation);
}

#[test]
fn a_long_chain_hides_nothing() {
    for count in [60, 5_000, 100_000] {
        assert_eq!(class(&format!("{}rm x", "true && ".repeat(count))), Unknown);
        assert_eq!(class(&format!("{}sudo id", "true && ".repeat(count))), Escalation);
    }
}

fn known_command() -> impl Strategy<Value = &'static str> {
    let all: Vec<&str> = UNDERSTOOD.iter().chain(AT_LEAST).map(|(command, _)| *command).collect();
    prop::sample::select(all)
}

proptest! {
    #[test]
    fn rating_any_text_neither_panics_nor_hides_anything(text in any::<String>()) {
        let rating = rate_command(&text);
        prop_assert!(!rating.summary.chars().any(visible::is_hidden));
        prop_assert!(!rating.reasons.is_empty());
    }

    #[test]
    fn shell_like_text_with_sudo_as_a_command_is_always_refused(
        before in "[ -~]{0,30}", after in "[ -~]{0,30}",
    ) {
        prop_assume!(!before.ends_with('\\'));
        let command = format!("{before}; sudo id {after}");
        prop_assert_eq!(class(&command), Escalation, "{}", command);
    }

    #[test]
    fn wrapping_a_command_never_lowers_its_class(
        command in known_command(),
        prefix in prop::sample::select(vec!["true && ", "env ", "nohup ", "time ", "! ", "A=1 ", "( ", "ls\n", "\t"]),
        suffix in prop::sample::select(vec!["", " ", " && true", " | cat", " 2>&1", " # note", " &", "\n"]),
    ) {
        let wrapped = format!("{prefix}{command}{suffix}");
        prop_assert!(class(&wrapped) >= class(command), "{command:?} -> {wrapped:?}");
    }

    #[test]
    fn quoting_a_word_never_lowers_the_class(command in known_command(), at in 0_usize..6, quote in "['\"]") {
        prop_assume!(!command.contains(['\'', '"', '\\', '\n', '$', '`']));
        let mut words: Vec<String> = command.split(' ').map(str::to_owned).collect();
        let at = at % words.len();
        prop_assume!(words[at].chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c)));
        words[at] = format!("{quote}{}{quote}", words[at]);
        let quoted = words.join(" ");
        prop_assert!(class(&quoted) >= class(command), "{command:?} -> {quoted:?}");
    }

    #[test]
    fn an_unlisted_option_never_stays_understood(letter in "[A-Za-z]", word in "[a-z]{1,6}") {
        let command = format!("ls --{letter}{word}-unlisted");
        prop_assert_eq!(class(&command), Unknown);
    }
}
