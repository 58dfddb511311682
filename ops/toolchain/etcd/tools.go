//go:build tools

// Package tools names what this module is for: the etcd server that the benchmarks run beside.
package tools

import _ "go.etcd.io/etcd/server/v3"
