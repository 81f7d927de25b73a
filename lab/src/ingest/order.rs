//! Steps put in the order of their numbers, each once. Uses `step`.

use super::step::StepTrace;

/// Rows whose clock runs against their numbers beyond this share are the mark of two engines in one run.
const MAX_BACKWARDS_PCT: usize = 5;

/// What putting in order came to.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Steps that came again.
    pub duplicates: u64,
    /// What to say of it.
    pub notes: Vec<String>,
}

/// Sorts the steps by number and keeps the first of those with the same one.
pub(super) fn put_in_order(trace: &mut StepTrace) -> Order {
    let mut order = Order::default();
    let name = &trace.run.experiment;
    if !trace.steps.is_sorted_by_key(|step| step.step_id) {
        order.notes.push(format!("steps of '{name}' were not in the order of their numbers and have been sorted"));
        trace.steps.sort_by_key(|step| step.step_id);
    }
    let before = trace.steps.len();
    trace.steps.dedup_by_key(|step| step.step_id);
    order.duplicates = (before - trace.steps.len()) as u64;
    let pairs = trace.steps.iter().zip(trace.steps.iter().skip(1));
    let backwards = pairs.filter(|(step, next)| next.start_ns < step.start_ns).count();
    if backwards * 100 > trace.steps.len() * MAX_BACKWARDS_PCT {
        order.notes.push(format!(
            "{backwards} of {} steps of '{name}' start before the step of the number below theirs: if two engines, or an engine \
             that was started twice, share this name, give each its own",
            trace.steps.len()
        ));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::super::step::StepRecord;
    use super::*;

    fn put(steps: &[(u64, u64)]) -> (Vec<(u64, u64)>, Order) {
        let record = |&(step_id, start_ns): &(u64, u64)| StepRecord { step_id, start_ns, ..StepRecord::default() };
        let mut trace = StepTrace { steps: steps.iter().map(record).collect(), ..StepTrace::default() };
        let order = put_in_order(&mut trace);
        (trace.steps.iter().map(|step| (step.step_id, step.start_ns)).collect(), order)
    }

    #[test]
    fn the_first_of_a_number_stays_and_sorting_is_said() {
        let (steps, order) = put(&[(3, 30), (1, 10), (2, 20), (1, 11)]);
        assert_eq!(steps, [(1, 10), (2, 20), (3, 30)]);
        assert_eq!((order.duplicates, order.notes.len()), (1, 1));
        assert!(put(&[(1, 10), (2, 20)]).1.notes.is_empty());
    }

    #[test]
    fn two_engines_in_one_run_are_told() {
        let (_, order) = put(&[(1, 10), (3, 30), (5, 50), (2, 1000), (4, 1020), (6, 1040)]);
        assert!(order.notes[1].starts_with("2 of 6 steps"), "{:?}", order.notes);
    }
}
