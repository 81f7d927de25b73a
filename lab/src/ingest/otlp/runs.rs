//! Turns the processes of a trace into runs: steps in order with their requests, request spans joined, and notes.
#![expect(clippy::indexing_slicing, reason = "there is a mark for every process")]

use std::collections::BTreeMap;

use super::request_join::join;
use super::request_span::RequestSpan;
use super::snapshots;
use super::trace::{Process, Trace};
use crate::ingest::{Capture, RequestTrace, Run, StepTrace};

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
        let mut spans = Vec::new();
        for (index, (_, process)) in processes.iter_mut().enumerate() {
            spans.extend(process.requests.drain(..).map(|span| RequestSpan { process: index, ..span }));
        }
        let mut requests = join(spans, &mut trace.request_faults, &mut capture.notes);
        let engines: Vec<usize> = (0..processes.len()).filter(|index| is_engine[*index]).collect();
        if let [engine] = engines[..] {
            requests.iter_mut().filter(|request| !request.is_core).for_each(|request| request.process = engine);
        }
        for (index, (name, process)) in processes.into_iter().enumerate() {
            let own = requests.extract_if(.., |request| request.process == index).collect();
            add_run(name, process, own, &mut capture);
        }
    }
    for (records, faults) in
        [("steps", &trace.step_faults), ("snapshots", &trace.snapshot_faults), ("requests", &trace.request_faults)]
    {
        let count = faults.dropped.total();
        capture
            .notes
            .extend(faults.first.as_ref().map(|first| format!("{count} {records} left out; the first: {first}")));
    }
    if trace.other_spans > 0 {
        let note = format!("{} spans left out: they are neither of requests nor of steps", trace.other_spans);
        capture.notes.push(note);
    }
    capture.dropped_steps.merge(&trace.step_faults.dropped);
    capture.dropped_requests.merge(&trace.request_faults.dropped);
    capture
}

/// One name per process: the file's where there is one process, with service and instance where there are more.
fn names(file: &str, processes: &[Process]) -> Vec<String> {
    let speaking = processes.iter().filter(|process| process.is_engine() || !process.requests.is_empty()).count();
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
    let mut named = requests.iter().filter_map(|request| request.model.clone());
    let of_requests = named.next().filter(|first| named.all(|model| model == *first));
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
    for row in &mut rows {
        row.num_cached_tokens = row.num_cached_tokens.or_else(|| process.cache_hits.get(&row.request_id).copied());
    }
    if !rows.is_empty() {
        capture.requests.push(RequestTrace { run, requests: rows });
    }
}
