//! Bending bytes.

/// Numbers that tend to break things.
const NUMBERS: [u64; 14] = [
    0,
    1,
    2,
    7,
    8,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    u64::MAX,
];
/// Pieces of text that tend to.
const PIECES: [&str; 22] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    ",",
    ":",
    "\\",
    "\\u0000",
    "\\ud800",
    "null",
    "true",
    "-0",
    "1e400",
    "18446744073709551616",
    "\n",
    "\r\n",
    "\u{feff}",
    "é",
    "\"\":",
    "[[[[",
    "0.5",
];

/// A row of numbers that is the same in every run.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn of(name: &str) -> Self {
        Self(hash(name.as_bytes()))
    }

    /// splitmix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).expect("small");
        usize::try_from(self.next() % bound.max(1)).expect("small")
    }

    fn of_these<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// FNV-1a.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// One of `pool`, bent a few times.
pub(crate) fn bend(pool: &[Vec<u8>], chance: &mut Chance) -> Vec<u8> {
    let mut input = pool[chance.below(pool.len())].clone();
    for _ in 0..=chance.below(4) {
        once(&mut input, pool, chance);
    }
    input
}

fn once(input: &mut Vec<u8>, pool: &[Vec<u8>], chance: &mut Chance) {
    let at = chance.below(input.len() + 1);
    let len = chance
        .below(input.len() - at + 1)
        .min(1 << chance.below(12));
    match chance.below(10) {
        0 => flip(input, at, chance),
        1 => set(input, at, chance),
        2 | 3 => number(input, at, chance),
        4 => {
            input.drain(at..at + len);
        }
        5 => {
            let part = input[at..at + len].to_vec();
            let to = chance.below(input.len() + 1);
            input.splice(to..to, part);
        }
        6 => {
            let piece = chance.of_these(&PIECES);
            input.splice(at..at, piece.bytes());
        }
        7 => input.truncate(at),
        8 => {
            let other = &pool[chance.below(pool.len())];
            let from = chance.below(other.len() + 1);
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        _ => {
            let some = (0..=chance.below(8)).map(|_| chance.next().to_le_bytes()[0]);
            let some: Vec<u8> = some.collect();
            input.splice(at..at, some);
        }
    }
}

fn flip(input: &mut [u8], at: usize, chance: &mut Chance) {
    if let Some(byte) = input.get_mut(at) {
        *byte ^= 1 << chance.below(8);
    }
}

fn set(input: &mut [u8], at: usize, chance: &mut Chance) {
    let value = chance.next().to_le_bytes()[0];
    if let Some(byte) = input.get_mut(at) {
        *byte = value;
    }
}

/// Writes a number over bytes, little endian, of one to eight bytes; where numbers lie most often.
fn number(input: &mut [u8], at: usize, chance: &mut Chance) {
    let size = chance.of_these(&[1, 2, 4, 4, 4, 8]);
    let at = at / size * size;
    let mut value = chance.of_these(&NUMBERS);
    if chance.below(3) == 0 {
        value = u64::try_from(chance.below(input.len() + 40)).expect("small");
    }
    for (byte, value) in input.iter_mut().skip(at).zip(&value.to_le_bytes()[..size]) {
        *byte = *value;
    }
}
