//! Reading from the store behind what is missing in memory.

use super::{Engine, Readers};
use crate::behind::{Behind, Failure};
use crate::live::{Ahead, Begun, Load};
use crate::{Missing, Scope, keys};
use bytes::Bytes;
use std::ops::{Bound, ControlFlow, Range};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use tidemill_types::Result;

/// Keys one thread reads one after the other; more of them are read by several threads.
const READ_ALONE: usize = 32;

impl Engine {
    /// Brings missing values or their absence into memory, with `readers` where they are many.
    ///
    /// # Errors
    /// `Unavailable` when the store behind can't be read.
    pub(crate) fn load(
        &self,
        scope: Scope,
        missing: &[Missing],
        readers: Option<&Readers>,
    ) -> Result<()> {
        loop {
            let load = match self.live.begin_load(scope, missing) {
                Begun::Known => break,
                Begun::Awaited(answers) => {
                    self.live.until_answered(answers);
                    continue;
                }
                Begun::Load(load) => load,
            };
            // What is behind is let go of before a failure is dealt with: mending opens it again.
            let loaded = self.load_once(self.behind()?, scope, &load, readers);
            if loaded.map_err(|failure| self.failed_read(&failure))? && !load.awaits_others {
                break;
            }
        }
        self.failed_reads.store(0, Ordering::Release);
        self.show();
        Ok(())
    }

    /// Begins to read values that are going to be needed; says nothing of what can't be read.
    pub(crate) fn ahead<'k>(
        self: &Arc<Self>,
        scope: Scope,
        slots: &[u16],
        keys: impl Iterator<Item = &'k [u8]>,
        readers: &Readers,
    ) -> usize {
        let Some(ahead) = self.live.ask(scope, slots, keys) else {
            return 0;
        };
        let count = ahead.load.keys.len();
        let ahead = Arc::new(ahead);
        for from in (0..count).step_by(READ_ALONE) {
            let (engine, ahead) = (Arc::clone(self), Arc::clone(&ahead));
            let range = from..count.min(from + READ_ALONE);
            readers.ahead(move || {
                let answer = Answer {
                    engine: &engine,
                    ahead: &ahead,
                    range: range.clone(),
                    values: None,
                };
                answer.read(scope);
            });
        }
        count
    }

    fn load_once(
        &self,
        behind: Arc<dyn Behind>,
        scope: Scope,
        load: &Load,
        readers: Option<&Readers>,
    ) -> Result<bool, Failure> {
        if let Some(most) = load.whole
            && self.load_whole(&*behind, scope, load, most)?
        {
            return Ok(true);
        }
        let values = read_keys(behind, scope, &load.keys, readers)?;
        Ok(self.live.finish_load(scope, load, &values))
    }

    fn load_whole(
        &self,
        behind: &dyn Behind,
        scope: Scope,
        load: &Load,
        most: u64,
    ) -> Result<bool, Failure> {
        let mut values = Vec::new();
        let mut bytes = 0;
        let prefix = keys::scope_prefix(scope);
        behind.view()?.scan(
            Bound::Included(&prefix),
            keys::behind(&prefix).as_deref(),
            &mut |key, value| {
                bytes += (key.len() + value.len()) as u64;
                if let Some(stored) = keys::decode(key, value) {
                    values.push((
                        stored.slot,
                        Bytes::copy_from_slice(stored.key),
                        Bytes::copy_from_slice(stored.value),
                    ));
                }
                if bytes <= most {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            },
        )?;
        Ok(bytes <= most && self.live.finish_whole(scope, load, &values))
    }
}

/// Some keys that are read ahead; answered however it ends, for somebody may wait for them.
struct Answer<'a> {
    engine: &'a Engine,
    ahead: &'a Ahead,
    range: Range<usize>,
    values: Option<Vec<Option<Bytes>>>,
}

impl Answer<'_> {
    fn read(mut self, scope: Scope) {
        let keys = &self.ahead.load.keys[self.range.clone()];
        let read = self.engine.behind().ok();
        self.values = read.and_then(|behind| read_some(&*behind, scope, keys).ok());
    }
}

impl Drop for Answer<'_> {
    fn drop(&mut self) {
        let live = &self.engine.live;
        live.answer(self.ahead, self.range.clone(), self.values.as_deref());
    }
}

/// Reads keys in order, many of them with several threads.
fn read_keys(
    behind: Arc<dyn Behind>,
    scope: Scope,
    wanted: &[(u16, Bytes)],
    readers: Option<&Readers>,
) -> Result<Vec<Option<Bytes>>, Failure> {
    let mut chunks = wanted.chunks(READ_ALONE);
    let (Some(first), Some(readers)) = (chunks.next(), readers) else {
        return read_some(&*behind, scope, wanted);
    };
    let (done, read) = mpsc::channel();
    for (nth, chunk) in chunks.enumerate() {
        let (behind, chunk, done) = (behind.clone(), chunk.to_vec(), done.clone());
        readers.urgently(move || {
            let values = read_some(&*behind, scope, &chunk);
            drop(behind);
            // Whoever asked may have failed already.
            let _ = done.send((nth, values));
        });
    }
    drop(done);
    let mut values = read_some(&*behind, scope, first)?;
    drop(behind);
    let mut others: Vec<_> = read.iter().collect();
    others.sort_unstable_by_key(|(nth, _)| *nth);
    for (_, other) in others {
        values.extend(other?);
    }
    if values.len() < wanted.len() {
        return Err(Failure::Broken("a read ended in a panic".into()));
    }
    Ok(values)
}

fn read_some(
    behind: &dyn Behind,
    scope: Scope,
    wanted: &[(u16, Bytes)],
) -> Result<Vec<Option<Bytes>>, Failure> {
    let stored: Vec<_> = wanted
        .iter()
        .map(|(slot, key)| keys::encode(scope, *slot, key))
        .collect();
    let mut values = vec![None; wanted.len()];
    behind.get_many(&stored, &mut |at, value| {
        values[at] = value
            .and_then(|value| keys::decode_value(&wanted[at].1, value))
            .map(Bytes::copy_from_slice);
    })?;
    Ok(values)
}
