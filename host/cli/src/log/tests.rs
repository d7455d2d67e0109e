use super::show;
use serde_json::json;
use tidemill_server::offline::{Loss, Plan};

#[test]
fn a_plan_says_what_stays_what_goes_and_whether_it_was_done() {
    let loss = Loss {
        from: 41,
        to: Some(60),
        events: 1234,
    };
    let cut = Plan::Cut {
        file: "j/1.journal".into(),
        at: 4096,
        keeps: 40,
        also: vec!["j/2.journal".into()],
        loss: loss.clone(),
    };
    assert_eq!(
        show::plan_text(&cut, true),
        "Would cut j/1.journal at byte 4096 and keep everything up to frame 40; j/2.journal would be put aside.\n\
         What was acknowledged is lost: frames 41 to 60 with their state and positions, at least 1,234 events. \
         The state of functions is put aside and made anew."
    );
    assert_eq!(
        show::plan(&cut),
        json!({"plan": "cut", "file": "j/1.journal", "byte": 4096, "keeps": 40, "also": ["j/2.journal"],
               "loss": {"from": 41, "to": 60, "events": 1234}})
    );
    let leave = Plan::Leave {
        files: vec!["j/1.journal".into()],
        loss,
    };
    let said = show::plan_text(&leave, false);
    assert!(
        said.contains("Put aside j/1.journal; the next start"),
        "{said}"
    );
    for (torn_frames, says) in [
        (0, "keeps every frame"),
        (2, "torn tail of 2 frames (1.0 KiB)"),
    ] {
        let plan = Plan::Nothing {
            torn_frames,
            torn_bytes: 1024,
        };
        let said = show::plan_text(&plan, true);
        assert!(said.contains(says), "{said}");
    }
}
