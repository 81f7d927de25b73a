package tables

import (
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
)

// rowCells says how a number of rows is looked up: a cell per row up to DenseRows, RowsPerTile rows per cell up to TiledRows, and
// RowsPerWideCell rows per cell beyond. Cell 0 is that of no rows.
type rowCells struct {
	DenseRows       int64 `json:"dense_rows"`
	TiledRows       int64 `json:"tiled_rows"`
	RowsPerTile     int64 `json:"rows_per_tile"`
	RowsPerWideCell int64 `json:"rows_per_wide_cell"`
}

// position is the cell of a number of rows, and the rows beyond its first one.
func (c *rowCells) position(rows int64) (int64, float64) {
	switch {
	case rows <= c.DenseRows:
		return rows, 0
	case rows <= c.TiledRows:
		beyond := rows - c.DenseRows - 1
		return c.DenseRows + 1 + beyond/c.RowsPerTile, float64(beyond % c.RowsPerTile)
	default:
		beyond := rows - c.TiledRows - 1
		tiled := (c.TiledRows - c.DenseRows) / c.RowsPerTile
		return c.DenseRows + tiled + 1 + beyond/c.RowsPerWideCell, float64(beyond % c.RowsPerWideCell)
	}
}

// timed is a time and its roofline bound, in microseconds.
type timed struct{ us, boundUs float64 }

func (t *timed) add(other timed) {
	t.us += other.us
	t.boundUs += other.boundUs
}

// rowTable has the time at the first row of each cell and its growth per further row. A table without a second cell is 0 everywhere.
type rowTable []struct {
	Us            float64 `json:"us"`
	UsPerRow      float64 `json:"us_per_row"`
	BoundUs       float64 `json:"bound_us"`
	BoundUsPerRow float64 `json:"bound_us_per_row"`
}

// at is the time for a number of rows; false beyond the table.
func (t rowTable) at(c *rowCells, rows int64) (timed, bool) {
	if len(t) < 2 {
		return timed{}, true
	}
	index, beyond := c.position(rows)
	if index >= int64(len(t)) {
		return timed{}, false
	}
	cell := &t[index]
	return timed{cell.Us + beyond*cell.UsPerRow, cell.BoundUs + beyond*cell.BoundUsPerRow}, true
}

// axis has evenly spaced knots within each power of two from Low to High, both of them powers of two.
type axis struct {
	Low            float64 `json:"low"`
	High           float64 `json:"high"`
	KnotsPerOctave int     `json:"knots_per_octave"`
}

const (
	mantissaBits = 52
	mantissa     = 1<<mantissaBits - 1
)

// position is the knot at or below a value, and the weight of the next one; beyond the ends, the end. The knot is in the leading
// bits of the value, the weight in those that follow.
func (a *axis) position(value float64) (int, float64) {
	if !(value > a.Low) {
		value = a.Low
	}
	if !(value < a.High) {
		value = a.High
	}
	stepBits := bits.TrailingZeros(uint(a.KnotsPerOctave))
	shift := mantissaBits - stepBits
	known := math.Float64bits(value)
	index := known>>shift - math.Float64bits(a.Low)>>shift
	return int(index), math.Float64frombits(known<<stepBits&mantissa|math.Float64bits(1)) - 1
}

func (a *axis) numKnots() int {
	last, _ := a.position(a.High)
	return last + 1
}

func (a *axis) problems(name string) []error {
	isPower := func(value float64) bool {
		fraction, _ := math.Frexp(value)
		return fraction == 0.5
	}
	if !isPower(a.Low) || !isPower(a.High) || a.Low >= a.High || bits.OnesCount(uint(a.KnotsPerOctave)) != 1 || a.KnotsPerOctave > 1024 {
		return []error{fmt.Errorf("%s = %+v must go from one power of two to a greater one, by a power of two of at most 1024 knots", name, *a)}
	}
	return nil
}

// surface is a table over rows and an axis, bilinear between its knots and constant beyond them.
type surface struct {
	Axis   axis        `json:"axis"`
	Values [][]float32 `json:"values"`
}

func (s *surface) at(row int, down, value float64) float64 {
	column, right := s.Axis.position(value)
	upper, lower := s.Values[row], s.Values[min(row+1, len(s.Values)-1)]
	next := min(column+1, len(upper)-1)
	a, b := float64(upper[column]), float64(lower[column])
	a += right * (float64(upper[next]) - a)
	b += right * (float64(lower[next]) - b)
	return a + down*(b-a)
}

func (s *surface) problems(name string, rows int) []error {
	found := s.Axis.problems(name + ".axis")
	if len(found) > 0 {
		return found
	}
	if len(s.Values) != rows || rows == 0 {
		return []error{fmt.Errorf("%s.values has %d rows: it must have %d, and at least 1", name, len(s.Values), rows)}
	}
	for i, row := range s.Values {
		if len(row) != s.Axis.numKnots() {
			found = append(found, fmt.Errorf("%s.values[%d] has %d values: it must have one for each of the %d knots of the axis",
				name, i, len(row), s.Axis.numKnots()))
		}
	}
	return found
}

// window is a kind of attention window: "full", or an object with a size. Without a limit both sizes are 0.
type window struct{ sliding, chunked uint64 }

func (w *window) isFull() bool { return *w == window{} }

// UnmarshalJSON reads "full", {"sliding": 4096} or {"chunked": 8192}.
func (w *window) UnmarshalJSON(text []byte) error {
	var sizes map[string]uint64
	if string(text) == `"full"` {
		return nil
	}
	if err := json.Unmarshal(text, &sizes); err == nil && len(sizes) == 1 {
		*w = window{sizes["sliding"], sizes["chunked"]}
	}
	if w.isFull() {
		return fmt.Errorf(`windows: %s must be "full", {"sliding": tokens} or {"chunked": tokens}`, text)
	}
	return nil
}

// cachedKeys are the cached tokens that at least one of a request's queries sees.
func (w *window) cachedKeys(computed uint64) uint64 {
	switch {
	case w.sliding > 0:
		return min(computed, w.sliding-1)
	case w.chunked > 0:
		return computed % w.chunked
	default:
		return computed
	}
}

// pairs are the visible (query, key) pairs of a chunk.
func (w *window) pairs(scheduled, computed uint64) float64 {
	switch {
	case w.sliding > 0:
		upTo := func(tokens uint64) float64 {
			inside := min(tokens, w.sliding)
			return triangle(inside) + float64(tokens-inside)*float64(inside)
		}
		return upTo(computed+scheduled) - upTo(computed)
	case w.chunked > 0:
		upTo := func(tokens uint64) float64 {
			return float64(tokens/w.chunked)*triangle(w.chunked) + triangle(tokens%w.chunked)
		}
		return upTo(computed+scheduled) - upTo(computed)
	default:
		return float64(scheduled)*float64(computed) + triangle(scheduled)
	}
}

func triangle(n uint64) float64 { return float64(n) * (float64(n) + 1) / 2 }
