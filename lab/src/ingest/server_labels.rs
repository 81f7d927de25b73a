//! What a server's start-up log says of its runs, and the labels that captured runs get from it.

use std::mem::take;

use ridgepoint::unstable::error::each_once;
use ridgepoint_replay::server_config::EngineLog;

use super::capture::Capture;
use super::step::{Run, StepTrace};

/// What the log of one server says when it starts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ServerLog {
    /// Its labels; the name of the run is the log's.
    pub(super) run: Run,
    /// The name under which clients ask for the model.
    pub(super) served_model: Option<String>,
    /// KV blocks of a GPU.
    pub(super) kv_blocks: Option<u64>,
    /// Tokens of a KV block, where the log names them.
    pub(super) block_size: Option<u64>,
}

impl ServerLog {
    /// What holds for other files of the same server; `None` where nothing was logged. `name` is the log's.
    pub(super) fn new(log: &EngineLog, name: &str) -> Option<Self> {
        let (run, kv_blocks) = (Run::of_server(log), log.kv_blocks());
        let said = run != Run::default() || kv_blocks.is_some();
        let run = Run { experiment: name.to_owned(), ..run };
        said.then(|| ServerLog { run, served_model: log.served_model.clone(), kv_blocks, block_size: log.block_size })
    }
}

impl Run {
    /// The labels that a server's log has.
    pub(super) fn of_server(log: &EngineLog) -> Self {
        Run {
            model: log.model.clone(),
            engine_version: log.engine_version.clone(),
            tensor_parallel_size: log.tensor_parallel_size,
            max_num_seqs: log.max_num_seqs,
            max_num_batched_tokens: log.max_num_batched_tokens,
            ..Run::default()
        }
    }
}

impl Capture {
    /// Gives the runs the labels that they lack from a server's log. `given` puts labels over a run that count more than any file's.
    /// Returns what contradicts the log.
    pub fn label(&mut self, log: &ServerLog, given: &dyn Fn(&mut Run)) -> Vec<String> {
        let mut own = log.run.clone();
        given(&mut own);
        let runs = self.steps.iter_mut().map(|trace| &mut trace.run);
        let runs = runs.chain(self.requests.iter_mut().map(|trace| &mut trace.run));
        let runs = runs.chain(self.tokens.iter_mut().map(|trace| &mut trace.run));
        let runs = runs.chain(self.transfers.iter_mut().map(|log| &mut log.run));
        let (mut problems, mut is_changed) = (Vec::new(), false);
        for run in runs {
            let mut said = run.clone();
            given(&mut said);
            if said.model.is_some() && said.model == log.served_model {
                said.model = None;
            }
            let number = |count: Option<u32>| count.map(|count| count.to_string());
            for (name, of_file, of_log) in [
                ("model", said.model.clone(), own.model.clone()),
                ("tensor_parallel_size", number(said.tensor_parallel_size), number(own.tensor_parallel_size)),
                ("max_num_seqs", number(said.max_num_seqs), number(own.max_num_seqs)),
                ("max_num_batched_tokens", number(said.max_num_batched_tokens), number(own.max_num_batched_tokens)),
            ] {
                if let (Some(of_file), Some(of_log)) = (of_file, of_log)
                    && of_file != of_log
                {
                    let of_run = &run.experiment;
                    problems
                        .push(format!("{name} of the run '{of_run}' is {of_file}, and {of_log} in the server's log"));
                }
            }
            let labelled = said.clone().or(&own);
            is_changed |= labelled != said;
            // Labels apply to the whole file, but each run keeps its own name.
            *run = Run { experiment: take(&mut run.experiment), ..labelled };
        }
        for StepTrace { run, steps } in &mut self.steps {
            let unlabelled = || steps.iter().filter(|step| step.kv_blocks_total.is_none());
            let free = unlabelled().filter_map(|step| step.kv_blocks_free).max();
            if let (Some(free), Some(of_log)) = (free, log.kv_blocks.filter(|of_log| free > Some(*of_log))) {
                let of_run = &run.experiment;
                problems.push(format!("the run '{of_run}' has {free} free KV blocks, of {of_log} in the server's log"));
            }
            is_changed |= log.kv_blocks.is_some() && unlabelled().next().is_some();
            for step in steps {
                step.kv_blocks_total = step.kv_blocks_total.or(log.kv_blocks);
            }
        }
        if is_changed {
            self.notes.push(format!("labels that it lacks are those of the server's log '{}'", log.run.experiment));
        }
        each_once(problems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::{RequestRow, RequestTrace, StepRecord};

    fn log() -> ServerLog {
        let run = Run {
            experiment: "server".to_owned(),
            model: Some("org/small".to_owned()),
            tensor_parallel_size: Some(2),
            ..Run::default()
        };
        ServerLog { run, served_model: Some("chat".to_owned()), kv_blocks: Some(96), block_size: None }
    }

    fn capture(run: Run) -> Capture {
        let steps = vec![StepRecord::default(), StepRecord { kv_blocks_total: Some(7), ..StepRecord::default() }];
        Capture {
            steps: vec![StepTrace { run: run.clone(), steps }],
            requests: vec![RequestTrace { run, requests: vec![RequestRow::default()] }],
            ..Capture::default()
        }
    }

    #[test]
    fn a_log_is_of_a_server_where_it_says_something() {
        let mut log = EngineLog::default();
        assert_eq!(ServerLog::new(&log, "log"), None);
        log.take("[x] GPU KV cache size: 6,400 tokens");
        let found = ServerLog::new(&log, "log").unwrap();
        assert_eq!((found.run.experiment.as_str(), found.kv_blocks), ("log", Some(400)));
    }

    #[test]
    fn runs_get_the_labels_that_they_lack() {
        let run = Run { experiment: "night".to_owned(), model: Some("chat".to_owned()), ..Run::default() };
        let mut found = capture(run);
        assert!(found.label(&log(), &|_| {}).is_empty());
        let labelled = Run { experiment: "night".to_owned(), ..log().run };
        assert_eq!((&found.steps[0].run, &found.requests[0].run), (&labelled, &labelled));
        assert_eq!(
            found.steps[0].steps.iter().map(|step| step.kv_blocks_total).collect::<Vec<_>>(),
            [Some(96), Some(7)]
        );
        assert_eq!(found.notes, ["labels that it lacks are those of the server's log 'server'"]);
    }

    #[test]
    fn two_runs_of_a_file_keep_their_names() {
        let named = |name: &str| Run { experiment: name.to_owned(), ..log().run };
        let mut found = capture(named("traces.json/0"));
        found.steps.push(StepTrace { run: named("traces.json/1"), ..found.steps[0].clone() });
        let mut log = log();
        log.kv_blocks = None;
        let given = |run: &mut Run| {
            run.experiment = "night".to_owned();
            run.workload = Some("chat".to_owned());
        };
        assert!(found.label(&log, &given).is_empty());
        let names: Vec<&str> = found.steps.iter().map(|trace| trace.run.experiment.as_str()).collect();
        assert_eq!(names, ["traces.json/0", "traces.json/1"]);
        assert_eq!(found.notes, [""; 0], "what was given is no label of the log's");
    }

    #[test]
    fn what_a_file_says_otherwise_is_named_unless_it_was_given() {
        let run = Run { experiment: "night".to_owned(), tensor_parallel_size: Some(4), ..Run::default() };
        let problems = capture(run.clone()).label(&log(), &|_| {});
        assert_eq!(problems, ["tensor_parallel_size of the run 'night' is 4, and 2 in the server's log"]);
        let given = |run: &mut Run| run.tensor_parallel_size = Some(4);
        assert!(capture(run).label(&log(), &given).is_empty());
    }

    #[test]
    fn each_contradiction_of_a_run_is_named_once() {
        let labels = (Some("org/large".to_owned()), Some(4));
        let run =
            Run { experiment: "night".to_owned(), model: labels.0, tensor_parallel_size: labels.1, ..Run::default() };
        // The run has both steps and requests.
        let problems = capture(run).label(&log(), &|_| {});
        let begin: Vec<&str> = problems.iter().filter_map(|problem| problem.split(' ').next()).collect();
        assert_eq!(begin, ["model", "tensor_parallel_size"]);
    }

    #[test]
    fn a_log_with_fewer_blocks_than_are_free_is_another_servers() {
        let mut found = capture(Run { experiment: "night".to_owned(), ..Run::default() });
        found.steps[0].steps[0].kv_blocks_free = Some(97);
        let problems = found.label(&log(), &|_| {});
        assert_eq!(problems, ["the run 'night' has 97 free KV blocks, of 96 in the server's log"]);
    }
}
