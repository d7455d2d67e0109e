//! A row as published and a flight as it should be.

use std::fmt::Display;
use std::str::FromStr;
use tidemill::prelude::*;

/// A row of the published table; every field is text, missing ones are `NA`.
#[derive(Deserialize)]
pub struct Row {
    year: String,
    month: String,
    day: String,
    dep_time: String,
    sched_dep_time: String,
    dep_delay: String,
    arr_time: String,
    sched_arr_time: String,
    arr_delay: String,
    carrier: String,
    flight: String,
    tailnum: String,
    origin: String,
    dest: String,
    air_time: String,
    distance: String,
    time_hour: String,
}

/// A flight: numbers are numbers, what is missing is null. Delays and times in the air are minutes,
/// distances miles; clock times are local, 517 is 5:17.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Flight {
    /// Day of departure, local.
    pub date: String,
    /// When it left.
    pub dep_time: Option<u16>,
    /// When it was to leave.
    pub sched_dep_time: u16,
    /// How late it left; negative is early.
    pub dep_delay: Option<i32>,
    /// When it arrived.
    pub arr_time: Option<u16>,
    /// When it was to arrive.
    pub sched_arr_time: u16,
    /// How late it arrived.
    pub arr_delay: Option<i32>,
    /// The airline, two characters.
    pub carrier: String,
    /// Its number.
    pub flight: u32,
    /// The aircraft.
    pub tailnum: Option<String>,
    /// The airport it left from.
    pub origin: String,
    /// The airport it went to.
    pub dest: String,
    /// Both airports, as in `JFK-LAX`.
    pub route: String,
    /// How long it was in the air.
    pub air_time: Option<u32>,
    /// How far it is.
    pub distance: u32,
    /// The hour it was to leave in, UTC.
    pub time_hour: Time,
}

impl Row {
    /// The flight that the row describes.
    ///
    /// # Errors
    /// Which field is wrong and what it says.
    pub(crate) fn clean(&self) -> Result<Flight, String> {
        let Row { origin, dest, .. } = self;
        Ok(Flight {
            date: date(&self.year, &self.month, &self.day)?,
            dep_time: clock("dep_time", &self.dep_time)?,
            sched_dep_time: needed(
                "sched_dep_time",
                clock("sched_dep_time", &self.sched_dep_time)?,
            )?,
            dep_delay: number("dep_delay", &self.dep_delay)?,
            arr_time: clock("arr_time", &self.arr_time)?,
            sched_arr_time: needed(
                "sched_arr_time",
                clock("sched_arr_time", &self.sched_arr_time)?,
            )?,
            arr_delay: number("arr_delay", &self.arr_delay)?,
            carrier: needed("carrier", text(&self.carrier))?.to_owned(),
            flight: needed("flight", number("flight", &self.flight)?)?,
            tailnum: text(&self.tailnum).map(str::to_owned),
            origin: needed("origin", text(origin))?.to_owned(),
            dest: needed("dest", text(dest))?.to_owned(),
            route: format!("{origin}-{dest}"),
            air_time: number("air_time", &self.air_time)?,
            distance: needed("distance", number("distance", &self.distance)?)?,
            time_hour: self
                .time_hour
                .parse()
                .map_err(|why| format!("time_hour: {why}"))?,
        })
    }
}

fn text(field: &str) -> Option<&str> {
    (!field.is_empty() && field != "NA").then_some(field)
}

fn needed<T>(name: &str, field: Option<T>) -> Result<T, String> {
    field.ok_or_else(|| format!("{name} is missing"))
}

fn number<T: FromStr<Err: Display>>(name: &str, field: &str) -> Result<Option<T>, String> {
    let parsed = text(field).map(str::parse).transpose();
    parsed.map_err(|why| format!("{name} is no number of its range: {field:?} ({why})"))
}

/// Hours and minutes in one number; 2400 is midnight at the end of the day.
fn clock(name: &str, field: &str) -> Result<Option<u16>, String> {
    match number(name, field)? {
        Some(time) if time > 2400 || time % 100 > 59 => {
            Err(format!("{name} is no time of day: {field:?}"))
        }
        other => Ok(other),
    }
}

fn date(year: &str, month: &str, day: &str) -> Result<String, String> {
    let wrong = || format!("there is no day {year}-{month}-{day}");
    let parts: (u16, u8, u8) = (
        year.parse().map_err(|_| wrong())?,
        month.parse().map_err(|_| wrong())?,
        day.parse().map_err(|_| wrong())?,
    );
    let date = format!("{:04}-{:02}-{:02}", parts.0, parts.1, parts.2);
    let exists = format!("{date}T00:00:00Z").parse::<Time>().is_ok();
    if exists { Ok(date) } else { Err(wrong()) }
}
