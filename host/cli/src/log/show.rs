//! What was seen of a log, as JSON and for people.

use crate::print::{Table, bytes, cell, count};
use serde_json::{Value, json};
use tidemill_server::offline::{
    Finding, FrameView, JournalView, Loss, Plan, SectionView, Verified, Weight,
};

pub(super) const FRAME_HEADS: [&str; 7] = [
    "sequence", "file", "byte", "bytes", "time", "sections", "events",
];

pub(super) fn journal(view: &JournalView) -> Value {
    let files = view.files.iter().map(|file| {
        json!({"file": file.path, "bytes": file.bytes, "frames": file.frames, "first": file.first,
               "last": file.last, "end": file.end, "torn_frames": file.torn_frames,
               "torn_bytes": file.torn_bytes, "damage": file.damage})
    });
    let kinds = view.kinds.iter().map(|(kind, total)| {
        json!({"kind": kind, "sections": total.sections, "bytes": total.bytes, "rows": total.rows})
    });
    json!({"running": view.running, "first": view.first, "last": view.last, "spares": view.spares,
           "damage": view.damage, "kinds": kinds.collect::<Vec<_>>(), "files": files.collect::<Vec<_>>()})
}

pub(super) fn kinds(journal: &Value) -> Table {
    table(&journal["kinds"], &["kind", "sections", "bytes", "rows"])
}

pub(super) fn files(journal: &Value) -> Table {
    let heads = [
        "file",
        "bytes",
        "frames",
        "first",
        "last",
        "end",
        "torn_frames",
        "damage",
    ];
    let mut table = Table::new(&[
        "file", "bytes", "frames", "first", "last", "end", "torn", "state",
    ]);
    for file in journal["files"].as_array().into_iter().flatten() {
        let mut row: Vec<String> = heads.iter().map(|head| cell(&file[*head])).collect();
        let name = std::path::Path::new(&row[0]).file_name();
        if let Some(name) = name.map(|name| name.to_string_lossy().into_owned()) {
            row[0] = name;
        }
        row[7] = if file["damage"].is_null() {
            "good"
        } else {
            "damaged"
        }
        .into();
        table.row(row);
    }
    table
}

fn table(rows: &Value, heads: &[&'static str]) -> Table {
    let mut table = Table::new(heads);
    for row in rows.as_array().into_iter().flatten() {
        table.row(heads.iter().map(|head| cell(&row[*head])).collect());
    }
    table
}

pub(super) fn frame(frame: &FrameView) -> Value {
    let sections = frame.sections.iter().map(|section| {
        json!({"kind": section.kind, "bytes": section.bytes, "topic": section.topic, "rows": section.rows})
    });
    let slices = frame.slices.iter().map(|slice| {
        json!({"topic": slice.topic, "partition": slice.partition, "first": slice.first,
               "rows": slice.rows, "bytes": slice.bytes})
    });
    json!({"sequence": frame.sequence, "durable": frame.durable, "time": frame.time.to_string(),
           "file": frame.file, "byte": frame.at, "bytes": frame.bytes,
           "sections": sections.collect::<Vec<_>>(), "slices": slices.collect::<Vec<_>>()})
}

pub(super) fn frame_row(frame: &FrameView) -> Vec<String> {
    let section = |section: &SectionView| format!("{}:{}", section.kind, section.bytes);
    let slices = frame.slices.iter().map(|slice| {
        format!(
            "{}/{}:{}+{}",
            slice.topic, slice.partition, slice.first, slice.rows
        )
    });
    vec![
        frame.sequence.to_string(),
        frame.file.to_string(),
        frame.at.to_string(),
        frame.bytes.to_string(),
        frame.time.to_string(),
        frame
            .sections
            .iter()
            .map(section)
            .collect::<Vec<_>>()
            .join(" "),
        slices.collect::<Vec<_>>().join(" "),
    ]
}

pub(super) fn verified(verified: &Verified, deep: bool) -> Value {
    let findings = verified.findings.iter().map(|finding| {
        json!({"weight": weight(finding.weight), "place": finding.place, "what": finding.what,
               "remedy": finding.remedy})
    });
    json!({"good": verified.is_good(), "running": verified.running, "files": verified.files,
           "frames": verified.frames, "last": verified.last, "manifest": verified.manifest,
           "manifest_commit": verified.manifest_commit, "segments": verified.segments,
           "segment_bytes": verified.segment_bytes, "events": deep.then_some(verified.events),
           "findings": findings.collect::<Vec<_>>()})
}

pub(super) fn verified_summary(verified: &Value) -> Table {
    let heads = [
        "good",
        "files",
        "frames",
        "last",
        "manifest",
        "segments",
        "segment_bytes",
        "events",
    ];
    let mut table = Table::new(&[
        "good",
        "journal files",
        "frames",
        "last frame",
        "manifest",
        "segments",
        "bytes",
        "events read",
    ]);
    table.row(heads.iter().map(|head| cell(&verified[*head])).collect());
    table
}

pub(super) fn finding_text(finding: &Finding) -> String {
    let Finding {
        weight: heavy,
        place,
        what,
        remedy,
    } = finding;
    format!("{}: {place}: {what}\n  to do: {remedy}", weight(*heavy))
}

fn weight(weight: Weight) -> &'static str {
    match weight {
        Weight::Note => "note",
        Weight::Unknown => "unknown",
        Weight::Wrong => "wrong",
    }
}

pub(super) fn plan(plan: &Plan) -> Value {
    let loss = |loss: &Loss| json!({"from": loss.from, "to": loss.to, "events": loss.events});
    match plan {
        Plan::Nothing {
            torn_frames,
            torn_bytes,
        } => {
            json!({"plan": "nothing", "torn_frames": torn_frames, "torn_bytes": torn_bytes})
        }
        Plan::WriteHeads { files } => json!({"plan": "write-heads", "files": files}),
        Plan::Cut {
            file,
            at,
            keeps,
            also,
            loss: lost,
        } => {
            json!({"plan": "cut", "file": file, "byte": at, "keeps": keeps, "also": also, "loss": loss(lost)})
        }
        Plan::Leave { files, loss: lost } => {
            json!({"plan": "leave", "files": files, "loss": loss(lost)})
        }
        Plan::Impossible { why } => json!({"plan": "impossible", "why": why}),
    }
}

pub(super) fn plan_text(plan: &Plan, dry_run: bool) -> String {
    let verb = |would: &str, did: &str| {
        if dry_run {
            would.to_owned()
        } else {
            did.to_owned()
        }
    };
    match plan {
        Plan::Nothing { torn_frames: 0, .. } => {
            "Nothing to repair: a start keeps every frame.".into()
        }
        Plan::Nothing {
            torn_frames,
            torn_bytes,
        } => format!(
            "Nothing to repair: a start keeps everything that was acknowledged and drops a torn tail of {} frames ({}) that nobody was told of.",
            count(*torn_frames),
            bytes(*torn_bytes)
        ),
        Plan::WriteHeads { files } => format!(
            "{} of {}, as the frames prove it. Nothing is lost.",
            verb("Would write the head again", "Wrote the head again"),
            names(files)
        ),
        Plan::Cut {
            file,
            at,
            keeps,
            also,
            loss,
        } => format!(
            "{} {} at byte {at} and keep everything up to frame {keeps}{}.\n{}",
            verb("Would cut", "Cut"),
            file.display(),
            if also.is_empty() {
                String::new()
            } else {
                format!("; {} {} put aside", names(also), verb("would be", "were"))
            },
            lost(loss)
        ),
        Plan::Leave { files, loss } => format!(
            "The damage lies before what storage knows already. {} {}; the next start goes on from object storage alone.\n{}",
            verb("Would put aside", "Put aside"),
            names(files),
            lost(loss)
        ),
        Plan::Impossible { why } => format!("This can't be repaired here: {why}"),
    }
}

fn lost(loss: &Loss) -> String {
    let up_to = loss.to.map_or(String::new(), |to| format!(" to {to}"));
    format!(
        "What was acknowledged is lost: frames {}{up_to} with their state and positions, at least {} events. The state of functions is put aside and made anew.",
        loss.from,
        count(loss.events)
    )
}

fn names(files: &[std::path::PathBuf]) -> String {
    let names = files.iter().map(|file| file.display().to_string());
    names.collect::<Vec<_>>().join(", ")
}
