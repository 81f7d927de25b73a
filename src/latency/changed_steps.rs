//! Latency models that change the steps of another one.

use super::{HostTimes, LatencyModel, TransferDirection};
use crate::model::{OwnSampling, SamplerWork};
use crate::request::Request;

/// A latency model whose steps are those of another model, changed. The host's delays and the copies of KV blocks are the other's.
pub trait ChangedSteps: Send + Sync {
    /// The other model.
    fn model(&self) -> &dyn LatencyModel;

    /// Time of a step that takes the other model `step_us`, µs.
    fn changed_us(&self, step_us: f64) -> f64;
}

impl<T: ChangedSteps> LatencyModel for T {
    fn step_time_us(&self, requests: &[Request]) -> f64 {
        self.changed_us(self.model().step_time_us(requests))
    }

    fn sharing_step_time_us(&self, requests: &[Request], shared_kv_tokens: u64) -> f64 {
        self.changed_us(self.model().sharing_step_time_us(requests, shared_kv_tokens))
    }

    fn sampler_work(&self, own: OwnSampling) -> SamplerWork {
        self.model().sampler_work(own)
    }

    fn sampling_step_time_us(&self, requests: &[Request], shared_kv_tokens: u64, work: SamplerWork) -> f64 {
        self.changed_us(self.model().sampling_step_time_us(requests, shared_kv_tokens, work))
    }

    fn host(&self) -> HostTimes {
        self.model().host()
    }

    fn queueing_time_us(&self, request: &Request) -> f64 {
        self.model().queueing_time_us(request)
    }

    fn output_token_processing_time_us(&self) -> f64 {
        self.model().output_token_processing_time_us()
    }

    fn scheduling_processing_time_us(&self) -> f64 {
        self.model().scheduling_processing_time_us()
    }

    fn preemption_processing_time_us(&self) -> f64 {
        self.model().preemption_processing_time_us()
    }

    fn kv_transfer_time_us(&self, direction: TransferDirection, bytes: u64) -> f64 {
        self.model().kv_transfer_time_us(direction, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model whose every method has a number of its own.
    struct Numbered;

    impl LatencyModel for Numbered {
        fn step_time_us(&self, _: &[Request]) -> f64 {
            1.0
        }
        fn sharing_step_time_us(&self, _: &[Request], _: u64) -> f64 {
            2.0
        }
        fn sampling_step_time_us(&self, _: &[Request], _: u64, _: SamplerWork) -> f64 {
            9.0
        }
        fn host(&self) -> HostTimes {
            HostTimes { queueing_us: 3.0, ..HostTimes::NONE }
        }
        fn queueing_time_us(&self, _: &Request) -> f64 {
            4.0
        }
        fn output_token_processing_time_us(&self) -> f64 {
            5.0
        }
        fn scheduling_processing_time_us(&self) -> f64 {
            6.0
        }
        fn preemption_processing_time_us(&self) -> f64 {
            7.0
        }
        fn kv_transfer_time_us(&self, _: TransferDirection, bytes: u64) -> f64 {
            8.0 + bytes as f64
        }
    }

    struct TenTimes;

    impl ChangedSteps for TenTimes {
        fn model(&self) -> &dyn LatencyModel {
            &Numbered
        }
        fn changed_us(&self, step_us: f64) -> f64 {
            10.0 * step_us
        }
    }

    #[test]
    fn steps_change_and_all_other_delays_stay() {
        let request = Request::decode(9);
        let found = [
            TenTimes.step_time_us(&[request]),
            TenTimes.sharing_step_time_us(&[request], 1),
            TenTimes.sampling_step_time_us(&[request], 1, SamplerWork::default()),
            TenTimes.host().queueing_us,
            TenTimes.queueing_time_us(&request),
            TenTimes.output_token_processing_time_us(),
            TenTimes.scheduling_processing_time_us(),
            TenTimes.preemption_processing_time_us(),
            TenTimes.kv_transfer_time_us(TransferDirection::CpuToGpu, 100),
        ]
        .map(f64::to_bits);
        assert_eq!(found, [10.0, 20.0, 90.0, 3.0, 4.0, 5.0, 6.0, 7.0, 108.0].map(f64::to_bits));
    }
}
