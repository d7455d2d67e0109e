//! What an instance may ask for during a call.

use crate::deployment::Deployment;
use tidemill_state::{Scope, Store};
use tidemill_wasm::HostServices;

/// Answers for one task.
pub(crate) struct Services {
    state: Store,
    scope: Scope,
    slots: Vec<u16>,
    config: String,
    input: String,
}

impl Services {
    /// For a task of a deployment.
    pub(crate) fn new(deployment: &Deployment, partition: u32, state: Store) -> Self {
        Self {
            state,
            scope: Scope {
                function: deployment.function,
                partition,
            },
            slots: deployment.slots.clone(),
            config: deployment.manifest.config.clone(),
            input: deployment.input.name.to_string(),
        }
    }
}

impl HostServices for Services {
    fn state_get(&self, slot: u32, key: &[u8]) -> Option<Vec<u8>> {
        let slot = *self.slots.get(usize::try_from(slot).ok()?)?;
        let found = match self.state.get(self.scope, slot, key) {
            Ok(found) => found,
            Err(missing) => {
                if let Err(wrong) = self.state.load(self.scope, &[missing]) {
                    tracing::error!(error = %wrong, "state can't be read");
                }
                self.state.get(self.scope, slot, key).ok().flatten()
            }
        };
        found.map(|value| value.to_vec())
    }

    fn config(&self) -> &str {
        &self.config
    }

    fn input_topic(&self, input: u32) -> Option<&str> {
        (input == 0).then_some(self.input.as_str())
    }
}
