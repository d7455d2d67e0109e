//! Memory that requests may take together: bodies on their way in, answers on their way out. Who finds
//! none left waits a while and is then refused as busy, before anything happened.

use crate::problem::{Answer, Problem};
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tidemill_env::Clock;
use tidemill_types::{ByteSize, Error, ErrorKind};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What is given out at a time.
const UNIT: usize = 1 << 10;
/// A body that goes on takes this much at once.
const STEP: usize = 64 << 10;

/// A number of bytes that requests share.
#[derive(Clone)]
pub(crate) struct Budget {
    left: Arc<Semaphore>,
    bytes: usize,
    wait: Duration,
    clock: Clock,
}

impl Budget {
    /// So many bytes; who finds none waits at most so long.
    pub(crate) fn new(bytes: ByteSize, wait: Duration, clock: Clock) -> Self {
        let units = (bytes.as_usize() / UNIT).clamp(1, Semaphore::MAX_PERMITS);
        Self {
            left: Arc::new(Semaphore::new(units)),
            bytes: units * UNIT,
            wait,
            clock,
        }
    }

    /// Nothing yet.
    pub(crate) fn hold(&self) -> Hold {
        Hold {
            budget: self.clone(),
            permit: None,
            used: 0,
        }
    }

    #[cfg(test)]
    fn free(&self) -> usize {
        self.left.available_permits() * UNIT
    }
}

/// What one request takes; given back when dropped.
pub(crate) struct Hold {
    budget: Budget,
    permit: Option<OwnedSemaphorePermit>,
    used: usize,
}

impl Hold {
    /// Takes more; waits for it if there is none.
    ///
    /// # Errors
    /// `busy` after the wait.
    pub(crate) async fn grow(&mut self, bytes: usize) -> Answer<()> {
        self.used += bytes;
        let held = self
            .permit
            .as_ref()
            .map_or(0, OwnedSemaphorePermit::num_permits)
            * UNIT;
        if self.used <= held {
            return Ok(());
        }
        // More than there is at all would wait for ever.
        let wanted = match held {
            0 => self.used,
            _ => self.used.max(held + STEP),
        };
        let more = wanted
            .min(self.budget.bytes)
            .saturating_sub(held)
            .div_ceil(UNIT);
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let permit = self.more(more).await?;
        match &mut self.permit {
            Some(held) => held.merge(permit),
            none => *none = Some(permit),
        }
        Ok(())
    }

    async fn more(&self, units: u32) -> Answer<OwnedSemaphorePermit> {
        let left = &self.budget.left;
        if let Ok(permit) = left.clone().try_acquire_many_owned(units) {
            return Ok(permit);
        }
        tokio::select! {
            biased;
            permit = left.clone().acquire_many_owned(units) => permit.map_err(|_| self.busy()),
            () = self.budget.clock.sleep(self.budget.wait) => Err(self.busy()),
        }
    }

    /// Gives everything back: the bytes are somebody else's now.
    pub(crate) fn release(&mut self) {
        self.permit = None;
        self.used = 0;
    }

    /// Gives back what goes beyond so many bytes.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        self.used = self.used.min(bytes);
        let wanted = self.used.div_ceil(UNIT);
        if let Some(permit) = &mut self.permit {
            drop(permit.split(permit.num_permits().saturating_sub(wanted)));
        }
    }

    fn busy(&self) -> Box<Problem> {
        let all = ByteSize(self.budget.bytes as u64);
        let detail = format!("requests take all of the {all} there are for them: come again");
        Error::new(ErrorKind::Busy, "busy", detail).into()
    }

    /// A body that holds this until it is sent.
    pub(crate) fn of_parts(self, parts: Vec<Bytes>) -> Body {
        let left = parts.iter().map(|part| part.len() as u64).sum();
        Body::new(Held {
            parts: parts.into_iter().filter(|part| !part.is_empty()).collect(),
            left,
            _hold: self,
        })
    }
}

/// A body of known length.
struct Held {
    parts: VecDeque<Bytes>,
    /// Bytes of them.
    left: u64,
    _hold: Hold,
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
        let part = self.parts.pop_front();
        self.left -= part.as_ref().map_or(0, |part| part.len() as u64);
        Poll::Ready(part.map(hyper::body::Frame::data).map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.parts.is_empty()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        hyper::body::SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_held_comes_back() {
        let budget = Budget::new(ByteSize::mib(1), Duration::ZERO, Clock::system());
        let mut one = budget.hold();
        one.grow(100).await.unwrap();
        assert_eq!(budget.free(), (1 << 20) - UNIT);
        one.grow(2000).await.unwrap();
        assert_eq!(budget.free(), (1 << 20) - UNIT - STEP);
        let mut two = budget.hold();
        let refused = two.grow(1 << 20).await.expect_err("too little is left");
        assert_eq!(refused.code, "busy");
        drop(two);
        one.shrink(UNIT + 1);
        assert_eq!(budget.free(), (1 << 20) - 2 * UNIT);
        one.release();
        assert_eq!(budget.free(), 1 << 20);
        let mut all = budget.hold();
        all.grow(5 << 20).await.expect("all there is is enough");
        assert_eq!(budget.free(), 0);
        let body = all.of_parts(vec![Bytes::from_static(b"1")]);
        assert_eq!(budget.free(), 0);
        drop(body);
        assert_eq!(budget.free(), 1 << 20);
    }

    #[tokio::test]
    async fn who_waits_gets_what_others_give_back() {
        let budget = Budget::new(ByteSize::mib(1), Duration::from_secs(60), Clock::system());
        let mut one = budget.hold();
        one.grow(1 << 20).await.unwrap();
        let mut two = budget.hold();
        let (waited, ()) = tokio::join!(two.grow(1), async { one.release() });
        waited.unwrap();
    }
}
