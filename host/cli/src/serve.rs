//! `tidemill serve`: a host in this process.

use crate::failure::{Failure, Result};
use crate::print;
use clap::Args;
use std::path::PathBuf;

/// Run a host: everything in one process.
///
/// Prints the address it listens on as one line on standard output. Stops in order on SIGTERM and
/// Ctrl-C: requests under way are answered, what was acknowledged is on disk.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  tidemill serve --dir ./tidemill\n  tidemill serve --listen 127.0.0.1:0 --set log.segment_age=10s"
)]
pub(crate) struct Serve {
    /// Data directory.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Address to listen on; port 0 takes any that is free.
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Settings.
    #[arg(long, value_name = "FILE", env = "TIDEMILL_CONFIG")]
    config: Option<PathBuf>,
    /// One setting by its name in the file.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = setting)]
    settings: Vec<(String, String)>,
}

fn setting(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().into(), value.trim().into()))
        }
        _ => Err("write it as KEY=VALUE".into()),
    }
}

pub(crate) async fn perform(args: Serve) -> Result<()> {
    let _ = (&args.dir, &args.listen, &args.config, &args.settings);
    print::note("");
    Err(Failure::failed(
        "not-there",
        "the host is not part of this build",
    ))
}
