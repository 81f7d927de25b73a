//! The table of `predict-step`: the prediction with its bound, operators, groups, provenance and warnings.

use ridgepoint::Correction;
use ridgepoint::EfficiencyMode;
use ridgepoint::OperatorGroup;
use ridgepoint::correction::CorrectionInfo;
use ridgepoint::coverage::IntervalCoverage;
use ridgepoint::physics::{BatchSums, GraphMode};
use ridgepoint::units::{duration, si};
use ridgepoint::{OperatorEstimate, StepEstimate};
use ridgepoint_lab::predict_step::PredictedStep;

use crate::outcome::Report;
use crate::text::{Page, Rows, count, percent, plural, quantity};

impl Report for PredictedStep {
    fn lay_out(&self, page: &mut Page) {
        let step = &self.step;
        let is_ideal = self.efficiency == EfficiencyMode::Ideal;
        let mut title = self.served.title();
        if is_ideal {
            title.push_str("; textbook roofline, no measured efficiency");
        }
        page.paragraph("", &title);
        page.paragraph("batch      ", &batch(&step.batch));
        page.paragraph("launch     ", &launch(step));
        if !is_ideal {
            page.paragraph("correction ", &correction(self.served.steps.correction()));
        }
        page.blank();
        let (lower, upper) = (duration(step.lower_us), duration(step.upper_us));
        // Times of datasheets alone have no spread, and an interval of no width would say that they are certain.
        let has_interval = !is_ideal && step.lower_us < step.upper_us;
        let interval = if has_interval { format!("  (interval {lower} to {upper})") } else { String::new() };
        page.line(&format!("step time  {}{interval}", duration(step.step_time_us)));
        if has_interval {
            let is_corrected = self.served.steps.correction().is_some();
            let found =
                IntervalCoverage::of(self.served.steps.engine(), &self.served.hardware.name, None, is_corrected);
            page.paragraph("interval   ", &found.of_step());
        }
        let share = percent(step.bound_us / step.step_time_us);
        page.line(&format!("roofline   {}, {share} of the step time", duration(step.bound_us)));
        let (flops, bytes) = (quantity(step.total_flops, "FLOP"), quantity(step.total_bytes, "B"));
        let (mfu, mbu) = (percent(step.mfu), percent(step.mbu));
        page.line(&format!("work       {flops} and {bytes} per GPU; MFU {mfu}, MBU {mbu}"));
        page.blank();
        operators(step, page);
        page.blank();
        groups(step, page);
        page.blank();
        let provenance = step.provenance.iter().map(|(kind, share)| format!("{} {}", percent(*share), kind));
        page.paragraph("times: ", &provenance.collect::<Vec<_>>().join(", "));
        for sentence in &self.explanation {
            page.blank();
            page.paragraph("- ", sentence);
        }
        page.warnings(&step.warnings);
    }
}

fn batch(sums: &BatchSums) -> String {
    let mut parts = Vec::new();
    if sums.num_decodes > 0 {
        let visible = sums.windows.iter().map(|window| window.decode_kv_tokens).max().unwrap_or(0);
        parts.push(format!("{} ({} visible KV tokens)", plural(sums.num_decodes, "decode"), count(visible)));
    }
    if sums.num_prefills > 0 {
        let context = match sums.prefill_context_tokens {
            0 => String::new(),
            tokens => format!(" after {} computed ones", count(tokens)),
        };
        let chunks = plural(sums.num_prefills, "prefill chunk");
        parts.push(format!("{chunks} ({}{context})", plural(sums.prefill_tokens, "token")));
    }
    let scheduled = plural(sums.num_tokens, "token");
    format!("{}; {scheduled} scheduled, {} sampled", parts.join(" and "), count(sums.num_sampled))
}

fn launch(step: &StepEstimate) -> String {
    let padded = count(step.padded_tokens);
    match step.graph_mode {
        GraphMode::Full => format!("one CUDA graph, padded to {padded} tokens"),
        GraphMode::Piecewise => format!("piecewise CUDA graphs, padded to {padded} tokens"),
        GraphMode::None => {
            "compiled kernels without CUDA graphs: more tokens than the largest captured size".to_owned()
        }
        GraphMode::Eager => "every kernel from the host (enforce_eager)".to_owned(),
    }
}

fn correction(used: Option<&Correction>) -> String {
    let name = CorrectionInfo::of(used);
    let Some(Correction { source, .. }) = used else { return format!("{name}: operators alone") };
    let models = plural(source.models.len() as u64, "model");
    format!("{name}, fitted on {} of {models} on {}", plural(source.rows, "row"), source.hardware.join(", "))
}

fn operators(step: &StepEstimate, page: &mut Page) {
    // Overheads have no physics.
    let physical = |of: &OperatorEstimate, text: String| if of.group.is_some() { text } else { "-".to_owned() };
    let rows = Rows::of(&step.operators)
        .left("operator", |of| of.name.to_owned())
        .right("count", |of| physical(of, count(of.count)))
        .right("FLOPs", |of| physical(of, si(of.flops)))
        .right("bytes", |of| physical(of, si(of.bytes)))
        .left("bound by", |of| physical(of, of.bound.to_string()))
        .right("roofline", |of| physical(of, duration(of.bound_us)))
        .right("time", |of| duration(of.time_us))
        .right("efficiency", |of| physical(of, percent(of.efficiency)))
        .right("share", |of| percent(of.share))
        .left("from", |of| of.provenance.to_string());
    page.rows(&rows, &["FLOPs", "bytes", "from", "count"]);
}

fn groups(step: &StepEstimate, page: &mut Page) {
    let name = |group: Option<OperatorGroup>| match group {
        Some(OperatorGroup::Projections) => "projections",
        Some(OperatorGroup::AttentionPrefill) => "attention of prefill chunks",
        Some(OperatorGroup::AttentionDecode) => "attention of decodes",
        Some(OperatorGroup::Experts) => "experts",
        Some(OperatorGroup::Communication) => "communication",
        Some(OperatorGroup::SmallKernels) => "small kernels",
        Some(OperatorGroup::Sampling) => "sampling",
        None => "overheads",
    };
    let groups = step.groups().into_iter().map(|of| (name(of.group), of.bound_us, of.time_us, of.share));
    let whole = ("whole step", step.bound_us, step.step_time_us, 1.0);
    let rows = Rows::of(groups.chain([whole]))
        .left("group", |(name, ..)| (*name).to_owned())
        .right("roofline", |(_, bound_us, ..)| duration(*bound_us))
        .right("time", |(_, _, time_us, _)| duration(*time_us))
        .right("share", |(.., share)| percent(*share));
    page.rows(&rows, &[]);
}
