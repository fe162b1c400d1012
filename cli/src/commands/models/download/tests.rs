//! What decides whether a download goes on. The rest is shown over a real socket, in `tests/process`.

use super::*;

#[test]
fn a_range_is_read() {
    for (text, read) in [
        ("bytes 10-19/100", Some((10, Some(100)))),
        ("bytes 0-0/*", Some((0, None))),
        ("bytes */100", None),
        ("items 1-2/3", None),
        ("bytes 1-2", None),
        ("", None),
    ] {
        assert_eq!(read_range(text), read, "{text}");
    }
}

#[test]
fn a_weak_tag_tells_no_two_files_apart() {
    let headers = |pairs: &[(&'static str, &'static str)]| {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    };
    let date = "Mon, 30 Nov 2026 12:00:00 GMT";
    assert_eq!(state(&headers(&[("etag", "\"a\""), ("last-modified", date)])), Some("\"a\"".into()));
    assert_eq!(state(&headers(&[("etag", "W/\"a\""), ("last-modified", date)])), Some(date.into()));
    assert_eq!(state(&headers(&[("etag", "W/\"a\"")])), None);
}

#[test]
fn what_is_there_is_summed() {
    let mut file = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut file, b"abc").unwrap();
    let (sum, at) = sum_of(file).unwrap();
    assert_eq!(at, 3);
    assert_eq!(hex(&sum.finalize()), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}
