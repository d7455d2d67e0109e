//! The journal looked at without changing it, beyond the first damage too, and what can be done about
//! damage: writing a head again, cutting off what lies behind.

use super::scan::{Rest, listed, replay, rest_of};
use super::{FILE_HEAD, FileHead, Found, HEAD_LEN, JournalFile, Recovered, disk_error, number_of};
use crate::frame::{ALIGN, Head};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidemill_env::files::{File, Files};
use tidemill_types::{Error, Result};

/// All of a journal.
#[derive(Default)]
pub(crate) struct Survey {
    /// Oldest first.
    pub(crate) files: Vec<Surveyed>,
    /// Files that wait to be used again.
    pub(crate) spares: usize,
    /// What a start would learn from it.
    pub(crate) recovered: Recovered,
    /// Why a start would refuse it: the first reason.
    pub(crate) damage: Option<Damage>,
}

/// One file.
pub(crate) struct Surveyed {
    pub(crate) file: Arc<JournalFile>,
    /// Its length.
    pub(crate) size: u64,
    /// Frames that count.
    pub(crate) frames: u64,
    pub(crate) first: Option<u64>,
    pub(crate) last: Option<u64>,
    /// Where frames that count end.
    pub(crate) end: u64,
    /// Frames of a torn tail, which a start drops, and their bytes.
    pub(crate) torn: (u64, u64),
    pub(crate) head: HeadState,
    /// Whose data it says that it is, whole or not.
    pub(crate) data_id: u64,
}

/// What the head of a file says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HeadState {
    Whole,
    /// Damaged, and its frames prove what it said.
    Proven,
    /// Damaged: what lies behind can't be told from remains of an earlier use.
    Lost,
}

/// Where frames that count stop although there were more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Damage {
    /// The file's place in [`Survey::files`].
    pub(crate) nth: usize,
    pub(crate) at: u64,
    /// The frame that should be there, as far as that is known.
    pub(crate) missing: u64,
    /// What is wrong, in words.
    pub(crate) what: String,
    pub(crate) behind: Behind,
}

/// Frames behind damage that can still be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Behind {
    pub(crate) frames: u64,
    pub(crate) events: u64,
    pub(crate) last: Option<u64>,
}

/// Looks at everything below `dir`; hands on every frame that counts. `base` is the commit that the
/// newest manifest reflects, if that is known. A file that vanishes meanwhile was cut off by a running
/// host.
///
/// # Errors
/// What the disk or `visit` says; damage is no error here.
pub(crate) fn survey(
    files: &dyn Files,
    dir: &Path,
    base: Option<u64>,
    mut visit: impl FnMut(Found<'_>) -> Result<()>,
) -> Result<Survey> {
    let mut survey = Survey {
        spares: spares(files, dir)?,
        ..Survey::default()
    };
    for (number, path) in listed(files, dir)? {
        if let Some((file, bytes)) = read(files, &path)? {
            survey.look_at(number, path, file, &bytes, base, &mut visit)?;
        }
    }
    Ok(survey)
}

/// An open file and what is in it.
type Whole = (Arc<dyn File>, Vec<u8>);

fn spares(files: &dyn Files, dir: &Path) -> Result<usize> {
    let listed = files.list(dir);
    let listed = listed.map_err(|e| disk_error(dir, "can't be listed", &e))?;
    let spares = listed.iter().filter(|it| number_of(it, "spare").is_some());
    Ok(spares.count())
}

/// A file and all its bytes; `None` if it isn't there.
fn read(files: &dyn Files, path: &Path) -> Result<Option<Whole>> {
    let failed = |e: std::io::Error| disk_error(path, "can't be read", &e);
    let file = match files.open_to_read(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let size = file.size().map_err(failed)?;
    let mut bytes = vec![0; usize::try_from(size).map_err(|_| Error::internal("file too large"))?];
    file.read_at(0, &mut bytes).map_err(failed)?;
    Ok(Some((file, bytes)))
}

impl Survey {
    fn look_at(
        &mut self,
        number: u64,
        path: PathBuf,
        file: Arc<dyn File>,
        bytes: &[u8],
        base: Option<u64>,
        visit: &mut impl FnMut(Found<'_>) -> Result<()>,
    ) -> Result<()> {
        let (state, head) = head_of(bytes, number);
        let nonce = head.map_or(0, |head| head.nonce);
        let file = Arc::new(JournalFile {
            number,
            nonce,
            path,
            file,
        });
        let mut seen = Surveyed {
            file: file.clone(),
            size: bytes.len() as u64,
            frames: 0,
            first: None,
            last: None,
            end: FILE_HEAD,
            torn: (0, 0),
            head: state,
            data_id: head.map_or(0, |head| head.data_id),
        };
        self.recovered.next_number = number + 1;
        if state == HeadState::Whole {
            self.recovered.data_id = head.map(|head| head.data_id);
        }
        let expected = self.recovered.last_seq.or(base).map(|last| last + 1);
        if state == HeadState::Lost && self.damage.is_none() {
            let what = format!("the file's head (bytes 0 to {HEAD_LEN}) is damaged");
            self.break_off(0, expected.unwrap_or(0), what);
        } else if self.damage.is_some() {
            self.count_behind(nonce, bytes, FILE_HEAD);
        } else {
            let before = self.recovered.last_seq;
            let end = replay(&file, bytes, &mut self.recovered, visit)?;
            if end.frames > 0 {
                let last = self.recovered.last_seq;
                seen.first = before.map(|seq| seq + 1).or(self.recovered.first_seq);
                seen.last = last;
            }
            (seen.frames, seen.end) = (end.frames, end.at as u64);
            let next = self.recovered.last_seq.or(base).map(|last| last + 1);
            let missing = next.unwrap_or_else(|| first_behind(nonce, bytes, end.at));
            match rest_of(nonce, bytes, end, missing) {
                Rest::Nothing => {}
                Rest::Torn { frames, bytes } => seen.torn = (frames, bytes as u64),
                Rest::Damaged { later, at } => {
                    let what = format!(
                        "frame {missing} is damaged or missing at byte {} although it was durable before frame {later} (byte {at}) was written",
                        end.at
                    );
                    self.break_off(end.at as u64, missing, what);
                    self.count_behind(nonce, bytes, at as u64);
                }
            }
        }
        self.files.push(seen);
        Ok(())
    }

    fn break_off(&mut self, at: u64, missing: u64, what: String) {
        self.damage = Some(Damage {
            nth: self.files.len(),
            at,
            missing,
            what,
            behind: Behind::default(),
        });
    }

    fn count_behind(&mut self, nonce: u64, bytes: &[u8], from: u64) {
        let Some(damage) = &mut self.damage else {
            return;
        };
        let mut at = usize::try_from(from).unwrap_or(usize::MAX);
        while at < bytes.len() {
            let rest = &bytes[at..];
            match Head::read(rest, nonce).filter(|head| head.body_is_whole(rest)) {
                Some(head) => {
                    let rows = head.slices.iter().map(|slice| u64::from(slice.rows));
                    damage.behind.frames += 1;
                    damage.behind.events += rows.sum::<u64>();
                    damage.behind.last = damage.behind.last.max(Some(head.stamp.seq));
                    at += head.frame_bytes();
                }
                None => at += ALIGN,
            }
        }
    }
}

/// What a file's head says. Its nonce enters every frame's checksum, so a frame proves it.
fn head_of(bytes: &[u8], number: u64) -> (HeadState, Option<FileHead>) {
    let Some(head) = bytes.first_chunk::<HEAD_LEN>() else {
        return (HeadState::Lost, None);
    };
    if let Some(head) = FileHead::read(head).filter(|head| head.number == number) {
        return (HeadState::Whole, Some(head));
    }
    let told = FileHead {
        number,
        nonce: super::number_at(head, 20),
        data_id: super::number_at(head, 28),
    };
    let first = bytes.get(usize::try_from(FILE_HEAD).unwrap_or(0)..);
    match first.and_then(|first| Head::read(first, told.nonce)) {
        Some(_) => (HeadState::Proven, Some(told)),
        None => (HeadState::Lost, None),
    }
}

/// The frame before the first one that can be found from `at` on; that one, if it lies right there.
fn first_behind(nonce: u64, bytes: &[u8], at: usize) -> u64 {
    let mut places = (at..bytes.len()).step_by(ALIGN);
    let found = places.find_map(|place| Some((place, Head::read(&bytes[place..], nonce)?)));
    found.map_or(0, |(place, head)| match place == at {
        true => head.stamp.seq,
        false => head.stamp.seq.saturating_sub(1),
    })
}

/// Writes the head of a file again whose frames prove what it said.
///
/// # Errors
/// Whatever the disk says.
pub(crate) fn write_head(files: &dyn Files, file: &JournalFile, data_id: u64) -> Result<()> {
    let head = FileHead {
        number: file.number,
        nonce: file.nonce,
        data_id,
    };
    let failed = |e: std::io::Error| disk_error(&file.path, "the head can't be written", &e);
    let open = files.open(&file.path).map_err(failed)?;
    // A write may turn what lies behind it into zeros, up to the first frame.
    open.write_at(0, &[&head.to_bytes()]).map_err(failed)?;
    open.sync_data().map_err(failed)
}

/// Makes everything from byte `at` of a file on zeros.
///
/// # Errors
/// Whatever the disk says.
pub(crate) fn cut_tail(files: &dyn Files, path: &Path, at: u64) -> Result<()> {
    let failed = |e: std::io::Error| disk_error(path, "can't be cut", &e);
    let open = files.open(path).map_err(failed)?;
    let left = open.size().map_err(failed)?.saturating_sub(at);
    let zeros = vec![0; usize::try_from(left).map_err(|_| Error::internal("file too large"))?];
    open.write_at(at, &[&zeros]).map_err(failed)?;
    open.sync_data().map_err(failed)
}

/// Copies a file, durably but for its name.
///
/// # Errors
/// Whatever the disk says.
pub(crate) fn copy(files: &dyn Files, from: &Path, to: &Path) -> Result<()> {
    let failed = |e: std::io::Error| disk_error(from, "can't be copied", &e);
    if let Some((_, bytes)) = read(files, from)? {
        let copy = files
            .create_zeroed(to, bytes.len() as u64)
            .map_err(failed)?;
        copy.write_at(0, &[&bytes]).map_err(failed)?;
        copy.sync_data().map_err(failed)?;
    }
    Ok(())
}
