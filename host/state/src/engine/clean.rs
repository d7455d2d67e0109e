//! Taking away what is of no use to anybody any more, chunk by chunk, between the writer's batches.

use super::Engine;
use crate::behind::{Failure, Write};
use crate::{Scope, keys};
use std::ops::{Bound, ControlFlow};
use tidemill_types::Result;

/// Places of a table in memory looked at under its lock.
const PLACES: usize = 16 << 10;
/// Values of the store behind looked at while its writer waits.
const VALUES: usize = 4 << 10;

impl Engine {
    /// See [`crate::Store::clean`].
    pub(crate) fn clean(
        &self,
        scope: Scope,
        slot: u16,
        dead: &dyn Fn(&[u8]) -> bool,
    ) -> Result<u64> {
        let mut place = Some(0);
        while let Some(from) = place {
            let written = self.live.written();
            place = self.live.change(scope, |part| {
                part.cells.drop_dead(slot, written, from, PLACES, dead)
            });
        }
        self.live.relieve();
        self.show();
        if self.live.is_alone() {
            return Ok(0);
        }
        let (mut removed, mut next) = (0, Some(keys::encode_start(scope, slot, b"")));
        while let Some(from) = next {
            // The writer waits, so that nothing newer than what is seen is removed.
            let mut writing = self.writing();
            let behind = self.behind()?;
            let chunk = behind.view().and_then(|view| {
                let mut seen = Chunk::default();
                let to = keys::behind(&keys::encode_start(scope, slot, b""));
                view.scan(Bound::Included(&from), to.as_deref(), &mut |key, value| {
                    seen.take(key, value, dead)
                })?;
                Ok::<_, Failure>(seen)
            });
            let written = chunk.and_then(|chunk| {
                removed += chunk.dead.len() as u64;
                let gone = |key| Write { key, value: None };
                let dead: Vec<_> = chunk.dead.into_iter().map(gone).collect();
                dead.iter().for_each(|gone| writing.changed.add(&gone.key));
                if !dead.is_empty() {
                    behind.write(&dead, None)?;
                }
                Ok(chunk.next)
            });
            next = written.map_err(|failure| self.failed(&failure))?;
        }
        Ok(removed)
    }
}

/// Some values, looked at in order.
#[derive(Default)]
struct Chunk {
    seen: usize,
    dead: Vec<Vec<u8>>,
    next: Option<Vec<u8>>,
}

impl Chunk {
    fn take(&mut self, key: &[u8], value: &[u8], dead: &dyn Fn(&[u8]) -> bool) -> ControlFlow<()> {
        if self.seen == VALUES {
            self.next = Some(key.to_vec());
            return ControlFlow::Break(());
        }
        self.seen += 1;
        if keys::decode(key, value).is_some_and(|stored| dead(stored.value)) {
            self.dead.push(key.to_vec());
        }
        ControlFlow::Continue(())
    }
}
