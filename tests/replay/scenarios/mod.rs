//! Schedules worked out on paper from vLLM 0.16's scheduler and engine loop. Each timeline has every step with its nanoseconds
//! and what was scheduled of each request; the comment above it is the derivation.

mod cache;
mod clock;
mod preemption;
mod queue;
mod support;
