package main

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"slices"
)

// mostColours is the maximum number of colours in a palette.
const mostColours = 256

// small returns a PNG with the most frequent colours of the picture. A page has few colours, except for the edges of letters.
func small(picture []byte) ([]byte, error) {
	decoded, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return nil, err
	}
	bounds := decoded.Bounds()
	counts := map[color.RGBA]int{}
	full := image.NewRGBA(bounds)
	draw.Draw(full, bounds, decoded, bounds.Min, draw.Src)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[full.RGBAAt(x, y)]++
		}
	}
	most := slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int { return cmp.Compare(counts[b], counts[a]) })
	var palette color.Palette
	for _, c := range most[:min(len(most), mostColours)] {
		palette = append(palette, c)
	}
	few := image.NewPaletted(bounds, palette)
	draw.Draw(few, bounds, full, bounds.Min, draw.Src)
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	err = encoder.Encode(&out, few)
	return out.Bytes(), err
}
