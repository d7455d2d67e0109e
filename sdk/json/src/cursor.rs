//! A place in a text, and steps over what lies there.

use crate::word;

/// Deepest nesting that is gone through; deeper texts are declined.
const DEPTH: u8 = 100;

/// The reader hands back: read the text with a complete parser.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Declined;

/// The text of a member's name or of a string, without its quotes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Name<'t> {
    /// As it is written.
    pub written: &'t str,
    /// Whether there are escapes in it, so that it isn't the name itself.
    pub escaped: bool,
}

/// A place in a text.
///
/// ```
/// use tidemill_json::Cursor;
///
/// let mut at = Cursor::new(r#" {"a": [1, {"b": 2}], "c": "d"} "#);
/// assert_eq!(at.enter(b'{'), Ok(true));
/// assert_eq!(at.name().unwrap().written, "a");
/// assert_eq!(at.value(), Ok(r#"[1, {"b": 2}]"#));
/// assert_eq!(at.another(b'}'), Ok(true));
/// assert_eq!(at.name().unwrap().written, "c");
/// assert_eq!(at.value(), Ok("\"d\""));
/// assert_eq!(at.another(b'}'), Ok(false));
/// assert_eq!(at.end(), Ok(()));
/// ```
#[derive(Clone, Debug)]
pub struct Cursor<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Cursor<'t> {
    /// The beginning of a text.
    pub fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    /// The byte here.
    #[inline]
    pub(crate) fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Steps over one byte.
    #[inline]
    pub(crate) fn step(&mut self) {
        self.at += 1;
    }

    /// Steps over some bytes.
    #[inline]
    pub(crate) fn skip_bytes(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// The text between two places.
    #[inline]
    pub(crate) fn between(&self, from: usize, to: usize) -> Result<&'t str, Declined> {
        self.text.get(from..to).ok_or(Declined)
    }

    pub(crate) fn bytes(&self) -> &'t [u8] {
        self.text.as_bytes()
    }

    pub(crate) fn place(&self) -> usize {
        self.at
    }

    /// Passes white space; the byte behind it.
    ///
    /// # Errors
    /// At the end of the text.
    #[inline(always)]
    pub fn token(&mut self) -> Result<u8, Declined> {
        match self.byte() {
            Some(byte) if byte > b' ' => Ok(byte),
            _ => self.token_behind_space(),
        }
    }

    #[inline(never)]
    fn token_behind_space(&mut self) -> Result<u8, Declined> {
        loop {
            match self.byte() {
                Some(b' ' | b'\n' | b'\t' | b'\r') => self.step(),
                Some(byte) => return Ok(byte),
                None => return Err(Declined),
            }
        }
    }

    /// Steps into an object (`{`) or array (`[`): whether there is something in it.
    ///
    /// # Errors
    /// When it isn't one.
    #[inline]
    pub fn enter(&mut self, open: u8) -> Result<bool, Declined> {
        self.expect(open)?;
        // `{` and `}`, `[` and `]` are two apart.
        if self.token()? == open + 2 {
            self.step();
            return Ok(false);
        }
        Ok(true)
    }

    /// Steps over what stands behind a member or an element: whether another follows.
    ///
    /// # Errors
    /// When neither `,` nor `close` stands there.
    #[inline]
    pub fn another(&mut self, close: u8) -> Result<bool, Declined> {
        let byte = self.token()?;
        self.step();
        match byte {
            b',' => Ok(true),
            byte if byte == close => Ok(false),
            _ => Err(Declined),
        }
    }

    /// Steps over a member's name and the colon.
    ///
    /// # Errors
    /// When there is none.
    #[inline]
    pub fn name(&mut self) -> Result<Name<'t>, Declined> {
        self.expect(b'"')?;
        let name = self.string()?;
        self.expect(b':')?;
        Ok(name)
    }

    /// Steps over a value: its text, without white space around it.
    ///
    /// # Errors
    /// As [`Cursor::skip`].
    pub fn value(&mut self) -> Result<&'t str, Declined> {
        self.token()?;
        let from = self.at;
        self.skip()?;
        self.between(from, self.at)
    }

    /// That nothing but white space follows.
    ///
    /// # Errors
    /// When something does.
    pub fn end(&mut self) -> Result<(), Declined> {
        match self.token() {
            Err(Declined) => Ok(()),
            Ok(_) => Err(Declined),
        }
    }

    /// Passes white space and this byte.
    #[inline(always)]
    pub(crate) fn expect(&mut self, byte: u8) -> Result<(), Declined> {
        if self.token()? != byte {
            return Err(Declined);
        }
        self.step();
        Ok(())
    }

    /// A string whose quote was passed.
    #[inline(always)]
    pub(crate) fn string(&mut self) -> Result<Name<'t>, Declined> {
        let from = self.at;
        let end = word::plain_end(self.bytes(), from).ok_or(Declined)?;
        if self.bytes().get(end) == Some(&b'"') {
            self.at = end + 1;
            let written = self.between(from, end)?;
            return Ok(Name {
                written,
                escaped: false,
            });
        }
        self.escaped_string(from, end)
    }

    /// The same with an escape at `end`.
    #[inline(never)]
    fn escaped_string(&mut self, from: usize, mut end: usize) -> Result<Name<'t>, Declined> {
        loop {
            self.at = end + 1;
            match self.bytes().get(end) {
                Some(b'"') => {
                    let written = self.between(from, end)?;
                    return Ok(Name {
                        written,
                        escaped: true,
                    });
                }
                Some(b'\\') => self.skip_escape()?,
                _ => return Err(Declined),
            }
            end = word::plain_end(self.bytes(), self.at).ok_or(Declined)?;
        }
    }

    /// An escape whose backslash was passed.
    fn skip_escape(&mut self) -> Result<(), Declined> {
        let byte = self.byte().ok_or(Declined)?;
        self.step();
        match byte {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(()),
            b'u' => {
                let digits = self.bytes().get(self.at..self.at + 4).ok_or(Declined)?;
                self.at += 4;
                let hex = digits.iter().all(u8::is_ascii_hexdigit);
                hex.then_some(()).ok_or(Declined)
            }
            _ => Err(Declined),
        }
    }

    /// The rest of `true`, `false` or `null`.
    pub(crate) fn word(&mut self, word: &str) -> Result<(), Declined> {
        let rest = self.bytes().get(self.at..).ok_or(Declined)?;
        if !rest.starts_with(word.as_bytes()) {
            return Err(Declined);
        }
        self.at += word.len();
        Ok(())
    }

    /// Steps over a value, checking it.
    ///
    /// # Errors
    /// When it isn't valid, or nested too deeply.
    #[inline]
    pub fn skip(&mut self) -> Result<(), Declined> {
        match self.token()? {
            b'{' | b'[' => self.skip_nested(),
            byte => self.skip_plain(byte),
        }
    }

    /// A value that contains no others.
    #[inline(always)]
    fn skip_plain(&mut self, byte: u8) -> Result<(), Declined> {
        match byte {
            b'"' => {
                self.step();
                self.string().map(|_| ())
            }
            b'-' | b'0'..=b'9' => self.skip_number(),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            b'n' => self.word("null"),
            _ => Err(Declined),
        }
    }

    fn skip_nested(&mut self) -> Result<(), Declined> {
        let mut around = Around::default();
        loop {
            let byte = self.token()?;
            if !matches!(byte, b'{' | b'[') {
                self.skip_plain(byte)?;
                self.leave(&mut around)?;
            } else if self.enter(byte)? {
                around.push(byte == b'{')?;
            } else {
                self.leave(&mut around)?;
            }
            match around.last() {
                Some(true) => self.name().map(|_| ())?,
                Some(false) => {}
                None => return Ok(()),
            }
        }
    }

    /// Behind a value: leaves what ends here.
    fn leave(&mut self, around: &mut Around) -> Result<(), Declined> {
        while let Some(object) = around.last() {
            if self.another(if object { b'}' } else { b']' })? {
                break;
            }
            around.pop();
        }
        Ok(())
    }

    #[inline(always)]
    fn skip_digits(&mut self) -> Result<(), Declined> {
        let end = word::digits_end(self.bytes(), self.at);
        if end == self.at {
            return Err(Declined);
        }
        self.at = end;
        Ok(())
    }

    #[inline(always)]
    fn skip_number(&mut self) -> Result<(), Declined> {
        if self.byte() == Some(b'-') {
            self.step();
        }
        if self.byte() == Some(b'0') {
            self.step();
        } else {
            self.skip_digits()?;
        }
        self.skip_fraction()
    }

    /// What may stand behind a number's whole part.
    #[inline(always)]
    pub(crate) fn skip_fraction(&mut self) -> Result<(), Declined> {
        match self.byte() {
            Some(b'.' | b'e' | b'E' | b'0'..=b'9') => self.skip_long_fraction(),
            _ => Ok(()),
        }
    }

    #[inline(never)]
    fn skip_long_fraction(&mut self) -> Result<(), Declined> {
        if self.byte() == Some(b'.') {
            self.step();
            self.skip_digits()?;
        }
        if matches!(self.byte(), Some(b'e' | b'E')) {
            self.step();
            if matches!(self.byte(), Some(b'+' | b'-')) {
                self.step();
            }
            self.skip_digits()?;
        }
        match self.byte() {
            Some(b'0'..=b'9') => Err(Declined),
            _ => Ok(()),
        }
    }
}

/// What one is inside of, outermost first: a bit for each, set for an object.
#[derive(Default)]
struct Around {
    objects: u128,
    depth: u8,
}

impl Around {
    fn push(&mut self, object: bool) -> Result<(), Declined> {
        if self.depth == DEPTH {
            return Err(Declined);
        }
        self.objects = self.objects << 1 | u128::from(object);
        self.depth += 1;
        Ok(())
    }

    fn pop(&mut self) {
        self.objects >>= 1;
        self.depth -= 1;
    }

    fn last(&self) -> Option<bool> {
        (self.depth > 0).then_some(self.objects & 1 == 1)
    }
}
