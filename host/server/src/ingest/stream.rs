//! Long NDJSON bodies: committed in chunks at line borders while they arrive. A chunk is all or
//! nothing; a few may be on their way to the disk, and then the sender waits.

use super::answer::{Landed, accepted, refused};
use super::forms::{Each, take_lines};
use super::intake::Intake;
use super::letters::Letters;
use super::rows::{Refusal, Rows};
use super::{acknowledge, commit, count, off_path};
use crate::app::App;
use crate::body::BodyReader;
use crate::problem::{Answer, Problem};
use std::collections::VecDeque;
use std::time::Duration;
use tidemill_log::{OnMismatch, Ticket, Topic, Written};
use tidemill_types::limits;

/// A chunk is cut at a line border beyond this.
const CHUNK_BYTES: usize = 1 << 20;
/// The same where any line may become a dead letter, which has headers many times as long as it.
const LETTERS_CHUNK_BYTES: usize = 128 << 10;
/// Chunks that may be on their way to the disk.
const IN_FLIGHT: usize = 4;
/// What has arrived is committed after such a pause, so that a slow sender's events are seen.
const PAUSE: Duration = Duration::from_millis(20);

/// Appends a body chunk by chunk.
pub(super) async fn append(
    app: &App,
    topic: &Topic,
    intake: Intake,
    each: Each,
    reader: BodyReader,
) -> Answer {
    let mut flow = Flow {
        app,
        topic,
        intake,
        each,
        reader,
        unfinished_line: Vec::new(),
        in_flight: VecDeque::new(),
        landed: Landed::default(),
        durable_lines: 0,
        lines: 0,
        seen: 0,
        refused: 0,
        refusals: Vec::new(),
    };
    match flow.run().await {
        Ok(()) => Ok(accepted(
            &flow.landed,
            topic.settings.ack,
            flow.refused,
            &flow.refusals,
        )),
        Err(problem) => Err(flow.broken(problem).await),
    }
}

/// A chunk on its way to the disk.
struct Chunk {
    events: usize,
    letters: usize,
    /// Lines of the body up to its end.
    lines: u64,
    /// Key, value and header bytes.
    bytes: u64,
    written: Vec<Written>,
    ticket: Ticket,
}

struct Flow<'a> {
    app: &'a App,
    topic: &'a Topic,
    intake: Intake,
    each: Each,
    reader: BodyReader,
    unfinished_line: Vec<u8>,
    in_flight: VecDeque<Chunk>,
    landed: Landed,
    /// Lines that are written.
    durable_lines: u64,
    /// Lines read.
    lines: u64,
    /// Events seen.
    seen: u64,
    refused: u64,
    refusals: Vec<Refusal>,
}

impl Flow<'_> {
    async fn run(&mut self) -> Answer<()> {
        let mut more = true;
        while more {
            let mut draft = self.app.log.draft();
            let payload = draft.payload(self.chunk_bytes() + (64 << 10));
            payload.append(&mut self.unfinished_line);
            more = self.fill(payload).await?;
            let rows = self.take(payload)?;
            if !rows.is_empty() {
                let letters = Letters::of(self.app, self.topic, &rows.letters, payload).await?;
                draft.append_in_place(self.topic.id, &rows.heads, &rows.partitions)?;
                if let Some(letters) = letters {
                    letters.add_to(&mut draft)?;
                }
                let mut ticket = commit(self.app, draft).await?;
                if let Some(hold) = self.reader.hold() {
                    hold.shrink(self.unfinished_line.len());
                }
                let written = std::mem::take(&mut ticket.written);
                self.in_flight.push_back(Chunk {
                    events: rows.heads.len(),
                    letters: rows.letters.len(),
                    lines: self.lines,
                    bytes: rows.bytes,
                    written,
                    ticket,
                });
            }
            while self.in_flight.len() > if more { IN_FLIGHT } else { 0 } {
                self.oldest_lands().await?;
            }
        }
        match (self.landed.count + self.landed.dead_lettered, self.refused) {
            (0, 0) => Err(Problem::because("empty-body", "The body holds no event.")),
            (0, _) => Err(self.refusal()),
            _ => Ok(()),
        }
    }

    fn chunk_bytes(&self) -> usize {
        match self.intake.schema.as_ref().map(|it| it.on_mismatch()) {
            Some(OnMismatch::DeadLetter) => LETTERS_CHUNK_BYTES,
            _ => CHUNK_BYTES,
        }
    }

    /// Reads whole lines; answers whether the body goes on behind them.
    async fn fill(&mut self, payload: &mut Vec<u8>) -> Answer<bool> {
        loop {
            let border = memchr::memrchr(b'\n', payload).map(|at| at + 1);
            let enough = payload.len() >= self.chunk_bytes();
            if enough && let Some(border) = border {
                self.unfinished_line.extend_from_slice(&payload[border..]);
                payload.truncate(border);
                return Ok(true);
            }
            if payload.len() > self.chunk_bytes() + self.intake.event_bytes {
                let detail = format!(
                    "line {} has more than {} bytes; an event may have {}",
                    self.lines + 1,
                    payload.len(),
                    self.intake.event_bytes
                );
                return Err(Problem::because("too-large", detail));
            }
            let next = match border {
                None => self.reader.next().await?,
                Some(border) => tokio::select! {
                    biased;
                    next = self.reader.next() => next?,
                    () = self.app.clock.sleep(PAUSE) => {
                        self.unfinished_line.extend_from_slice(&payload[border..]);
                        payload.truncate(border);
                        return Ok(true);
                    }
                },
            };
            match next {
                Some(bytes) => payload.extend_from_slice(&bytes),
                None => return Ok(false),
            }
        }
    }

    /// Finds the events of a chunk.
    fn take(&mut self, payload: &mut Vec<u8>) -> Answer<Rows> {
        self.intake.sticky = self.app.sticky_partition(self.topic.settings.partitions);
        let mut rows = Rows::over(payload.len());
        rows.seen = self.seen;
        let lines = off_path(payload.len(), || {
            take_lines(&self.intake, &mut rows, payload, self.each, self.lines + 1)
        })?;
        self.app.counted.refused.inc_by(rows.refused);
        self.seen = rows.seen;
        self.refused += rows.refused;
        let room = limits::LISTED_ERRORS.saturating_sub(self.refusals.len());
        self.refusals.extend(rows.refusals.drain(..).take(room));
        if self.refused > 0 && !self.intake.continue_on_error {
            return Err(self.refusal());
        }
        self.lines += lines;
        rows.finish(payload);
        Ok(rows)
    }

    fn refusal(&self) -> Box<Problem> {
        Box::new(refused(self.refused, &self.refusals))
    }

    async fn oldest_lands(&mut self) -> Answer<()> {
        let Some(chunk) = self.in_flight.pop_front() else {
            return Ok(());
        };
        acknowledge(self.topic, chunk.ticket).await?;
        let counted = (chunk.events, chunk.letters);
        self.landed.add_counted(self.topic, counted, &chunk.written);
        self.durable_lines = chunk.lines;
        count(self.app, chunk.events + chunk.letters, chunk.bytes);
        Ok(())
    }

    /// The problem that ends the request, with what is written nevertheless.
    async fn broken(&mut self, problem: Box<Problem>) -> Box<Problem> {
        while !self.in_flight.is_empty() {
            if let Err(worse) = self.oldest_lands().await {
                return worse;
            }
        }
        self.reader.drain().await;
        if self.landed.count + self.landed.dead_lettered == 0 {
            return problem;
        }
        Box::new(
            problem
                .member("committed", self.landed.to_json(self.durable_lines))
                .after_changes(),
        )
    }
}
