//! Servers whose prices are not ridgepoint's: a fit on the first part of their steps predicts the later part, each kind of batch by itself.

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Normal};
use rand_pcg::Pcg64;
use ridgepoint::correction::{Level, SDS_OF_90_PCT};
use ridgepoint_lab::evaluate::steps::case::StepCase;
use ridgepoint_lab::fit::{Prior, StepRun, Verdict, fit_with_scatter};
use ridgepoint_lab::ingest::StepRecord;

use crate::fit_steps::case_of;

const STEPS: usize = 3_000;

/// What a step takes, µs.
#[derive(Debug, Clone, Copy)]
struct Prices {
    step: f64,
    decode: f64,
    prompt_token: f64,
    thousand_cached_tokens: f64,
    waiting: f64,
    noise: f64,
}

const USUAL: Prices =
    Prices { step: 6200.0, decode: 40.0, prompt_token: 34.0, thousand_cached_tokens: 0.4, waiting: 15.0, noise: 0.01 };

const SERVERS: [(&str, Prices); 6] = [
    ("usual", USUAL),
    ("slow prompts", Prices { prompt_token: 44.2, ..USUAL }),
    ("slow decodes", Prices { decode: 80.0, ..USUAL }),
    ("slow queue", Prices { waiting: 60.0, ..USUAL }),
    ("slow attention", Prices { thousand_cached_tokens: 120.0, ..USUAL }),
    ("noisy", Prices { noise: 0.1, ..USUAL }),
];

fn served(prices: Prices, seed: u64) -> StepCase {
    let mut random = Pcg64::seed_from_u64(seed);
    let noise = Normal::new(1.0, prices.noise).unwrap();
    let (mut decodes, mut waiting, mut start_us) = (6_u32, 0_u32, 1e9);
    let mut step = |index: usize| {
        decodes = decodes.saturating_add_signed(random.random_range(-1..=1)).clamp(1, 12);
        let change = random.random_range(-2..=2);
        waiting = if decodes == 12 { waiting.saturating_add_signed(change).min(60) } else { waiting.saturating_sub(4) };
        let prompt: u64 = if random.random_bool(0.07) { [120, 380, 700, 1500][random.random_range(0..4)] } else { 0 };
        let cached: u64 = (0..decodes).map(|_| random.random_range(100..1500_u64)).sum();
        let began_us = start_us;
        let us = prices.step
            + prices.decode * f64::from(decodes)
            + prices.prompt_token * prompt as f64
            + prices.thousand_cached_tokens * cached as f64 / 1e3
            + prices.waiting * f64::from(waiting);
        start_us += us * noise.sample(&mut random);
        StepRecord {
            step_id: 1000 + index as u64,
            start_ns: (began_us * 1e3) as u64,
            num_decode_requests: decodes,
            decode_tokens: u64::from(decodes),
            decode_kv_tokens: Some(cached),
            num_prefill_requests: u32::from(prompt > 0),
            prefill_tokens: prompt,
            prefill_kv_tokens: Some(0),
            num_running: Some(decodes + u32::from(prompt > 0)),
            num_waiting: Some(waiting),
            ..StepRecord::default()
        }
    };
    case_of((0..STEPS).map(&mut step).collect())
}

#[test]
fn later_steps_of_servers_with_other_prices_are_predicted() {
    for (index, (name, prices)) in SERVERS.into_iter().enumerate() {
        let case = served(prices, index as u64);
        let end = case.rows.len();
        let prior = Prior::of_one_model().unwrap();
        let mut runs = [StepRun::new(&case, 0..end * 6 / 10, end * 6 / 10..end, &prior)];
        let level = Level::Model { model: "llama-3.1-8b".to_owned() };
        let fitted = fit_with_scatter("made up", &mut runs, &prior, &level).unwrap();
        let verdict = Verdict::of(&runs, &fitted.correction, &fitted.report.parameters, None);
        assert!(verdict.use_it, "{name}: {}", verdict.in_words());
        assert_eq!(verdict.nearer_line, None, "{name}");
        for kind in verdict.kinds.iter().filter(|of| of.rows > 50) {
            let (mean, p50) = (kind.correction.mean_pct, kind.correction.p50_pct);
            // Prompts have four lengths: noise moves their median from one to the next.
            assert!(mean.abs() < 2.0 && p50.abs() < 4.0 + 100.0 * prices.noise, "{name}: {kind:?}");
        }
        let waiting = fitted.report.parameters.iter().find(|of| of.parameter.name == "scheduling_us_per_waiting");
        let waiting = waiting.unwrap();
        // Three in a thousand of such tests fail by chance.
        let off = (waiting.value - prices.waiting).abs();
        assert!(off < 3.0 / SDS_OF_90_PCT * (waiting.upper - waiting.value).max(2.0), "{name}: {waiting:?}");
    }
}

#[test]
fn few_steps_leave_priors_as_they_are() {
    let case = served(USUAL, 1);
    let prior = Prior::of_one_model().unwrap();
    let run = StepRun::new(&case, 0..80, 80..160, &prior);
    let fitted = fit_with_scatter("made up", &mut [run], &prior, &Level::Global).unwrap();
    assert!((fitted.report.prior_widths.prices - 1.0).abs() < 1e-12, "{:?}", fitted.report.prior_widths);
    assert!((fitted.report.prior_widths.factors - 1.0).abs() < 1e-12);
}
