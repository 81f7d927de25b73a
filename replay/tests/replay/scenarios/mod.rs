//! Schedules worked out by hand from vLLM 0.16's scheduler and engine loop, and from the rules of other engines in files of their own. A
//! timeline lists every step with its nanoseconds and the tokens scheduled of each request; the comment above it is the derivation.

mod cache;
mod clock;
mod preemption;
mod queue;
pub mod support;
mod trtllm;
