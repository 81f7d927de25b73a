package latency

import "math"

// Adapter is a model for simulators with a request type of their own.
type Adapter[R any] struct {
	model        ColumnModel
	share        func(R) Request
	promptTokens func(R) int
	faults       Faults
}

// Adapt makes a model take requests of type R. share returns a request's part of the step, promptTokens the length of its prompt. Both
// must be safe for the goroutines that call the adapter.
func Adapt[R any](model ColumnModel, share func(R) Request, promptTokens func(R) int) *Adapter[R] {
	return &Adapter[R]{model: model, share: share, promptTokens: promptTokens}
}

// StepTime is [Model.StepTime].
func (a *Adapter[R]) StepTime(batch []R) int64 {
	columns := GetColumns(len(batch))
	us, err := a.stepTime(batch, columns)
	columns.Put()
	if err != nil {
		return a.faults.Note(err)
	}
	return us
}

func (a *Adapter[R]) stepTime(batch []R, c *Columns) (int64, error) {
	computed, scheduled, samples := c.NumComputedTokens[:len(batch)], c.NumScheduledTokens[:len(batch)], c.Samples[:len(batch)]
	all := true
	for i, request := range batch {
		r := a.share(request)
		if uint64(r.NumComputedTokens)|uint64(r.NumScheduledTokens) > math.MaxUint32 {
			return NoAnswer, beyond(i, r)
		}
		computed[i], scheduled[i], samples[i] = uint32(r.NumComputedTokens), uint32(r.NumScheduledTokens), !r.Partial
		all = all && !r.Partial
	}
	if all {
		samples = nil
	}
	return a.model.StepTimeColumns(computed, scheduled, samples)
}

// QueueingTime is [Model.QueueingTime].
func (a *Adapter[R]) QueueingTime(request R) int64 {
	return a.model.QueueingTime(&Request{NumScheduledTokens: a.promptTokens(request)})
}

// OutputTokenProcessingTime is [Model.OutputTokenProcessingTime].
func (a *Adapter[R]) OutputTokenProcessingTime() int64 { return a.model.OutputTokenProcessingTime() }

// SchedulingProcessingTime is [Model.SchedulingProcessingTime].
func (a *Adapter[R]) SchedulingProcessingTime() int64 { return a.model.SchedulingProcessingTime() }

// PreemptionProcessingTime is [Model.PreemptionProcessingTime].
func (a *Adapter[R]) PreemptionProcessingTime() int64 { return a.model.PreemptionProcessingTime() }

// Err is the first error of a method that answered [NoAnswer].
func (a *Adapter[R]) Err() error {
	if err := a.faults.Err(); err != nil {
		return err
	}
	return a.model.Err()
}
