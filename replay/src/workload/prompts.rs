//! Prompts of inference-perf's data generators: lengths and shared beginnings. Every stage starts with the first prompt.

use std::sync::Arc;

use rand::seq::SliceRandom;

use super::lengths::{NormalLengths, RequestShape};
use super::request::{Content, Segment, WorkloadRequest};
use super::seed::{Stream, generator};

/// `data` of an inference-perf profile.
#[derive(Debug, Clone, PartialEq)]
pub enum Prompts {
    /// `shared_prefix`: `num_groups × num_prompts_per_group` distinct prompts in a shuffled order; request i of a stage
    /// sends the one at i modulo their number, so each is shared as a whole with the later requests that send it again.
    SharedPrefix {
        /// System prompts (`num_unique_system_prompts`).
        num_groups: u32,
        /// Questions behind each of them (`num_users_per_system_prompt`).
        num_prompts_per_group: u32,
        /// Tokens of a system prompt.
        system_prompt_len: u32,
        /// Tokens of a question.
        question_len: u32,
        /// Generated tokens of each request.
        output_len: u32,
    },
    /// `random`: every prompt is new.
    Random {
        /// Tokens of a prompt.
        input: NormalLengths,
        /// Generated tokens of a request.
        output: NormalLengths,
    },
    /// `synthetic`: every prompt is the beginning of the same text.
    Synthetic {
        /// Tokens of a prompt.
        input: NormalLengths,
        /// Generated tokens of a request.
        output: NormalLengths,
    },
    /// `mock`: a word and a number, answered with inference-perf's default output length.
    Mock,
}

/// Tokens of `text1`, `text2` and so on, with the token that begins a prompt: about 3 with common tokenisers.
const MOCK_PROMPT_TOKENS: u32 = 3;
/// `max_completion_tokens` of inference-perf 0.3.0, `client/modelserver/openai_client.py`.
const MOCK_OUTPUT_TOKENS: u32 = 30;

/// The prompts of one stage after the other.
#[derive(Debug, Clone)]
pub(super) enum PromptStream {
    Repeated { prompts: Arc<[Content]>, num_prompt_tokens: u32, num_output_tokens: u32 },
    Drawn { shape: Box<RequestShape>, one_text: bool },
    Mock,
}

impl PromptStream {
    /// The prompts of stages of at most `most_requests` requests.
    pub(super) fn new(prompts: &Prompts, seed: u64, most_requests: u64) -> Self {
        let drawn = |input: &NormalLengths, output: &NormalLengths, one_text| PromptStream::Drawn {
            shape: Box::new(RequestShape::drawn(*input, *output, seed)),
            one_text,
        };
        match prompts {
            Prompts::Mock => PromptStream::Mock,
            Prompts::Random { input, output } => drawn(input, output, false),
            Prompts::Synthetic { input, output } => drawn(input, output, true),
            Prompts::SharedPrefix {
                num_groups,
                num_prompts_per_group,
                system_prompt_len,
                question_len,
                output_len,
            } => {
                let questions = u64::from(*num_groups) * u64::from(*num_prompts_per_group);
                let mut order: Vec<u32> = (0..u32::try_from(questions).unwrap_or(u32::MAX)).collect();
                order.shuffle(&mut generator(seed, Stream::PromptOrder, 0));
                let prompt = |question: u32| -> Content {
                    let group = question / num_prompts_per_group;
                    let system = Segment { id: u64::from(group), num_tokens: *system_prompt_len };
                    let id = u64::from(*num_groups) + u64::from(question);
                    let question = Segment { id, num_tokens: *question_len };
                    [system, question].into_iter().filter(|segment| segment.num_tokens > 0).collect()
                };
                order.truncate(usize::try_from(most_requests).unwrap_or(usize::MAX));
                PromptStream::Repeated {
                    prompts: order.into_iter().map(prompt).collect(),
                    num_prompt_tokens: system_prompt_len.saturating_add(*question_len),
                    num_output_tokens: *output_len,
                }
            }
        }
    }

    /// The prompts of a stage, as requests at the start of the load. Each stage begins with the first one, as in inference-perf.
    pub(super) fn stage(&self) -> Box<dyn Iterator<Item = WorkloadRequest> + Send> {
        match self.clone() {
            PromptStream::Repeated { prompts, num_prompt_tokens, num_output_tokens } => {
                Box::new((0..prompts.len()).cycle().map(move |index| WorkloadRequest {
                    content: prompts.get(index).cloned(),
                    ..WorkloadRequest::new(0, num_prompt_tokens, num_output_tokens)
                }))
            }
            PromptStream::Drawn { mut shape, one_text } => Box::new(std::iter::repeat_with(move || {
                let request = shape.next(0);
                let segment = Segment { id: 0, num_tokens: request.num_prompt_tokens };
                WorkloadRequest { content: one_text.then(|| Arc::from([segment])), ..request }
            })),
            PromptStream::Mock => {
                Box::new(std::iter::repeat(WorkloadRequest::new(0, MOCK_PROMPT_TOKENS, MOCK_OUTPUT_TOKENS)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(seed: u64) -> PromptStream {
        let prompts = Prompts::SharedPrefix {
            num_groups: 3,
            num_prompts_per_group: 4,
            system_prompt_len: 100,
            question_len: 466,
            output_len: 247,
        };
        PromptStream::new(&prompts, seed, 24)
    }

    fn take(stream: &PromptStream, count: usize) -> Vec<WorkloadRequest> {
        stream.stage().take(count).collect()
    }

    #[test]
    fn every_prompt_comes_once_in_a_round_and_again_in_the_next() {
        let sent = take(&shared(1), 24);
        assert_eq!(sent[..12], sent[12..]);
        let mut questions: Vec<u64> = sent[..12].iter().map(|p| p.content.as_ref().unwrap()[1].id).collect();
        questions.sort_unstable();
        assert_eq!(questions, (3..15).collect::<Vec<u64>>());
        for prompt in &sent {
            let content = prompt.content.as_ref().unwrap();
            assert_eq!((prompt.num_prompt_tokens, prompt.num_output_tokens), (566, 247));
            assert_eq!((content[0].num_tokens, content[1].num_tokens), (100, 466));
            // Questions 3 to 6 belong to group 0, 7 to 10 to group 1, 11 to 14 to group 2.
            assert_eq!(content[0].id, (content[1].id - 3) / 4);
        }
    }

    #[test]
    fn the_order_is_shuffled_by_the_seed() {
        assert_eq!(take(&shared(7), 12), take(&shared(7), 12));
        assert_ne!(take(&shared(7), 12), take(&shared(8), 12));
        let unshuffled = (0..12).all(|i| take(&shared(7), 12)[i].content.as_ref().unwrap()[1].id == 3 + i as u64);
        assert!(!unshuffled);
    }

    #[test]
    fn only_prompts_that_are_sent_are_made_and_they_are_the_same() {
        let prompts = |num_groups| Prompts::SharedPrefix {
            num_groups,
            num_prompts_per_group: 5,
            system_prompt_len: 200,
            question_len: 600,
            output_len: 250,
        };
        let of_four = PromptStream::new(&prompts(40), 3, 4);
        assert!(matches!(&of_four, PromptStream::Repeated { prompts, .. } if prompts.len() == 4));
        assert_eq!(take(&of_four, 4), take(&PromptStream::new(&prompts(40), 3, 1000), 4));
        // Two million prompts of 96 bytes each would take 190 MB, their order takes 8.
        let used = allocation_counter::measure(|| drop(PromptStream::new(&prompts(400_000), 3, 4)));
        assert!(used.bytes_max < 9_000_000, "{} bytes", used.bytes_max);
    }

    #[test]
    fn empty_system_prompts_are_no_segment() {
        let prompts = Prompts::SharedPrefix {
            num_groups: 1,
            num_prompts_per_group: 1,
            system_prompt_len: 0,
            question_len: 5,
            output_len: 1,
        };
        let prompt = PromptStream::new(&prompts, 0, 1).stage().next().unwrap();
        assert_eq!(prompt.content.as_deref(), Some([Segment { id: 1, num_tokens: 5 }].as_slice()));
    }

    #[test]
    fn lengths_are_normal_within_their_range_and_start_again_in_a_stage() {
        let input = NormalLengths { min: 10, max: 1000, mean: 500.0, std_dev: 50.0, ..NormalLengths::fixed(1) };
        let output = NormalLengths { min: 90, max: 110, mean: 100.0, std_dev: 1000.0, ..NormalLengths::fixed(1) };
        let stream = PromptStream::new(&Prompts::Random { input, output }, 3, 10_000);
        let first = take(&stream, 10_000);
        let mean = first.iter().map(|p| f64::from(p.num_prompt_tokens)).sum::<f64>() / 1e4;
        // Standard error 50 / √10⁴ = 0.5.
        assert!((mean - 500.0).abs() < 2.0, "{mean}");
        assert!(first.iter().all(|p| (90..=110).contains(&p.num_output_tokens) && p.content.is_none()));
        // Almost all outputs are clipped, half of them on either side.
        let clipped = first.iter().filter(|p| p.num_output_tokens == 90).count();
        assert!((4_800..5_150).contains(&clipped), "{clipped}");
        stream.stage().take(10).for_each(drop);
        assert_eq!(take(&stream, 10_000), first);
    }

    #[test]
    fn synthetic_prompts_are_beginnings_of_one_text() {
        let prompts = Prompts::Synthetic { input: NormalLengths::fixed(40), output: NormalLengths::fixed(7) };
        let prompt = PromptStream::new(&prompts, 0, 1).stage().next().unwrap();
        assert_eq!(prompt.content.as_deref(), Some([Segment { id: 0, num_tokens: 40 }].as_slice()));
        assert_eq!(prompt.num_output_tokens, 7);
    }
}
