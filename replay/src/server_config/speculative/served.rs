//! What a server's speculation means for the engine: the draft, how many drafts are accepted, and where that is known from.

use std::path::Path;

use ridgepoint::model::{DraftMethod, DraftShape};
use ridgepoint::{Engine, Error, Model, Result};

use super::{GivenAcceptance, Speculative};
use crate::Speculation;

/// Part of the accepted tokens by which they may be more or fewer: models whose lengths were measured with and without thinking differ by
/// up to this much from their mean.
const ACCEPTED_SPREAD: f64 = 0.14;

/// Measured lengths of a model and a method.
struct MeasuredLengths {
    /// Part of the model's name.
    model: &'static str,
    method: DraftMethod,
    /// Mean tokens of a step with one draft, two, and so on, in each series.
    series: &'static [[f64; 8]],
}

/// Mean tokens of a step by model, method and number of drafts.
///
/// # Source
/// SPEED-Bench, coding, temperature 1, vLLM on B300 with and without thinking (SemiAnalysis InferenceX).
static MEASURED: [MeasuredLengths; 5] = [
    MeasuredLengths {
        model: "deepseek-v4-pro",
        method: DraftMethod::Mtp,
        series: &[[1.79, 2.27, 2.49, 2.54, 2.55, 2.55, 2.54, 2.58], [1.92, 2.61, 2.97, 3.0, 3.1, 3.16, 3.0, 3.11]],
    },
    MeasuredLengths {
        model: "glm-5.2",
        method: DraftMethod::Mtp,
        series: &[[1.84, 2.5, 2.99, 3.33, 3.61, 3.78, 3.91, 4.06]],
    },
    MeasuredLengths {
        model: "qwen3.5-397b",
        method: DraftMethod::Mtp,
        series: &[[1.93, 2.73, 3.39, 3.97, 4.41, 4.8, 5.04, 5.21], [1.92, 2.7, 3.33, 3.83, 4.2, 4.48, 4.73, 4.71]],
    },
    MeasuredLengths {
        model: "kimi-k2.5",
        method: DraftMethod::Eagle3,
        series: &[[1.83, 2.43, 2.88, 3.24, 3.46, 3.62, 3.71, 3.77], [1.8, 2.33, 2.75, 3.06, 3.25, 3.43, 3.46, 3.51]],
    },
    MeasuredLengths {
        model: "minimax-m3",
        method: DraftMethod::Eagle3,
        series: &[[1.78, 2.38, 2.83, 3.11, 3.35, 3.45, 3.53, 3.74], [1.84, 2.52, 2.93, 3.41, 3.59, 3.57, 3.85, 4.06]],
    },
];

/// How many drafts an engine accepts, and how sure that is.
#[derive(Debug, Clone, PartialEq)]
pub struct ServedSpeculation {
    /// What drafts tokens.
    pub method: DraftMethod,
    /// Tokens that are drafted for a step.
    pub num_speculative_tokens: u32,
    /// Drafts of a request that a step verifies. A tree has more of them than `num_speculative_tokens`.
    pub num_draft_tokens: u32,
    /// Mean tokens of a request's step, the sampled one included.
    pub acceptance_length: f64,
    /// Range of it.
    pub acceptance_bounds: [f64; 2],
    /// Where it is from, in words.
    pub source: String,
}

impl ServedSpeculation {
    /// Whether the engine schedules a step only when the drafts of the one before are verified.
    ///
    /// # Source
    /// vLLM 0.14 to 0.31, `VllmConfig.__post_init__` (`vllm/config/vllm.py`): asynchronous with MTP and EAGLE alone. SGLang, `ServerArgs`: its first
    /// version of speculation does not overlap; the second is the default since 0.5.11.
    pub(in crate::server_config) fn waits_for_drafts(&self, engine: &Engine) -> bool {
        let is_apart = matches!(self.method, DraftMethod::DraftModel | DraftMethod::Ngram);
        engine.is_sglang() || (engine.is_vllm() && is_apart)
    }

    /// What users should know about its times.
    pub(in crate::server_config) fn notes(&self, engine: &Engine) -> Vec<String> {
        let Self { method, num_speculative_tokens: drafts, acceptance_length: length, source, .. } = self;
        let work = match method {
            DraftMethod::Ngram => "the host's search for n-grams is left out",
            _ if engine.is_sglang() => {
                "a step takes 1.5 ms of the host, as identified from published runs of one model, and the passes of the draft are not corrected"
            }
            _ => {
                "the host's work between the passes of the draft was not measured and is left out, and the passes are not corrected"
            }
        };
        vec![format!(
            "speculative decoding, num_speculative_tokens {drafts} by {}: a step brings a request {length:.2} tokens on average, {source}; {work}",
            method.name()
        )]
    }
}

impl Speculative {
    /// Attaches to a model what drafts tokens for it. `find` finds a model by its name.
    ///
    /// # Errors
    /// Those of `find` for a draft model, and of [`Model::drafted`].
    pub(in crate::server_config) fn draft(
        &self,
        model: Model,
        data_dir: Option<&Path>,
        find: impl Fn(Option<&Path>, &str) -> Result<Model>,
        notes: &mut Vec<String>,
    ) -> Result<Model> {
        let draft = match (self.method, &self.model) {
            (DraftMethod::DraftModel, Some(name)) => Some(find(data_dir, name)?),
            (DraftMethod::Eagle | DraftMethod::Eagle3, name) => {
                notes.push(format!(
                    "{} is taken for a head of one layer with the sizes of public ones: its own config.json is not read",
                    name.as_deref().unwrap_or("the draft")
                ));
                None
            }
            _ => None,
        };
        let width = self.tree.map_or(1, |tree| tree.width);
        model.drafted(self.method, draft, DraftShape { passes: self.num_speculative_tokens, width })
    }

    /// Returns how many drafts `engine` accepts for a model: as given, or as measured for the model.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` if nothing was given and nothing measured.
    pub(in crate::server_config) fn on(
        &self,
        origin: &str,
        model: &Model,
        engine: &Engine,
    ) -> Result<(ServedSpeculation, Speculation)> {
        let drafts = self.num_speculative_tokens;
        let (speculation, bounds, source) = match &self.acceptance {
            Some(GivenAcceptance::Length(length)) => {
                (Speculation::of_length(drafts, *length), None, "given".to_owned())
            }
            Some(GivenAcceptance::Rates(rates)) => (Speculation::of_rates(rates), None, "given".to_owned()),
            None => {
                let (rates, bounds) = self.measured(&model.name).ok_or_else(|| self.not_measured(origin, model))?;
                let source = "as measured on SPEED-Bench's coding tasks at temperature 1".to_owned();
                (Speculation::of_rates(&rates), Some(bounds), source)
            }
        };
        let acceptance_length = speculation.acceptance_length();
        let accepted = acceptance_length - 1.0;
        let most = f64::from(drafts) + 1.0;
        let around = [1.0 - ACCEPTED_SPREAD, 1.0 + ACCEPTED_SPREAD].map(|share| (1.0 + accepted * share).min(most));
        // vLLM keeps slots that its drafts are written to; the others' drafts use those of the verification.
        let looks_ahead = engine.is_vllm() && self.method != DraftMethod::Ngram;
        let ahead = if looks_ahead { drafts } else { 0 };
        // SGLang keeps slots for all tokens of all passes (`ScheduleBatch.new_page_count_next_decode`).
        let of_tree = self.tree.map_or(0, |tree| (drafts * tree.width).saturating_sub(tree.num_draft_tokens + 1));
        let speculation = Speculation {
            num_tree_tokens: self.tree.map_or(0, |tree| tree.num_draft_tokens),
            num_lookahead_tokens: ahead + of_tree,
            ..speculation
        };
        let served = ServedSpeculation {
            method: self.method,
            num_speculative_tokens: drafts,
            num_draft_tokens: self.num_draft_tokens(),
            acceptance_length,
            acceptance_bounds: bounds.unwrap_or(around),
            source,
        };
        Ok((served, speculation))
    }

    /// Shares of drafts that are accepted at each position, and the range of the mean length.
    fn measured(&self, model: &str) -> Option<(Vec<f64>, [f64; 2])> {
        let name = model.to_lowercase();
        let of = MEASURED.iter().find(|of| of.method == self.method && name.contains(of.model))?;
        let drafts = self.num_speculative_tokens as usize;
        let number = of.series.len() as f64;
        let mean = |at: usize| Some(of.series.iter().map(|lengths| lengths.get(at)).sum::<Option<f64>>()? / number);
        let length = mean(drafts.checked_sub(1)?)?;
        // With one more draft, a step gets what is accepted at its position. Later ones vary: no position has more than the one before.
        let mut rates: Vec<f64> = Vec::with_capacity(drafts);
        for at in 0..drafts {
            let before = if at == 0 { 1.0 } else { mean(at - 1)? };
            let most = rates.last().copied().unwrap_or(1.0);
            rates.push((mean(at)? - before).clamp(0.0, most));
        }
        let scale = (length - 1.0) / rates.iter().sum::<f64>();
        let rates = rates.iter().map(|rate| (rate * scale).min(1.0)).collect();
        let lengths = || of.series.iter().filter_map(|lengths| lengths.get(drafts - 1)).copied();
        let bounds = match of.series {
            [_] => [1.0 - ACCEPTED_SPREAD, 1.0 + ACCEPTED_SPREAD].map(|share| 1.0 + (length - 1.0) * share),
            _ => [lengths().fold(f64::INFINITY, f64::min), lengths().fold(0.0, f64::max)],
        };
        Some((rates, bounds))
    }

    fn not_measured(&self, origin: &str, model: &Model) -> Error {
        let names: Vec<String> = MEASURED.iter().map(|of| format!("{} with {}", of.model, of.method.name())).collect();
        let problem = format!(
            "speculative_config: how many drafts of {} {} accepts was not measured (it was for {}, up to 8 drafts): give acceptance_length, the mean \
             tokens of a step that the engine logs (`Mean acceptance length` of vLLM, `accept len` of SGLang)",
            self.method.name(),
            model.name,
            names.join(", ")
        );
        Error::invalid(origin, vec![problem])
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp)]
mod tests {
    use super::*;

    fn speculative(method: DraftMethod, drafts: u32, acceptance: Option<GivenAcceptance>) -> Speculative {
        Speculative { method, num_speculative_tokens: drafts, tree: None, model: None, acceptance }
    }

    #[test]
    fn measured_lengths_are_those_of_the_table() {
        let model = Model::find("glm-5-fp8").or_else(|_| Model::find("deepseek-r1")).unwrap();
        let named = |name: &str| {
            let mut named = model.clone();
            name.clone_into(&mut named.name);
            named
        };
        let of = |drafts, name: &str| {
            speculative(DraftMethod::Mtp, drafts, None).on("server", &named(name), &Engine::default()).map(|(of, _)| of)
        };
        for (drafts, length) in [(1, 1.84), (3, 2.99), (8, 4.06)] {
            let served = of(drafts, "zai-org/GLM-5.2-FP8").unwrap();
            assert!((served.acceptance_length - length).abs() < 1e-9, "{served:?}");
        }
        let served = of(2, "Qwen3.5-397B-A17B").unwrap();
        assert_eq!(served.acceptance_bounds, [2.7, 2.73]);
        let error = of(3, "deepseek-r1").unwrap_err().to_string();
        assert!(error.contains("give acceptance_length"), "{error}");
        assert!(of(9, "glm-5.2").is_err());
    }

    #[test]
    fn given_lengths_have_a_range_and_slots_depend_on_the_engine() {
        let model = Model::find("llama-3.1-8b").unwrap();
        let of = speculative(DraftMethod::Eagle3, 3, Some(GivenAcceptance::Length(3.0)));
        let (served, speculation) = of.on("server", &model, &Engine::default()).unwrap();
        assert_eq!(speculation.num_lookahead_tokens, 3);
        assert!((served.acceptance_bounds[0] - 2.72).abs() < 1e-9 && (served.acceptance_bounds[1] - 3.28).abs() < 1e-9);
        let sglang = Engine::parse("sglang", None).unwrap();
        assert_eq!(of.on("server", &model, &sglang).unwrap().1.num_lookahead_tokens, 0);
    }
}
