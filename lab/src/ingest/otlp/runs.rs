//! Sources made into runs: steps in order with their requests, journeys joined, notes. Uses `layers`, `snapshots`, `source`.

use std::collections::BTreeMap;

use super::layers::{self, LayerCounts, Whole};
use super::snapshots;
use super::source::{Faults, Identity, Source};
use crate::ingest::order::put_in_order;
use crate::ingest::{Dropped, Ingested, Reason, RequestTrace, Run, StepTrace};

/// Makes runs of what the sources said; `name` is that of the file.
pub(super) fn runs(name: &str, sources: Vec<(Identity, Source)>) -> Ingested {
    let mut ingested = Ingested::default();
    let names = names(name, &sources);
    let mut services: BTreeMap<(String, Option<String>), Vec<usize>> = BTreeMap::new();
    for (index, (identity, _)) in sources.iter().enumerate() {
        services.entry((identity.service.clone(), identity.model.clone())).or_default().push(index);
    }
    let (identities, mut sources): (Vec<Identity>, Vec<Source>) = sources.into_iter().unzip();
    let mut faults = AllFaults::default();
    for members in services.values() {
        service(members, &identities, &names, &mut sources, &mut ingested, &mut faults);
    }
    for source in &sources {
        faults.merge(source);
    }
    finish(&mut ingested, faults, &sources);
    ingested
}

/// One name per source: the file's where there is one alone, with service and instance where there are more.
fn names(name: &str, sources: &[(Identity, Source)]) -> Vec<String> {
    let speaking = sources.iter().filter(|(_, source)| source.is_engine() || !source.journeys.is_empty()).count();
    let engines = sources.iter().filter(|(_, source)| source.is_engine()).count();
    let full = |identity: &Identity, index: usize| {
        let parts = [identity.service.as_str(), identity.instance.as_str()];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        if parts.is_empty() { format!("{name}/{index}") } else { format!("{name}/{}", parts.join("/")) }
    };
    let mut names: Vec<String> = Vec::with_capacity(sources.len());
    for (index, (identity, source)) in sources.iter().enumerate() {
        let alone = speaking <= 1 || (engines == 1 && source.is_engine());
        let wanted = if alone { name.to_owned() } else { full(identity, index) };
        let taken = !alone && names.contains(&wanted);
        names.push(if taken { format!("{wanted}/{index}") } else { wanted });
    }
    names
}

#[derive(Default)]
struct AllFaults {
    steps: Faults,
    snapshots: Dropped,
    first_snapshot: Option<String>,
    requests: Faults,
}

impl AllFaults {
    fn merge(&mut self, source: &Source) {
        for (into, from) in [(&mut self.steps, &source.step_faults), (&mut self.requests, &source.request_faults)] {
            into.dropped.merge(&from.dropped);
            into.first = into.first.take().or(from.first.clone());
        }
        self.snapshots.merge(&source.snapshot_faults.dropped);
        self.first_snapshot = self.first_snapshot.take().or(source.snapshot_faults.first.clone());
    }
}

fn service(
    members: &[usize],
    identities: &[Identity],
    names: &[String],
    sources: &mut [Source],
    ingested: &mut Ingested,
    faults: &mut AllFaults,
) {
    let mut journeys = Vec::new();
    let mut engines = Vec::new();
    for &index in members {
        let Some(source) = sources.get_mut(index) else { continue };
        if source.is_engine() {
            engines.push(index);
        }
        journeys.extend(std::mem::take(&mut source.journeys).into_iter().map(|journey| (index, journey)));
    }
    let (mut wholes, counts) = layers::join(journeys, &mut faults.requests);
    layer_notes(&counts, &mut ingested.notes);
    if let [engine] = engines[..] {
        wholes.iter_mut().filter(|whole| !whole.has_core).for_each(|whole| whole.source = engine);
    }
    for &index in members {
        let (Some(source), Some(identity), Some(name)) =
            (sources.get_mut(index), identities.get(index), names.get(index))
        else {
            continue;
        };
        let (own, rest) = wholes.into_iter().partition(|whole: &Whole| whole.source == index);
        wholes = rest;
        run(source, identity, name, own, ingested, faults);
    }
}

/// One engine's run, or several where its requests name several models.
fn run(
    source: &mut Source,
    identity: &Identity,
    name: &str,
    wholes: Vec<Whole>,
    ingested: &mut Ingested,
    faults: &mut AllFaults,
) {
    let label = Run {
        experiment: name.to_owned(),
        model: identity.model.clone(),
        engine_version: identity.version.clone().or(source.scope_version.clone()),
        ..Run::default()
    };
    let mut by_model: BTreeMap<Option<String>, Vec<Whole>> = BTreeMap::new();
    for whole in wholes {
        by_model.entry(whole.model.clone().or(identity.model.clone())).or_default().push(whole);
    }
    let named: Vec<String> = by_model.keys().flatten().cloned().collect();
    let only = if let [model] = &named[..] { Some(model.clone()) } else { None };
    if only.is_some()
        && let Some(unnamed) = by_model.remove(&None)
    {
        by_model.entry(only.clone()).or_default().extend(unnamed);
    }
    if named.len() > 1 {
        ingested.notes.push(format!(
            "requests of {name} name {} models ({}): one run each, and its steps have none",
            named.len(),
            ridgepoint::internals::error::cut(&named.join(", "))
        ));
    }
    let model = label.model.clone().or(only);
    let trace = steps(source, Run { model, ..label.clone() }, ingested, faults);
    if !trace.steps.is_empty() {
        ingested.steps.push(trace);
    }
    for (model, wholes) in by_model {
        let experiment = match &model {
            Some(model) if named.len() > 1 => format!("{name}/{model}"),
            _ => name.to_owned(),
        };
        let mut requests: Vec<_> = wholes.into_iter().map(|whole| whole.row).collect();
        for row in &mut requests {
            row.num_cached_tokens = row.num_cached_tokens.or_else(|| source.cache_hits.get(&row.request_id).copied());
        }
        ingested.requests.push(RequestTrace { run: Run { experiment, model, ..label.clone() }, requests });
    }
}

/// The source's steps by number, none twice, with their requests.
fn steps(source: &mut Source, run: Run, ingested: &mut Ingested, faults: &mut AllFaults) -> StepTrace {
    let mut trace = StepTrace { run, steps: std::mem::take(&mut source.steps) };
    let order = put_in_order(&mut trace);
    faults.steps.dropped.add_many(Reason::Duplicate, order.duplicates);
    ingested.notes.extend(order.notes);
    let snapshots = std::mem::take(&mut source.snapshots);
    if snapshots.is_empty() {
        return trace;
    }
    let StepTrace { run: Run { experiment: name, .. }, steps } = &mut trace;
    let joined = snapshots::join(steps, snapshots);
    let notes = &mut ingested.notes;
    notes.push(format!("{} of {} steps of {name} have a snapshot of each request", joined.steps, steps.len()));
    if joined.contradicting > 0 {
        notes.push(format!(
            "{} snapshots left out: their sums contradict the summaries of {} steps, which are kept",
            joined.contradicting, joined.contradicting_steps
        ));
    }
    if joined.orphans > 0 {
        notes.push(format!("{} snapshots left out: their steps are not in the file", joined.orphans));
    }
    if joined.counted_after {
        notes.push(format!("snapshots of {name} count computed tokens after the step: taken back to before it"));
    }
    trace
}

fn layer_notes(counts: &LayerCounts, notes: &mut Vec<String>) {
    if counts.both > 0 {
        notes.push(format!(
            "{} requests known from server and engine, {} from the engine alone, {} from the server alone",
            counts.both, counts.core_only, counts.api_only
        ));
    }
    if counts.shared > 0 {
        notes.push(format!(
            "{} engine requests share a server request of several prompts: they have its arrival, not its responses",
            counts.shared
        ));
    }
    if counts.other_clock > 0 {
        notes.push(format!("{} request spans have no ts.monotonic while others have: left out", counts.other_clock));
    }
}

/// Counts and notes over all runs.
fn finish(ingested: &mut Ingested, faults: AllFaults, sources: &[Source]) {
    for (what, first) in
        [("step", &faults.steps.first), ("snapshot", &faults.first_snapshot), ("request", &faults.requests.first)]
    {
        if let Some(first) = first {
            ingested.notes.push(format!("first {what} at fault: {first}"));
        }
    }
    let snapshots = faults.snapshots.total();
    if snapshots > 0 {
        ingested.notes.push(format!("{snapshots} snapshots left out: a value is missing or can't be"));
    }
    let without_clock: u64 = sources.iter().map(|source| source.events_without_clock).sum();
    if without_clock > 0 {
        ingested.notes.push(format!(
            "{without_clock} events have no ts.monotonic while others of their request have: their times are left empty"
        ));
    }
    let other: u64 = sources.iter().map(|source| source.other_spans).sum();
    if other > 0 {
        ingested.notes.push(format!("{other} spans are neither of requests nor of steps: left aside"));
    }
    let kept: usize = ingested.steps.iter().map(|trace| trace.steps.len()).sum();
    ingested.steps_read = kept as u64 + faults.steps.dropped.total();
    ingested.dropped_steps = faults.steps.dropped;
    let kept: usize = ingested.requests.iter().map(|trace| trace.requests.len()).sum();
    ingested.requests_read = kept as u64 + faults.requests.dropped.total();
    ingested.dropped_requests = faults.requests.dropped;
}
