package main

import (
	"encoding/json"
	"fmt"
)

// The subset of Grafana's JSON that the panels need, for Grafana 9 and later.
type (
	object = map[string]any
	list   = []any
)

// source is the data source that the user chooses.
var source = object{"type": "prometheus", "uid": "${datasource}"}

// query is an expression with the legend of its series.
type query struct{ expr, legend string }

// panel is a panel of the dashboard.
type panel struct {
	title       string
	description string
	kind        string // Grafana's: stat, state-timeline, timeseries, row
	unit        string
	width       int
	height      int
	queries     []query
	// states map values to texts. If nil, values are numbers.
	states []state
	// limits are the lower bounds of colours, in ascending order.
	limits []limit
	// most is the largest value on the axis. If 0, the axis adapts.
	most float64
}

type state struct{ value, text, colour string }

type limit struct {
	from   float64
	colour string
}

// columns is the width of a dashboard.
const columns = 24

// place arranges panels from left to right, row by row.
func place(panels []panel) list {
	var all list
	var x, y, tallest int
	for i, p := range panels {
		if x+p.width > columns {
			y += tallest
			x = 0
			tallest = 0
		}
		o := p.object()
		o["id"] = i + 1
		o["gridPos"] = object{"x": x, "y": y, "w": p.width, "h": p.height}
		all = append(all, o)
		x += p.width
		tallest = max(tallest, p.height)
	}
	return all
}

func (p panel) object() object {
	if p.kind == "row" {
		return object{"type": "row", "title": p.title, "collapsed": false, "panels": list{}}
	}
	defaults := object{"unit": p.unit, "color": object{"mode": "palette-classic"}}
	if p.most > 0 {
		defaults["min"] = 0
		defaults["max"] = p.most
	}
	if p.states != nil {
		options := object{}
		for i, s := range p.states {
			options[s.value] = object{"index": i, "text": s.text, "color": s.colour}
		}
		defaults["mappings"] = list{object{"type": "value", "options": options}}
	}
	if p.limits != nil {
		steps := list{}
		for i, l := range p.limits {
			step := object{"color": l.colour, "value": l.from}
			if i == 0 {
				step["value"] = nil
			}
			steps = append(steps, step)
		}
		defaults["color"] = object{"mode": "thresholds"}
		defaults["thresholds"] = object{"mode": "absolute", "steps": steps}
	}
	targets := list{}
	for i, q := range p.queries {
		targets = append(targets, object{
			"refId": string(rune('A' + i)), "datasource": source, "expr": q.expr, "legendFormat": q.legend, "range": true, "instant": false,
		})
	}
	return object{
		"type": p.kind, "title": p.title, "description": p.description, "datasource": source, "targets": targets,
		"fieldConfig": object{"defaults": defaults, "overrides": list{}}, "options": p.options(),
	}
}

func (p panel) options() object {
	legend := object{"displayMode": "list", "placement": "bottom", "showLegend": true}
	switch p.kind {
	case "stat":
		return object{"colorMode": "background", "graphMode": "none", "reduceOptions": object{"calcs": list{"lastNotNull"}}}
	case "state-timeline":
		return object{"mergeValues": true, "showValue": "never", "rowHeight": 0.8, "legend": legend}
	}
	return object{"legend": legend, "tooltip": object{"mode": "multi", "sort": "desc"}}
}

// variable returns a selection of label values.
func variable(name, label, of string) object {
	ask := fmt.Sprintf("label_values(%s, %s)", of, name)
	return object{
		"name": name, "label": label, "type": "query", "datasource": source, "definition": ask, "query": object{"query": ask, "refId": name},
		"includeAll": true, "allValue": ".*", "multi": true, "refresh": 2, "sort": 1, "current": object{"selected": true, "text": "All", "value": "$__all"},
	}
}

// render returns the dashboard as JSON.
func render() ([]byte, error) {
	content, err := json.MarshalIndent(object{
		"uid": "incumbent-elections", "title": "Elections", "tags": list{"incumbent"}, "schemaVersion": 38, "version": 1, "editable": true,
		"time": object{"from": "now-1h", "to": "now"}, "refresh": "30s", "timezone": "browser", "graphTooltip": 1,
		"annotations": object{"list": list{}}, "links": list{},
		"templating": object{"list": list{
			object{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "current": object{}},
			variable("namespace", "namespace", leads), variable("name", "election", leads+`{namespace=~"$namespace"}`),
		}},
		"panels": place(panels),
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the dashboard: %w", err)
	}
	return append(content, '\n'), nil
}
