//! Compiling components: one at a time, beside everything else, and not for ever.

use std::sync::Arc;
use std::time::Duration;
use tidemill_env::{Clock, Urgency, in_background};
use tidemill_types::{Error, ErrorKind, Result, format_duration};
use tidemill_wasm::{Component, Sandbox};
use tokio::sync::Semaphore;

/// Compiles one component after the other, so that at most one takes memory and a core.
#[derive(Clone)]
pub(crate) struct Compiler {
    sandbox: Sandbox,
    clock: Clock,
    turn: Arc<Semaphore>,
    most: Duration,
}

impl Compiler {
    /// A compiler that gives a component so much time.
    pub(crate) fn new(sandbox: Sandbox, clock: Clock, most: Duration) -> Self {
        Self {
            sandbox,
            clock,
            turn: Arc::new(Semaphore::new(1)),
            most,
        }
    }

    /// Checks and compiles what somebody uploaded, when nothing else wants the processor. One that isn't
    /// done in time keeps the compiler until it is, but nobody waits for it.
    ///
    /// # Errors
    /// `invalid-component`; `busy` when its turn doesn't come in time.
    pub(crate) async fn upload(&self, bytes: bytes::Bytes) -> Result<Component> {
        let most = format_duration(self.most);
        let turn = tokio::select! {
            biased;
            turn = self.turn.clone().acquire_owned() => turn,
            () = self.clock.sleep(self.most) => return Err(Error::new(
                ErrorKind::Busy,
                "busy",
                format!("other components are being compiled, and for {most} none was done; send it again later"),
            )),
        };
        let turn = turn.map_err(|_| Error::internal("the compiler is gone"))?;
        let sandbox = self.sandbox.clone();
        let compile = move || {
            let _turn = turn;
            sandbox.compile(&bytes)
        };
        tokio::select! {
            biased;
            compiled = in_background("compile", Urgency::Low, compile) => compiled,
            () = self.clock.sleep(self.most) => Err(Error::invalid(
                "invalid-component",
                format!("takes too long to compile: it wasn't done after {most} (functions.compile_time); make it smaller, or let the host give it more time"),
            )),
        }
    }

    /// The compiled form of a component that was accepted before, usually from the cache.
    ///
    /// # Errors
    /// When it can't be compiled any more.
    pub(crate) async fn again(&self, bytes: bytes::Bytes) -> Result<Component> {
        let sandbox = self.sandbox.clone();
        in_background("compile", Urgency::Normal, move || sandbox.compile(&bytes)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_types::{ByteSize, Timestamp};

    #[tokio::test]
    async fn nobody_waits_for_ever() {
        let settings = tidemill_wasm::Settings {
            cache_dir: None,
            cache_bytes: ByteSize(0),
            instances: 1,
        };
        let sandbox = Sandbox::new(settings).expect("the engine starts");
        let clock = Clock::manual(Timestamp::from_micros(0));
        let compiler = Arc::new(Compiler::new(
            sandbox,
            clock.clone(),
            Duration::from_secs(3),
        ));
        let other = compiler.turn.clone().acquire_owned().await.expect("free");
        let waiting = tokio::spawn({
            let compiler = Arc::clone(&compiler);
            async move { compiler.upload(bytes::Bytes::from_static(b"")).await }
        });
        while !waiting.is_finished() {
            clock.advance(1_000_000);
            tokio::task::yield_now().await;
        }
        let refused = waiting.await.expect("it ends").expect_err("busy");
        assert_eq!((refused.kind, refused.code), (ErrorKind::Busy, "busy"));
        drop(other);
        let refused = compiler.upload(bytes::Bytes::from_static(b"")).await;
        assert_eq!(refused.expect_err("nothing").code, "invalid-component");
    }
}
