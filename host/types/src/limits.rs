//! Every bound of the system that isn't a setting, with its reason.

/// Largest event (key, value and headers together) unless configured lower or higher; what Kafka
/// users are used to.
pub const EVENT_BYTES: usize = 1 << 20;
/// Largest frame body. A journal file must hold the largest frame, and one atomic request is one frame.
pub const FRAME_BYTES: usize = 48 << 20;
/// Most partitions of one topic.
pub const PARTITIONS: u32 = 10_000;
/// Longest header name; the packed layout stores it in 16 bits.
pub const HEADER_NAME_BYTES: usize = u16::MAX as usize;
/// Deepest JSON nesting accepted at ingest: a guest's parser (serde_json) stops at 128.
pub const JSON_DEPTH: usize = 128;
/// Most events of one read answer.
pub const READ_EVENTS: usize = 10_000;
/// Longest long poll, in seconds: proxies commonly cut silent connections after 60.
pub const READ_WAIT_SECONDS: u64 = 60;
/// Most errors listed in one refusal of a batch.
pub const LISTED_ERRORS: usize = 100;
/// Largest component that can be uploaded.
pub const COMPONENT_BYTES: usize = 64 << 20;
/// Most slots a function may declare: the packed batch carries one column entry per slot and key.
pub const SLOTS: usize = 64;
