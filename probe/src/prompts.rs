//! Prompts: a fixed text, or a number of words. By default no two share a prefix, so that no prefix cache has anything of them.

/// Words that are a token each in most vocabularies, behind a blank.
const WORDS: [&str; 64] = [
    "able", "back", "ball", "bank", "base", "bird", "blue", "boat", "body", "book", "born", "call", "card", "care",
    "case", "city", "cold", "come", "cost", "dark", "data", "date", "deal", "deep", "door", "down", "east", "edge",
    "face", "fact", "fall", "farm", "fast", "film", "fine", "fire", "fish", "food", "foot", "form", "free", "game",
    "gold", "good", "half", "hand", "hard", "head", "heat", "high", "home", "hope", "hour", "idea", "land", "late",
    "life", "line", "list", "long", "main", "mark", "meal", "moon",
];

/// Words at the start of a prompt that no other has: 64⁶ are as many as 2³⁶.
const UNIQUE_WORDS: u64 = 6;

/// Makes prompts.
#[derive(Debug, Clone)]
pub(crate) struct Prompts {
    /// Text of requests without a length of their own.
    pub(crate) text: String,
    /// Send the same prompt again and again.
    pub(crate) is_same: bool,
    pub(crate) seed: u64,
}

impl Prompts {
    /// The fixed prompt, as the request of this number sends it.
    pub(crate) fn fixed(&self, number: u64) -> String {
        if self.is_same {
            self.text.clone()
        } else {
            format!("{} {}", words(self.seed, number, UNIQUE_WORDS), self.text)
        }
    }

    /// A prompt of a given number of words.
    pub(crate) fn of_words(&self, number: u64, count: u64) -> String {
        words(self.seed, if self.is_same { u64::MAX } else { number }, count.max(1))
    }
}

/// Words that follow from seed and number.
fn words(seed: u64, number: u64, count: u64) -> String {
    let mut state = mixed(seed ^ mixed(number.wrapping_add(1)));
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let index = usize::try_from(mixed(state) >> 58).unwrap_or_default();
        WORDS.get(index).copied().unwrap_or("main")
    };
    (0..count).map(|_| next()).collect::<Vec<_>>().join(" ")
}

/// The output function of splitmix64 (Steele, Lea and Flood 2014).
fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The number of words of a prompt of so many tokens, where a prompt of `words` words has `prompt_tokens` tokens.
pub(crate) fn words_for(tokens: u64, words: u64, prompt_tokens: u64) -> u64 {
    let scaled = u128::from(tokens) * u128::from(words) / u128::from(prompt_tokens.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX).clamp(1, tokens.saturating_mul(2).max(1))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_prompts_begin_alike_unless_asked() {
        let prompts = Prompts { text: "Say hello.".to_owned(), is_same: false, seed: 7 };
        let starts: HashSet<String> = (0..10_000).map(|n| prompts.fixed(n)).collect();
        assert_eq!(starts.len(), 10_000);
        assert!(starts.iter().all(|text| text.ends_with(" Say hello.")));
        assert_eq!(prompts.fixed(3), Prompts { seed: 7, ..prompts.clone() }.fixed(3));
        assert_ne!(prompts.fixed(3), Prompts { seed: 8, ..prompts.clone() }.fixed(3));
        let same = Prompts { is_same: true, ..prompts };
        assert_eq!((same.fixed(1), same.of_words(1, 9)), ("Say hello.".to_owned(), same.of_words(2, 9)));
    }

    #[test]
    fn lengths_are_those_asked_for() {
        let prompts = Prompts { text: String::new(), is_same: false, seed: 1 };
        assert_eq!(prompts.of_words(1, 500).split(' ').count(), 500);
        assert_ne!(prompts.of_words(1, 20), prompts.of_words(2, 20));
        // 100 words were 130 tokens: 512 tokens are 393 words. A text of more tokens than words needs at least one.
        assert_eq!((words_for(512, 100, 130), words_for(1, 100, 900), words_for(8, 100, 0)), (393, 1, 16));
    }
}
