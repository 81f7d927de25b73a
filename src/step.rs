//! A step as it is predicted: its requests, and what they have in common. Uses `request`, `model`.

use crate::model::OwnSampling;
use crate::request::Request;

/// One engine iteration: what [`StepModel`](crate::StepModel) and a [`LatencyModel`](crate::latency::LatencyModel) predict the time of.
///
/// A slice, vector or array of requests is a step whose requests share nothing and sample as the server does. Whatever else a step's
/// time depends on is a field with a setter, so that a model that wraps another one passes all of it on.
///
/// ```
/// use ridgepoint::{Deployment, Hardware, Model, Request, Step, StepModel};
///
/// let steps = StepModel::new(&Model::find("llama-3.1-8b")?, &Hardware::find("h100")?, &Deployment::default())?;
/// // 32 decodes after 1,024 cached tokens, of which 512 are those of one system prompt.
/// let batch = [Request::decode(1024); 32];
/// let sharing = Step::from(&batch).with_shared_kv_tokens(31 * 512);
/// assert!(steps.step_time_us(sharing) < 0.97 * steps.step_time_us(&batch));
/// # Ok::<(), ridgepoint::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Step<'a> {
    /// The requests scheduled in it, in any order.
    pub requests: &'a [Request],
    /// Cached tokens that decodes read and another request of the step reads too: prompts that share a prefix share its KV blocks. A
    /// token that n requests read counts n − 1 times. The L2 cache holds some of them from one read to the next, so that decode
    /// attention takes less time. Requests with a window read the end of their context, where nothing is shared.
    pub shared_kv_tokens: u64,
    /// Sampling parameters that requests set themselves: one entry for each of the step's requests, or each different entry once, in any
    /// order. The default is the entry of a request that sets none. Empty if no request sets any.
    pub own_sampling: &'a [OwnSampling],
}

impl<'a> Step<'a> {
    /// The step with so many [`shared_kv_tokens`](Self::shared_kv_tokens).
    #[must_use]
    pub const fn with_shared_kv_tokens(self, shared_kv_tokens: u64) -> Self {
        Step { shared_kv_tokens, ..self }
    }

    /// The step with this [`own_sampling`](Self::own_sampling).
    #[must_use]
    pub const fn with_own_sampling(self, own_sampling: &'a [OwnSampling]) -> Self {
        Step { own_sampling, ..self }
    }
}

impl<'a, R: AsRef<[Request]> + ?Sized> From<&'a R> for Step<'a> {
    #[inline]
    fn from(requests: &'a R) -> Self {
        Step { requests: requests.as_ref(), ..Step::default() }
    }
}
