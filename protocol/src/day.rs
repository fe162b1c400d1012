//! Days of the calendar in UTC, as `YYYY-MM-DD`: what is counted by day is counted by these.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;
use jiff::tz::Offset;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::time::Timestamp;

const MICROS: i64 = 86_400_000_000;
const SECONDS: i64 = 86_400;

/// A day in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Day(i64);

/// A text is no day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a day as YYYY-MM-DD")]
pub struct InvalidDay;

impl Day {
    /// Returns the current day of the system clock.
    pub fn today() -> Self {
        Self::of(Timestamp::now())
    }

    /// Returns the day of a point in time.
    pub const fn of(time: Timestamp) -> Self {
        Self(time.as_micros().div_euclid(MICROS))
    }

    /// Makes a day from its number: days since 1970-01-01.
    pub const fn from_number(number: i64) -> Self {
        Self(number)
    }

    /// Returns the number of days since 1970-01-01.
    pub const fn number(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A day outside the calendar can't come from a clock; it is shown as the first one.
        let start = jiff::Timestamp::from_second(self.0.saturating_mul(SECONDS));
        let start = start.unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        write!(f, "{}", Offset::UTC.to_datetime(start).date())
    }
}

impl FromStr for Day {
    type Err = InvalidDay;

    fn from_str(text: &str) -> Result<Self, InvalidDay> {
        // A date alone, in this form alone: the parser knows others too.
        let shape = text.len() == 10 && text.bytes().filter(|byte| *byte == b'-').count() == 2;
        let date: Date = text.parse().ok().filter(|_| shape).ok_or(InvalidDay)?;
        let start = Offset::UTC.to_timestamp(date.at(0, 0, 0, 0)).map_err(|_| InvalidDay)?;
        Ok(Self(start.as_second().div_euclid(SECONDS)))
    }
}

impl Serialize for Day {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Day {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Day {
    fn schema_name() -> Cow<'static, str> {
        "Day".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({ "type": "string", "format": "date" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_ends_at_midnight_in_utc() {
        let midnight = Timestamp::from_micros(1_795_996_800_000_000);
        let before = Timestamp::from_micros(midnight.as_micros() - 1);
        assert_eq!(
            (Day::of(before).to_string(), Day::of(midnight).to_string()),
            ("2026-11-29".to_owned(), "2026-11-30".to_owned())
        );
        assert_eq!(Day::of(Timestamp::from_micros(-1)), Day::from_number(-1));
    }

    #[test]
    fn a_day_is_read_back_as_it_was_written_and_nothing_else_is_one() {
        let day = Day::of(Timestamp::from_micros(1_795_996_800_000_000));
        assert_eq!("2026-11-30".parse(), Ok(day));
        assert_eq!(serde_json::to_string(&day).unwrap(), "\"2026-11-30\"");
        assert_eq!(serde_json::from_str::<Day>("\"2026-11-30\"").unwrap(), day);
        for bad in [
            "",
            "today",
            "2026-11-31",
            "2026-1-30",
            "20261130",
            "2026-11-30T00:00Z",
            "2026-11-3 ",
            "30-11-2026",
        ] {
            assert_eq!(bad.parse::<Day>(), Err(InvalidDay), "{bad:?}");
        }
    }
}
