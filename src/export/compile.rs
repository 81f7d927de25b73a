//! From a step model to tables: the same model is asked for steps that differ in one thing at a time. Uses `step_model`, `tables`,
//! `judge`.

use std::collections::BTreeSet;

use super::grid::{Line, Sheet};
use super::judge::{ExportError, Limits, batches};
use super::tables::{Coefficient, Export, PricesUs};
use crate::correction::{Correction, HostTimes, Kind, NUM_TERMS, Term, Used};
use crate::deployment::Deployment;
use crate::efficiency::Provenance;
use crate::estimate::{OperatorEstimate, StepEstimate};
use crate::physics::OperatorGroup;
use crate::request::Request;
use crate::step_model::StepModel;

/// Boils a step model down. `model`, `hardware` and `deployment` are what it was made of.
pub fn export(steps: &StepModel, model: &str, hardware: &str, deployment: &Deployment) -> Export {
    let limits = Limits {
        max_num_seqs: deployment.max_num_seqs.max(1),
        max_num_batched_tokens: deployment.max_num_batched_tokens.max(1),
        max_model_len: u32::try_from(steps.plan().max_model_len()).unwrap_or(u32::MAX),
    };
    let correction = steps.correction();
    let compiler = Compiler { steps, limits, sampled: sampled_operators(steps) };
    let mut export = Export {
        version: 1,
        model: model.to_owned(),
        hardware: hardware.to_owned(),
        deployment: deployment.clone(),
        correction: Used::of(correction),
        coefficients: correction.map(coefficients).unwrap_or_default(),
        host: correction.map_or_else(HostTimes::default, |correction| correction.host),
        decode_only: compiler.decode_only(),
        with_chunks: compiler.with_chunks(),
        sampled: compiler.sampled(),
        decode_attention: compiler.decode_attention(),
        chunk_attention: compiler.chunk_attention(1),
        further_chunk_attention: compiler.chunk_attention(2),
        saved_beside_decodes_us: 0.0,
        prices: correction.map(|correction| compiler.prices(correction)).unwrap_or_default(),
        error: ExportError::default(),
    };

    let batches = batches(limits);
    export.saved_beside_decodes_us = compiler.saved_beside_decodes_us(&export, &batches);
    export.error = ExportError::of(&export, steps, &batches);
    export
}

fn coefficients(correction: &Correction) -> std::collections::BTreeMap<&'static str, Coefficient> {
    let of = |term: Term| {
        let (index, value) = (term.index(), correction.coefficient(term));
        let sd = correction.covariance[index][index].max(0.0).sqrt();
        (term.name(), Coefficient { value, sd: rounded(sd), unit: term.unit() })
    };
    Term::ALL.into_iter().map(of).collect()
}

/// Projections work on tiles of tokens: between multiples of this, up to here, times hardly grow.
const TILE_TOKENS: usize = 64;
const MOST_TILED_TOKENS: u64 = 2048;

/// To a nanosecond: tables stay readable, and nothing is known better.
fn rounded(time_us: f64) -> f64 {
    (time_us * 1e3).round() / 1e3
}

/// Points from `first` on, each some `factor` times the one before and a multiple of `step`, up to `last`, which is one too.
fn spread(first: f64, last: f64, factor: f64, step: f64) -> Vec<f64> {
    let mut points = vec![first.min(last)];
    let mut next = first;
    while next < last {
        let beyond = ((next / step).floor() + 1.0) * step;
        next = ((next * factor / step).ceil() * step).max(beyond).min(last);
        points.push(next);
    }
    points
}

/// Operators that are there, or have more to do, because a token is sampled.
fn sampled_operators(steps: &StepModel) -> BTreeSet<&'static str> {
    let with = |samples: bool| steps.estimate_unchecked(&[Request::new(0, 64, samples)]).operators;
    let (none, one) = (with(false), with(true));
    let same =
        |a: &OperatorEstimate| none.iter().any(|b| b.name == a.name && b.time_us.to_bits() == a.time_us.to_bits());
    one.iter()
        .filter(|operator| operator.provenance != Provenance::Learned && !same(operator))
        .map(|o| o.name)
        .collect()
}

struct Compiler<'a> {
    steps: &'a StepModel,
    limits: Limits,
    sampled: BTreeSet<&'static str>,
}

impl Compiler<'_> {
    fn operators_us(&self, batch: &[Request], wanted: impl Fn(&OperatorEstimate) -> bool) -> f64 {
        let StepEstimate { operators, .. } = self.steps.estimate_unchecked(batch);
        rounded(operators.iter().filter(|operator| wanted(operator)).map(|operator| operator.time_us).sum())
    }

    /// The captured graph sizes, multiples of a tile, then points further and further apart, up to `most`; and up to which of
    /// them a step takes as long as one of the next size.
    fn sizes(&self, most: u32) -> (Vec<f64>, f64) {
        let graphs = self.steps.plan().cuda_graphs();
        let captured: BTreeSet<u64> = (1..=u64::from(most)).map_while(|tokens| graphs.padded_tokens(tokens)).collect();
        let is_eager = captured.is_empty();
        let unpadded = [1, 2, 4, 8].into_iter().chain((16..512).step_by(16));
        let mut sizes: Vec<u64> = if is_eager { unpadded.collect() } else { captured.into_iter().collect() };
        sizes.extend((512..=MOST_TILED_TOKENS).step_by(TILE_TOKENS));
        let last = u64::from(most);
        sizes.retain(|size| *size < last);
        sizes.sort_unstable();
        sizes.dedup();
        let padded_up_to = if is_eager { 0.0 } else { last.min(MOST_TILED_TOKENS) as f64 };
        let mut points: Vec<f64> = sizes.into_iter().map(|size| size as f64).collect();
        let first =
            if last > MOST_TILED_TOKENS { padded_up_to.max(MOST_TILED_TOKENS as f64 + 1.0) } else { last as f64 };
        points.extend(spread(first, last as f64, 1.06, 64.0));
        (points, padded_up_to)
    }

    fn decode_only(&self) -> Line {
        let (at, padded_up_to) = self.sizes(self.limits.max_num_seqs);
        let rest = |n: &f64| self.operators_us(&vec![Request::decode(64); *n as usize], is_rest);
        Line { time_us: at.iter().map(rest).collect(), at, padded_up_to }
    }

    fn with_chunks(&self) -> Line {
        let (at, padded_up_to) = self.sizes(self.limits.max_num_batched_tokens);
        let rest = |tokens: &f64| {
            let chunk = Request::partial_prefill(*tokens as u32, 0);
            self.operators_us(&[chunk], is_rest)
        };
        Line { time_us: at.iter().map(rest).collect(), at, padded_up_to }
    }

    fn sampled(&self) -> Line {
        let most = self.limits.max_num_seqs.min(self.limits.max_num_batched_tokens);
        let at = spread(1.0, f64::from(most), 1.5, 1.0);
        let of = |n: &f64| {
            let chunks = vec![Request::prefill(1, 0); *n as usize];
            self.operators_us(&chunks, |operator| self.sampled.contains(operator.name))
        };
        Line { time_us: at.iter().map(of).collect(), at, padded_up_to: 0.0 }
    }

    fn decode_attention(&self) -> Sheet {
        let most = self.limits.max_num_seqs.min(self.limits.max_num_batched_tokens);
        let longest = self.limits.max_model_len.saturating_sub(1).max(1);
        let (rows, columns) = (spread(1.0, f64::from(most), 1.4, 1.0), spread(1.0, f64::from(longest), 1.5, 16.0));
        let of = |n: f64, computed: f64| {
            let batch = vec![Request::decode(computed as u32); n as usize];
            self.operators_us(&batch, |operator| operator.group == Some(OperatorGroup::AttentionDecode))
        };
        sheet(rows, columns, of)
    }

    /// Attention of the first chunk of a step, or what the second one of two equal ones adds.
    fn chunk_attention(&self, nth: usize) -> Sheet {
        let most = self.limits.max_num_batched_tokens.min(self.limits.max_model_len);
        let longest = self.limits.max_model_len.saturating_sub(1).max(1);
        let (rows, columns) = (spread(1.0, f64::from(most), 1.3, 16.0), spread(0.0, f64::from(longest), 1.5, 128.0));
        sheet(rows, columns, |scheduled, computed| {
            let of = |count: usize| self.chunks_us(&vec![Request::prefill(scheduled as u32, computed as u32); count]);
            rounded((of(nth) - if nth > 1 { of(nth - 1) } else { 0.0 }).max(0.0))
        })
    }

    fn chunks_us(&self, batch: &[Request]) -> f64 {
        self.operators_us(batch, |operator| operator.group == Some(OperatorGroup::AttentionPrefill))
    }

    /// What the rule says of the chunks alone less their attention beside decodes, median over batches that have both.
    fn saved_beside_decodes_us(&self, export: &Export, batches: &[Vec<Request>]) -> f64 {
        let saved = |batch: &Vec<Request>| {
            let (decodes, chunks): (Vec<Request>, Vec<Request>) = batch.iter().partition(|request| request.is_decode());
            if decodes.is_empty() || chunks.is_empty() {
                return None;
            }
            let alone_us = export.chunks_alone_us(&chunks);
            Some(alone_us - self.chunks_us(batch))
        };
        rounded(median(batches.iter().filter_map(saved).collect()).unwrap_or(0.0).max(0.0))
    }

    /// Prices by what they are of: the same step is asked for its counts with one more of each.
    fn prices(&self, correction: &Correction) -> PricesUs {
        let priced = |batch: &[Request]| {
            let basis = self.steps.basis(batch);
            let mut prices = correction.coefficients;
            for term in Term::ALL.into_iter().filter(|term| term.kind() == Kind::Factor) {
                prices[term.index()] = 0.0;
            }
            (basis, prices)
        };
        let price = |batch: &[Request], terms: &[Term]| -> f64 {
            let (basis, prices): (_, [f64; NUM_TERMS]) = priced(batch);
            terms.iter().map(|term| prices[term.index()] * basis.get(*term)).sum()
        };
        let (decode, chunk) = ([Request::decode(64)], [Request::prefill(1, 0)]);
        PricesUs {
            step_us: rounded(price(&decode, &[Term::Steps, Term::Layers])),
            step_with_chunks_us: rounded(price(&chunk, &[Term::PiecewiseLayers])),
            request_us: correction.coefficient(Term::Requests),
            token_us: correction.coefficient(Term::Tokens),
            chunk_us: correction.coefficient(Term::PrefillRequests),
            sampled_us: rounded(price(&decode, &[Term::SortedMegalogits, Term::PenalisedRequests])),
        }
    }
}

fn sheet(rows: Vec<f64>, columns: Vec<f64>, of: impl Fn(f64, f64) -> f64) -> Sheet {
    let time_us = rows.iter().map(|row| columns.iter().map(|column| of(*row, *column)).collect()).collect();
    Sheet { rows, columns, time_us }
}

/// Everything but attention and prices.
fn is_rest(operator: &OperatorEstimate) -> bool {
    !matches!(operator.group, None | Some(OperatorGroup::AttentionDecode | OperatorGroup::AttentionPrefill))
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
