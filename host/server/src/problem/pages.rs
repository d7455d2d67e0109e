//! One page per code: what it means and what to do. A code without an entry here fails a test.

mod host;
mod requests;

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
    all().find(|page| page.code == code)
}

/// All pages, by status.
pub(crate) fn all() -> impl Iterator<Item = &'static Page> {
    requests::PAGES.iter().chain(host::PAGES)
}
