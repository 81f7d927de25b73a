//! `ridgepoint export --as llm-d-inference-sim`: the latency flags of that simulator, on stdout.

use std::path::PathBuf;

use ridgepoint::correction::CorrectionInfo;
use ridgepoint::latency::CalibratedRoofline;
use ridgepoint_lab::evaluate::capture::read_capture;
use ridgepoint_lab::llm_d_flags::{LlmDFlags, ServerSizes, captured, predicted};
use ridgepoint_lab::served::Served;
use serde::Serialize;

use crate::common::Common;
use crate::evaluate::capture::check_model;
use crate::outcome::{Failure, Outcome, Report};
use crate::text::Page;

/// The simulator's name.
pub const PROGRAM: &str = "llm-d-inference-sim";

/// The flags of the simulator. Its JSON keys are stable: keys are added, never renamed or dropped.
#[derive(Debug, Serialize)]
pub struct LlmDCommand {
    model: String,
    hardware: String,
    correction: CorrectionInfo,
    /// Whether latencies are those of a capture.
    from_capture: bool,
    #[serde(flatten)]
    found: LlmDFlags,
    /// The whole command line.
    command: String,
}

/// Finds the flags for a server, or for a capture of it.
///
/// # Errors
/// Captures that cannot be read or that have no such times.
pub fn run(served: Served, capture: &[PathBuf], common: &Common) -> Result<Outcome<LlmDCommand>, Failure> {
    let Served { model, hardware, deployment, steps } = served;
    let sizes = ServerSizes {
        max_num_seqs: deployment.max_num_seqs,
        max_num_batched_tokens: deployment.max_num_batched_tokens,
        max_model_len: u32::try_from(steps.plan().max_model_len).unwrap_or(u32::MAX),
    };
    let mut notes = steps.notes();
    let correction = CorrectionInfo::of(steps.correction());
    let found = if capture.is_empty() {
        let scatter = steps.correction().map(|correction| correction.scatter);
        predicted(&CalibratedRoofline::new(steps), scatter, &sizes)?
    } else {
        let run = read_capture(capture, None)?;
        check_model(run.run.model.as_deref(), &model, common.data_dir())?;
        notes.clone_from(&run.notes);
        captured(&run, &sizes)?
    };
    let flags: Vec<String> = found.flags.iter().map(|flag| format!("{} {}", flag.name, flag.value)).collect();
    let command = format!("{PROGRAM} --model {} {}", model.name, flags.join(" "));
    let of = LlmDCommand {
        model: model.name,
        hardware: hardware.name,
        correction,
        from_capture: !capture.is_empty(),
        found,
        command,
    };
    Ok(Outcome { notes, ..Outcome::of(of) })
}

impl Report for LlmDCommand {
    fn lay_out(&self, page: &mut Page) {
        page.line(&format!("{PROGRAM} --model {} \\", self.model));
        let last = self.found.flags.len().saturating_sub(1);
        for (index, flag) in self.found.flags.iter().enumerate() {
            let end = if index == last { "" } else { " \\" };
            page.line(&format!("  {} {}{end}", flag.name, flag.value));
        }
        page.blank();
        self.found.notes.iter().for_each(|note| page.paragraph("note: ", note));
    }
}
