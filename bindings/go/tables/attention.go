package tables

import "math"

// bound is the roofline bound of attention.
type bound struct {
	UsPerPair       float64 `json:"us_per_pair"`
	UsPerKvToken    float64 `json:"us_per_kv_token"`
	UsPerQueryToken float64 `json:"us_per_query_token"`
}

func (b *bound) us(pairs, kvTokens, queryTokens float64) float64 {
	return max(pairs*b.UsPerPair, kvTokens*b.UsPerKvToken+queryTokens*b.UsPerQueryToken)
}

// span is one kind of attention within a shared call: its time beyond the launch, and the share of the SMs that it fills.
type span struct{ us, filled float64 }

func spanOf(us, launchUs, blocksPerSm float64) span {
	return span{max(us-launchUs, 0), min(blocksPerSm, 1)}
}

// addedUs is the time that chunks add to a call of decodes.
func addedUs(decodes, chunks span) float64 {
	together := decodes.filled*decodes.us + chunks.filled*chunks.us
	return max(decodes.us, chunks.us, together) - decodes.us
}

type decodeAttention struct {
	WindowIndex int     `json:"window_index"`
	Calls       float64 `json:"calls"`
	Weight      float64 `json:"weight"` // calls times the correction's factor
	LaunchUs    float64 `json:"launch_us"`
	BlocksPerSm float64 `json:"blocks_per_sm"`
	CallUs      surface `json:"call_us"` // over decodes and keys per decode
	Bound       bound   `json:"bound"`
}

// placed is where a number of decodes is looked up: a row of CallUs, and the weight of the next one.
type placed struct {
	row    int
	weight float64
}

// call is the time of one call; false for longer contexts than the table holds.
func (a *decodeAttention) call(at placed, decodes, kvTokens float64) (timed, bool) {
	keys := kvTokens / decodes
	if keys > a.CallUs.Axis.High {
		return timed{}, false
	}
	boundUs := a.Bound.us(kvTokens, kvTokens, decodes)
	return timed{max(a.CallUs.at(at.row, at.weight, keys), boundUs), boundUs}, true
}

type chunkAttention struct {
	WindowIndex int          `json:"window_index"`
	Calls       float64      `json:"calls"`
	Weight      float64      `json:"weight"`
	LaunchUs    float64      `json:"launch_us"`
	BlocksPerSm float64      `json:"blocks_per_sm"`
	Fast        *fastPrefill `json:"fast"` // of any number of chunks; nil where the bound is the time
	One         *oneChunk    `json:"one"`  // of a single chunk
	Bound       bound        `json:"bound"`
	Beside      *int         `json:"beside"` // index of the decode attention that shares its call
	LeastUs     float64      `json:"least_us"`
}

// chunks are sums over a step's prefill chunks under one window.
type chunks struct {
	num, tokens, context           int64
	squaredTokens, pairs, kvTokens float64
}

// call is the time of one call without decodes.
func (a *chunkAttention) call(c *chunks) timed {
	boundUs := a.Bound.us(c.pairs, c.kvTokens, float64(c.tokens))
	us := boundUs
	if one := a.One; one != nil && c.num == 1 && c.tokens < int64(len(one.Rows)) && c.context <= one.MostContextTokens {
		row := &one.Rows[c.tokens]
		us = one.CallUs.at(int(row[0]), row[1], float64(c.tokens+2*c.context))
	} else if a.Fast != nil {
		us = a.Fast.us(c)
	}
	return timed{max(us, boundUs), boundUs}
}

// oneChunk is a call for a single chunk, over its tokens and the length of the prompt whose tokens see as many keys.
type oneChunk struct {
	CallUs            surface      `json:"call_us"`
	Rows              [][2]float64 `json:"rows"` // row and weight of the next one, by the chunk's tokens
	MostContextTokens int64        `json:"most_context_tokens"`
}

// fastPrefill is a model of attention over any number of chunks.
type fastPrefill struct {
	LaunchUs           float64   `json:"launch_us"`
	TileUs             float64   `json:"tile_us"`
	TileUsPerKey       float64   `json:"tile_us_per_key"`
	HeadsPerSm         float64   `json:"heads_per_sm"`
	KvBytesPerToken    float64   `json:"kv_bytes_per_token"`
	QueryBytesPerToken float64   `json:"query_bytes_per_token"`
	MemoryUsPerByte    float64   `json:"memory_us_per_byte"`
	RampBytes          float64   `json:"ramp_bytes"`
	Overlap            []float64 `json:"overlap"`   // smooth maximum of two times over the larger, by their ratio from 0 to 1
	Residuals          surface   `json:"residuals"` // measured over modelled time, by the prompts' length and their number
	Prompts            axis      `json:"prompts"`
	FewestPrompts      float64   `json:"fewest_prompts"`
	Windowed           bool      `json:"windowed"`

	queryTileTokens float64
}

func (f *fastPrefill) us(c *chunks) float64 {
	tokens := float64(c.tokens)
	query := c.squaredTokens / tokens
	visible := c.pairs / tokens
	keys := c.kvTokens * query / tokens
	prompt := query
	if !f.Windowed {
		prompt = max(2*visible-1, query)
	}
	row, weight := f.Prompts.position(prompt)
	residual := f.Residuals.at(row, weight, max(tokens/prompt, f.FewestPrompts))
	tilesPerSm := tokens / query * f.HeadsPerSm * math.Ceil(query/f.queryTileTokens)
	tileUs := func(keys float64) float64 { return f.TileUs + f.TileUsPerKey*keys }
	computeUs := max(tilesPerSm*tileUs(visible), tileUs(keys))
	bytes := c.kvTokens*f.KvBytesPerToken + tokens*f.QueryBytesPerToken
	memoryUs := bytes * f.MemoryUsPerByte * math.Sqrt(1+f.RampBytes/(bytes+1e4))
	return (f.LaunchUs + f.overlapUs(computeUs, memoryUs)) * residual
}

// overlapUs is the smooth maximum of two times.
func (f *fastPrefill) overlapUs(a, b float64) float64 {
	large, small := max(a, b), min(a, b)
	if !(small > 0) {
		return large
	}
	position := small / large * float64(len(f.Overlap)-2)
	index := int(position)
	return large * (f.Overlap[index] + (position-float64(index))*(f.Overlap[index+1]-f.Overlap[index]))
}
