//! Answers of any bytes at all: every one is read or refused, and what is read can be walked through.

use super::*;
use crate::golden;
use tidemill_fuzz::fuzz;

#[test]
fn answers() {
    let seeds = [golden::bytes("answer.hex")];
    fuzz(
        "answer",
        &seeds,
        |_| {},
        |bytes| {
            let commands = match Commands::parse(bytes, 3, 2, 2) {
                Ok(commands) => commands,
                Err(wrong) => return wrong,
            };
            assert!(commands.processed() <= 3);
            assert_eq!(commands.processed() < 3, commands.stopped().is_some());
            for event in 0..commands.processed() {
                let _ = (commands.outcome(event), commands.reason(event).len());
            }
            let mut said = Vec::new();
            let mut before = 0;
            for (event, command) in commands.iter() {
                assert!(before <= event && event < commands.processed());
                before = event;
                said.push(match command {
                    Command::Emit(emit) => {
                        assert!(emit.output < 2);
                        for (name, value) in emit.headers {
                            let _ = (name.len(), value.len());
                        }
                        'e'
                    }
                    Command::Set { slot, .. } => {
                        assert!(slot < 2);
                        's'
                    }
                    Command::Delete { slot } => {
                        assert!(slot < 2);
                        'd'
                    }
                    Command::Add { slot, .. } => {
                        assert!(slot < 2);
                        'a'
                    }
                    Command::Put { slot, entry, value } => {
                        assert!(slot < 2);
                        let _ = (entry.len(), value.len());
                        'p'
                    }
                    Command::Remove { slot, entry } => {
                        assert!(slot < 2);
                        let _ = entry.len();
                        'r'
                    }
                    Command::SetTimer { tag, payload, .. } => {
                        let _ = (tag.len(), payload.map_or(0, <[u8]>::len));
                        't'
                    }
                    Command::CancelTimer { tag } => {
                        let _ = tag.len();
                        'c'
                    }
                });
            }
            said.iter().take(4).collect()
        },
    );
}
