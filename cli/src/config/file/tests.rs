//! Modes, owners, and files that are no files.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

const KEY: &str = "[providers.openai]\napi_key = \"test-key-123\"\n";

fn place(dir: &tempfile::TempDir) -> Place {
    let path = dir.path().join("sub/config.toml");
    Place { shown: path.display().to_string(), path, named: false }
}

fn write(place: &Place, text: &str, mode: u32) {
    fs::create_dir_all(place.path.parent().unwrap()).unwrap();
    fs::write(&place.path, text).unwrap();
    fs::set_permissions(&place.path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_file_that_is_not_there_is_nothing_unless_it_was_named() {
    let dir = tempfile::tempdir().unwrap();
    assert!(place(&dir).read().unwrap().is_none());
    let stop = Place { named: true, ..place(&dir) }.read().unwrap_err();
    assert!(stop.to_string().contains("make it, or leave --config and TNS_CONFIG out"), "{stop}");
}

#[test]
fn a_key_that_others_can_read_is_refused_with_the_command_that_closes_it() {
    let dir = tempfile::tempdir().unwrap();
    let place = place(&dir);
    for (text, mode, fine) in [
        (KEY, 0o600, true),
        (KEY, 0o400, true),
        (KEY, 0o640, false),
        (KEY, 0o604, false),
        (KEY, 0o610, false),
        (KEY, 0o602, false),
        ("model = \"m\"\n", 0o644, true),
        ("model = \"m\"\n", 0o664, false),
        ("model = \"m\"\n", 0o646, false),
        ("", 0o644, true),
    ] {
        write(&place, text, mode);
        match place.read() {
            Ok(_) => assert!(fine, "{mode:o} {text}"),
            Err(stop) => {
                assert!(!fine, "{mode:o}: {stop}");
                let line = format!("(mode {mode:o}); close it with `chmod 600 {}`", place.path.display());
                assert!(stop.to_string().ends_with(&line), "{stop}");
                assert_eq!(crate::exit::of(&stop.into()), crate::exit::Exit::Usage);
            }
        }
    }
}

#[test]
fn a_file_of_another_user_is_refused_and_the_systems_own_holds_no_key() {
    let dir = tempfile::tempdir().unwrap();
    let place = place(&dir);
    let fine = |has_key, owner| check(&place, has_key, owner, 0o600, 7).is_ok();
    assert!(fine(true, 7) && fine(false, 7) && fine(false, 0));
    assert!(!fine(true, 0) && !fine(true, 8) && !fine(false, 8));
}

#[test]
fn what_is_no_file_is_refused_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for path in [dir.path().to_owned(), fifo] {
        let shown = path.display().to_string();
        let stop = Place { path, shown, named: true }.read().unwrap_err();
        assert!(stop.to_string().ends_with("is no file"), "{stop}");
    }
}

#[test]
fn a_file_of_the_greatest_length_is_read_and_a_longer_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let place = place(&dir);
    let most = usize::try_from(MAX_FILE_BYTES).unwrap();
    write(&place, &"#".repeat(most), 0o600);
    assert!(place.read().is_ok());
    write(&place, &"#".repeat(most + 1), 0o600);
    assert!(place.read().unwrap_err().to_string().ends_with("is longer than 1 MiB"));
}

#[test]
fn a_rewritten_file_is_its_owners_alone_and_a_link_stays_one() {
    let dir = tempfile::tempdir().unwrap();
    let place = place(&dir);
    place.rewrite(|text| Ok(format!("{text}model = \"m\"\n"))).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&place.path), mode(place.path.parent().unwrap())), (0o600, 0o700));
    write(&place, "model = \"m\"\n", 0o644);
    let link = Place { path: dir.path().join("link"), ..place.clone() };
    symlink(&place.path, &link.path).unwrap();
    link.rewrite(|text| Ok(format!("{text}{KEY}"))).unwrap();
    assert!(fs::symlink_metadata(&link.path).unwrap().is_symlink());
    assert_eq!(mode(&place.path), 0o600);
    assert!(fs::read_to_string(&place.path).unwrap().starts_with("model"));
    assert_eq!(fs::read_dir(place.path.parent().unwrap()).unwrap().count(), 1, "no draft stays behind");
}

#[test]
fn a_damaged_file_is_never_rewritten() {
    let dir = tempfile::tempdir().unwrap();
    let place = place(&dir);
    for (text, mode) in [("model = ", 0o600), ("nope = 1\n", 0o600), ("model = \"m\"\n", 0o666)] {
        write(&place, text, mode);
        place.rewrite(|_| Ok(String::new())).unwrap_err();
        assert_eq!(fs::read_to_string(&place.path).unwrap(), text);
    }
    write(&place, "", 0o600);
    let error = place.rewrite(|_| Ok("nope = 1".into())).unwrap_err();
    assert!(error.to_string().contains("change it by hand"), "{error}");
}
