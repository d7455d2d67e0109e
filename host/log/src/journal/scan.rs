//! Reading the journal back: which frames count, and whether what doesn't is a torn tail or damage.
//!
//! Frames count while they continue the sequence. At the first position where no such frame lies, the
//! rest of that file and all later files are searched: a frame that was written when the missing one
//! was known to be durable, or a file that begins later in the sequence, means that acknowledged
//! frames were damaged, and the start is refused. Otherwise it is the tail that the last, never
//! acknowledged group left.

use super::{FILE_HEAD, FileHead, HEAD_LEN, JournalFile, disk_error, number_of};
use crate::frame::{ALIGN, Head};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidemill_env::files::Files;
use tidemill_types::{Error, Result};

/// One frame that counts.
pub(crate) struct Found<'a> {
    pub(crate) file: &'a Arc<JournalFile>,
    pub(crate) at: u64,
    pub(crate) head: Head,
    pub(crate) body: &'a [u8],
}

/// What recovery learned beside the frames.
#[derive(Default)]
pub(crate) struct Recovered {
    /// Files with frames that count, oldest first.
    pub(crate) files: Vec<Arc<JournalFile>>,
    /// Files without.
    pub(crate) empty: Vec<Arc<JournalFile>>,
    pub(crate) first_seq: Option<u64>,
    pub(crate) last_seq: Option<u64>,
    pub(crate) data_id: Option<u64>,
    /// Above all file numbers.
    pub(crate) next_number: u64,
}

/// Reads all journal files below `dir` in order and hands on every frame that counts; a journal without
/// any is expected to begin after `base`. What isn't
/// known to be durable is written and synced once more: the last process may have died between write
/// and sync.
///
/// # Errors
/// `Corrupt` with file and position; whatever the disk or `visit` says.
pub(crate) fn recover(
    files: &Arc<dyn Files>,
    dir: &Path,
    base: u64,
    mut visit: impl FnMut(Found<'_>) -> Result<()>,
) -> Result<Recovered> {
    let mut recovered = Recovered::default();
    let all = open_all(files, dir, &mut recovered)?;
    // One file is checked while the next one is read; the two buffers take turns.
    let (mut bytes, mut ahead) = (Vec::new(), Vec::new());
    if let Some(first) = all.first() {
        read_all(first, &mut bytes)?;
    }
    for (nth, file) in all.iter().enumerate() {
        recovered.next_number = file.number + 1;
        let (end, read) = while_reading(all.get(nth + 1), &mut ahead, || {
            replay(file, &bytes, &mut recovered, &mut visit)
        });
        let end = end?;
        check_rest(file, &bytes, end, recovered.last_seq.unwrap_or(base) + 1)?;
        match end.frames {
            0 => recovered.empty.push(file.clone()),
            _ => {
                write_again(file, &bytes, end)?;
                recovered.files.push(file.clone());
            }
        }
        read?;
        std::mem::swap(&mut bytes, &mut ahead);
    }
    Ok(recovered)
}

/// Works here while a file, if there is one, is read on a thread of its own. What is done here must not
/// touch files, so that whoever simulates a disk sees reads and writes in one order.
fn while_reading<T>(
    file: Option<&Arc<JournalFile>>,
    bytes: &mut Vec<u8>,
    work: impl FnOnce() -> T,
) -> (T, Result<()>) {
    std::thread::scope(|scope| {
        let spawned = file.map(|file| {
            let thread = std::thread::Builder::new().name("journal-ahead".into());
            thread.spawn_scoped(scope, move || read_all(file, bytes))
        });
        let done = work();
        let read = match spawned {
            None => Ok(()),
            Some(Ok(reading)) => reading
                .join()
                .unwrap_or_else(|_| Err(Error::internal("reading the journal panicked"))),
            Some(Err(error)) => Err(Error::unavailable(
                "unavailable",
                format!("no thread can be started to read the journal: {error}"),
            )),
        };
        (done, read)
    })
}

/// How far a file counts.
#[derive(Clone, Copy)]
pub(super) struct End {
    pub(super) frames: u64,
    pub(super) at: usize,
    /// Start of the first frame that isn't known to be durable by a later one.
    unproven: usize,
}

/// The files that are part of the journal by their names, oldest first.
pub(super) fn listed(files: &dyn Files, dir: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let listed = files
        .list(dir)
        .map_err(|e| disk_error(dir, "can't be listed", &e))?;
    let mut numbered: Vec<_> = listed
        .into_iter()
        .filter_map(|path| Some((number_of(&path, "journal")?, path)))
        .collect();
    numbered.sort();
    Ok(numbered)
}

fn open_all(
    files: &Arc<dyn Files>,
    dir: &Path,
    recovered: &mut Recovered,
) -> Result<Vec<Arc<JournalFile>>> {
    let numbered = listed(&**files, dir)?;
    let mut all = Vec::with_capacity(numbered.len());
    for (number, path) in numbered {
        let mut head = [0; HEAD_LEN];
        let file = files
            .open(&path)
            .map_err(|e| disk_error(&path, "can't be opened", &e))?;
        file.read_at(0, &mut head)
            .map_err(|e| disk_error(&path, "can't be read", &e))?;
        match FileHead::read(&head) {
            Some(FileHead {
                number: inside,
                nonce,
                data_id,
            }) if inside == number => {
                recovered.data_id = Some(data_id);
                all.push(Arc::new(JournalFile {
                    number,
                    nonce,
                    path,
                    file,
                }));
            }
            _ => {
                return Err(Error::corrupt(format!(
                    "{}: the file's head (bytes 0 to {HEAD_LEN}) is damaged or from another version; \
                     nothing was changed: restore the file from a copy of the disk, or see with \
                     `tidemill log repair --dry-run` what could be saved",
                    path.display()
                )));
            }
        }
    }
    Ok(all)
}

fn read_all(file: &JournalFile, bytes: &mut Vec<u8>) -> Result<()> {
    let failed = |e: std::io::Error| disk_error(&file.path, "can't be read", &e);
    let size = file.file.size().map_err(failed)?;
    let size = usize::try_from(size).map_err(|_| Error::internal("file too large"))?;
    bytes.resize(size, 0);
    file.file.read_at(0, bytes).map_err(failed)
}

pub(super) fn replay(
    file: &Arc<JournalFile>,
    bytes: &[u8],
    recovered: &mut Recovered,
    visit: &mut impl FnMut(Found<'_>) -> Result<()>,
) -> Result<End> {
    let mut at = usize::try_from(FILE_HEAD).unwrap_or_default();
    let mut end = End {
        frames: 0,
        at,
        unproven: at,
    };
    let mut starts: Vec<(u64, usize)> = Vec::new();
    while let Some(head) = bytes
        .get(at..)
        .and_then(|rest| Head::read(rest, file.nonce))
    {
        let continues = recovered
            .last_seq
            .is_none_or(|last| head.stamp.seq == last + 1);
        let rest = &bytes[at..];
        if !continues || !head.body_is_whole(rest) {
            break;
        }
        let (seq, size, durable) = (head.stamp.seq, head.frame_bytes(), head.stamp.durable);
        starts.retain(|(seq, _)| *seq > durable);
        starts.push((seq, at));
        let body = &rest[head.body()];
        visit(Found {
            file,
            at: at as u64,
            head: head.clone(),
            body,
        })
        .map_err(|e| e.at(format_args!("{}, byte {at}", file.path.display())))?;
        recovered.first_seq.get_or_insert(seq);
        recovered.last_seq = Some(seq);
        at += size;
        end.frames += 1;
    }
    end.at = at;
    end.unproven = starts.first().map_or(at, |(_, at)| *at);
    Ok(end)
}

/// What lies behind the last frame of a file that counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rest {
    /// No frame of this use of the file.
    Nothing,
    /// What a crash leaves: frames that nobody was told of, in so many bytes.
    Torn { frames: u64, bytes: usize },
    /// Frame `later`, at byte `at`, is there although the missing one was durable before it.
    Damaged { later: u64, at: usize },
}

/// Damage or a torn tail?
pub(super) fn rest_of(nonce: u64, bytes: &[u8], end: End, missing: u64) -> Rest {
    let mut rest = Rest::Nothing;
    let mut torn = 0;
    for at in (end.at..bytes.len()).step_by(ALIGN) {
        let Some(head) = Head::read(&bytes[at..], nonce) else {
            continue;
        };
        let begins_later = end.frames == 0 && at == end.at && head.stamp.seq != missing;
        if head.stamp.durable >= missing || begins_later {
            let later = head.stamp.seq;
            return Rest::Damaged { later, at };
        }
        torn += 1;
        rest = Rest::Torn {
            frames: torn,
            bytes: at.saturating_add(head.frame_bytes()).min(bytes.len()) - end.at,
        };
    }
    rest
}

fn check_rest(file: &JournalFile, bytes: &[u8], end: End, missing: u64) -> Result<()> {
    match rest_of(file.nonce, bytes, end, missing) {
        Rest::Nothing => {}
        Rest::Torn { bytes, .. } => tracing::warn!(
            file = %file.path.display(), byte = end.at, bytes,
            "dropped a torn tail of the journal: frames that were never acknowledged"
        ),
        Rest::Damaged { later, at } => {
            return Err(Error::corrupt(format!(
                "{}: frame {missing} is damaged or missing at byte {} although it was durable before \
                 frame {later} (byte {at}) was written; nothing was changed: restore the file from a copy \
                 of the disk, or see with `tidemill log repair --dry-run` what could be saved",
                file.path.display(),
                end.at,
            )));
        }
    }
    Ok(())
}

fn write_again(file: &JournalFile, bytes: &[u8], end: End) -> Result<()> {
    let failed = |e: std::io::Error| disk_error(&file.path, "can't be made durable", &e);
    let unproven = &bytes[end.unproven..end.at];
    file.file
        .write_at(end.unproven as u64, &[unproven])
        .map_err(failed)?;
    file.file.sync_data().map_err(failed)
}
