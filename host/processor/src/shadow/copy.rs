//! Copies of state, page by page, under another number or into another store.

use crate::parts::Parts;
use crate::replay::{Run, blocking};
use bytes::Bytes;
use std::sync::Arc;
use tidemill_log::Draft;
use tidemill_state::{Change, Changes, Frozen, Scope};
use tidemill_types::Result;

/// Values read at once: each may have as much as a megabyte.
const PAGE: usize = 16;
/// Bytes of state of one transaction, before the last page.
const FRAME: usize = 4 << 20;

/// Copies a scope's values, as they were frozen, into other scopes of the same store; durable when it returns.
///
/// # Errors
/// As a commit; when state can't be read.
pub(crate) async fn state(
    parts: &Parts,
    frozen: &Arc<Frozen>,
    from: Scope,
    to: &[Scope],
) -> Result<()> {
    let mut pages = Pages::new(frozen, from);
    while let Some(values) = pages.next().await? {
        for scope in to {
            let changes = values.under(*scope);
            parts.commit_durably(Draft::new(), &[changes]).await?;
        }
        parts.state.room().await;
    }
    Ok(())
}

/// Copies a scope's values, as they were frozen, into the state of a replay.
///
/// # Errors
/// When state can't be read.
pub(crate) async fn load(run: &Run, frozen: &Arc<Frozen>, from: Scope, to: Scope) -> Result<()> {
    let mut pages = Pages::new(frozen, from);
    while let Some(values) = pages.next().await? {
        let changes = values.under(to);
        run.aside()?
            .apply(&run.parts.state, &[changes.into_bytes().into()])?;
        run.parts.state.room().await;
    }
    Ok(())
}

/// Some values of a scope.
pub(crate) struct Values(Vec<tidemill_state::FrozenValue>);

impl Values {
    /// The changes that put them into another scope.
    pub(crate) fn under(&self, scope: Scope) -> Changes {
        let mut changes = Changes::new(scope);
        for value in &self.0 {
            changes.push(Change::Set {
                slot: value.slot,
                key: &value.key,
                value: &value.value,
            });
        }
        changes
    }
}

/// Reads a scope from its beginning to its end.
pub(crate) struct Pages {
    frozen: Arc<Frozen>,
    scope: Scope,
    behind: Option<Bytes>,
    done: bool,
}

impl Pages {
    /// From the beginning.
    pub(crate) fn new(frozen: &Arc<Frozen>, scope: Scope) -> Self {
        Self {
            frozen: Arc::clone(frozen),
            scope,
            behind: None,
            done: false,
        }
    }

    /// Values of about a transaction; `None`: there are no more.
    ///
    /// # Errors
    /// When state can't be read.
    pub(crate) async fn next(&mut self) -> Result<Option<Values>> {
        if self.done {
            return Ok(None);
        }
        let (frozen, scope, behind) = (Arc::clone(&self.frozen), self.scope, self.behind.take());
        let read = blocking(move || some(&frozen, scope, behind));
        let (values, done) = read.await?;
        self.done = done;
        self.behind = values.last().map(|value| value.place.clone());
        Ok((!values.is_empty()).then_some(Values(values)))
    }
}

/// Values of about a transaction, and whether those were the last.
fn some(
    frozen: &Frozen,
    scope: Scope,
    mut behind: Option<Bytes>,
) -> Result<(Vec<tidemill_state::FrozenValue>, bool)> {
    let (mut values, mut bytes) = (Vec::new(), 0);
    while bytes < FRAME {
        let page = frozen.page(scope, behind.as_deref(), PAGE)?;
        let last = page.len() < PAGE;
        // A change has a head of its own beside key and value.
        let size = |value: &tidemill_state::FrozenValue| value.key.len() + value.value.len() + 12;
        bytes += page.iter().map(size).sum::<usize>();
        behind = page.last().map(|value| value.place.clone()).or(behind);
        values.extend(page);
        if last {
            return Ok((values, true));
        }
    }
    Ok((values, false))
}
