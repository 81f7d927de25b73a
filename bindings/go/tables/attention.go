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

// span is the time of one kind of attention within a shared call, launch and rest apart, and the share of the SMs that it fills.
type span struct{ launchUs, us, filled float64 }

func spanOf(us, launchUs, blocksPerSm float64) span {
	return span{launchUs, max(us-launchUs, 0), min(blocksPerSm, 1)}
}

// addedUs is the time that chunks add to a call of decodes.
func addedUs(decodes, chunks span) float64 {
	together := decodes.filled*decodes.us + chunks.filled*chunks.us
	besideUs := max(decodes.us, chunks.us, together) - decodes.us
	beyondLaunchUs := 0.5 * (besideUs + chunks.us)
	return max(beyondLaunchUs, chunks.launchUs+chunks.us-decodes.launchUs-decodes.us)
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

// readUs is the time that reading keys of each request adds to a call; false for longer contexts than the table holds.
func (a *decodeAttention) readUs(at placed, keys float64) (float64, bool) {
	return a.CallUs.at(at.row, at.weight, keys) - a.CallUs.at(at.row, at.weight, 1), keys <= a.CallUs.Axis.High
}

type chunkAttention struct {
	WindowIndex  int          `json:"window_index"`
	Calls        float64      `json:"calls"`
	Weight       float64      `json:"weight"`
	LaunchUs     float64      `json:"launch_us"`
	BlocksPerSm  float64      `json:"blocks_per_sm"`
	Fast         *fastPrefill `json:"fast"`      // of any number of chunks; nil where the bound is the time
	PromptUs     []float64    `json:"prompt_us"` // of a single prompt, by its tokens
	Bound        bound        `json:"bound"`
	SplitsPerKey float64      `json:"splits_per_key"` // blocks of threads for each query head that a cached key is worth
	Beside       *int         `json:"beside"`         // index of the decode attention that shares its call
}

// chunks are sums over a step's prefill chunks under one window.
type chunks struct {
	num, tokens, context           int64
	squaredTokens, pairs, kvTokens float64
}

// cachedKeys are the keys that were cached before.
func (c *chunks) cachedKeys() float64 { return max(c.kvTokens-float64(c.tokens), 0) }

// call is the time of one call without decodes; false for longer contexts than the tables hold. The decode attention that shares the
// call is looked up at the rows of chunks that read cached keys; it is nil where there is none.
func (a *chunkAttention) call(c *chunks, decodes *decodeAttention, rows []placed) (timed, bool) {
	boundUs := a.Bound.us(c.pairs, c.kvTokens, float64(c.tokens))
	us, has := boundUs, true
	if a.Fast != nil {
		readUs := 0.0
		if decodes != nil && a.Fast.ReadsCache && c.cachedKeys() > 0 {
			readers, keys := a.Fast.readingChunks(c)
			readUs, has = decodes.readUs(rows[readers], keys)
		}
		if c.num == 1 && c.tokens < int64(len(a.PromptUs)) {
			us = a.PromptUs[c.tokens]
		} else {
			us = a.Fast.ownUs(c)
		}
		us += a.Fast.cachedUs(c, readUs)
	}
	return timed{max(us, boundUs), boundUs}, has
}

// fastPrefill is a model of attention over any number of chunks.
type fastPrefill struct {
	LaunchUs           float64   `json:"launch_us"`
	TileUs             float64   `json:"tile_us"`
	TileUsPerKey       float64   `json:"tile_us_per_key"`
	HeadsPerSm         float64   `json:"heads_per_sm"`
	KvHeadsPerSm       float64   `json:"kv_heads_per_sm"`
	Group              float64   `json:"group"` // query heads per KV head
	KvBytesPerToken    float64   `json:"kv_bytes_per_token"`
	QueryBytesPerToken float64   `json:"query_bytes_per_token"`
	MemoryUsPerByte    float64   `json:"memory_us_per_byte"`
	RampBytes          float64   `json:"ramp_bytes"`
	Overlap            []float64 `json:"overlap"`   // smooth maximum of two times over the larger, by their ratio from 0 to 1
	Residuals          surface   `json:"residuals"` // measured over modelled time, by the prompts' length and their number
	Prompts            axis      `json:"prompts"`
	FewestPrompts      float64   `json:"fewest_prompts"`
	Windowed           bool      `json:"windowed"`
	Window             float64   `json:"window"`      // tokens of the model's window; 0 without one
	ReadsCache         bool      `json:"reads_cache"` // cached keys take at least what they add to a decode

	queryTileTokens float64
}

// own is the tokens of the chunk that a token is in, and the keys of it that a token sees, both on average over tokens.
func (c *chunks) own() (query, visible float64) {
	tokens := float64(c.tokens)
	query = c.squaredTokens / tokens
	return query, min(c.pairs/tokens, 0.5*(query+1))
}

// cachedPairs are the pairs with keys that were cached before.
func (c *chunks) cachedPairs() float64 {
	_, ownVisible := c.own()
	return c.pairs - float64(c.tokens)*ownVisible
}

// ownUs is the time of a call over the keys of the chunks themselves.
func (f *fastPrefill) ownUs(c *chunks) float64 {
	tokens := float64(c.tokens)
	query, ownVisible := c.own()
	ownKeys := min(c.kvTokens, tokens)
	prompts := tokens / query
	tileUs := func(keys float64) float64 { return f.TileUs + f.TileUsPerKey*keys }
	computeUs := max(prompts*f.HeadsPerSm*math.Ceil(query/f.queryTileTokens)*tileUs(ownVisible), tileUs(ownKeys/prompts))
	bytes := ownKeys*f.KvBytesPerToken + tokens*f.QueryBytesPerToken
	memoryUs := bytes * f.MemoryUsPerByte * math.Sqrt(1+f.RampBytes/(bytes+1e4))
	return (f.LaunchUs + f.overlapUs(computeUs, memoryUs)) * f.residual(query, prompts)
}

// cachedUs is the time that the cached keys of the chunks add; reading them alone adds readUs to a decode.
func (f *fastPrefill) cachedUs(c *chunks, readUs float64) float64 {
	cachedKeys := c.cachedKeys()
	if cachedKeys < 0.5 {
		return 0
	}
	tokens := float64(c.tokens)
	query, _ := c.own()
	prompt := query
	if !f.Windowed {
		prompt = max(2*c.pairs/tokens-1, query)
	}
	tiledKeys := max(c.cachedPairs()*f.Group/f.queryTileTokens+0.5*cachedKeys, cachedKeys)
	return max(f.TileUsPerKey*f.KvHeadsPerSm*tiledKeys*f.residual(prompt, tokens/prompt), readUs)
}

// readingChunks are the chunks that the cached keys are spread over, and the keys of each.
func (f *fastPrefill) readingChunks(c *chunks) (int64, float64) {
	keys, window := c.cachedKeys(), math.Inf(1)
	spread := keys * float64(c.tokens) / c.cachedPairs()
	if f.Window > 0 {
		query, _ := c.own()
		spread, window = float64(c.tokens)/query, f.Window
	}
	readers := min(max(math.Floor(spread+0.05), math.Floor(keys/window), 1), float64(c.num))
	return int64(readers), max(min(keys/readers, window), 1)
}

// residual is the measured over the modelled time of a number of prompts of this length.
func (f *fastPrefill) residual(prompt, prompts float64) float64 {
	row, weight := f.Prompts.position(prompt)
	return f.Residuals.at(row, weight, max(prompts, f.FewestPrompts))
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
