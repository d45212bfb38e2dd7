package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

func TestDashboardUpToDate(t *testing.T) {
	content, err := render()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("..", "..", "deploy", "charts", "pilot", "files", "dashboard.json")
	stored, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(stored, content) {
		t.Errorf("%s is out of date; run `make dashboard`", file)
	}
}

func TestPanelsDoNotOverlap(t *testing.T) {
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
					t.Errorf("%q overlaps %q at %v", p.Title, taken[at], at)
				}
				taken[at] = p.Title
			}
		}
	}
}
