//! Functions whose topics were deleted, by force, and made again: a topic is what it is by its number, so
//! they are taken up again with those that have the names now, and read a new input from its beginning.

use crate::deployment::Deployment;
use crate::parts::Parts;
use crate::processor::Inner;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tidemill_types::FunctionName;

/// How often topics are looked for.
const LOOK: Duration = Duration::from_secs(1);

/// Starts it; it ends with the processor.
pub(crate) fn start(inner: &Arc<Inner>) {
    let (clock, shutdown) = (inner.parts.clock.clone(), inner.shutdown.clone());
    let inner = Arc::downgrade(inner);
    tokio::spawn(async move {
        shutdown
            .run_until_cancelled(async move {
                loop {
                    clock.sleep(LOOK).await;
                    if !look(&inner).await {
                        return;
                    }
                }
            })
            .await
    });
}

async fn look(inner: &Weak<Inner>) -> bool {
    let Some(inner) = inner.upgrade() else {
        return false;
    };
    for (name, found) in inner.deployed() {
        match found {
            Found::Same => {}
            Found::Gone(topic) => inner.without_input(&name, &topic),
            Found::Other => renew(&inner, &name).await,
        }
    }
    true
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
