package tables

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
)

// version is the layout of the files that this package reads.
const version = 5

// file is what `ridgepoint export` writes; docs/export.md describes it.
type file struct {
	Version           int             `json:"version"`
	RidgepointVersion string          `json:"ridgepoint_version"`
	Model             string          `json:"model"`
	Hardware          string          `json:"hardware"`
	Deployment        json.RawMessage `json:"deployment"`
	Efficiency        string          `json:"efficiency"`
	Correction        json.RawMessage `json:"correction"`
	Host              host            `json:"host"`
	Windows           []window        `json:"windows"`
	MaxDecodes        int64           `json:"max_decodes"`
	RequestUs         float64         `json:"request_us"`
	ChunkUs           float64         `json:"chunk_us"`
	PromptTokenUs     float64         `json:"prompt_token_us"`
	Launches          launches        `json:"launches"`
	QueryTileTokens   float64         `json:"query_tile_tokens"`
	RowCells          rowCells        `json:"row_cells"`

	// Operators other than attention, by the count that each depends on.
	ByDecodes             rowTable `json:"by_decodes"` // steps of decodes alone
	ByTokens              rowTable `json:"by_tokens"`  // steps with prefill chunks
	ByDecodesBesideChunks rowTable `json:"by_decodes_beside_chunks"`
	BySampled             rowTable `json:"by_sampled"`
	ByChunkTokens         rowTable `json:"by_chunk_tokens"`
	ByChunkContextTokens  rowTable `json:"by_chunk_context_tokens"`
	ByChunkKvTokens       rowTable `json:"by_chunk_kv_tokens"` // chunk tokens and their context together

	DecodeKnots     []int64           `json:"decode_knots"`
	DecodeAttention []decodeAttention `json:"decode_attention"`
	ChunkAttention  []chunkAttention  `json:"chunk_attention"`

	KVTransfers *kvTransfers `json:"kv_transfers"` // nil where the link between GPU and host is not known
}

// kvTransfers are the links that copies of KV blocks take.
type kvTransfers struct {
	GPUToCPU  kvLink `json:"gpu_to_cpu"`
	CPUToGPU  kvLink `json:"cpu_to_gpu"`
	CPUToDisk kvLink `json:"cpu_to_disk"`
	DiskToCPU kvLink `json:"disk_to_cpu"`
	// Share of its speed that a direction keeps while the other one copies too.
	Contention float64 `json:"contention"`
}

type kvLink struct {
	LatencyUs float64 `json:"latency_us"`
	BytesPerS float64 `json:"bytes_per_s"`
}

// launches are times of the host to launch a step: within the captured graphs, and beyond.
type launches struct {
	CapturedTokens int64      `json:"captured_tokens"`
	DecodesUs      [2]float64 `json:"decodes_us"` // of decodes alone
	ChunksUs       [2]float64 `json:"chunks_us"`
}

type host struct {
	QueueingUs         float64 `json:"queueing_us"`
	QueueingUsPerToken float64 `json:"queueing_us_per_token"`
	OutputTokenUs      float64 `json:"output_token_us"`
	SchedulingUs       float64 `json:"scheduling_us"`
	PreemptionUs       float64 `json:"preemption_us"`

	// Prices of an iteration by its queues, which the five methods do not ask for.
	SchedulingUsPerRunning float64 `json:"scheduling_us_per_running"`
	SchedulingUsPerWaiting float64 `json:"scheduling_us_per_waiting"`
	ResumeUs               float64 `json:"resume_us"`

	// Time of the front end's event loop per request, which all requests in it share. Files without it have none.
	FrontEndUs float64 `json:"front_end_us,omitempty"`
}

// Load reads a file.
func Load(path string) (*Model, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, text)
}

// Parse reads the text of a file. Errors call it origin and list all of its problems.
func Parse(origin string, text []byte) (*Model, error) {
	var known struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &known); err != nil {
		return nil, fmt.Errorf("%s: %w", origin, err)
	}
	if known.Version != version {
		return nil, fmt.Errorf("%s: version = %d: this package reads version %d; write the file again with `ridgepoint export`",
			origin, known.Version, version)
	}
	m := new(Model)
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&m.file); err != nil {
		return nil, fmt.Errorf("%s: %w", origin, err)
	}
	problems := missing("", text, reflect.TypeOf(m.file))
	if len(problems) == 0 {
		problems = m.file.problems()
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("%s: %w", origin, errors.Join(problems...))
	}
	m.prepare()
	return m, nil
}

// missing lists the keys of a type that an object lacks, and nulls in place of numbers: Go would read both as 0.
func missing(prefix string, object json.RawMessage, of reflect.Type) []error {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(object, &keys); err != nil {
		return []error{fmt.Errorf("%s: %w", prefix, err)}
	}
	var found []error
	for i := 0; i < of.NumField(); i++ {
		key, option, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		kind := of.Field(i).Type
		value, has := keys[key]
		// A delay that is 0 may be left out.
		if key == "" || (option == "omitempty" && !has) {
			continue
		}
		isNull := has && string(value) == "null"
		if kind.Kind() == reflect.Pointer {
			if isNull {
				continue
			}
			kind = kind.Elem()
		}
		switch {
		case !has || isNull:
			found = append(found, fmt.Errorf("%s%s is missing", prefix, key))
		case kind == reflect.TypeOf(json.RawMessage{}):
		case kind.Kind() == reflect.Struct:
			found = append(found, missing(prefix+key+".", value, kind)...)
		case kind.Kind() == reflect.Slice && isObject(kind.Elem()):
			var items []json.RawMessage
			if err := json.Unmarshal(value, &items); err != nil {
				found = append(found, fmt.Errorf("%s%s: %w", prefix, key, err))
			}
			for j, item := range items {
				found = append(found, missing(fmt.Sprintf("%s%s[%d].", prefix, key, j), item, kind.Elem())...)
			}
		case kind.Kind() == reflect.Slice && bytes.Contains(value, []byte("null")):
			found = append(found, fmt.Errorf("%s%s has a null: every value must be a finite number", prefix, key))
		}
	}
	return found
}

// isObject distinguishes objects with the keys of a struct from types that read themselves.
func isObject(kind reflect.Type) bool {
	return kind.Kind() == reflect.Struct && kind != reflect.TypeOf(window{})
}

// problems lists the values that do not fit together, so that no look-up leaves its table.
func (f *file) problems() []error {
	var found []error
	wrong := func(format string, values ...any) { found = append(found, fmt.Errorf(format, values...)) }
	if c := f.RowCells; c.DenseRows < 0 || c.TiledRows < c.DenseRows || c.RowsPerTile < 1 || c.RowsPerWideCell < 1 {
		wrong("row_cells = %+v must be positive and in order", c)
	}
	if len(f.ByDecodes) < 2 || len(f.ByTokens) < 2 || len(f.BySampled) < 2 {
		wrong("by_decodes, by_tokens and by_sampled must have at least 2 cells")
	}
	if !(f.QueryTileTokens > 0) {
		wrong("query_tile_tokens = %v must be above 0", f.QueryTileTokens)
	}
	if len(f.Windows) > maxWindows || len(f.DecodeAttention) > maxWindows {
		wrong("windows and decode_attention must have at most %d entries", maxWindows)
	}
	knots := f.DecodeKnots
	for i := range knots {
		if i > 0 && knots[i] <= knots[i-1] {
			wrong("decode_knots[%d] = %d must be greater than %d before it", i, knots[i], knots[i-1])
		}
	}
	if len(knots) < 2 || knots[0] != 1 || f.MaxDecodes < 1 || f.MaxDecodes >= knots[len(knots)-1] || f.MaxDecodes > 1<<24 {
		wrong("decode_knots must go from 1 to above max_decodes = %d", f.MaxDecodes)
	}
	if t := f.KVTransfers; t != nil {
		for i, link := range t.links() {
			if !(link.LatencyUs >= 0 && link.BytesPerS > 0) {
				wrong("kv_transfers: link %d = %+v must have a latency of at least 0 and a bandwidth above 0", i, link)
			}
		}
		if !(t.Contention > 0 && t.Contention <= 1) {
			wrong("kv_transfers.contention = %v must be above 0 and at most 1", t.Contention)
		}
	}
	hasWindow := func(name string, index int) {
		if index < 0 || index >= len(f.Windows) {
			wrong("%s.window_index = %d must be one of the %d windows", name, index, len(f.Windows))
		}
	}
	for i := range f.DecodeAttention {
		a, name := &f.DecodeAttention[i], fmt.Sprintf("decode_attention[%d]", i)
		hasWindow(name, a.WindowIndex)
		found = append(found, a.CallUs.problems(name+".call_us", len(knots))...)
	}
	for i := range f.ChunkAttention {
		a, name := &f.ChunkAttention[i], fmt.Sprintf("chunk_attention[%d]", i)
		hasWindow(name, a.WindowIndex)
		if a.Beside != nil && (*a.Beside < 0 || *a.Beside >= len(f.DecodeAttention)) {
			wrong("%s.beside = %d must be one of the %d decode attentions", name, *a.Beside, len(f.DecodeAttention))
		}
		if fast := a.Fast; fast != nil {
			found = append(found, fast.Prompts.problems(name+".fast.prompts")...)
			found = append(found, fast.Residuals.problems(name+".fast.residuals", fast.Prompts.numKnots()+1)...)
			if len(fast.Overlap) < 3 {
				wrong("%s.fast.overlap has %d values: it must have at least 3", name, len(fast.Overlap))
			}
		}
	}
	return found
}
