//! From sections to one batch of the store behind: the last change of each key, in order.

use crate::behind::{Behind, Failure, Marker, Write};
use crate::engine::Changed;
use crate::live::WriteBack;
use crate::{Change, ChangesReader, Scope, keys};
use bytes::Bytes;
use foldhash::fast::RandomState;
use std::collections::{HashMap, HashSet};
use std::ops::{Bound, ControlFlow};
use tidemill_types::FunctionId;

/// Most keys removed in one batch, so that dropping large state doesn't need as much memory.
const REMOVED_AT_ONCE: usize = 20_000;

/// Slot, key, value or `None` where it was deleted.
type Last<'a> = (u16, &'a [u8], Option<&'a [u8]>);

/// What sections come to: the last change of each key after the last clear.
#[derive(PartialEq, Eq, Debug)]
struct Coalesced<'a> {
    cleared: bool,
    /// By slot and key.
    last: Vec<Last<'a>>,
}

fn coalesce(sections: &[Bytes]) -> Coalesced<'_> {
    let mut cleared = false;
    // What changes changes often: only what is left is put in order.
    let mut all: HashMap<(u16, &[u8]), Option<&[u8]>, RandomState> = HashMap::default();
    for change in sections
        .iter()
        .filter_map(|section| ChangesReader::unchecked(section))
        .flatten()
    {
        match change {
            Change::Set { slot, key, value } => _ = all.insert((slot, key), Some(value)),
            Change::Delete { slot, key } => _ = all.insert((slot, key), None),
            Change::Clear => {
                cleared = true;
                all.clear();
            }
        }
    }
    let mut last: Vec<Last<'_>> = all
        .into_iter()
        .map(|((slot, key), value)| (slot, key, value))
        .collect();
    last.sort_unstable_by_key(|(slot, key, _)| (*slot, *key));
    Coalesced { cleared, last }
}

/// Brings the store behind to the batch's commit: as one batch, except that a large scope that was
/// cleared is removed in several while the marker says so.
///
/// What it changes is added to `changed`, before it is written. Answers how many bytes of keys and values it wrote.
pub(crate) fn write(
    behind: &dyn Behind,
    batch: &WriteBack,
    changed: &mut Changed,
) -> Result<u64, Failure> {
    let mut writes = Vec::new();
    for (scope, sections) in &batch.sections {
        let coalesced = coalesce(sections);
        let from = writes.len();
        writes.extend(coalesced.last.into_iter().map(|(slot, key, value)| Write {
            key: keys::encode(*scope, slot, key),
            value: value.map(|value| keys::encode_value(key, value)),
        }));
        writes[from..]
            .iter()
            .for_each(|write| changed.add(&write.key));
        if coalesced.cleared {
            changed.clear(&keys::scope_prefix(*scope));
            let rest = remaining_of(behind, *scope, &writes[from..])?;
            writes.extend(rest.into_iter().map(|key| Write { key, value: None }));
            writes[from..].sort_unstable_by(|a, b| a.key.cmp(&b.key));
        }
    }
    behind.write(&writes, Some(Marker::Exact(batch.upto)))?;
    let size = |write: &Write<'_>| write.key.len() + write.value.as_ref().map_or(0, |it| it.len());
    Ok(writes.iter().map(|write| size(write) as u64).sum())
}

/// Keys of a cleared scope that have to be removed together with `writes`. If there are very many,
/// all but the last are removed before.
fn remaining_of(
    behind: &dyn Behind,
    scope: Scope,
    writes: &[Write<'_>],
) -> Result<Vec<Vec<u8>>, Failure> {
    let written: HashSet<&[u8]> = writes.iter().map(|write| write.key.as_slice()).collect();
    in_chunks(behind, &keys::scope_prefix(scope), |chunk| {
        behind.write(&removals(chunk), Some(Marker::Torn))
    })
    .map(|rest| {
        rest.into_iter()
            .filter(|key| !written.contains(key.as_slice()))
            .collect()
    })
}

/// Removes everything of a function. The marker stays: what a deleted function's state was matters to
/// nobody, so the store is as exact half-way as at the end.
pub(crate) fn forget(behind: &dyn Behind, function: FunctionId) -> Result<(), Failure> {
    remove(behind, &function.0.to_be_bytes(), None)
}

/// Removes everything that begins with a prefix; the marker is written with each part of it.
pub(crate) fn remove(
    behind: &dyn Behind,
    prefix: &[u8],
    marker: Option<Marker>,
) -> Result<(), Failure> {
    let write = |chunk| behind.write(&removals(chunk), marker);
    let rest = in_chunks(behind, prefix, write)?;
    if rest.is_empty() {
        return Ok(());
    }
    write(rest)
}

fn removals(keys: Vec<Vec<u8>>) -> Vec<Write<'static>> {
    keys.into_iter()
        .map(|key| Write { key, value: None })
        .collect()
}

/// Hands out the keys that begin with a prefix in chunks, and gives back the last, incomplete one.
fn in_chunks(
    behind: &dyn Behind,
    prefix: &[u8],
    mut remove: impl FnMut(Vec<Vec<u8>>) -> Result<(), Failure>,
) -> Result<Vec<Vec<u8>>, Failure> {
    let mut chunk = Vec::new();
    let mut removed = Ok(());
    behind.view()?.scan(
        Bound::Included(prefix),
        keys::behind(prefix).as_deref(),
        &mut |key, _| {
            chunk.push(key.to_vec());
            if chunk.len() >= REMOVED_AT_ONCE {
                removed = remove(std::mem::take(&mut chunk));
            }
            if removed.is_ok() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        },
    )?;
    removed.map(|()| chunk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Changes;
    use crate::behind::Map;
    use tidemill_types::CommitSeq;

    const SCOPE: Scope = Scope {
        function: FunctionId(1),
        partition: 0,
    };

    fn section(changes: &[Change<'_>]) -> Bytes {
        let mut section = Changes::new(SCOPE);
        changes.iter().for_each(|change| section.push(*change));
        Bytes::copy_from_slice(section.as_bytes())
    }

    fn content(map: &Map) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        let view = map.view().expect("works");
        view.scan(Bound::Included(&[0; 4]), None, &mut |key, _| {
            keys.push(key[keys::PREFIX_BYTES..].to_vec());
            ControlFlow::Continue(())
        })
        .expect("works");
        keys
    }

    #[test]
    fn the_last_change_of_each_key_counts() {
        let set = |key, value| Change::Set {
            slot: 0,
            key,
            value,
        };
        let sections = [
            section(&[
                set(b"gone", b"1"),
                Change::Clear,
                set(b"b", b"1"),
                set(b"a", b"1"),
            ]),
            section(&[
                set(b"b", b"2"),
                Change::Set {
                    slot: 1,
                    key: b"a",
                    value: b"3",
                },
            ]),
            section(&[Change::Delete { slot: 0, key: b"a" }]),
        ];
        let expected: Vec<Last<'_>> = vec![
            (0, b"a", None),
            (0, b"b", Some(b"2")),
            (1, b"a", Some(b"3")),
        ];
        assert_eq!(
            coalesce(&sections),
            Coalesced {
                cleared: true,
                last: expected
            }
        );
    }

    #[test]
    fn large_scopes_are_cleared_in_several_batches() {
        let map = Map::default();
        let count = u32::try_from(2 * REMOVED_AT_ONCE + 7).expect("small");
        let all: Vec<_> = (0..count)
            .map(|at| Write {
                key: keys::encode(SCOPE, 0, &at.to_be_bytes()),
                value: Some(b"v".into()),
            })
            .collect();
        map.write(&all, Some(Marker::Exact(CommitSeq(1))))
            .expect("works");
        let kept = count - 1;
        let sections = vec![section(&[
            Change::Clear,
            Change::Set {
                slot: 0,
                key: &kept.to_be_bytes(),
                value: b"kept",
            },
        ])];
        write(
            &map,
            &WriteBack {
                upto: CommitSeq(2),
                sections: vec![(SCOPE, sections)],
            },
            &mut Changed::none(1 << 20),
        )
        .expect("works");
        assert_eq!(content(&map), [kept.to_be_bytes().to_vec()]);
        assert_eq!(map.marker(), Ok(Marker::Exact(CommitSeq(2))));
    }

    #[test]
    fn forgetting_leaves_neighbours_and_the_marker() {
        let map = Map::default();
        let of = |function, key: &[u8]| Write {
            key: keys::encode(
                Scope {
                    function: FunctionId(function),
                    partition: 3,
                },
                0,
                key,
            ),
            value: Some(b"v".into()),
        };
        map.write(
            &[of(1, b"a"), of(2, b"b"), of(3, b"c")],
            Some(Marker::Exact(CommitSeq(9))),
        )
        .expect("works");
        forget(&map, FunctionId(2)).expect("works");
        assert_eq!(content(&map), [b"a".to_vec(), b"c".to_vec()]);
        assert_eq!(map.marker(), Ok(Marker::Exact(CommitSeq(9))));
    }
}
