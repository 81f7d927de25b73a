//! Names of spans, events and attributes that nothing is read from, counted so that none is passed over in silence.

use std::collections::HashSet;
use std::sync::LazyLock;

use super::attributes::Attributes;
use crate::ingest::unknown_names::UnknownNames;

/// Attributes that are read, or that say again what others say.
static KNOWN: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    let names = "batch.decode_tokens batch.num_decode_reqs batch.num_finished batch.num_preempted batch.num_prefill_reqs \
        batch.prefill_tokens batch.scheduled_tokens decode_done_tokens decode_max_tokens finish.status \
        gen_ai.latency.e2e gen_ai.latency.time_in_model_decode gen_ai.latency.time_in_model_inference \
        gen_ai.latency.time_in_model_prefill gen_ai.latency.time_in_queue gen_ai.latency.time_to_first_token \
        gen_ai.request.id gen_ai.request.max_tokens gen_ai.request.model gen_ai.request.n \
        gen_ai.request.temperature gen_ai.request.top_p gen_ai.response.model gen_ai.usage.cache_read.input_tokens \
        gen_ai.usage.completion_tokens gen_ai.usage.prompt_tokens kv.block_size kv.blocks_allocated_gpu \
        kv.blocks_cached_gpu kv.blocks_free_gpu kv.blocks_total_gpu kv.dst kv.medium kv.num_blocks kv.src \
        kv.success kv.usage_gpu_ratio model_name num_preemptions phase prefill_done_tokens prefill_total_tokens \
        queue.running_depth queue.waiting_depth request.effective_prompt_len request.id \
        request.num_computed_tokens request.num_output_tokens request.num_preemptions request.num_prompt_tokens \
        request.phase request.scheduled_tokens_this_step request_id schedule.kind scheduler.step step.duration_us \
        step.id step.ts_end_ns step.ts_start_ns transfer.id transfer.is_exact ts.monotonic";
    names.split(' ').collect()
});
/// Beginnings of the attributes that describe a resource.
const OF_RESOURCES: &str = "cloud. container. deployment. host. k8s. os. process. server. service. telemetry. vllm.";

/// Counts by name.
#[derive(Debug, Default)]
pub(super) struct Names {
    spans: UnknownNames,
    events: UnknownNames,
    attributes: UnknownNames,
}

impl Names {
    /// Counts a span that is not read.
    pub(super) fn add_span(&mut self, name: &str) {
        self.spans.add(shown(name));
    }

    /// Counts an event that is not read.
    pub(super) fn add_event(&mut self, name: &str) {
        self.events.add(shown(name));
    }

    /// Counts the attributes of something that is read, where nothing is read from them.
    pub(super) fn add_attributes(&mut self, attributes: &Attributes) {
        let unknown = attributes.keys().filter(|key| !KNOWN.contains(key));
        unknown.for_each(|key| self.attributes.add(shown(key)));
    }

    /// Counts the attributes of a resource of which nothing is read.
    pub(super) fn add_resource(&mut self, attributes: &Attributes) {
        let describes = |key: &str| OF_RESOURCES.split(' ').any(|start| key.starts_with(start));
        let unknown = attributes.keys().filter(|key| !KNOWN.contains(key) && !describes(key));
        unknown.for_each(|key| self.attributes.add(shown(key)));
    }

    /// A remark for each kind of which there are any.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        [(&self.spans, "spans"), (&self.events, "events"), (&self.attributes, "attributes")]
            .into_iter()
            .filter_map(|(names, what)| names.note(what))
    }
}

fn shown(name: &str) -> &str {
    if name.is_empty() { "(no name)" } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_attributes_are_found() {
        let mut attributes = Attributes::default();
        for key in ["step.id", "batch.colour", "host.name", ""] {
            attributes.add(key, "1", false);
        }
        let mut names = Names::default();
        names.add_attributes(&attributes);
        names.add_resource(&attributes);
        let notes: Vec<String> = names.notes().collect();
        assert_eq!(notes, ["attributes that are not read: (no name) (2), batch.colour (2), host.name (1)"]);
    }
}
