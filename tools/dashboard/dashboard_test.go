package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// The chart's file is what is rendered now.
func TestTheChartHasTheDashboard(t *testing.T) {
	content, err := render()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("..", "..", "deploy", "charts", "pilot", "files", "dashboard.json")
	there, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(there, content) {
		t.Errorf("%s is not what is rendered now; `make dashboard` writes it anew", file)
	}
}

// No two panels lie on each other, none goes beyond the page, and each says what it shows.
func TestPanelsHaveTheirPlaces(t *testing.T) {
	taken := map[[2]int]string{}
	content, err := json.Marshal(place(panels))
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		ID                       int
		Title, Description, Type string
		GridPos                  struct{ X, Y, W, H int }
	}
	if err := json.Unmarshal(content, &all); err != nil {
		t.Fatal(err)
	}
	ids := map[int]bool{}
	for _, p := range all {
		if p.Title == "" || p.Description == "" && p.Type != "row" || ids[p.ID] {
			t.Errorf("panel %d: %q, %q", p.ID, p.Title, p.Description)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if taken[at] != "" || at[0] >= columns {
					t.Errorf("%q lies on %q at %v", p.Title, taken[at], at)
				}
				taken[at] = p.Title
			}
		}
	}
}
