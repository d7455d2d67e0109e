//! A bank: transfers between keys, in two functions one behind the other that are this one. What is taken
//! from one key is brought to another by an event, at once or when a timer is due, so that the sum over all
//! keys and over what is on its way never changes.

use std::time::Duration;
use tidemill::prelude::*;

/// What happens to the account that is the event's key.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Gives an amount to another account, `after` so many ms of event time (0: at once).
    Give {
        /// Number of the transfer.
        id: u64,
        /// Who gives it: the event's key, or what it is keyed by.
        from: String,
        /// Who gets it.
        to: String,
        /// How much.
        amount: i64,
        /// When.
        after: u64,
        /// What becomes of the order: `skip`, `trap`; anything else: it is carried out.
        #[serde(default)]
        then: String,
    },
    /// Gets an amount.
    Get {
        /// Number of the transfer.
        id: u64,
        /// How much.
        amount: i64,
    },
}

/// What is on its way.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Due {
    id: u64,
    to: String,
    amount: i64,
}

/// Carries orders out.
#[tidemill::function(
    input = "transfers",
    start = "earliest",
    output = "credits",
    ttl(recent = "50ms"),
    on_timer = due
)]
pub fn bank(
    order: Event<Order>,
    balance: Counter,
    waiting: StateMap<u64, i64>,
    done: StateMap<u64, i64>,
    recent: State<u64>,
    timers: Timers,
    credits: Output<Order>,
) -> Result<()> {
    match &order.value {
        Order::Give {
            id,
            to,
            amount,
            after,
            then,
            ..
        } => {
            balance.add(-amount)?;
            done.insert(id, *amount)?;
            recent.set(*id)?;
            let (id, amount, to) = (*id, *amount, to.clone());
            if *after == 0 {
                credits.emit(&to, Order::Get { id, amount })?;
            } else {
                waiting.insert(id, amount)?;
                let at = order.time + Duration::from_millis(*after);
                timers.set_with(&id.to_string(), at, Due { id, to, amount })?;
            }
            match then.as_str() {
                "skip" => skip("taken back"),
                "trap" => panic!("asked to"),
                _ => Ok(()),
            }
        }
        Order::Get { id, amount } => {
            if done.get(id)?.is_some() {
                return dead_letter(format!("transfer {id} comes twice"));
            }
            done.insert(id, *amount)?;
            balance.add(*amount)?;
            Ok(())
        }
    }
}

/// What was on its way arrives.
#[tidemill::on_timer]
fn due(timer: Timer<Due>, waiting: StateMap<u64, i64>, credits: Output<Order>) -> Result<()> {
    let Due { id, to, amount } = timer.payload;
    waiting.remove(id)?;
    credits.emit(&to, Order::Get { id, amount })
}
