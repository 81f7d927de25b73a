// Package latency defines the five delays that a simulator of an LLM serving engine needs, in whole microseconds, and the requests
// that they depend on. It is pure Go. Packages ridgepoint (through C) and tables (without) implement it.
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

// Model is the five-method interface of a serving simulator. Times are whole microseconds, rounded by [Micros]. -1 is no
// answer; the implementation's Err has the reason.
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

// TransferDirection is the way in which KV blocks are copied.
type TransferDirection int

// Directions of copies: a store goes to host memory, a load comes back from it; a write goes on to a disk, a read comes back from there.
const (
	GPUToCPU TransferDirection = iota
	CPUToGPU
	CPUToDisk
	DiskToCPU
)

// KVModel is a [Model] that knows the sixth delay too: copies of KV blocks between the GPU, host memory and a disk.
type KVModel interface {
	Model
	// KVTransferTime is the time to copy so many bytes while nothing else is copied. The copy runs concurrently with the steps, and a request that
	// loads its blocks waits for it.
	KVTransferTime(direction TransferDirection, bytes int64) int64
	// KVContention is the share of its speed that a direction of copies keeps while the other one copies too.
	KVContention() float64
}

// ColumnModel is a [Model] that also takes a step's requests as columns: request i is the i-th value of each, samples may be nil
// if all requests sample.
type ColumnModel interface {
	Model
	StepTimeColumns(numComputedTokens, numScheduledTokens []uint32, samples []bool) (int64, error)
	Err() error
}

// NoAnswer is returned in place of an error: no duration is negative.
const NoAnswer int64 = -1

// Micros rounds microseconds to whole ones, halves away from zero.
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

// Note keeps the error if it is the first, and returns [NoAnswer].
func (f *Faults) Note(err error) int64 {
	f.first.CompareAndSwap(nil, &err)
	return NoAnswer
}

// Err returns the first error, or nil.
func (f *Faults) Err() error {
	if err := f.first.Load(); err != nil {
		return *err
	}
	return nil
}

// Columns are a step's requests as columns. Get them by [GetColumns] and return them by [Columns.Put], so that no call allocates.
type Columns struct {
	NumComputedTokens  []uint32
	NumScheduledTokens []uint32
	Samples            []bool // nil if all requests sample, which is faster
	room               []bool // for Samples
}

var pool = sync.Pool{New: func() any { return new(Columns) }}

// GetColumns returns columns of the length; their contents are undefined.
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

// Put returns the columns to the pool; they must not be used afterwards.
func (c *Columns) Put() { pool.Put(c) }

// Fill copies a batch into columns of its length.
func (c *Columns) Fill(batch []*Request) error {
	computed, scheduled := c.NumComputedTokens[:len(batch)], c.NumScheduledTokens[:len(batch)]
	// The bits of all counts are checked once after the loop, which is bound by its loads and stores. The column of samples is
	// written only from the first request on that samples nothing.
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

// fillFrom continues with the request first. All requests before it sample, and bits are those of their counts.
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

// within32 returns the error of the first request with a count that is negative or has more than 32 bits; bits are those of all counts.
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
