//! A function of two topics, to test that their events come in the order in which they were committed.

use serde::{Deserialize, Serialize};
use tidemill::prelude::*;

/// An order or a payment.
#[derive(Deserialize)]
pub struct Entry {
    /// How much.
    pub amount: i64,
}

/// What an account owes after an entry, and which entry that was.
#[derive(Serialize)]
pub struct Owed {
    /// The entry's topic.
    pub topic: String,
    /// Its partition.
    pub partition: u32,
    /// Its offset.
    pub offset: u64,
    /// What is owed now.
    pub owes: i64,
    /// Drawn for the entry.
    pub drawn: u64,
}

/// Orders add to what an account owes, payments take from it.
#[tidemill::function(inputs("orders", "payments"), output = "owed", start = "earliest")]
pub fn ledger(
    entry: Event<Entry>,
    owes: State<i64>,
    ctx: Context,
    owed: Output<Owed>,
) -> Result<()> {
    let amount = match entry.topic {
        "orders" => entry.value.amount,
        _ => -entry.value.amount,
    };
    let owes = *owes.update(|owes| *owes += amount)?;
    let told = Owed {
        topic: entry.topic.to_owned(),
        partition: entry.partition,
        offset: entry.offset,
        owes,
        drawn: ctx.random(),
    };
    owed.emit(entry.key, told)
}
