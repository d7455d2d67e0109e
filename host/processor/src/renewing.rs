//! Functions whose topics were deleted, by force, and made again: a topic is what it is by its number, so
//! they are taken up again with those that have the names now, and read a new input from its beginning. And functions
//! that couldn't be taken up when the host started, for something of them was missing: they are tried again.

use crate::deployment::Deployment;
use crate::parts::Parts;
use crate::processor::Inner;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tidemill_types::FunctionName;

/// How often topics are looked for.
const LOOK: Duration = Duration::from_secs(1);
/// The longest pause before a function is tried again that can't be taken up; it grows from [`LOOK`] on.
const LONGEST: Duration = Duration::from_secs(30);

/// Starts it; it ends with the processor.
pub(crate) fn start(inner: &Arc<Inner>) {
    let (clock, shutdown) = (inner.parts.clock.clone(), inner.shutdown.clone());
    let inner = Arc::downgrade(inner);
    tokio::spawn(async move {
        shutdown
            .run_until_cancelled(async move {
                let mut tries = Tries::default();
                loop {
                    clock.sleep(LOOK).await;
                    if !look(&inner, &mut tries).await {
                        return;
                    }
                }
            })
            .await
    });
}

/// Functions that can't be taken up: when each is tried next, and the pause before that.
#[derive(Default)]
struct Tries(HashMap<FunctionName, (Duration, Duration)>);

impl Tries {
    /// Whether a function's turn has come; the next one comes later each time.
    fn turn(&mut self, name: &FunctionName, now: Duration) -> bool {
        let (due, pause) = self.0.get(name).copied().unwrap_or_default();
        if now < due {
            return false;
        }
        let pause = (pause * 2).clamp(LOOK, LONGEST);
        self.0.insert(name.clone(), (now + pause, pause));
        true
    }
}

async fn look(inner: &Weak<Inner>, tries: &mut Tries) -> bool {
    let Some(inner) = inner.upgrade() else {
        return false;
    };
    let deployed = inner.deployed();
    let unready = |name: &FunctionName| {
        let mut all = deployed.iter();
        all.any(|(known, found)| known == name && *found == Found::Unready)
    };
    tries.0.retain(|name, _| unready(name));
    for (name, found) in deployed {
        match found {
            Found::Same => {}
            Found::Gone(topic) => inner.without_input(&name, &topic),
            Found::Other => renew(&inner, &name).await,
            Found::Unready => {
                if tries.turn(&name, inner.parts.clock.elapsed()) {
                    take_up(&inner, &name).await;
                }
            }
        }
    }
    true
}

/// Tries once more what couldn't be taken up. Why it can't is in what the function says of itself.
async fn take_up(inner: &Inner, name: &FunctionName) {
    let _admin = inner.admin.lock().await;
    match inner.renew(name).await {
        Ok(true) => {
            tracing::info!(function = %name, "a function that couldn't be taken up goes on");
        }
        // Somebody was quicker, or it is gone.
        Ok(false) => {}
        Err(wrong) if wrong.code == "function-not-found" => {}
        Err(wrong) => inner.still_unready(name, wrong),
    }
}

async fn renew(inner: &Inner, name: &FunctionName) {
    let _admin = inner.admin.lock().await;
    match inner.renew(name).await {
        Ok(true) => {
            tracing::warn!(function = %name, "a topic of the function was deleted and made again; it goes on with the new one");
        }
        // Somebody was quicker.
        Ok(false) => {}
        Err(wrong) => {
            tracing::error!(function = %name, error = %wrong, "a function can't be taken up again after a topic of it was made again");
        }
    }
}

/// What became of a deployment's topics.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// They are what they were.
    Same,
    /// One of them is another one of the same name.
    Other,
    /// Its input isn't there.
    Gone(String),
    /// It couldn't be taken up.
    Unready,
}

impl Found {
    /// Looks for a deployment's topics.
    pub(crate) fn of(parts: &Parts, deployment: &Deployment) -> Self {
        let inputs = deployment.inputs.iter();
        let inputs = inputs.flat_map(|input| std::iter::once(&input.topic).chain(&input.by_key));
        let all = inputs.chain([&deployment.dead_letters]);
        let mut all = all.chain(&deployment.outputs);
        let is_other = all.any(|topic| {
            let now = parts.log.topic(topic.name.as_str());
            now.is_some_and(|now| now.id != topic.id)
        });
        let mut inputs = deployment
            .inputs
            .iter()
            .map(|input| input.topic.name.as_str());
        let gone = inputs.find(|name| parts.log.topic(name).is_none());
        match (is_other, gone) {
            (_, Some(gone)) => Self::Gone(gone.to_owned()),
            (true, _) => Self::Other,
            (false, _) => Self::Same,
        }
    }
}
