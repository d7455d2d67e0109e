//! Lines for the function's log.

use std::cell::Cell;
use std::fmt;

/// Severity of a log line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Finest.
    Trace,
    /// For authors.
    Debug,
    /// Normal.
    Info,
    /// Odd.
    Warn,
    /// Wrong.
    Error,
}

/// A line that a function logged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogLine {
    /// Severity.
    pub level: Level,
    /// Index of the event in its batch.
    pub event: u32,
    /// The text.
    pub message: String,
}

thread_local! {
    static SCENE: Scene = const { Scene { event: Cell::new(0), written: Cell::new(0), muted: Cell::new(0) } };
}

/// What a line belongs to. A handler may log from anywhere below it, so this can't be an argument.
struct Scene {
    event: Cell<u32>,
    /// Lines since the start of the pass.
    written: Cell<usize>,
    /// So many lines of this pass were already written by an earlier pass over the same batch.
    muted: Cell<usize>,
}

#[cfg(not(target_arch = "wasm32"))]
thread_local! {
    /// Lines for a test to look at.
    static KEPT: std::cell::RefCell<Option<Vec<LogLine>>> = const { std::cell::RefCell::new(None) };
}

/// Starts a pass over a batch; the first `muted` lines are known already.
pub(crate) fn begin_pass(muted: usize) {
    SCENE.with(|scene| {
        scene.written.set(0);
        scene.muted.set(muted);
    });
}

/// Lines since the start of the pass.
pub(crate) fn lines_of_pass() -> usize {
    SCENE.with(|scene| scene.written.get())
}

/// Lines belong to this event from now on.
pub(crate) fn at_event(index: u32) {
    SCENE.with(|scene| scene.event.set(index));
}

/// Keeps the lines of this thread instead of dropping them.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn keep_lines() {
    KEPT.set(Some(Vec::new()));
}

/// The lines kept since [`keep_lines`].
#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn take_lines() -> Vec<LogLine> {
    KEPT.take().unwrap_or_default()
}

/// Writes one line: what the macros call.
#[doc(hidden)]
pub fn line(level: Level, message: fmt::Arguments<'_>) {
    SCENE.with(|scene| {
        let number = scene.written.get();
        scene.written.set(number + 1);
        if number >= scene.muted.get() {
            write(scene, level, message);
        }
    });
}

#[cfg(target_arch = "wasm32")]
fn write(scene: &Scene, level: Level, message: fmt::Arguments<'_>) {
    crate::wasm::log(LogLine {
        level,
        event: scene.event.get(),
        message: message.to_string(),
    });
}

#[cfg(not(target_arch = "wasm32"))]
fn write(scene: &Scene, level: Level, message: fmt::Arguments<'_>) {
    KEPT.with_borrow_mut(|kept| {
        if let Some(lines) = kept {
            lines.push(LogLine {
                level,
                event: scene.event.get(),
                message: message.to_string(),
            });
        }
    });
}

/// Logs a line of the finest level: `tidemill::trace!("gate {gate}")`.
#[macro_export]
macro_rules! trace { ($($text:tt)+) => { $crate::log::line($crate::Level::Trace, ::core::format_args!($($text)+)) }; }

/// Logs a line for authors: `tidemill::debug!("gate {gate}")`.
#[macro_export]
macro_rules! debug { ($($text:tt)+) => { $crate::log::line($crate::Level::Debug, ::core::format_args!($($text)+)) }; }

/// Logs a line: `tidemill::info!("gate {gate}")`.
#[macro_export]
macro_rules! info { ($($text:tt)+) => { $crate::log::line($crate::Level::Info, ::core::format_args!($($text)+)) }; }

/// Logs something odd: `tidemill::warn!("gate {gate}")`.
#[macro_export]
macro_rules! warn { ($($text:tt)+) => { $crate::log::line($crate::Level::Warn, ::core::format_args!($($text)+)) }; }

/// Logs something wrong: `tidemill::error!("gate {gate}")`.
#[macro_export]
macro_rules! error { ($($text:tt)+) => { $crate::log::line($crate::Level::Error, ::core::format_args!($($text)+)) }; }
