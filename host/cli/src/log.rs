//! `tidemill log`: the journal and what belongs to it, looked at without a host.

mod show;

use crate::args::{Shape, Show};
use crate::failure::{Failure, Result};
use crate::print::{self, Table};
use clap::{Args, Subcommand};
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use tidemill_server::offline::{self, Directory, FrameView, Plan};
use tidemill_server::{Config, Overrides};

/// Look at, check and repair the log of a host that is stopped.
///
/// Reads the data directory itself. While a host runs on it, it can be looked at all the same, and what
/// is seen may be half written.
#[derive(Subcommand, Debug)]
#[command(after_help = "Example:\n  tidemill log verify ./tidemill-data")]
pub(crate) enum Log {
    Inspect(Inspect),
    Verify(Verify),
    Repair(Repair),
}

/// Which directory, and with which settings its host runs.
#[derive(Args, Debug)]
struct Place {
    /// The data directory.
    dir: PathBuf,
    /// Settings of its host.
    #[arg(long, value_name = "FILE", env = "TIDEMILL_CONFIG")]
    config: Option<PathBuf>,
    /// One setting by its name in the file, such as storage.url.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = crate::serve::setting)]
    settings: Vec<(String, String)>,
}

/// Show what lies in the journal.
///
/// Its files with their frames and sequence numbers, and what the sections of all frames come to; or
/// the frames themselves.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  tidemill log inspect ./tidemill-data\n  tidemill log inspect ./tidemill-data --frames --from 1200 --limit 20 -o ndjson"
)]
pub(crate) struct Inspect {
    #[command(flatten)]
    place: Place,
    /// The frames one by one.
    #[arg(long)]
    frames: bool,
    /// Frames from this commit sequence number on.
    #[arg(
        long,
        value_name = "SEQUENCE",
        requires = "frames",
        default_value_t = 0
    )]
    from: u64,
    /// At most so many frames.
    #[arg(long, value_name = "N", requires = "frames", default_value_t = 1000)]
    limit: usize,
    #[command(flatten)]
    show: Show,
}

/// Check that journal, manifest and objects are whole and fit together.
///
/// Every frame's checksum and place in the sequence, the newest manifest, what it needs of the journal,
/// and that the objects it names are there. Exits with 1 if something is wrong or couldn't be looked at.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  tidemill log verify ./tidemill-data --deep")]
pub(crate) struct Verify {
    #[command(flatten)]
    place: Place,
    /// Also read every event of every segment, and every manifest there ever was.
    #[arg(long)]
    deep: bool,
    #[command(flatten)]
    show: Show,
}

/// Say what a start would keep and drop, and repair what it would refuse.
///
/// A start repairs torn tails by itself; this is for damage. What would lose something that was
/// acknowledged needs --accept-loss. What is changed or taken away is kept in the folder "cut".
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  tidemill log repair ./tidemill-data --dry-run\n  tidemill log repair ./tidemill-data --accept-loss"
)]
pub(crate) struct Repair {
    #[command(flatten)]
    place: Place,
    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,
    /// Also if what was acknowledged is lost by it.
    #[arg(long)]
    accept_loss: bool,
    #[command(flatten)]
    show: Show,
}

impl Place {
    fn open(&self) -> Result<(Config, Directory)> {
        let text = |variable: std::ffi::OsString| variable.into_string().ok();
        let variables = std::env::vars_os();
        let variables = variables.filter_map(|(name, value)| Some((text(name)?, text(value)?)));
        let overrides = Overrides {
            dir: Some(self.dir.clone()),
            listen: None,
            settings: self.settings.clone(),
        };
        let config = Config::load(self.config.as_deref(), variables, &overrides)?;
        let directory = offline::directory(&config)?;
        if directory.is_running() {
            print::warning(&format!(
                "a host is running on {}: what is shown may be half written or gone in a moment",
                self.dir.display()
            ));
        }
        Ok((config, directory))
    }
}

pub(crate) async fn perform(command: Log) -> Result<()> {
    match command {
        Log::Inspect(args) if args.frames => frames(&args),
        Log::Inspect(args) => inspect(&args),
        Log::Verify(args) => verify(&args).await,
        Log::Repair(args) => repair(&args).await,
    }
}

fn inspect(args: &Inspect) -> Result<()> {
    let (_, directory) = args.place.open()?;
    let view = directory.inspect(|_| false)?;
    let answer = show::journal(&view);
    if args.show.output == Shape::Table {
        print::answer(Shape::Table, &answer, None, show::kinds)?;
        print::line("")?;
    }
    print::answer(args.show.output, &answer, Some("files"), show::files)?;
    match &view.damage {
        Some(damage) if args.show.output == Shape::Table => print::line(&format!("\n{damage}")),
        _ => Ok(()),
    }
}

/// Frames are printed as they are read, so that a long journal needs no memory.
fn frames(args: &Inspect) -> Result<()> {
    let (_, directory) = args.place.open()?;
    let mut out = print::stdout();
    let (mut shown, mut failed) = (0, None);
    let mut table = Table::new(&show::FRAME_HEADS);
    let mut all = Vec::new();
    let view = directory.inspect(|frame: FrameView| {
        if frame.sequence < args.from {
            return true;
        }
        if shown == args.limit {
            return false;
        }
        shown += 1;
        match args.show.output {
            Shape::Table => table.row(show::frame_row(&frame)),
            Shape::Json => all.push(show::frame(&frame)),
            Shape::Ndjson => failed = writeln!(out, "{}", show::frame(&frame)).err(),
        }
        failed.is_none()
    })?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    out.flush()?;
    drop(out);
    match args.show.output {
        Shape::Table => print::answer(Shape::Table, &json!(null), None, |_| table)?,
        Shape::Json => print::answer(Shape::Json, &json!({"frames": all}), None, |_| table)?,
        Shape::Ndjson => {}
    }
    match view.damage {
        Some(damage) => Err(Failure::failed("corrupt", damage).hint(CHECK)),
        None => Ok(()),
    }
}

const CHECK: &str =
    "`tidemill log verify` says what is wrong, `tidemill log repair --dry-run` what can be done";

async fn verify(args: &Verify) -> Result<()> {
    let (config, directory) = args.place.open()?;
    let verified = offline::verify(&config, &directory, args.deep).await?;
    let answer = show::verified(&verified, args.deep);
    if args.show.output == Shape::Table {
        print::answer(Shape::Table, &answer, None, show::verified_summary)?;
        if !verified.findings.is_empty() {
            print::line("")?;
        }
        for finding in &verified.findings {
            print::line(&show::finding_text(finding))?;
        }
    } else {
        print::answer(
            args.show.output,
            &answer,
            Some("findings"),
            show::verified_summary,
        )?;
    }
    match verified.is_good() {
        true => Ok(()),
        false => {
            let wrong = "the log isn't whole, or part of it couldn't be looked at";
            Err(Failure::failed("not-whole", wrong).hint(CHECK))
        }
    }
}

async fn repair(args: &Repair) -> Result<()> {
    let (config, directory) = args.place.open()?;
    let (plan, kept) = match args.dry_run {
        true => (offline::plan(&config, &directory).await?, None),
        false => offline::repair(&config, &directory, args.accept_loss).await?,
    };
    let mut answer = show::plan(&plan);
    answer["done"] = (!args.dry_run && !matches!(plan, Plan::Nothing { .. })).into();
    answer["kept"] = kept.as_ref().map(|kept| kept.display().to_string()).into();
    match args.show.output {
        Shape::Table => {
            print::line(&show::plan_text(&plan, args.dry_run))?;
            match kept {
                Some(kept) => print::line(&format!(
                    "What was changed or taken away is kept in {}.",
                    kept.display()
                )),
                None => Ok(()),
            }
        }
        shape => print::answer(shape, &answer, None, |_| Table::new(&[])),
    }
}

#[cfg(test)]
mod tests;
