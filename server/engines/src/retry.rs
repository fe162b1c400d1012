//! When a failed call is tried again, and after how long. Pure: no clock, no IO, no sleeping.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use tns_server_core::engine::EngineError;

/// Most tries after the first one.
pub(crate) const MAX_RETRIES: u32 = 2;

/// How long an engine waits for what. The defaults are the product's; tests shorten them.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Until a connection stands.
    pub connect: Duration,
    /// From the request to the first word, piece of reasoning or tool call.
    pub first_token: Duration,
    /// Between two reads of a stream that has begun.
    pub silence: Duration,
    /// The same while the model is known to think and its provider keeps the thoughts to itself.
    pub thinking: Duration,
    /// The first pause before another try where the provider names none; doubles each time.
    pub shortest_pause: Duration,
    /// The longest such pause.
    pub longest_pause: Duration,
    /// The longest pause that a provider may ask for; a longer one is an error that names it.
    pub longest_asked_pause: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            first_token: Duration::from_secs(120),
            silence: Duration::from_secs(60),
            thinking: Duration::from_secs(300),
            shortest_pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(8),
            longest_asked_pause: Duration::from_secs(30),
        }
    }
}

/// A failed try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) error: EngineError,
    pub(crate) retry: Retry,
}

/// Whether trying again makes sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// It would fail again.
    Never,
    /// After a pause of our choice.
    Soon,
    /// After the pause that the provider asked for.
    After(Duration),
    /// At once and once, without the provider's own blocks in the history: it refuses them.
    WithoutBlocks,
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        Self { error, retry: Retry::Never }
    }
}

/// What to do after a failed try.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait, then try again.
    Wait { delay: Duration, reason: String },
    /// The call has failed.
    GiveUp(EngineError),
}

/// Decides after the failure of try number `tried` (from 0). `jitter` lies in 0 to 1: it spreads the
/// tries of many clients, and only ever lengthens a pause.
pub(crate) fn next(failure: Failure, tried: u32, patience: &Patience, jitter: f64) -> Next {
    let Failure { mut error, retry } = failure;
    let delay = match retry {
        Retry::Never | Retry::WithoutBlocks => return Next::GiveUp(error),
        Retry::After(asked) if asked > patience.longest_asked_pause => {
            let seconds = asked.as_secs_f64().ceil();
            error.message =
                format!("{}; it asks to wait {seconds} s, so try again after that", error.message);
            return Next::GiveUp(error);
        }
        _ if tried >= MAX_RETRIES => return Next::GiveUp(error),
        Retry::After(asked) => asked,
        Retry::Soon => patience
            .shortest_pause
            .saturating_mul(2_u32.saturating_pow(tried))
            .mul_f64(1.0 + jitter.clamp(0.0, 1.0))
            .min(patience.longest_pause),
    };
    Next::Wait { delay, reason: error.message }
}

/// Returns a number in 0 to 1 that differs from call to call.
pub(crate) fn jitter() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    f64::from(u32::try_from(random >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}

/// Reads `Retry-After`: seconds or an HTTP date (RFC 9110, 10.2.3), seen at `now`.
pub(crate) fn parse_retry_after(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    static DATE: DateTimeParser = DateTimeParser::new();
    let at = DATE.parse_timestamp(value).ok()?;
    let until = Duration::try_from(at.duration_since(now)).unwrap_or_default();
    // A date has whole seconds, so what it names may be up to a second later than what it says.
    Some(until + Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use tns_server_core::engine::EngineErrorKind;

    use super::*;

    fn failure(retry: Retry) -> Failure {
        let error = EngineError { kind: EngineErrorKind::RateLimited, message: "slow down".into() };
        Failure { error, retry }
    }

    fn delay(retry: Retry, tried: u32, jitter: f64) -> Option<u128> {
        match next(failure(retry), tried, &Patience::default(), jitter) {
            Next::Wait { delay, reason } => {
                assert_eq!(reason, "slow down");
                Some(delay.as_millis())
            }
            Next::GiveUp(_) => None,
        }
    }

    #[test]
    fn pauses_double_are_spread_and_bounded() {
        assert_eq!(delay(Retry::Soon, 0, 0.0), Some(500));
        assert_eq!(delay(Retry::Soon, 0, 1.0), Some(1000));
        assert_eq!(delay(Retry::Soon, 1, 0.0), Some(1000));
        assert_eq!(delay(Retry::Soon, 1, 0.5), Some(1500));
        let slow = Patience { shortest_pause: Duration::from_secs(7), ..Patience::default() };
        let Next::Wait { delay, .. } = next(failure(Retry::Soon), 1, &slow, 1.0) else { panic!() };
        assert_eq!(delay, Duration::from_secs(8));
    }

    #[test]
    fn there_are_at_most_two_more_tries() {
        assert_eq!(delay(Retry::Soon, 2, 0.0), None);
        assert_eq!(delay(Retry::After(Duration::from_secs(1)), 2, 0.0), None);
        assert_eq!(delay(Retry::Never, 0, 0.0), None);
        assert_eq!(delay(Retry::WithoutBlocks, 0, 0.0), None);
    }

    #[test]
    fn an_asked_pause_is_kept_to_the_limit_and_named_beyond_it() {
        assert_eq!(delay(Retry::After(Duration::from_secs(30)), 0, 1.0), Some(30_000));
        let asked = Retry::After(Duration::from_secs(3600));
        let Next::GiveUp(error) = next(failure(asked), 0, &Patience::default(), 0.0) else { panic!() };
        assert_eq!(error.message, "slow down; it asks to wait 3600 s, so try again after that");
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now: Timestamp = "2026-11-06T08:49:35.25Z".parse().unwrap();
        let parse = |value| parse_retry_after(value, now).map(|delay| delay.as_millis());
        assert_eq!(parse("2"), Some(2000));
        assert_eq!(parse(" 0.5 "), Some(500));
        assert_eq!(parse("Fri, 06 Nov 2026 08:49:37 GMT"), Some(2750));
        assert_eq!(parse("Fri, 06 Nov 2026 08:49:00 GMT"), Some(1000));
        for bad in ["soon", "-1", "", "NaN", "1e400"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn jitter_is_a_fraction_that_varies() {
        let drawn: Vec<f64> = (0..32).map(|_| jitter()).collect();
        assert!(drawn.iter().all(|value| (0.0..=1.0).contains(value)));
        assert!(drawn.iter().any(|value| *value != drawn[0]));
    }
}
