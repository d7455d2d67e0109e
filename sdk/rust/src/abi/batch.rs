//! Reading a batch: nothing is copied and nothing is looked at before it is asked for.

use super::{
    HEAD, NOTHING, ROW_KEY, ROW_PROCESSING, ROW_TIMER, ROW_TOMBSTONE, VERSION, read_u32, read_u64,
};

/// A batch as the host laid it out.
pub(crate) struct BatchView<'a> {
    count: u32,
    slots: u16,
    keys: u32,
    heads: &'a [u8],
    offsets: &'a [u8],
    ingest_times: &'a [u8],
    /// Empty: not sent.
    clock: &'a [u8],
    /// Empty: nothing ends.
    ttls: &'a [u8],
    key_index: &'a [u8],
    state: &'a [u8],
    payload: &'a [u8],
}

/// In which time something lasts or is due.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Clock {
    Event,
    Processing,
}

/// How long the values of a slot last, in µs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ttl {
    pub(crate) clock: Clock,
    pub(crate) micros: i64,
}

/// One event of a batch.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Row<'a> {
    pub(crate) time: i64,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) headers: HeaderBytes<'a>,
    pub(crate) offset: u64,
    pub(crate) ingest_time: i64,
}

impl<'a> BatchView<'a> {
    /// Finds the blocks of a batch.
    ///
    /// # Errors
    /// A sentence that says what is wrong; a host never sends such a batch.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, String> {
        let version = *bytes.first().ok_or("the batch is empty")?;
        if version != VERSION {
            return Err(format!(
                "the batch has version {version}, this function was built for version {VERSION}"
            ));
        }
        let field = |at: usize| {
            read_u32(bytes, at).ok_or_else(|| "the batch is shorter than its head".to_owned())
        };
        let slots = u16::try_from(field(0)? >> 16).unwrap_or_default();
        let (count, keys) = (field(4)?, field(8)?);
        let block = |at: usize, items: usize, size: usize| {
            let start = field(at)? as usize;
            let end = items
                .checked_mul(size)
                .and_then(|len| start.checked_add(len));
            end.and_then(|end| bytes.get(start..end))
                .ok_or_else(|| format!("the block named at byte {at} lies outside the batch"))
        };
        let events = count as usize;
        let with_slots = |items: usize| if slots == 0 { 0 } else { items };
        let if_sent = |at: usize, items: usize| field(at).map(|at| if at == 0 { 0 } else { items });
        Ok(Self {
            count,
            slots,
            keys,
            heads: block(12, events, HEAD)?,
            offsets: block(16, events, 8)?,
            ingest_times: block(20, events, 8)?,
            clock: block(40, if_sent(40, events)?, 8)?,
            ttls: block(44, if_sent(44, usize::from(slots))?, 16)?,
            key_index: block(24, with_slots(events), 4)?,
            state: block(28, with_slots(keys as usize) * usize::from(slots), 8)?,
            payload: block(32, field(36)? as usize, 1)?,
        })
    }

    /// Number of events.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Number of slots whose values travel with the batch.
    pub(crate) fn slots(&self) -> u16 {
        self.slots
    }

    /// Number of distinct keys; 0 without slots.
    pub(crate) fn keys(&self) -> u32 {
        if self.slots == 0 { 0 } else { self.keys }
    }

    /// Event `index`.
    ///
    /// # Errors
    /// When its head points outside the payload.
    pub(crate) fn row(&self, index: u32) -> Result<Row<'a>, String> {
        self.read_row(index as usize)
            .ok_or_else(|| format!("the head of event {index} points outside the batch"))
    }

    fn read_row(&self, index: usize) -> Option<Row<'a>> {
        let head = self.heads.get(index * HEAD..(index + 1) * HEAD)?;
        let field = |at: usize| read_u32(head, at);
        let flags = field(28)?;
        let value_at = field(16)? as usize;
        let value_len = field(20)? as usize;
        let key = self.part(field(8)? as usize, field(12)? as usize)?;
        let value = self.part(value_at, value_len)?;
        let headers = self.part(value_at + value_len, field(24)? as usize)?;
        Some(Row {
            time: read_u64(head, 0)?.cast_signed(),
            key: (flags & ROW_KEY != 0).then_some(key),
            value: (flags & ROW_TOMBSTONE == 0).then_some(value),
            headers: HeaderBytes(headers),
            offset: read_u64(self.offsets, index * 8)?,
            ingest_time: read_u64(self.ingest_times, index * 8)?.cast_signed(),
        })
    }

    /// Whether event `index` has a key.
    pub(crate) fn has_key(&self, index: u32) -> bool {
        read_u32(self.heads, index as usize * HEAD + 28).is_some_and(|flags| flags & ROW_KEY != 0)
    }

    fn part(&self, at: usize, len: usize) -> Option<&'a [u8]> {
        self.payload.get(at..at.checked_add(len)?)
    }

    /// Number of the event's key among the batch's distinct keys.
    pub(crate) fn key_number(&self, index: u32) -> Option<u32> {
        read_u32(self.key_index, index as usize * 4).filter(|number| *number < self.keys)
    }

    /// The watermark at the turn of event `index`; `None` when it wasn't sent.
    pub(crate) fn watermark(&self, index: u32) -> Option<i64> {
        read_u64(self.clock, index as usize * 8).map(u64::cast_signed)
    }

    /// In which time the timer at `index` was due; `None`: it is an event.
    pub(crate) fn timer(&self, index: u32) -> Option<Clock> {
        let flags = read_u32(self.heads, index as usize * HEAD + 28)?;
        if flags & ROW_TIMER == 0 {
            return None;
        }
        Some(match flags & ROW_PROCESSING {
            0 => Clock::Event,
            _ => Clock::Processing,
        })
    }

    /// How long the values of a slot last; `None`: for ever.
    pub(crate) fn ttl(&self, slot: usize) -> Option<Ttl> {
        let clock = match self.ttls.get(slot * 16)? {
            1 => Clock::Event,
            2 => Clock::Processing,
            _ => return None,
        };
        let micros = read_u64(self.ttls, slot * 16 + 8)?.cast_signed();
        Some(Ttl { clock, micros })
    }

    /// When what is stored in a cell expires, if its slot's values do and there is something.
    pub(crate) fn expires(&self, cell: usize) -> Option<i64> {
        self.ttl(cell % usize::from(self.slots.max(1)))?;
        self.state(cell)?;
        let at = read_u32(self.state, cell * 8)? as usize;
        read_u64(self.payload, at.checked_sub(8)?).map(u64::cast_signed)
    }

    /// What is stored in cell `key * slots + slot`; `None`: nothing.
    pub(crate) fn state(&self, cell: usize) -> Option<&'a [u8]> {
        let (at, len) = (
            read_u32(self.state, cell * 8)?,
            read_u32(self.state, cell * 8 + 4)?,
        );
        if len == NOTHING {
            None
        } else {
            self.part(at as usize, len as usize)
        }
    }
}

/// The headers of one event: `u16 name_len, u32 value_len, name, value`, repeated.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct HeaderBytes<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for HeaderBytes<'a> {
    type Item = (&'a str, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (fixed, rest) = self.0.split_at_checked(6)?;
        let name_len = usize::from(u16::from_le_bytes([fixed[0], fixed[1]]));
        let (name, rest) = rest.split_at_checked(name_len)?;
        let (value, rest) = rest.split_at_checked(read_u32(fixed, 2)? as usize)?;
        self.0 = rest;
        Some((std::str::from_utf8(name).ok()?, value))
    }
}

/// Appends one header in that form; `None` when the name or the value is too long for it.
pub(crate) fn encode_header(out: &mut Vec<u8>, name: &str, value: &[u8]) -> Option<()> {
    out.extend_from_slice(&u16::try_from(name.len()).ok()?.to_le_bytes());
    out.extend_from_slice(&u32::try_from(value.len()).ok()?.to_le_bytes());
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(value);
    Some(())
}
