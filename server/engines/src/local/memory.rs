//! How much memory is free. A model that does not fit would push out everything else, or end the server.

use std::fs;

/// Returns the bytes that can be had without pushing anything out; `None` where the system does not say.
pub(super) fn available() -> Option<u64> {
    let machine = read_machine(&fs::read_to_string("/proc/meminfo").ok()?)?;
    Some(group().map_or(machine, |group| group.min(machine)))
}

/// Refuses a model that needs more than is `free`, where that is known.
///
/// # Errors
/// A line with both figures.
pub(super) fn check(model: &str, needed: u64, free: Option<u64>) -> Result<(), String> {
    match free {
        Some(free) if needed > free => Err(format!(
            "the model {model} needs {} of memory and {} are free; close something, or choose a smaller one",
            told(needed),
            told(free)
        )),
        Some(_) | None => Ok(()),
    }
}

/// What is left of the limit of a container.
fn group() -> Option<u64> {
    let number = |name: &str| -> Option<u64> {
        fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok()?.trim().parse().ok()
    };
    Some(number("memory.max")?.saturating_sub(number("memory.current")?))
}

fn read_machine(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
}

/// Returns a number of bytes for people.
fn told(bytes: u64) -> String {
    const GIB: u64 = 1 << 30;
    if bytes < GIB {
        return format!("{} MiB", bytes >> 20);
    }
    format!("{}.{} GiB", bytes / GIB, bytes % GIB * 10 / GIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_that_does_not_fit_is_refused_with_both_figures() {
        assert_eq!(check("m", 1 << 30, Some(1 << 30)), Ok(()));
        assert_eq!(check("m", u64::MAX, None), Ok(()));
        assert_eq!(
            check("m", 5 << 29, Some((5 << 29) - 1)).unwrap_err(),
            "the model m needs 2.5 GiB of memory and 2.4 GiB are free; close something, or choose a smaller one"
        );
        assert!(available().is_some_and(|free| free > 0));
    }

    #[test]
    fn the_systems_figure_is_read() {
        let text = "MemTotal:       24603160 kB\nMemAvailable:       1024 kB\n";
        assert_eq!(read_machine(text), Some(1 << 20));
        for text in ["", "MemAvailable: many kB", "MemAvailable: 1 MB"] {
            assert_eq!(read_machine(text), None, "{text}");
        }
        assert_eq!((told(98 << 20), told(5 << 29)), ("98 MiB".to_owned(), "2.5 GiB".to_owned()));
    }
}
