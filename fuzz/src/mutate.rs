//! Mutations of a corpus. A case is fixed by its seed and its number.

use fastrand::Rng;

use crate::corpus::Corpus;

/// Longest case, bytes; a repeated part makes some of these.
const MAX_BYTES: usize = 1 << 16;

/// Longest case but for repeated parts, bytes.
const USUAL_BYTES: usize = 1 << 12;

/// Numbers and marks at which parsers go wrong.
const TOKENS: [&str; 48] = [
    "0",
    "-0",
    "-1",
    "1",
    "2",
    "255",
    "256",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e-308",
    "1e308",
    "1e309",
    "5e-324",
    "1.7976931348623157e308",
    "-1e308",
    "0.1",
    "1e-300",
    "1e18",
    "1e6",
    "1e9",
    "nan",
    "inf",
    "-inf",
    "null",
    "true",
    "false",
    "[]",
    "{}",
    "\"\"",
    "\n",
    "\r\n",
    "\t",
    "\u{feff}",
    "\u{1b}[2J",
    "\u{e9}",
    "#",
    "'",
    "\\u0000",
    "---",
];

/// The case of this number.
pub fn case(corpus: &Corpus, seed: u64, index: u64) -> Vec<u8> {
    let mut rng = Rng::with_seed(seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut bytes = rng.choice(&corpus.files).cloned().unwrap_or_default();
    if corpus.files.is_empty() || rng.u8(..) == 0 {
        bytes = noise(&mut rng, 256);
    }
    let times = 1 + rng.u32(..).trailing_ones();
    for _ in 0..times {
        mutate(&mut bytes, corpus, &mut rng);
        bytes.truncate(USUAL_BYTES);
    }
    if rng.u16(..1000) == 0 {
        repeat(&mut bytes, &mut rng);
    }
    bytes
}

fn mutate(bytes: &mut Vec<u8>, corpus: &Corpus, rng: &mut Rng) {
    let at = rng.usize(..=bytes.len());
    let part = at..bytes.len().min(at + 1 + rng.usize(..32));
    match rng.u8(..12) {
        0 => flip(bytes, at, rng),
        1 => bytes.truncate(at),
        2 => drop(bytes.drain(part)),
        3 => insert(bytes, at, &noise(rng, 8)),
        4 => {
            let copied = bytes[part].to_vec();
            insert(bytes, rng.usize(..=bytes.len()), &copied);
        }
        5 => insert(bytes, at, token(corpus, rng)),
        6 | 7 => replace_word(bytes, at, token(corpus, rng)),
        8 => replace_number(bytes, at, rng),
        9 => lines(bytes, rng),
        10 => splice(bytes, at, corpus, rng),
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = *rng.choice(b"\",:{}[]()\n\t 0123456789.eE+-xX@#'\\/_").unwrap_or(&0);
            }
        }
    }
}

fn noise(rng: &mut Rng, most: usize) -> Vec<u8> {
    let count = rng.usize(..most);
    std::iter::repeat_with(|| rng.u8(..)).take(count).collect()
}

fn insert(bytes: &mut Vec<u8>, at: usize, new: &[u8]) {
    bytes.splice(at..at, new.iter().copied());
}

fn flip(bytes: &mut [u8], at: usize, rng: &mut Rng) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1 << rng.u8(..8);
    }
}

fn token<'a>(corpus: &'a Corpus, rng: &mut Rng) -> &'a [u8] {
    match rng.choice(&corpus.tokens).filter(|_| rng.bool()) {
        Some(token) => token,
        None => rng.choice(TOKENS).unwrap_or_default().as_bytes(),
    }
}

/// Replaces the word around a place.
fn replace_word(bytes: &mut Vec<u8>, at: usize, new: &[u8]) {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.-+".contains(byte);
    let start = bytes[..at].iter().rposition(|byte| !is_word(byte)).map_or(0, |before| before + 1);
    let end = bytes[at..].iter().position(|byte| !is_word(byte)).map_or(bytes.len(), |after| at + after);
    bytes.splice(start..end, new.iter().copied());
}

/// Replaces the next number by one near to it or of another size.
fn replace_number(bytes: &mut Vec<u8>, at: usize, rng: &mut Rng) {
    let Some(start) = bytes[at..].iter().position(u8::is_ascii_digit).map(|digit| at + digit) else { return };
    let end = bytes[start..].iter().position(|byte| !byte.is_ascii_digit()).map_or(bytes.len(), |after| start + after);
    let number = std::str::from_utf8(&bytes[start..end]).ok().and_then(|digits| digits.parse::<u64>().ok());
    let number = number.unwrap_or(u64::MAX);
    let new = match rng.u8(..6) {
        0 => number.wrapping_add(1),
        1 => number.wrapping_sub(1),
        2 => number.wrapping_mul(1000),
        3 => number / 1000,
        4 => rng.u64(..) >> rng.u8(..64),
        _ => number.wrapping_neg(),
    };
    bytes.splice(start..end, new.to_string().into_bytes());
}

/// Removes, copies or swaps lines.
fn lines(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let (one, other) = (rng.usize(..lines.len()), rng.usize(..lines.len()));
    match rng.u8(..3) {
        0 => drop(lines.remove(one)),
        1 => lines.insert(other, lines[one]),
        _ => lines.swap(one, other),
    }
    *bytes = lines.join(&b'\n');
}

/// Continues with the end of another file.
fn splice(bytes: &mut Vec<u8>, at: usize, corpus: &Corpus, rng: &mut Rng) {
    if let Some(other) = rng.choice(&corpus.files) {
        bytes.truncate(at);
        bytes.extend_from_slice(&other[rng.usize(..=other.len())..]);
    }
}

/// Repeats a part until the case is long.
fn repeat(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let at = rng.usize(..=bytes.len());
    let part = bytes[at..bytes.len().min(at + 1 + rng.usize(..64))].to_vec();
    if !part.is_empty() {
        let times = (MAX_BYTES - bytes.len()) / part.len();
        insert(bytes, at, &part.repeat(rng.usize(..=times)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_fixed_by_its_seed_and_number_and_differs_from_others() {
        let corpus = Corpus { files: vec![b"a = 1\nb = 20\n".to_vec()], tokens: vec![b"a".to_vec()] };
        let cases: Vec<Vec<u8>> = (0..2000).map(|index| case(&corpus, 7, index)).collect();
        assert_eq!(case(&corpus, 7, 1234), cases[1234]);
        assert!(cases.iter().all(|case| case.len() <= MAX_BYTES));
        let mut distinct = cases;
        distinct.sort();
        distinct.dedup();
        assert!(distinct.len() > 1000, "{}", distinct.len());
    }
}
