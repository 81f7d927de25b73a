// Package tables predicts step times from the tables that `ridgepoint fit --export json` writes, in pure Go: for simulators that
// can't link C. A file holds for one model on one GPU in one deployment, and says how far it is from the model that it was
// exported from; package ridgepoint is that model itself.
package tables

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"

	"ridgepoint/latency"
)

// Model is an export, read. It never changes but for the first error that it keeps, so any number of goroutines may ask one.
type Model struct {
	export file
	faults latency.Faults
}

var _ latency.ColumnModel = (*Model)(nil)

// version is the layout and the rule that this package knows.
const version = 1

type file struct {
	Version    int             `json:"version"`
	Model      string          `json:"model"`
	Hardware   string          `json:"hardware"`
	Deployment json.RawMessage `json:"deployment"`
	Correction json.RawMessage `json:"correction"`
	// What the correction is made of: told, not needed.
	Coefficients          json.RawMessage `json:"coefficients"`
	Host                  host            `json:"host"`
	DecodeOnly            line            `json:"decode_only"`
	WithChunks            line            `json:"with_chunks"`
	Sampled               line            `json:"sampled"`
	DecodeAttention       sheet           `json:"decode_attention"`
	ChunkAttention        sheet           `json:"chunk_attention"`
	FurtherChunkAttention sheet           `json:"further_chunk_attention"`
	SavedBesideDecodesUs  float64         `json:"saved_beside_decodes_us"`
	Prices                prices          `json:"prices"`
	Error                 ExportError     `json:"error"`
}

type host struct {
	QueueingUs         float64 `json:"queueing_us"`
	QueueingUsPerToken float64 `json:"queueing_us_per_token"`
	OutputTokenUs      float64 `json:"output_token_us"`
	SchedulingUs       float64 `json:"scheduling_us"`
	PreemptionUs       float64 `json:"preemption_us"`
}

type prices struct {
	StepUs           float64 `json:"step_us"`
	StepWithChunksUs float64 `json:"step_with_chunks_us"`
	RequestUs        float64 `json:"request_us"`
	TokenUs          float64 `json:"token_us"`
	ChunkUs          float64 `json:"chunk_us"`
	SampledUs        float64 `json:"sampled_us"`
}

// ExportError is how far the tables are from the model that they were exported from, on random batches.
type ExportError struct {
	DecodeOnly Errors `json:"decode_only"` // decodes alone
	WithChunks Errors `json:"with_chunks"` // prompt chunks, most of them beside decodes
}

// Errors are absolute errors, percent of the model's time.
type Errors struct {
	Batches      int     `json:"batches"`
	MedianApePct float64 `json:"median_ape_pct"`
	P90ApePct    float64 `json:"p90_ape_pct"`
	MaxApePct    float64 `json:"max_ape_pct"`
}

// Load reads a file.
func Load(path string) (*Model, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, text)
}

// Parse reads the text of a file; origin is what errors call it. All problems of the tables are reported at once.
func Parse(origin string, text []byte) (*Model, error) {
	m := new(Model)
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&m.export); err != nil {
		return nil, fmt.Errorf("%s: %w", origin, err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, fmt.Errorf("%s: something follows the object", origin)
	}
	e := &m.export
	if e.Version != version {
		return nil, fmt.Errorf("%s: version = %d: this package knows %d; write it anew by `ridgepoint fit --export json`",
			origin, e.Version, version)
	}
	problems := missing("", text, reflect.TypeOf(*e))
	if len(problems) == 0 {
		problems = e.problems()
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("%s: %w", origin, errors.Join(problems...))
	}
	return m, nil
}

func (e *file) problems() []error {
	var found []error
	for _, table := range []struct {
		name  string
		table interface{ problems(string) []error }
	}{
		{"decode_only", &e.DecodeOnly}, {"with_chunks", &e.WithChunks}, {"sampled", &e.Sampled},
		{"decode_attention", &e.DecodeAttention}, {"chunk_attention", &e.ChunkAttention},
		{"further_chunk_attention", &e.FurtherChunkAttention},
	} {
		found = append(found, table.table.problems(table.name)...)
	}
	for _, price := range []struct {
		name string
		us   float64
	}{
		{"host.queueing_us", e.Host.QueueingUs}, {"host.queueing_us_per_token", e.Host.QueueingUsPerToken},
		{"host.output_token_us", e.Host.OutputTokenUs}, {"host.scheduling_us", e.Host.SchedulingUs},
		{"host.preemption_us", e.Host.PreemptionUs}, {"saved_beside_decodes_us", e.SavedBesideDecodesUs},
		{"prices.step_us", e.Prices.StepUs}, {"prices.step_with_chunks_us", e.Prices.StepWithChunksUs},
		{"prices.request_us", e.Prices.RequestUs}, {"prices.token_us", e.Prices.TokenUs}, {"prices.chunk_us", e.Prices.ChunkUs},
		{"prices.sampled_us", e.Prices.SampledUs},
	} {
		if price.us < 0 {
			found = append(found, fmt.Errorf("%s = %v must be at least 0", price.name, price.us))
		}
	}
	return found
}

// missing are the keys of a type that an object lacks, those of objects within it included: a time that is not there is not 0.
func missing(prefix string, object json.RawMessage, of reflect.Type) []error {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(object, &keys); err != nil {
		return []error{fmt.Errorf("%s: %w", prefix, err)}
	}
	var found []error
	for i := 0; i < of.NumField(); i++ {
		key, kind := of.Field(i).Tag.Get("json"), of.Field(i).Type
		value, there := keys[key]
		switch {
		case !there || string(value) == "null":
			found = append(found, fmt.Errorf("%s%s is missing", prefix, key))
		case kind.Kind() == reflect.Struct:
			found = append(found, missing(prefix+key+".", value, kind)...)
		}
	}
	return found
}

// ModelName and HardwareName say what the tables are of.
func (m *Model) ModelName() string { return m.export.Model }

// HardwareName is the GPU's short name.
func (m *Model) HardwareName() string { return m.export.Hardware }

// ExportError is how far the tables are from the model that they were exported from.
func (m *Model) ExportError() ExportError { return m.export.Error }

// ErrEmpty is the error of a model that has no tables: nil, or not made by [Load] or [Parse].
var ErrEmpty = errors.New("the model has no tables: get it by tables.Load or tables.Parse")

// Err is the first error of a method that can't return one and answered [latency.NoAnswer] instead.
func (m *Model) Err() error {
	if m == nil {
		return ErrEmpty
	}
	return m.faults.Err()
}

func (m *Model) isEmpty() bool { return m == nil || m.export.Version != version }

// note keeps the error if it is the first, and gives [latency.NoAnswer].
func (m *Model) note(err error) int64 {
	if m == nil {
		return latency.NoAnswer
	}
	return m.faults.Note(err)
}

// sums are what of a batch the rule needs.
type sums struct {
	decodes, computed         float64 // decodes and their computed tokens
	chunks, chunkTokens       float64 // prompt chunks and their scheduled tokens
	pairs, tokens, sampledOut float64 // pairs of a query and a key in chunks; scheduled and sampled tokens of all
}

func (s *sums) add(computed, scheduled uint32, samples bool) {
	if scheduled == 0 {
		return
	}
	q, c := float64(scheduled), float64(computed)
	s.tokens += q
	if samples {
		s.sampledOut++
	}
	if scheduled == 1 && computed > 0 {
		s.decodes++
		s.computed += c
		return
	}
	s.chunks++
	s.chunkTokens += q
	s.pairs += q*c + q*q/2
}

// us is the rule: docs/export.md.
func (e *file) us(s *sums) float64 {
	if s.tokens == 0 {
		return 0
	}
	p := &e.Prices
	us := p.StepUs + p.RequestUs*(s.decodes+s.chunks) + p.TokenUs*s.tokens + p.ChunkUs*s.chunks + p.SampledUs*s.sampledOut
	if s.decodes > 0 {
		us += e.DecodeAttention.us(s.decodes, s.computed/s.decodes)
	}
	if s.chunks == 0 {
		return us + e.DecodeOnly.us(s.decodes)
	}
	q := s.chunkTokens / s.chunks
	c := s.pairs/s.chunkTokens - q/2
	attentionUs := e.ChunkAttention.us(q, c) + (s.chunks-1)*e.FurtherChunkAttention.us(q, c)
	if s.decodes > 0 {
		attentionUs -= e.SavedBesideDecodesUs
	}
	if s.sampledOut > 0 {
		us += e.Sampled.us(s.sampledOut)
	}
	return us + p.StepWithChunksUs + e.WithChunks.us(s.tokens) + math.Max(attentionUs, 0)
}

// StepTimeUs is the time of one engine step on the GPUs, in microseconds; 0 for nothing to do. Request i is the i-th value of each
// column; samples may be nil where all requests sample a token. Requests that schedule nothing are left out.
func (m *Model) StepTimeUs(numComputedTokens, numScheduledTokens []uint32, samples []bool) (float64, error) {
	if m.isEmpty() {
		return 0, ErrEmpty
	}
	n := len(numComputedTokens)
	if len(numScheduledTokens) != n || (samples != nil && len(samples) != n) {
		return 0, fmt.Errorf("columns of unequal length: %d values of numComputedTokens, %d of numScheduledTokens, %d of samples (nil for all)",
			n, len(numScheduledTokens), len(samples))
	}
	var s sums
	for i, computed := range numComputedTokens {
		s.add(computed, numScheduledTokens[i], samples == nil || samples[i])
	}
	return m.export.us(&s), nil
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
// negative or beyond 32 bits give [latency.NoAnswer], and [Model.Err] says why.
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
	return m.delay(func(of host) float64 { return of.QueueingUs + of.QueueingUsPerToken*float64(tokens) })
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
	return latency.Micros(of(m.export.Host))
}
