//! A tenth of an engine's steps, with the journeys of all requests: prices of prompts and decodes are found as in all steps.

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Normal};
use rand_pcg::Pcg64;
use ridgepoint::correction::{Level, Term};
use ridgepoint_lab::evaluate::steps::between::Journey;
use ridgepoint_lab::fit::{Prior, StepRun, fit_with_scatter};
use ridgepoint_lab::ingest::{RequestRow, StepRecord, Whole};

use crate::fit_steps::{case_of, case_with};

struct Served {
    prompt: u32,
    output: u32,
    scheduled: u64,
    decoded: u32,
}

/// Steps of a server that takes 6.2 ms a step, 60 µs a decode and 44 µs a prompt token, and the journeys of its requests.
fn served(seed: u64) -> (Vec<StepRecord>, Vec<RequestRow>) {
    let mut random = Pcg64::seed_from_u64(seed);
    let noise = Normal::new(1.0, 0.01).unwrap();
    let (mut running, mut steps, mut rows, mut now_us) = (Vec::<Served>::new(), Vec::new(), Vec::new(), 1e6);
    for step_id in 1000..7000_u64 {
        let is_new = running.is_empty() || (running.len() < 14 && random.random_bool(0.09));
        let prompt = if is_new { [120, 380, 700, 1500][random.random_range(0..4)] } else { 0 };
        let decodes = running.len() as u32;
        steps.push(StepRecord {
            step_id,
            start_ns: (now_us * 1e3) as u64,
            num_decode_requests: decodes,
            decode_tokens: u64::from(decodes),
            decode_kv_tokens: Some(running.iter().map(|of| u64::from(of.prompt + of.decoded)).sum()),
            num_prefill_requests: u32::from(is_new),
            prefill_tokens: u64::from(prompt),
            prefill_kv_tokens: Some(0),
            num_running: Some(decodes + u32::from(is_new)),
            num_waiting: Some(0),
            ..StepRecord::default()
        });
        now_us += (6200.0 + 60.0 * f64::from(decodes) + 44.0 * f64::from(prompt)) * noise.sample(&mut random);
        running.iter_mut().for_each(|of| of.decoded += 1);
        running.retain(|of| {
            let ends = of.decoded == of.output;
            if ends {
                rows.push(RequestRow {
                    request_id: format!("{}", of.scheduled).into(),
                    scheduled_step: Some(Whole::from(of.scheduled)),
                    first_token_step: Some(Whole::from(of.scheduled)),
                    finished_step: Some(Whole::from(step_id)),
                    num_prompt_tokens: Some(Whole::from(u64::from(of.prompt))),
                    ..RequestRow::default()
                });
            }
            !ends
        });
        if is_new {
            running.push(Served { prompt, output: random.random_range(20..200), scheduled: step_id, decoded: 0 });
        }
    }
    (steps, rows)
}

#[test]
fn a_tenth_of_the_steps_with_journeys_is_as_good_as_all_of_them() {
    let (steps, rows) = served(5);
    let whole = case_of(steps.clone());
    let mut random = Pcg64::seed_from_u64(9);
    let tenth: Vec<StepRecord> = steps[..5800].iter().filter(|_| random.random_bool(0.1)).cloned().collect();
    let journeys: Vec<Journey> = rows.iter().filter_map(Journey::of).collect();
    assert!(journeys.len() > 300);
    // Mean time of all steps with prompts, and of all others, over what is measured.
    let errors = |journeys: Vec<Journey>| {
        let sampled = case_with(tenth.clone(), journeys);
        let prior = Prior::of_one_model().unwrap();
        let mut runs = [StepRun::new(&sampled, 0..sampled.rows.len(), 0..0, &prior)];
        let level = Level::Model { model: "llama-3.1-8b".to_owned() };
        let fitted = fit_with_scatter("made up", &mut runs, &prior, &level).unwrap().correction;
        [true, false].map(|with_prompts| {
            let of_kind = whole.rows.iter().map(|row| (row, whole.basis(row)));
            let of_kind = of_kind.filter(|(_, basis)| (basis.get(Term::PromptTokens) > 0.0) == with_prompts);
            let sums = of_kind.fold((0.0, 0.0), |(measured, predicted), (row, basis)| {
                (measured + row.period_us(), predicted + whole.period_us(&fitted, row, &basis))
            });
            (sums.1 / sums.0 - 1.0).abs()
        })
    };
    let [prompts, decodes] = errors(journeys);
    assert!(prompts < 0.04 && decodes < 0.02, "{prompts} {decodes}");
    // Without journeys the steps between are as those around, and a prompt's price is lost.
    let [prompts, _] = errors(Vec::new());
    assert!(prompts > 0.06, "{prompts}");
}
