//! Uncertainty of a replay's figures: relative standard deviations of its steps, sampled while it runs.

use ridgepoint::correction::{SDS_OF_90_PCT, Scatter, interval_factor};
use ridgepoint::coverage::{Held, IntervalCoverage, wider};
use ridgepoint::{Provenance, StepModel};
use serde::Serialize;

use super::observe::{Event, Events, Observer};

/// One in this many steps is estimated with its uncertainty.
const SAMPLED: u64 = 64;

/// Known error of the tail of TTFT, for those who plan by it.
pub const TTFT_TAIL_REMARK: &str = "on public runs, predicted TTFT p99 was about 20 % too low (docs/accuracy.md)";

/// Share of extrapolated steps above which a remark is made.
const MIN_REPORTED_SHARE: f64 = 0.1;

/// Collects the relative standard deviations of a replay's steps, weighted by their number of requests.
#[derive(Debug)]
pub struct SpreadSampler<'a> {
    steps: &'a StepModel,
    weight: f64,
    coefficients_sd: f64,
    tables_sd: f64,
    measured_share: f64,
    /// Weight of the extrapolated steps, and the remark on the first of them.
    beyond: f64,
    remark: Option<String>,
}

/// Relative standard deviations of a replay's figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// From the uncertainty of the correction's coefficients.
    pub coefficients_sd: f64,
    /// From efficiency tables that no measured engine has confirmed.
    pub tables_sd: f64,
    /// From variation that no coefficient explains.
    pub scatter: Option<Scatter>,
    /// What the half widths lack, as public runs asked for it.
    pub added: Added,
    /// Whether the scatter is that of the server itself, which a correction of one's own was fitted on.
    pub is_own: bool,
}

impl<'a> SpreadSampler<'a> {
    /// Samples steps that `steps` predicts.
    pub fn new(steps: &'a StepModel) -> Self {
        SpreadSampler {
            steps,
            weight: 0.0,
            coefficients_sd: 0.0,
            tables_sd: 0.0,
            measured_share: 0.0,
            beyond: 0.0,
            remark: None,
        }
    }

    /// A remark if more than a tenth of the steps, by their requests, are beyond those that the correction was fitted on.
    pub fn extrapolated(&self) -> Option<String> {
        let share = self.beyond / self.weight;
        let remark = self.remark.as_ref().filter(|_| share > MIN_REPORTED_SHARE)?;
        Some(format!("{:.0} % of the steps are beyond what was fitted, such as one with {remark}", 100.0 * share))
    }

    /// Share of the sampled steps' time whose kernels were measured on the GPU, for their shapes or for shapes around them.
    pub fn measured_share(&self) -> f64 {
        if self.weight > 0.0 { self.measured_share / self.weight } else { 0.0 }
    }

    /// The spread of the steps sampled so far.
    pub fn spread(&self) -> Spread {
        let mean = |sum: f64| if self.weight > 0.0 { sum / self.weight } else { 0.0 };
        Spread {
            coefficients_sd: mean(self.coefficients_sd),
            tables_sd: mean(self.tables_sd),
            scatter: self.steps.correction().map(|correction| correction.scatter),
            is_own: self.steps.correction().is_some_and(|correction| !correction.is_builtin()),
            ..Spread::NONE
        }
    }
}

impl Observer for SpreadSampler<'_> {
    fn wants(&self) -> Events {
        Events::STEPS
    }

    fn on(&mut self, event: &Event<'_>) {
        let Event::Step(event) = event else { return };
        let requests = event.step.requests;
        if event.index.is_multiple_of(SAMPLED) && !requests.is_empty() {
            // How far a step is from the fitted ones is asked of its requests alone.
            let step = self.steps.estimate_unchecked(requests);
            let weight = requests.len() as f64;
            self.weight += weight;
            self.coefficients_sd += weight * step.coefficients_sd;
            self.tables_sd += weight * step.tables_sd;
            let is_measured = |of: &Provenance| matches!(of, Provenance::Measured | Provenance::Interpolated);
            let measured = step.provenance.iter().filter(|(of, _)| is_measured(of));
            self.measured_share += weight * measured.map(|(_, share)| share).sum::<f64>();
            if let Some(remark) = self.steps.extrapolated(&step.batch) {
                self.beyond += weight;
                self.remark.get_or_insert(remark);
            }
        }
    }
}

/// Half widths, in logarithms, that are added to an interval's own as independent errors add.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Added {
    /// Of times to first token.
    pub ttft: f64,
    /// Of figures that sum many steps.
    pub tpot: f64,
    /// Of times to the last token.
    pub e2e: f64,
}

impl Default for Spread {
    fn default() -> Self {
        Spread::NONE
    }
}

impl Spread {
    /// Nothing is known of how far a prediction may be off.
    pub const NONE: Spread = Spread {
        coefficients_sd: 0.0,
        tables_sd: 0.0,
        scatter: None,
        added: Added { ttft: 0.0, tpot: 0.0, e2e: 0.0 },
        is_own: false,
    };

    /// The same, as much wider as intervals had to be on public runs.
    #[must_use]
    pub fn widened(self, found: &IntervalCoverage) -> Self {
        let of = |held: &Option<Held>| held.as_ref().map_or(0.0, |held| held.added);
        Spread { added: Added { ttft: of(&found.ttft), tpot: of(&found.tpot), e2e: of(&found.e2e) }, ..self }
    }

    /// The 90 % interval of a figure that sums many steps: ITL, TPOT, the time of a run.
    pub fn of_steps(&self, predicted: f64) -> (f64, f64) {
        self.wide_interval(predicted, self.added.tpot, |scatter| scatter.step)
    }

    /// The 90 % interval of a time to the last token.
    pub fn of_e2e(&self, predicted: f64) -> (f64, f64) {
        self.wide_interval(predicted, self.added.e2e, |scatter| scatter.step)
    }

    /// The 90 % interval of a time to first token.
    pub fn of_ttft(&self, predicted: f64) -> (f64, f64) {
        self.wide_interval(predicted, self.added.ttft, |scatter| scatter.ttft)
    }

    /// What a figure that sums many steps stays below, if it is at most `sds` standard deviations above its prediction.
    pub fn steps_below(&self, predicted: f64, sds: f64) -> f64 {
        self.below(predicted, sds, |scatter| scatter.step)
    }

    /// [`Spread::steps_below`] of a time to first token.
    pub fn ttft_below(&self, predicted: f64, sds: f64) -> f64 {
        self.below(predicted, sds, |scatter| scatter.ttft)
    }

    fn below(&self, predicted: f64, sds: f64, scatter: fn(&Scatter) -> f64) -> f64 {
        match &self.scatter {
            Some(_) => predicted * (self.interval(1.0, scatter).1.ln() * sds / SDS_OF_90_PCT).exp(),
            None => predicted * (1.0 + sds * self.tables_sd),
        }
    }

    /// The interval with what it lacks.
    fn wide_interval(&self, predicted: f64, added: f64, scatter: fn(&Scatter) -> f64) -> (f64, f64) {
        wider(self.interval(predicted, scatter), predicted, added)
    }

    /// Without a correction, returns the assumed symmetric interval of the tables.
    fn interval(&self, predicted: f64, scatter: fn(&Scatter) -> f64) -> (f64, f64) {
        match &self.scatter {
            Some(of) => {
                let factor = interval_factor(&[self.coefficients_sd, self.tables_sd, scatter(of)]);
                (predicted / factor, predicted * factor)
            }
            None => {
                let half = (SDS_OF_90_PCT * self.tables_sd).min(1.0) * predicted;
                (predicted - half, predicted + half)
            }
        }
    }
}

/// Bounds of an interval, as factors of the figure. It is made to hold nine times in ten; [`IntervalCoverage`] has how often it did.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Factors {
    /// Lower bound over the figure.
    pub lower_factor: f64,
    /// Upper bound over the figure.
    pub upper_factor: f64,
}

/// Intervals of the figures of a replay; `None` where none is known, or where it did not hold on public runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Intervals {
    /// Time to first token.
    pub ttft: Option<Factors>,
    /// Inter-token latency.
    pub itl: Option<Factors>,
    /// Time per output token.
    pub tpot: Option<Factors>,
    /// End-to-end latency.
    pub e2e: Option<Factors>,
}

impl Intervals {
    /// The intervals of a replay's figures whose kind of interval held in `found`.
    pub fn of(spread: &Spread, found: &IntervalCoverage) -> Self {
        let spread = if spread.is_own { *spread } else { spread.widened(found) };
        let factors = |(lower_factor, upper_factor), is_known| {
            // Times of datasheets alone have no spread, and a width of zero would say that they are certain.
            (is_known && lower_factor < upper_factor).then_some(Factors { lower_factor, upper_factor })
        };
        let of_steps = |is_known| factors(spread.of_steps(1.0), is_known);
        Intervals {
            ttft: factors(spread.of_ttft(1.0), found.ttft.is_some()),
            itl: of_steps(found.itl.is_some()),
            tpot: of_steps(found.tpot.is_some()),
            e2e: factors(spread.of_e2e(1.0), found.e2e.is_some()),
        }
    }
}

#[cfg(test)]
mod tests {
    use ridgepoint::{Deployment, Engine, Hardware, Model, Options, Request, Step};

    use super::*;
    use crate::observe::StepEvent;

    #[test]
    fn intervals_hold_the_prediction_and_widen_with_the_scatter() {
        let scatter = Some(Scatter { step: 0.03, ttft: 0.1 });
        let spread = Spread { coefficients_sd: 0.04, scatter, ..Spread::NONE };
        let (lower, upper) = spread.of_steps(100.0);
        assert!((upper - 100.0 * (1.645f64 * 0.05).exp()).abs() < 1e-9 && (lower * upper - 1e4).abs() < 1e-6);
        assert!(spread.of_ttft(100.0).1 > upper);
        assert!(
            (spread.steps_below(100.0, 1.645) - upper).abs() < 1e-9
                && (spread.steps_below(7.0, 0.0) - 7.0).abs() < 1e-12
        );
        assert!((spread.ttft_below(100.0, 2.0) - 100.0 * (2.0 * 0.1f64.hypot(0.04)).exp()).abs() < 1e-9);
        let wide = Spread { added: Added { ttft: 0.0, tpot: 0.3, e2e: 0.2 }, ..spread };
        let half = (upper / 100.0).ln();
        assert!((wide.of_steps(100.0).1.ln() - 100f64.ln() - half.hypot(0.3)).abs() < 1e-9);
        assert!((wide.of_steps(100.0).0.ln() - 100f64.ln() + half.hypot(0.3)).abs() < 1e-9);
        assert!((wide.of_e2e(1.0).1.ln() - half.hypot(0.2)).abs() < 1e-9 && wide.of_ttft(9.0) == spread.of_ttft(9.0));
        let assumed = Spread { tables_sd: 0.1, ..Spread::default() };
        assert_eq!(assumed.of_steps(100.0), (100.0 - 16.45, 100.0 + 16.45));
    }

    #[test]
    fn a_figure_without_a_spread_or_whose_intervals_did_not_hold_has_none() {
        let found = |name, gpu| IntervalCoverage::of(&Engine::parse(name, None).expect("known"), gpu, None, false);
        let certain = Intervals::of(&Spread::default(), &found("vllm", "h100_sxm"));
        assert!(certain.ttft.is_none() && certain.tpot.is_none() && certain.e2e.is_none());
        let spread = Spread { tables_sd: 0.1, ..Spread::default() };
        assert!(Intervals::of(&spread, &found("vllm", "h100_sxm")).e2e.is_some());
        let sglang = Intervals::of(&spread, &found("sglang", "b200_sxm"));
        assert!(sglang.e2e.is_none() && sglang.ttft.is_some_and(|of| of.upper_factor > 3.0));
        let far_off = Intervals::of(&spread, &found("trtllm", "gb200"));
        assert!(far_off.tpot.is_none());
    }

    #[test]
    fn a_constant_batch_has_the_spread_of_its_step() {
        let (model, gpu) = (Model::find("llama-2-7b").expect("built in"), Hardware::find("h100").expect("built in"));
        let steps =
            StepModel::with_options(&model, &gpu, &Deployment::default(), &Options::uncorrected()).expect("possible");
        let batch = [Request::decode(500); 4];
        let mut sampler = SpreadSampler::new(&steps);
        for index in 0..200 {
            sampler.on(&Event::Step(StepEvent {
                index,
                scheduled_ns: 0,
                start_ns: 0,
                end_ns: 1,
                step: Step::from(&batch),
                records: &[],
                num_running: 4,
                num_waiting: 0,
                blocks_in_use: 0,
                cached_tokens: 0,
                preempted: &[],
            }));
        }
        let (spread, step) = (sampler.spread(), steps.estimate_unchecked(&batch));
        assert!((spread.tables_sd - step.tables_sd).abs() < 1e-12 && spread.scatter.is_none());
    }
}
