//go:build tools

// Package tools names what this module is for: the fault-injecting proxy of the cluster tests.
package tools

import _ "github.com/Shopify/toxiproxy/v2/cmd/server"
