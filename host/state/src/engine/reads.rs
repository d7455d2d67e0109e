//! Reading from the store behind what is missing in memory.

use super::Engine;
use crate::behind::{Behind, Failure};
use crate::live::Load;
use crate::{Missing, Scope, keys};
use bytes::Bytes;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidemill_types::Result;

/// Keys one thread reads one after the other; more of them are read by several threads, since a cold
/// read waits for the disk.
const READ_ALONE: usize = 32;
/// Most threads that read for one load.
const READERS: usize = 8;
impl Engine {
    /// Brings missing values or their absence into memory.
    ///
    /// # Errors
    /// `Unavailable` when the store behind can't be read.
    pub(crate) fn load(&self, scope: Scope, missing: &[Missing]) -> Result<()> {
        while let Some(load) = self.live.begin_load(scope, missing) {
            // What is behind is let go of before a failure is dealt with: mending opens it again.
            let loaded = self.load_once(self.behind()?, scope, &load);
            if loaded.map_err(|failure| self.failed_read(&failure))? {
                break;
            }
        }
        self.failed_reads.store(0, Ordering::Release);
        self.show();
        Ok(())
    }

    fn load_once(
        &self,
        behind: Arc<dyn Behind>,
        scope: Scope,
        load: &Load,
    ) -> Result<bool, Failure> {
        if let Some(most) = load.whole
            && self.load_whole(&*behind, scope, load, most)?
        {
            return Ok(true);
        }
        let values = read_keys(&*behind, scope, &load.keys)?;
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

/// Reads keys in order, many of them with several threads.
fn read_keys(
    behind: &dyn Behind,
    scope: Scope,
    wanted: &[(u16, Bytes)],
) -> Result<Vec<Option<Bytes>>, Failure> {
    let chunk = wanted.len().div_ceil(READERS).max(READ_ALONE);
    if wanted.len() <= chunk {
        return read_some(behind, scope, wanted);
    }
    std::thread::scope(|threads| {
        let readers: Vec<_> = wanted
            .chunks(chunk)
            .map(|part| threads.spawn(move || read_some(behind, scope, part)))
            .collect();
        let mut values = Vec::with_capacity(wanted.len());
        for reader in readers {
            values.extend(
                reader
                    .join()
                    .map_err(|_| Failure::Broken("a read ended in a panic".into()))??,
            );
        }
        Ok(values)
    })
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
