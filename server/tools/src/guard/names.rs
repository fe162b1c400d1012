//! Names that look like secrets, and names that agents may not write: by text only, no disk.
//!
//! Every comparison is case-folded and ignores invisible characters and trailing dots and spaces, since
//! some file systems do. A wrong guess here may only make a call ask.

use std::path::Path;

use tns_server_core::visible::is_hidden;

/// Folders whose whole content is secret.
const SECRET_FOLDERS: &[&str] = &[
    ".ssh",
    ".aws",
    ".azure",
    ".gnupg",
    ".kube",
    ".docker",
    ".gcloud",
    ".password-store",
    ".tns",
    "keyrings",
    "secrets",
    ".secrets",
];

/// File names that hold secrets or what a person typed.
const SECRET_FILES: &[&str] = &[
    ".env",
    ".envrc",
    ".netrc",
    "_netrc",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".git-credentials",
    ".htpasswd",
    ".vault-token",
    ".dockercfg",
    ".boto",
    ".s3cfg",
    ".terraformrc",
    ".bash_history",
    ".zsh_history",
    ".sh_history",
    ".python_history",
    ".psql_history",
    ".mysql_history",
    ".sqlite_history",
    ".node_repl_history",
    ".lesshst",
    ".viminfo",
    "kubeconfig",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "id_ed25519_sk",
    "id_ecdsa_sk",
    "authorized_keys",
    "shadow",
    "gshadow",
    "terraform.tfstate",
    "wp-config.php",
];

/// Two components in a row that hold secrets.
const SECRET_PAIRS: &[(&str, &str)] = &[
    (".git", "config"),
    (".config", "gcloud"),
    (".config", "gh"),
    (".config", "tns"),
    (".cargo", "credentials"),
    (".cargo", "credentials.toml"),
    ("share", "keyrings"),
];

/// Endings of key and certificate stores.
const SECRET_ENDINGS: &[&str] =
    &[".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx", ".ppk", ".tfvars", ".env", ".ovpn"];

/// Stems that mean a secret where the ending is that of data.
const SECRET_STEMS: &[&str] = &[
    "token",
    "tokens",
    "secret",
    "secrets",
    "credential",
    "credentials",
    "password",
    "passwords",
    "passwd",
    "apikey",
    "apikeys",
    "api_key",
    "api_keys",
    "api-key",
    "api-keys",
    "service-account",
    "client_secret",
];

/// Endings of data, so that `token.rs` is source and `token.json` is not.
const DATA_ENDINGS: &[&str] =
    &["", "json", "yml", "yaml", "toml", "txt", "ini", "conf", "cfg", "csv", "xml", "bak"];

/// Endings of a `.env` file that is a template.
const ENV_TEMPLATES: &[&str] = &["example", "sample", "template", "dist"];

/// Names that steer programs, editors, shells, version control or this server, as file or folder.
const PROTECTED: &[&str] = &[
    ".git",
    ".hg",
    ".svn",
    ".tns",
    ".vscode",
    ".idea",
    ".husky",
    ".devcontainer",
    ".direnv",
    ".envrc",
    ".ssh",
    ".aws",
    ".gnupg",
    ".kube",
    ".docker",
    ".mcp.json",
    ".gitconfig",
    ".gitmodules",
    ".gitattributes",
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".kshrc",
    ".cshrc",
    ".tcshrc",
    ".login",
    ".inputrc",
    ".vimrc",
    ".gvimrc",
    ".exrc",
    ".nvimrc",
    ".emacs",
    ".tmux.conf",
    ".screenrc",
    ".xinitrc",
    ".xprofile",
    ".xsession",
    ".pam_environment",
    ".lldbinit",
    ".gdbinit",
    ".pdbrc",
    ".curlrc",
    ".wgetrc",
    ".netrc",
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".pnpmfile.cjs",
    ".pypirc",
    ".condarc",
    ".pre-commit-config.yaml",
    "authorized_keys",
    "crontab",
];

/// Two components in a row that are protected.
const PROTECTED_PAIRS: &[(&str, &str)] = &[
    (".cargo", "config"),
    (".cargo", "config.toml"),
    (".config", "git"),
    (".config", "fish"),
    (".config", "systemd"),
    (".config", "autostart"),
    (".config", "environment.d"),
    (".config", "tns"),
    (".config", "nvim"),
    (".local", "bin"),
];

/// Whether a path looks like that of a secret.
pub(crate) fn is_secret(path: &Path) -> bool {
    let names = folded(path);
    let Some(last) = names.last() else { return false };
    names.iter().any(|name| SECRET_FOLDERS.contains(&name.as_str()))
        || has_pair(&names, SECRET_PAIRS)
        || is_secret_name(last)
}

/// Whether agents may not write a path unasked.
pub(crate) fn is_protected(path: &Path) -> bool {
    let names = folded(path);
    names.iter().any(|name| PROTECTED.contains(&name.as_str())) || has_pair(&names, PROTECTED_PAIRS)
}

fn is_secret_name(name: &str) -> bool {
    if SECRET_FILES.contains(&name) {
        return true;
    }
    if let Some(suffix) = name.strip_prefix(".env.") {
        return !ENV_TEMPLATES.contains(&suffix);
    }
    if SECRET_ENDINGS.iter().any(|ending| name.ends_with(ending)) {
        return true;
    }
    let (stem, ending) = match name.trim_start_matches('.').rsplit_once('.') {
        Some((stem, ending)) => (stem, ending),
        None => (name.trim_start_matches('.'), ""),
    };
    SECRET_STEMS.contains(&stem) && DATA_ENDINGS.contains(&ending)
}

fn has_pair(names: &[String], pairs: &[(&str, &str)]) -> bool {
    names.windows(2).any(|two| pairs.iter().any(|(a, b)| two[0] == *a && two[1] == *b))
}

fn folded(path: &Path) -> Vec<String> {
    path.iter()
        .map(|name| {
            let name: String = name
                .to_string_lossy()
                .chars()
                .filter(|c| !is_hidden(*c))
                .flat_map(char::to_lowercase)
                .collect();
            name.trim_end_matches(['.', ' ']).to_owned()
        })
        .filter(|name| !name.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_known_by_name_at_any_depth_and_in_any_case() {
        for path in [
            ".env",
            "a/b/.ENV",
            ".env.production",
            "prod.env",
            "keys/id_rsa",
            "ID_ED25519",
            "server.pem",
            "tls/Server.KEY",
            ".ssh/config",
            "home/.aws/credentials",
            "credentials",
            "credentials.json",
            ".netrc",
            ".npmrc",
            ".pypirc",
            ".kube/config",
            "token",
            "secrets.yaml",
            "secrets/readme.md",
            ".git/config",
            ".cargo/credentials.toml",
            ".env.",
            ".en\u{200b}v",
        ] {
            assert!(is_secret(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn ordinary_files_are_no_secrets() {
        for path in [
            "src/token.rs",
            "README.md",
            "id_rsa.pub",
            ".env.example",
            "environment.rs",
            "",
            "secret_test.go",
            "keys.rs",
        ] {
            assert!(!is_secret(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn rules_and_start_files_are_protected_existing_or_not() {
        for path in [
            ".git/hooks/pre-commit",
            "sub/.GIT/config",
            ".git",
            ".tns/config.toml",
            ".vscode/tasks.json",
            ".idea/x",
            ".envrc",
            "a/.bashrc",
            ".profile",
            ".gitconfig",
            ".cargo/config.toml",
            ".git.",
            ".gi\u{200d}t/hooks/x",
        ] {
            assert!(is_protected(Path::new(path)), "{path}");
        }
        for path in ["src/main.rs", ".github/workflows/ci.yml", "git/x", ".gitignore", ".config/nextest.toml"]
        {
            assert!(!is_protected(Path::new(path)), "{path}");
        }
    }
}
