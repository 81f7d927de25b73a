// Package latency says what a simulator of an LLM serving engine asks for: the five delays, in whole microseconds, and what of a
// request they depend on. It is pure Go; package ridgepoint (through C) and package tables (without) give the answers.
package latency

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
)

// Request is one request's share of a step, in vLLM's terms. The zero value of Partial is right for a decode and for a prompt's last
// (or only) chunk.
type Request struct {
	NumComputedTokens  int  // in the KV cache before the step (also called progress index)
	NumScheduledTokens int  // processed in the step: 1 for a decode, the chunk for a prefill (also called new tokens)
	Partial            bool // a chunk before its prompt's last, which samples no token
}

// Model is the five-method interface of a serving simulator. Times are whole microseconds, rounded by [Micros]; -1 says that there
// is no answer, and the implementation's Err why.
type Model interface {
	// StepTime is the time of one engine step on the GPUs, 0 for nothing to do.
	StepTime(batch []*Request) int64
	// QueueingTime is the time from a request's sending until the engine can schedule it. The request is the prompt as it arrives:
	// nothing computed, all of it to schedule.
	QueueingTime(request *Request) int64
	// OutputTokenProcessingTime is the time from the end of the step that sampled a token until the client has it.
	OutputTokenProcessingTime() int64
	// SchedulingProcessingTime is the time of the engine's own thread per step.
	SchedulingProcessingTime() int64
	// PreemptionProcessingTime is the time of the engine's own thread per request that is preempted.
	PreemptionProcessingTime() int64
}

// ColumnModel is a [Model] that also takes a step's requests as columns: request i is the i-th value of each, samples may be nil
// where all requests sample.
type ColumnModel interface {
	Model
	StepTimeColumns(numComputedTokens, numScheduledTokens []uint32, samples []bool) (int64, error)
	Err() error
}

// NoAnswer is what methods without an error return: no duration is negative.
const NoAnswer int64 = -1

// Micros rounds microseconds to whole ones, halves away from zero. Errors of rounding are at most half a microsecond a call: some
// hundredths of a per mille of a step.
func Micros(us float64) int64 {
	if us >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(math.Round(us))
}

// Faults keeps the first error of methods that can't return one. The zero value has none; any number of goroutines may use it.
type Faults struct {
	first atomic.Pointer[error]
}

// Note keeps the error if it is the first, and gives [NoAnswer].
func (f *Faults) Note(err error) int64 {
	f.first.CompareAndSwap(nil, &err)
	return NoAnswer
}

// Err is the first error, or nil.
func (f *Faults) Err() error {
	if err := f.first.Load(); err != nil {
		return *err
	}
	return nil
}

// Columns are a step's requests as columns. Get them by [GetColumns] and give them back by [Columns.Put]: then no call allocates.
type Columns struct {
	NumComputedTokens  []uint32
	NumScheduledTokens []uint32
	Samples            []bool // nil where all requests sample, which is also the sooner answered
	room               []bool // for Samples
}

var pool = sync.Pool{New: func() any { return new(Columns) }}

// GetColumns gives columns of the length; what they hold is undefined.
func GetColumns(length int) *Columns {
	c := pool.Get().(*Columns)
	if cap(c.NumComputedTokens) < length {
		room := 2*length + 64
		c.NumComputedTokens, c.NumScheduledTokens, c.room = make([]uint32, room), make([]uint32, room), make([]bool, room)
	}
	c.NumComputedTokens = c.NumComputedTokens[:length]
	c.NumScheduledTokens = c.NumScheduledTokens[:length]
	c.Samples = c.room[:length]
	return c
}

// Put gives the columns back; nothing may use them afterwards.
func (c *Columns) Put() { pool.Put(c) }

// Fill copies a batch into columns of its length.
func (c *Columns) Fill(batch []*Request) error {
	computed, scheduled := c.NumComputedTokens[:len(batch)], c.NumScheduledTokens[:len(batch)]
	// All bits of any count, looked at once behind the loop. The time of the loop is that of its loads and stores: what samples is
	// written only from the first request on that doesn't.
	var bits uint64
	for i, r := range batch {
		if r == nil {
			return isNil(i)
		}
		if r.Partial {
			return c.fillFrom(i, batch, bits)
		}
		c, q := r.NumComputedTokens, r.NumScheduledTokens
		bits |= uint64(c) | uint64(q)
		computed[i], scheduled[i] = uint32(c), uint32(q)
	}
	c.Samples = nil
	return within32(bits, batch)
}

// fillFrom goes on with the request first, before which all sample and had the bits in their counts.
func (c *Columns) fillFrom(first int, batch []*Request, bits uint64) error {
	computed, scheduled, samples := c.NumComputedTokens[:len(batch)], c.NumScheduledTokens[:len(batch)], c.room[:len(batch)]
	for i := 0; i < first; {
		i += copy(samples[i:first], allSample[:])
	}
	for i := first; i < len(batch); i++ {
		r := batch[i]
		if r == nil {
			return isNil(i)
		}
		c, q := r.NumComputedTokens, r.NumScheduledTokens
		bits |= uint64(c) | uint64(q)
		computed[i], scheduled[i], samples[i] = uint32(c), uint32(q), !r.Partial
	}
	c.Samples = samples
	return within32(bits, batch)
}

var allSample = func() (all [256]bool) {
	for i := range all {
		all[i] = true
	}
	return all
}()

func isNil(index int) error { return fmt.Errorf("request %d is nil", index) }

// within32 finds the first request with a count that is negative or has more than 32 bits, if the bits of all say that there is one.
func within32(bits uint64, batch []*Request) error {
	if bits <= math.MaxUint32 {
		return nil
	}
	for i, r := range batch {
		if uint64(r.NumComputedTokens)|uint64(r.NumScheduledTokens) > math.MaxUint32 {
			return beyond(i, *r)
		}
	}
	return nil
}

func beyond(index int, r Request) error {
	return fmt.Errorf("request %d: NumComputedTokens = %d and NumScheduledTokens = %d must be from 0 to %d",
		index, r.NumComputedTokens, r.NumScheduledTokens, uint32(math.MaxUint32))
}

// Tokens checks a number of tokens.
func Tokens(what string, tokens int) (uint32, error) {
	if uint64(tokens) > math.MaxUint32 {
		return 0, fmt.Errorf("%s = %d must be from 0 to %d", what, tokens, uint32(math.MaxUint32))
	}
	return uint32(tokens), nil
}
