//! One page per code: what it means and what to do. A code without an entry here fails a test.

/// What `GET /v1/errors/{code}` says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    /// The code.
    pub(crate) code: &'static str,
    /// The usual HTTP status.
    pub(crate) status: u16,
    /// A few words.
    pub(crate) title: &'static str,
    /// What it means.
    pub(crate) meaning: &'static str,
    /// What to do.
    pub(crate) remedy: &'static str,
}

const fn page_of(
    status: u16,
    code: &'static str,
    title: &'static str,
    meaning: &'static str,
    remedy: &'static str,
) -> Page {
    Page {
        code,
        status,
        title,
        meaning,
        remedy,
    }
}

/// The page of a code.
pub(crate) fn page(code: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.code == code)
}

/// All pages, by status.
pub(crate) const PAGES: &[Page] = &[
    page_of(
        400,
        "invalid-request",
        "request not understood",
        "The path, a query parameter, a header or the body's form is not what this address takes; the detail names it.",
        "Correct what the detail names; /v1/openapi.json lists what each address takes.",
    ),
    page_of(
        400,
        "invalid-name",
        "not a name",
        "Names of topics and functions have 1 to 200 of the characters a-z, A-Z, 0-9, '.', '_' and '-', and are not \".\" or \"..\".",
        "Choose another name.",
    ),
    page_of(
        400,
        "invalid-setting",
        "setting not understood",
        "A topic's setting has a value that can't be; the detail names the setting.",
        "Correct the setting.",
    ),
    page_of(
        400,
        "invalid-time",
        "not a time",
        "A time is not RFC 3339, such as 2013-01-01T10:15:00Z.",
        "Write the time with date, time and offset.",
    ),
    page_of(
        400,
        "invalid-duration",
        "not a duration",
        "A duration is a whole number and one of d, h, m, s, ms, us.",
        "Write it as in \"250ms\".",
    ),
    page_of(
        400,
        "invalid-size",
        "not a size",
        "A size is a whole number and a unit such as KiB, MiB or GiB.",
        "Write it as in \"64MiB\".",
    ),
    page_of(
        400,
        "invalid-cursor",
        "not a cursor",
        "A cursor is a list of partition:offset pairs, as in \"0:13,1:5\", each partition once.",
        "Use `next` of an earlier answer, or start with from=earliest.",
    ),
    page_of(
        400,
        "invalid-rows",
        "packed batch not understood",
        "The body of type application/vnd.tidemill.batch is not what its header says, or a row points outside the payload.",
        "Check the layout: 16 bytes of header, 32 bytes per row head, then the payload.",
    ),
    page_of(
        400,
        "empty-body",
        "nothing to append",
        "The body holds no event.",
        "Send at least one event; an empty value can be sent as a typed event with \"value_base64\": \"\".",
    ),
    page_of(
        400,
        "incomplete-body",
        "body cut off",
        "The connection ended before the body did, or a compressed body ends early. What was cut off was not read as an event.",
        "Send the request again.",
    ),
    page_of(
        404,
        "path-not-found",
        "no such address",
        "Nothing answers at this path.",
        "Look at /v1/openapi.json for the paths there are.",
    ),
    page_of(
        404,
        "topic-not-found",
        "topic not found",
        "There is no topic of this name.",
        "Create it with PUT /v1/topics/{name}, or check the spelling.",
    ),
    page_of(
        404,
        "partition-not-found",
        "partition not found",
        "The topic has fewer partitions.",
        "Ask GET /v1/topics/{name} for its partitions; they are counted from 0.",
    ),
    page_of(
        404,
        "function-not-found",
        "function not found",
        "There is no function of this name.",
        "Deploy it with PUT /v1/functions/{name}, or check the spelling.",
    ),
    page_of(
        404,
        "slot-not-found",
        "slot not found",
        "The function declares no state slot of this name.",
        "GET /v1/functions/{name} lists its slots under \"state\".",
    ),
    page_of(
        404,
        "key-not-found",
        "nothing stored for this key",
        "The slot holds nothing for this key.",
        "Check the key; GET …/state?slot=… lists the keys there are.",
    ),
    page_of(
        404,
        "error-not-found",
        "no such error code",
        "No error has this code.",
        "GET /v1/errors lists all of them.",
    ),
    page_of(
        404,
        "object-not-found",
        "object not found",
        "An object that should be in object storage is not there.",
        "Restore the object; it must not be deleted by hand.",
    ),
    page_of(
        405,
        "method-not-allowed",
        "method not allowed here",
        "The address exists and takes other methods.",
        "Use one of the methods in the header Allow.",
    ),
    page_of(
        406,
        "not-acceptable",
        "no such representation",
        "The answer can't be given in the form that the header Accept asks for.",
        "Ask for application/json, application/x-ndjson or text/event-stream.",
    ),
    page_of(
        408,
        "request-timeout",
        "request too slow",
        "The request's body did not arrive in time.",
        "Send it faster or in smaller parts; http.body_timeout is the limit.",
    ),
    page_of(
        409,
        "topic-exists",
        "topic exists with other settings",
        "A topic of this name exists and its settings differ from those asked for.",
        "Use the existing settings, or delete the topic first.",
    ),
    page_of(
        409,
        "setting-fixed",
        "setting can't be changed",
        "Of an existing topic only the retention can be changed.",
        "Create another topic with the settings you need.",
    ),
    page_of(
        409,
        "topic-in-use",
        "topic in use",
        "Functions read or write this topic.",
        "Delete the functions first, or repeat the request with ?force=true.",
    ),
    page_of(
        409,
        "position-moved",
        "position moved",
        "A reader's position is not what the transaction started from.",
        "Read the position again.",
    ),
    page_of(
        413,
        "too-large",
        "too large",
        "An event, a body or a batch is larger than its limit; the detail says which and how large it may be.",
        "Send smaller events, or fewer of them per request.",
    ),
    page_of(
        415,
        "unsupported-media-type",
        "content type not taken",
        "The header Content-Type is missing or names a type that this topic doesn't take.",
        "Use application/json, application/x-ndjson, application/vnd.tidemill.events+json, application/vnd.tidemill.events+ndjson or application/vnd.tidemill.batch; any other type is one raw event for a topic of format bytes.",
    ),
    page_of(
        415,
        "unsupported-encoding",
        "content encoding not taken",
        "The header Content-Encoding names something else than gzip, zstd or identity.",
        "Compress with gzip or zstd, or not at all.",
    ),
    page_of(
        416,
        "offset-out-of-range",
        "offset out of range",
        "The offset lies below the first or above the last one there is; start and end say where they are.",
        "Go on from start, or add clamp=true.",
    ),
    page_of(
        422,
        "invalid-events",
        "events refused",
        "At least one event can't be accepted; errors lists them by index. Nothing was written, unless committed says so.",
        "Correct the events, or add on_error=continue to write the others.",
    ),
    page_of(
        422,
        "invalid-component",
        "component refused",
        "What was uploaded can't run here; the detail says which check failed.",
        "Build it with `tidemill build`.",
    ),
    page_of(
        422,
        "invalid-manifest",
        "manifest refused",
        "The function's manifest has a key or value that can't be; the detail names it.",
        "Correct function.toml or the attribute in the code.",
    ),
    page_of(
        422,
        "cycle",
        "functions in a circle",
        "With this function events would go round in a circle.",
        "Let the function write to another topic.",
    ),
    page_of(
        431,
        "headers-too-large",
        "headers too large",
        "The request's headers together are larger than 32 KiB.",
        "Send fewer or shorter headers.",
    ),
    page_of(
        503,
        "not-ready",
        "not ready",
        "The host can't serve requests at the moment; reasons says why.",
        "Wait, and look at the host's log if it stays so.",
    ),
    page_of(
        500,
        "internal",
        "fault of the host",
        "Something went wrong in the host itself.",
        "Look at its log under the request's id, and report it.",
    ),
    page_of(
        500,
        "corrupt",
        "stored bytes damaged",
        "Stored bytes are not what was written.",
        "Do not delete anything. Run `tidemill log verify` and restore the damaged file.",
    ),
    page_of(
        503,
        "busy",
        "too much is waiting",
        "More is waiting to be written than may wait. Nothing was written.",
        "Send again after the seconds in Retry-After, and more slowly.",
    ),
    page_of(
        503,
        "unavailable",
        "outcome unknown",
        "Storage failed on the way, or the host is stopping: what was asked may have happened or not.",
        "Look whether it happened, then try again.",
    ),
    page_of(
        507,
        "storage-full",
        "disk full",
        "The data directory's disk has less free space than must stay free. Nothing was written; reads go on.",
        "Free some space; writes are accepted again without a restart.",
    ),
    // Those below stop a start rather than a request.
    page_of(
        500,
        "invalid-config",
        "setting refused",
        "A setting in tidemill.toml, a TIDEMILL_ variable or a flag is unknown or can't be.",
        "Correct it; deploy/tidemill.toml lists every setting.",
    ),
    page_of(
        500,
        "not-loopback",
        "address refused",
        "There is no authentication yet, so the host listens on loopback addresses only.",
        "Listen on 127.0.0.1 or [::1] and put a proxy that authenticates in front.",
    ),
    page_of(
        500,
        "invalid-storage",
        "storage address refused",
        "The address or an option of the object storage makes no sense.",
        "Correct storage.url and storage.options.",
    ),
    page_of(
        500,
        "storage-not-conditional",
        "storage can't be used",
        "The object storage does not honour create-if-absent, so two hosts could overwrite each other.",
        "Use a storage that does: S3, GCS, Azure or a local folder.",
    ),
    page_of(
        503,
        "directory-in-use",
        "directory in use",
        "Another process holds the data directory.",
        "Stop the other process or choose another directory.",
    ),
    page_of(
        503,
        "fenced",
        "a newer owner exists",
        "Another host has taken over this data.",
        "Stop this host.",
    ),
];
