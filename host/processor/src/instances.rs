//! The memory of all instances: bounded, and shared by those that need it now.
//!
//! A task that is at work holds room for as much linear memory as its function was seen to use; an instance
//! that wants more ends its call without a trace, and the call is made again with room for all that the
//! function's limit allows. Between slices of work instances lie on a shelf, with room for what they have,
//! and go from there when they weren't used for long, or oldest first when somebody needs the room. When
//! nothing is left to go, tasks wait for room in the order in which they came.
//!
//! No function's limit is above the bound, for the host allows none: whoever waits gets its room.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidemill_env::metrics::{Gauge, Metrics};
use tidemill_env::{Clock, Shutdown};
use tidemill_types::{ByteSize, Error, Result};
use tidemill_wasm::{BatchPacker, Instance};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What room is counted in: a page of WebAssembly.
pub(crate) const PAGE: u64 = 64 << 10;
/// Looks at the shelf in one time that an instance may be idle.
const LOOKS: u32 = 4;

/// Room for some pages, given back when it is dropped.
pub(crate) type Room = OwnedSemaphorePermit;

/// An instance that isn't used now, with the buffer of its calls.
pub(crate) struct Warm {
    pub(crate) instance: Instance,
    pub(crate) packer: BatchPacker,
    pub(crate) room: Room,
}

/// All instances of a host.
pub(crate) struct Instances {
    pages: Arc<Semaphore>,
    total: u32,
    shelf: Mutex<Shelf>,
    waiting: AtomicUsize,
    next: AtomicU64,
    idle: Duration,
    clock: Clock,
    memory: Gauge,
    warm: Gauge,
}

#[derive(Default)]
struct Shelf {
    warm: BTreeMap<u64, (Duration, Warm)>,
    /// By last use.
    order: BTreeSet<(Duration, u64)>,
}

impl Shelf {
    fn take(&mut self, task: u64) -> Option<Warm> {
        let (used, warm) = self.warm.remove(&task)?;
        self.order.remove(&(used, task));
        Some(warm)
    }

    fn oldest(&self) -> Option<(Duration, u64)> {
        self.order.first().copied()
    }
}

/// Pages that so many bytes take.
pub(crate) fn pages(bytes: ByteSize) -> u32 {
    u32::try_from(bytes.0.div_ceil(PAGE)).unwrap_or(u32::MAX)
}

/// Bytes of what room there is.
pub(crate) fn bytes(room: &Room) -> ByteSize {
    ByteSize(room.num_permits() as u64 * PAGE)
}

impl Instances {
    /// Instances within so much memory, which may be idle for so long.
    pub(crate) fn new(memory: ByteSize, idle: Duration, clock: Clock, metrics: &Metrics) -> Self {
        let total = pages(memory).max(1);
        Self {
            pages: Arc::new(Semaphore::new(total as usize)),
            total,
            shelf: Mutex::default(),
            waiting: AtomicUsize::new(0),
            next: AtomicU64::new(0),
            idle,
            clock,
            memory: metrics.add(
                "function_instances_bytes",
                "Linear memory that instances of functions hold or may use.",
                Gauge::default(),
            ),
            warm: metrics.add(
                "function_instances",
                "Instances that wait for their function's next events.",
                Gauge::default(),
            ),
        }
    }

    /// A number for a task, which its instance is kept under.
    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes a task's instance from the shelf, if it is still there.
    pub(crate) fn take(&self, task: u64) -> Option<Warm> {
        let warm = self.shelf().take(task);
        self.show();
        warm
    }

    /// Makes `held` room for `wanted` pages, if there is enough once those go that aren't used; otherwise
    /// gives it back.
    pub(crate) fn grow(&self, held: Option<Room>, wanted: u32) -> Result<Room, Option<Room>> {
        let has = held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = (wanted.min(self.total) as usize).saturating_sub(has);
        let missing = u32::try_from(missing).unwrap_or(u32::MAX);
        loop {
            match self.pages.clone().try_acquire_many_owned(missing) {
                Ok(more) => {
                    let mut room = more;
                    if let Some(held) = held {
                        room.merge(held);
                    }
                    self.show();
                    return Ok(room);
                }
                Err(_) if self.drop_oldest() => {}
                Err(_) => return Err(held),
            }
        }
    }

    /// Waits for room for some pages; meanwhile what isn't used goes.
    ///
    /// # Errors
    /// When the host stops.
    pub(crate) async fn room(&self, wanted: u32) -> Result<Room> {
        let _waits = Waits::new(&self.waiting);
        let wanted = wanted.min(self.total);
        let room = self.pages.clone().acquire_many_owned(wanted);
        tokio::pin!(room);
        loop {
            tokio::select! {
                biased;
                room = &mut room => return room.map_err(|_| Error::unavailable("unavailable", "the host stops")),
                () = std::future::ready(()) => if !self.drop_oldest() { break },
            }
        }
        let room = room.await;
        room.map_err(|_| Error::unavailable("unavailable", "the host stops"))
    }

    /// Puts a task's instance on the shelf, unless somebody waits for its room.
    pub(crate) fn shelve(&self, task: u64, mut warm: Warm) {
        let has = warm.room.num_permits();
        let spare = has.saturating_sub(pages(warm.instance.memory()) as usize);
        drop(warm.room.split(spare));
        if self.waiting.load(Ordering::Acquire) == 0 {
            let now = self.clock.elapsed();
            let mut shelf = self.shelf();
            shelf.order.insert((now, task));
            shelf.warm.insert(task, (now, warm));
        }
        self.show();
    }

    /// Lets go of those that were idle for long; it ends with the processor.
    pub(crate) async fn tidy(self: Arc<Self>, shutdown: Shutdown) {
        let every = (self.idle / LOOKS).max(Duration::from_millis(10));
        let work = async {
            loop {
                self.clock.sleep(every).await;
                let now = self.clock.elapsed();
                while self
                    .shelf()
                    .oldest()
                    .is_some_and(|(used, _)| now.saturating_sub(used) >= self.idle)
                {
                    self.drop_oldest();
                }
            }
        };
        shutdown.run_until_cancelled(work).await;
    }

    /// Whether there was one.
    fn drop_oldest(&self) -> bool {
        let oldest = {
            let mut shelf = self.shelf();
            let oldest = shelf.oldest();
            oldest.and_then(|(_, task)| shelf.take(task))
        };
        // Its memory is unmapped without the lock.
        let found = oldest.is_some();
        drop(oldest);
        self.show();
        found
    }

    fn show(&self) {
        let used = (self.total as usize).saturating_sub(self.pages.available_permits());
        let bytes = used as u64 * PAGE;
        self.memory.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        let warm = self.shelf().warm.len();
        self.warm.set(i64::try_from(warm).unwrap_or(i64::MAX));
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts who waits, also when they are dropped.
struct Waits<'a>(&'a AtomicUsize);

impl<'a> Waits<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::AcqRel);
        Self(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_types::Timestamp;

    fn instances(pages: u64) -> Instances {
        let clock = Clock::manual(Timestamp::from_micros(0));
        let idle = Duration::from_secs(1);
        Instances::new(ByteSize(pages * PAGE), idle, clock, &Metrics::default())
    }

    #[test]
    fn room_is_bounded_and_grows_while_there_is_some() {
        let all = instances(10);
        let first = all.grow(None, 4).expect("room");
        let first = all.grow(Some(first), 7).expect("more room");
        assert_eq!(
            (first.num_permits(), bytes(&first)),
            (7, ByteSize(7 * PAGE))
        );
        let held = all.grow(Some(first), 11).expect("no more than there is");
        assert_eq!(held.num_permits(), 10);
        assert!(all.grow(None, 1).is_err());
        drop(held);
        assert!(all.grow(None, 1).is_ok());
    }

    #[tokio::test]
    async fn who_waits_comes_first() {
        let all = Arc::new(instances(10));
        let first = all.grow(None, 6).expect("room");
        let waiting = tokio::spawn({
            let all = Arc::clone(&all);
            async move { all.room(8).await }
        });
        while all.waiting.load(Ordering::Acquire) == 0 {
            tokio::task::yield_now().await;
        }
        tokio::task::yield_now().await;
        assert!(all.grow(None, 1).is_err(), "what is free is for who waits");
        drop(first);
        let room = waiting.await.expect("it ends").expect("room");
        assert_eq!(room.num_permits(), 8);
        assert_eq!(all.waiting.load(Ordering::Acquire), 0);
        assert!(all.grow(None, 2).is_ok());
    }
}
