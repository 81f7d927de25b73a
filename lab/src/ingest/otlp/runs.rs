//! Turns the processes of a trace into runs: steps in order with their requests, request spans joined, and notes.

use std::collections::BTreeMap;

use ridgepoint::internals::error::cut;

use super::layers::{self, JoinedRequest, LayerCounts};
use super::snapshots;
use super::source::{Identity, Source, Trace};
use crate::ingest::order::put_in_order;
use crate::ingest::{Ingested, Reason, RequestTrace, Run, StepTrace};

struct Process {
    name: String,
    identity: Identity,
    source: Source,
}

/// Makes runs of a trace; `file` is the name of its file.
pub(super) fn runs(file: &str, mut trace: Trace) -> Ingested {
    let mut ingested = Ingested::default();
    let sources = std::mem::take(&mut trace.sources);
    let names = names(file, &sources);
    let mut services: BTreeMap<(String, Option<String>), Vec<Process>> = BTreeMap::new();
    for (name, (identity, source)) in names.into_iter().zip(sources) {
        let service = (identity.service.clone(), identity.model.clone());
        services.entry(service).or_default().push(Process { name, identity, source });
    }
    for processes in services.into_values() {
        service(processes, &mut ingested, &mut trace);
    }
    finish(&mut ingested, trace);
    ingested
}

/// One name per process: the file's where there is one process, with service and instance where there are more.
fn names(file: &str, sources: &[(Identity, Source)]) -> Vec<String> {
    let speaking = sources.iter().filter(|(_, source)| source.is_engine() || !source.requests.is_empty()).count();
    let engines = sources.iter().filter(|(_, source)| source.is_engine()).count();
    let mut names: Vec<String> = Vec::with_capacity(sources.len());
    for (index, (identity, source)) in sources.iter().enumerate() {
        if speaking <= 1 || (engines == 1 && source.is_engine()) {
            names.push(file.to_owned());
            continue;
        }
        let parts = [file, &identity.service, &identity.instance];
        let mut name = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
        if name == file || names.contains(&name) {
            name = format!("{name}/{index}");
        }
        names.push(name);
    }
    names
}

/// Makes the runs of one service's processes.
fn service(processes: Vec<Process>, ingested: &mut Ingested, trace: &mut Trace) {
    let mut processes = processes;
    let mut spans = Vec::new();
    let mut engines = Vec::new();
    for (index, process) in processes.iter_mut().enumerate() {
        if process.source.is_engine() {
            engines.push(index);
        }
        spans.extend(std::mem::take(&mut process.source.requests).into_iter().map(|span| (index, span)));
    }
    let (mut requests, counts) = layers::join(spans, &mut trace.request_faults);
    layer_notes(&counts, &mut ingested.notes);
    if let [engine] = engines[..] {
        requests.iter_mut().filter(|request| !request.has_core).for_each(|request| request.source = engine);
    }
    for (index, process) in processes.into_iter().enumerate() {
        let own = requests.extract_if(.., |request| request.source == index).collect();
        run(process, own, ingested, trace);
    }
}

/// Makes one process' run, or several where its requests name several models.
fn run(process: Process, requests: Vec<JoinedRequest>, ingested: &mut Ingested, trace: &mut Trace) {
    let Process { name, identity, mut source } = process;
    let label = Run {
        experiment: name.clone(),
        model: identity.model.clone(),
        engine_version: identity.version.or(source.scope_version.take()),
        ..Run::default()
    };
    let mut by_model: BTreeMap<Option<String>, Vec<JoinedRequest>> = BTreeMap::new();
    for request in requests {
        by_model.entry(request.model.clone().or(identity.model.clone())).or_default().push(request);
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
            "the requests of {name} name {} models ({}): each becomes a run, and the steps have no model",
            named.len(),
            cut(&named.join(", "))
        ));
    }
    let cache_hits = std::mem::take(&mut source.cache_hits);
    let steps = steps(source, Run { model: label.model.clone().or(only), ..label.clone() }, ingested, trace);
    if !steps.steps.is_empty() {
        ingested.steps.push(steps);
    }
    for (model, requests) in by_model {
        let experiment = match &model {
            Some(model) if named.len() > 1 => format!("{name}/{model}"),
            _ => name.clone(),
        };
        let mut rows: Vec<_> = requests.into_iter().map(|request| request.row).collect();
        for row in &mut rows {
            row.num_cached_tokens = row.num_cached_tokens.or_else(|| cache_hits.get(&row.request_id).copied());
        }
        ingested.requests.push(RequestTrace { run: Run { experiment, model, ..label.clone() }, requests: rows });
    }
}

/// The steps of a process by number, none twice, with their requests.
fn steps(source: Source, run: Run, ingested: &mut Ingested, trace: &mut Trace) -> StepTrace {
    let mut steps = StepTrace { run, steps: source.steps };
    let order = put_in_order(&mut steps);
    trace.step_faults.dropped.add_many(Reason::Duplicate, order.duplicates);
    ingested.notes.extend(order.notes);
    if source.snapshots.is_empty() {
        return steps;
    }
    let joined = snapshots::join(&mut steps.steps, source.snapshots);
    let (name, notes) = (&steps.run.experiment, &mut ingested.notes);
    notes.push(format!("{} of {} steps of {name} have a snapshot of each request", joined.steps, steps.steps.len()));
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
        notes.push(format!(
            "the snapshots of {name} count computed tokens after the step: converted to the count before it"
        ));
    }
    steps
}

fn layer_notes(counts: &LayerCounts, notes: &mut Vec<String>) {
    if counts.both > 0 {
        notes.push(format!(
            "{} requests are reported by server and engine, {} by the engine alone, {} by the server alone",
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
        notes.push(format!(
            "{} request spans left out: they have no ts.monotonic, while others have",
            counts.other_clock
        ));
    }
}

/// Adds the counts and notes of the whole trace.
fn finish(ingested: &mut Ingested, trace: Trace) {
    let notes = &mut ingested.notes;
    for (what, faults) in
        [("step", &trace.step_faults), ("snapshot", &trace.snapshot_faults), ("request", &trace.request_faults)]
    {
        notes.extend(faults.first.as_ref().map(|first| format!("first {what} with a fault: {first}")));
    }
    let snapshots = trace.snapshot_faults.dropped.total();
    for (count, text) in [
        (snapshots, "snapshots left out: a value is missing or impossible"),
        (
            trace.events_without_clock,
            "events have no ts.monotonic, while others of their request have: their times are left empty",
        ),
        (trace.other_spans, "spans left out: they are neither of requests nor of steps"),
        (trace.other_signals, "exports of metrics, logs or profiles left out"),
    ] {
        if count > 0 {
            notes.push(format!("{count} {text}"));
        }
    }
    let kept: usize = ingested.steps.iter().map(|trace| trace.steps.len()).sum();
    ingested.steps_read = kept as u64 + trace.step_faults.dropped.total();
    ingested.dropped_steps = trace.step_faults.dropped;
    let kept: usize = ingested.requests.iter().map(|trace| trace.requests.len()).sum();
    ingested.requests_read = kept as u64 + trace.request_faults.dropped.total();
    ingested.dropped_requests = trace.request_faults.dropped;
}
