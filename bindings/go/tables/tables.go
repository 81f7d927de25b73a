// Package tables predicts step times in pure Go, for simulators that cannot link C. It reads the lookup tables that
// `ridgepoint export` writes for one model on one GPU in one deployment, and gives the library's times within 0.1 %.
// Package ridgepoint is the library itself.
package tables

import (
	"errors"
	"fmt"

	"ridgepoint/latency"
)

// Model has the tables of a file. It never changes, except that it keeps the first error, so any number of goroutines may use it.
type Model struct {
	file file
	// By the number of decodes, up to MaxDecodes.
	placed []placed
	faults latency.Faults
}

var _ latency.ColumnModel = (*Model)(nil)

// ErrEmpty is the error of a model without tables: nil, or not made by [Load] or [Parse].
var ErrEmpty = errors.New("the model has no tables: get it by tables.Load or tables.Parse")

// ErrBeyond is the error of a step that the tables do not hold. Package ridgepoint evaluates such a step operator by operator.
var ErrBeyond = errors.New("the step is beyond the exported tables: it has more requests, more tokens or longer contexts than they hold; " +
	"export with larger max_num_seqs, max_num_batched_tokens or max_model_len, or use package ridgepoint")

// ModelName is the model's short name.
func (m *Model) ModelName() string { return m.file.Model }

// HardwareName is the GPU's short name.
func (m *Model) HardwareName() string { return m.file.Hardware }

// RidgepointVersion is the version of the command that wrote the file.
func (m *Model) RidgepointVersion() string { return m.file.RidgepointVersion }

// Err returns the first error of a method that answered [latency.NoAnswer].
func (m *Model) Err() error {
	if m == nil {
		return ErrEmpty
	}
	return m.faults.Err()
}

func (m *Model) isEmpty() bool { return m == nil || m.placed == nil }

// note keeps the error if it is the first, and returns [latency.NoAnswer].
func (m *Model) note(err error) int64 {
	if m == nil {
		return latency.NoAnswer
	}
	return m.faults.Note(err)
}

// prepare looks up once what every step needs.
func (m *Model) prepare() {
	knots := m.file.DecodeKnots
	m.placed = make([]placed, m.file.MaxDecodes+1)
	row := 0
	for n := int64(1); n <= m.file.MaxDecodes; n++ {
		if knots[row+1] <= n {
			row++
		}
		m.placed[n] = placed{row, float64(n-knots[row]) / float64(knots[row+1]-knots[row])}
	}
	for i := range m.file.ChunkAttention {
		if fast := m.file.ChunkAttention[i].Fast; fast != nil {
			fast.queryTileTokens = m.file.QueryTileTokens
		}
	}
}

// maxWindows is the most kinds of window that the library knows in one model.
const maxWindows = 4

// sums are the sums over a batch that its time depends on.
type sums struct {
	tokens, sampled, decodes, chunks int64
	chunkTokens, context             int64
	squaredTokens                    float64
	decodeKv, chunkKv                [maxWindows]uint64
	pairs                            [maxWindows]float64
}

// sum adds up the requests. Nearly all of them are decodes, whose keys under a full window need no look at the window.
func (f *file) sum(computed, scheduled []uint32, samples []bool) sums {
	var s sums
	var cached uint64
	scheduled = scheduled[:len(computed)]
	for i, c := range computed {
		if q := scheduled[i]; q == 1 && c > 0 {
			s.decodes++
			cached += uint64(c)
		} else if q > 0 {
			f.addChunk(&s, uint64(c), uint64(q))
		} else if samples == nil || samples[i] {
			s.sampled--
		}
	}
	for i := range f.Windows {
		w := &f.Windows[i]
		s.decodeKv[i] = uint64(s.decodes) + cached
		if w.isFull() {
			continue
		}
		s.decodeKv[i] = uint64(s.decodes)
		for j, c := range computed {
			if scheduled[j] == 1 && c > 0 {
				s.decodeKv[i] += w.cachedKeys(uint64(c))
			}
		}
	}
	s.tokens = s.decodes + s.chunkTokens
	s.sampled += int64(len(computed))
	for _, samples := range samples {
		if !samples {
			s.sampled--
		}
	}
	return s
}

func (f *file) addChunk(s *sums, computed, scheduled uint64) {
	s.chunks++
	s.chunkTokens += int64(scheduled)
	s.context += int64(computed)
	s.squaredTokens += float64(scheduled) * float64(scheduled)
	for i := range f.Windows {
		s.chunkKv[i] += scheduled + f.Windows[i].cachedKeys(computed)
		s.pairs[i] += f.Windows[i].pairs(scheduled, computed)
	}
}

// us is the time of a step; false beyond the tables.
func (m *Model) us(s *sums) (float64, bool) {
	f := &m.file
	if s.tokens == 0 {
		return 0, true
	}
	if s.decodes > f.MaxDecodes {
		return 0, false
	}
	hasAll := true
	var total timed
	look := func(table rowTable, count int64) {
		found, has := table.at(&f.RowCells, count)
		hasAll = hasAll && has
		total.add(found)
	}
	if s.chunks == 0 {
		look(f.ByDecodes, s.decodes)
	} else {
		look(f.ByTokens, s.tokens)
		look(f.ByDecodesBesideChunks, s.decodes)
		look(f.ByChunkTokens, s.chunkTokens)
		look(f.ByChunkContextTokens, s.context)
		look(f.ByChunkKvTokens, s.chunkTokens+s.context)
	}
	look(f.BySampled, s.sampled)
	total.us += f.RequestUs * float64(s.decodes+s.chunks)
	total.us += f.ChunkUs*float64(s.chunks) + f.PromptTokenUs*float64(s.chunkTokens)

	var spans [maxWindows]span
	if s.decodes > 0 {
		at, decodes := m.placed[s.decodes], float64(s.decodes)
		for i := range f.DecodeAttention {
			a := &f.DecodeAttention[i]
			call, has := a.call(at, decodes, float64(s.decodeKv[a.WindowIndex]))
			hasAll = hasAll && has
			spans[i] = spanOf(call.us, a.LaunchUs, decodes*a.BlocksPerSm)
			total.add(timed{a.Weight * call.us, a.Calls * call.boundUs})
		}
	}
	if s.chunks > 0 {
		for i := range f.ChunkAttention {
			a := &f.ChunkAttention[i]
			of := chunks{s.chunks, s.chunkTokens, s.context, s.squaredTokens, s.pairs[a.WindowIndex], float64(s.chunkKv[a.WindowIndex])}
			var decodes *decodeAttention
			if a.Beside != nil {
				if s.chunks > f.MaxDecodes {
					return 0, false
				}
				decodes = &f.DecodeAttention[*a.Beside]
			}
			call, has := a.call(&of, decodes, m.placed)
			hasAll = hasAll && has
			if a.Beside != nil && s.decodes > 0 {
				tiles := max(float64(of.tokens)/f.QueryTileTokens, float64(of.num)) + of.cachedKeys()*a.SplitsPerKey
				call.us = max(addedUs(spans[*a.Beside], spanOf(call.us, a.LaunchUs, tiles*a.BlocksPerSm)), call.boundUs)
			}
			total.add(timed{a.Weight * call.us, a.Calls * call.boundUs})
		}
	}
	return max(total.us, total.boundUs, f.Launches.us(s)), hasAll
}

// us is the time of the host to launch a step.
func (l *launches) us(s *sums) float64 {
	of := l.ChunksUs
	if s.chunks == 0 {
		of = l.DecodesUs
	}
	if s.tokens <= l.CapturedTokens {
		return of[0]
	}
	return of[1]
}

// StepTimeUs is the time of one engine step on the GPUs in microseconds; 0 for nothing to do. Request i is the i-th value of each
// column. Samples may be nil if all requests sample a token. Requests that schedule nothing are ignored. A step beyond the tables
// is [ErrBeyond].
func (m *Model) StepTimeUs(numComputedTokens, numScheduledTokens []uint32, samples []bool) (float64, error) {
	if m.isEmpty() {
		return 0, ErrEmpty
	}
	n := len(numComputedTokens)
	if len(numScheduledTokens) != n || (samples != nil && len(samples) != n) {
		return 0, fmt.Errorf("columns of unequal length: %d values of numComputedTokens, %d of numScheduledTokens, %d of samples (nil for all)",
			n, len(numScheduledTokens), len(samples))
	}
	s := m.file.sum(numComputedTokens, numScheduledTokens, samples)
	us, has := m.us(&s)
	if !has {
		return 0, ErrBeyond
	}
	return us, nil
}

// StepTimeColumns is [Model.StepTimeUs] in whole microseconds.
func (m *Model) StepTimeColumns(numComputedTokens, numScheduledTokens []uint32, samples []bool) (int64, error) {
	us, err := m.StepTimeUs(numComputedTokens, numScheduledTokens, samples)
	if err != nil {
		return latency.NoAnswer, err
	}
	return latency.Micros(us), nil
}

// StepTime is [Model.StepTimeUs] of a slice of requests, in whole microseconds. A nil request and a number of tokens that is
// negative or beyond 32 bits return [latency.NoAnswer]; [Model.Err] has the reason.
func (m *Model) StepTime(batch []*latency.Request) int64 {
	columns := latency.GetColumns(len(batch))
	defer columns.Put()
	if err := columns.Fill(batch); err != nil {
		return m.note(err)
	}
	us, err := m.StepTimeColumns(columns.NumComputedTokens, columns.NumScheduledTokens, columns.Samples)
	if err != nil {
		return m.note(err)
	}
	return us
}

// QueueingTime is the time from a request's sending until the engine can schedule it.
func (m *Model) QueueingTime(request *latency.Request) int64 {
	if request == nil {
		return m.note(errors.New("request is nil"))
	}
	tokens, err := latency.Tokens("NumScheduledTokens", request.NumScheduledTokens)
	if err != nil {
		return m.note(err)
	}
	return m.delay(func(of host) float64 { return of.FrontEndUs + of.QueueingUs + of.QueueingUsPerToken*float64(tokens) })
}

// OutputTokenProcessingTime is the time from the end of the step that sampled a token until the client has it.
func (m *Model) OutputTokenProcessingTime() int64 {
	return m.delay(func(of host) float64 { return of.OutputTokenUs })
}

// SchedulingProcessingTime is the time of the engine's own thread per step.
func (m *Model) SchedulingProcessingTime() int64 {
	return m.delay(func(of host) float64 { return of.SchedulingUs })
}

// PreemptionProcessingTime is the time of the engine's own thread per request that is preempted.
func (m *Model) PreemptionProcessingTime() int64 {
	return m.delay(func(of host) float64 { return of.PreemptionUs })
}

func (m *Model) delay(of func(host) float64) int64 {
	if m.isEmpty() {
		return m.note(ErrEmpty)
	}
	return latency.Micros(of(m.file.Host))
}
