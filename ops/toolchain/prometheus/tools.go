//go:build tools

// Package tools names what this module is for: promtool, which checks and tests the alert rules.
package tools

import _ "github.com/prometheus/prometheus/cmd/promtool"
