//! Records the terms of every replayed step, spread over the step's time, so that any span of time has its terms. At a given
//! schedule a latency is linear in the coefficients, and these terms are its slopes.

use ridgepoint::StepModel;
use ridgepoint::correction::Basis;
use ridgepoint_replay::{Event, Events, Observer};

/// Terms of a replay's steps, summed from its start.
#[derive(Debug)]
pub struct StepTerms<'a> {
    steps: &'a StepModel,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    start_ns: u64,
    end_ns: u64,
    /// Includes this step's terms.
    sum: Basis,
}

impl<'a> StepTerms<'a> {
    /// For steps that `steps` predicts.
    pub fn new(steps: &'a StepModel) -> Self {
        StepTerms { steps, entries: Vec::new() }
    }

    /// Terms of the steps between two times; a step that is partly inside counts in proportion.
    pub fn between(&self, from_ns: u64, to_ns: u64) -> Basis {
        let mut basis = self.until(to_ns);
        basis.add_scaled(&self.until(from_ns), -1.0);
        basis
    }

    fn until(&self, time_ns: u64) -> Basis {
        let after = self.entries.partition_point(|entry| entry.start_ns <= time_ns);
        let Some(entry) = after.checked_sub(1).and_then(|last| self.entries.get(last)) else { return Basis::default() };
        let before = after.checked_sub(2).and_then(|index| self.entries.get(index)).map_or(Basis::default(), |e| e.sum);
        let (since_ns, took_ns) = (time_ns - entry.start_ns, entry.end_ns.saturating_sub(entry.start_ns).max(1));
        let share = (since_ns as f64 / took_ns as f64).min(1.0);
        let mut basis = before.scaled(1.0 - share);
        basis.add_scaled(&entry.sum, share);
        basis
    }
}

impl Observer for StepTerms<'_> {
    fn wants(&self) -> Events {
        Events::STEPS
    }

    fn on(&mut self, event: &Event<'_>) {
        let Event::Step(event) = event else { return };
        let mut sum = self.entries.last().map_or(Basis::default(), |entry| entry.sum);
        sum.add_scaled(&self.steps.basis(event.step), 1.0);
        self.entries.push(Entry { start_ns: event.start_ns, end_ns: event.end_ns, sum });
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp)]
mod tests {
    use super::*;
    use ridgepoint::correction::Term;
    use ridgepoint::{Deployment, Hardware, Model, Options};

    fn steps_with(ends: &[(u64, u64, f64)]) -> Vec<Entry> {
        let mut sum = Basis::default();
        let mut entries = Vec::new();
        for (start_ns, end_ns, tokens) in ends {
            sum.add(Term::PromptTokens, *tokens);
            sum.add(Term::Steps, 1.0);
            entries.push(Entry { start_ns: *start_ns, end_ns: *end_ns, sum });
        }
        entries
    }

    #[test]
    fn a_span_has_its_share_of_the_steps_at_its_ends() {
        let (model, gpu) = (Model::find("llama-2-7b").expect("built in"), Hardware::find("h100").expect("built in"));
        let steps =
            StepModel::with_options(&model, &gpu, &Deployment::default(), &Options::uncorrected()).expect("possible");
        let terms =
            StepTerms { steps: &steps, entries: steps_with(&[(100, 200, 10.0), (200, 400, 40.0), (500, 600, 7.0)]) };
        let tokens = |from, to| terms.between(from, to).get(Term::PromptTokens);
        assert_eq!(tokens(0, 99), 0.0);
        assert_eq!(tokens(0, 200), 10.0);
        // Half of the first step, a quarter of the second.
        assert_eq!(tokens(150, 250), 5.0 + 10.0);
        // The engine idles from 400 to 500.
        assert_eq!(tokens(400, 500), 0.0);
        assert_eq!((tokens(300, 550), terms.between(0, 1000).get(Term::Steps)), (20.0 + 3.5, 3.0));
    }
}
