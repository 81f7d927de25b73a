//! Turns the processes of a trace into runs: steps in order with their requests, request spans joined, and notes.
#![expect(clippy::indexing_slicing, reason = "there is a mark for every process")]

use std::collections::BTreeMap;

use super::request_join::join;
use super::request_span::RequestSpan;
use super::snapshots;
use super::trace::{Process, Trace};
use crate::ingest::{Capture, RequestTrace, Run, StepTrace, Whole};

/// Makes runs of a trace; `file` is the name of its file.
pub(super) fn capture(file: &str, mut trace: Trace) -> Capture {
    let mut capture = Capture::default();
    let names = names(file, &trace.processes);
    let mut services: BTreeMap<_, Vec<(String, Process)>> = BTreeMap::new();
    for (name, process) in names.into_iter().zip(trace.processes) {
        let service = (process.identity.service.clone(), process.identity.model.clone());
        services.entry(service).or_default().push((name, process));
    }
    for mut processes in services.into_values() {
        let is_engine: Vec<bool> = processes.iter().map(|(_, process)| process.is_engine()).collect();
        let (mut spans, mut server_spans) = (Vec::new(), Vec::new());
        for (index, (_, process)) in processes.iter_mut().enumerate() {
            process.requests.iter_mut().for_each(|span| span.origin.process = index);
            process.server_spans.iter_mut().for_each(|span| span.origin.process = index);
            move_into(&mut spans, &mut process.requests);
            move_into(&mut server_spans, &mut process.server_spans);
        }
        let mut requests = join(spans, server_spans, &mut trace.request_faults, &mut capture.notes);
        let engines: Vec<usize> = (0..processes.len()).filter(|index| is_engine[*index]).collect();
        if let [engine] = engines[..] {
            requests.iter_mut().filter(|of| !of.origin.is_core).for_each(|of| of.origin.process = engine);
        }
        for (index, (name, process)) in processes.into_iter().enumerate() {
            let own = if requests.iter().all(|request| request.origin.process == index) {
                std::mem::take(&mut requests)
            } else {
                requests.extract_if(.., |request| request.origin.process == index).collect()
            };
            add_run(name, process, own, &mut capture);
        }
    }
    for (records, faults) in [
        ("steps", &trace.step_faults),
        ("snapshots", &trace.snapshot_faults),
        ("requests", &trace.request_faults),
        ("KV events", &trace.kv_faults),
    ] {
        let count = faults.dropped.total();
        capture
            .notes
            .extend(faults.first.as_ref().map(|first| format!("{count} {records} left out; the first: {first}")));
    }
    capture.notes.extend(trace.names.notes());
    let (kv_events, transfers) = std::mem::take(&mut trace.kv_events).finish();
    let mut models = capture.steps.iter().map(|of| &of.run).chain(capture.requests.iter().map(|of| &of.run));
    let model = models.next().map(|run| run.model.clone()).filter(|first| models.all(|run| run.model == *first));
    capture.transfers = transfers;
    if let Some(log) = &mut capture.transfers {
        log.run.model = model.flatten();
    }
    capture.kv_events = (kv_events.batches > 0).then_some(kv_events);
    capture.dropped_steps.merge(&trace.step_faults.dropped);
    capture.dropped_requests.merge(&trace.request_faults.dropped);
    capture
}

/// Moves all elements; the first list that is moved is not copied.
fn move_into<T>(all: &mut Vec<T>, more: &mut Vec<T>) {
    if all.is_empty() {
        std::mem::swap(all, more);
    } else {
        all.append(more);
    }
}

/// One name per process: the file's where there is one process, with service and instance where there are more.
fn names(file: &str, processes: &[Process]) -> Vec<String> {
    let speaking = processes.iter().filter(|process| process.is_engine() || process.has_requests()).count();
    let engines = processes.iter().filter(|process| process.is_engine()).count();
    let mut names: Vec<String> = Vec::with_capacity(processes.len());
    for (index, process) in processes.iter().enumerate() {
        if speaking <= 1 || (engines == 1 && process.is_engine()) {
            names.push(file.to_owned());
            continue;
        }
        let parts = [file, &process.identity.service, &process.identity.instance];
        let mut name = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
        if name == file || names.contains(&name) {
            name = format!("{name}/{index}");
        }
        names.push(name);
    }
    names
}

/// Adds the run of a process. Its model is that of the resource, or the one that all its requests name.
fn add_run(name: String, process: Process, requests: Vec<RequestSpan>, capture: &mut Capture) {
    let mut named = requests.iter().filter_map(|request| request.origin.model.as_deref());
    let of_requests = named.next().filter(|first| named.all(|model| model == *first)).map(str::to_owned);
    let run = Run {
        experiment: name,
        model: process.identity.model.or(of_requests),
        engine_version: process.identity.version.or(process.scope_version),
        ..Run::default()
    };
    if !process.steps.is_empty() {
        capture.add_steps(StepTrace { run: run.clone(), steps: process.steps });
        if let Some(trace) = capture.steps.last_mut() {
            snapshots::attach(trace, process.snapshots, &mut capture.notes);
        }
    }
    let mut rows: Vec<_> = requests.into_iter().map(|request| request.row).collect();
    // They are in the place of the spans, which took more.
    rows.shrink_to_fit();
    for row in &mut rows {
        row.num_cached_tokens =
            row.num_cached_tokens.or_else(|| process.cache_hits.get(&*row.request_id).copied().map(Whole::from));
    }
    if !rows.is_empty() {
        capture.requests.push(RequestTrace { run, requests: rows });
    }
}
