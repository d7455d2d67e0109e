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
/// Largest component that can be uploaded, unless a host allows less.
pub const COMPONENT_BYTES: usize = 64 << 20;
/// Most code of all functions in a component: what the compiler takes grows with it.
pub const CODE_BYTES: usize = 32 << 20;
/// Largest function in a component: the compiler's time and memory for one grow faster than its size.
pub const CODE_BODY_BYTES: usize = 512 << 10;
/// Most functions in a component, for each costs the compiler something however small it is.
pub const CODE_FUNCTIONS: usize = 200_000;
/// Longest configuration of a function, as JSON: each instance may copy it.
pub const CONFIG_BYTES: usize = 64 << 10;
/// Most slots a function may declare: the packed batch carries one column entry per slot and key.
pub const SLOTS: usize = 64;
/// Largest value of a slot, list, or entry of a map: it travels with a batch as a whole.
pub const STATE_VALUE_BYTES: usize = 1 << 20;
/// Most topics that a function reads: a task holds events of each that wait for their turn, and looks at each
/// before it takes one.
pub const INPUTS: usize = 16;
/// Longest event key that maps and timers are kept by: it stands before each of their keys, twice as long at
/// worst, and the store behind takes keys of 60,000 bytes in order.
pub const STATE_KEY_BYTES: usize = 16 << 10;
/// Longest key of an entry of a map, and longest tag of a timer, for the same reason.
pub const ENTRY_KEY_BYTES: usize = 4 << 10;
/// Most bytes of entries that one scan of a map gives a function; it asks again for more.
pub const SCAN_BYTES: usize = 256 << 10;
/// Most timers of one task: their order is kept in memory, about 200 bytes each.
pub const TIMERS: usize = 1_000_000;
/// Most parked events of one task: their order is kept in memory, about 300 bytes and the key each.
pub const PARKED_EVENTS: usize = 10_000;
/// Most bytes of parked events of one task, which are part of the state's snapshots.
pub const PARKED_BYTES: usize = 32 << 20;
